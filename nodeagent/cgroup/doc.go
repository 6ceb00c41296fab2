// Package cgroup looks into cgroups, kills what is in them and removes them, whether
// they are of v1, v2 or both.
//
// In: directories of cgroups. Out: who is in them, and whether anything was. All
// functions may be called from any goroutine.
//
// It is part of each keeper, so it links the standard library and golang.org/x/sys
// only. It makes no cgroup and sets no limit: that is nodeagent/host.
package cgroup
