// Package runtime runs incarnations of tasks on this machine: as processes under
// keepers (see nodeagent/keeper), each with a user, a cgroup, namespaces and a
// filter of system calls of its own where the machine gives them. Users, cgroups and
// directories are those of nodeagent/host.
//
// In: a Host, assignments, and the directories they shall run in. Out: processes that
// can be signalled and awaited, how they are kept apart (Attributes), and in words what
// the machine has not (Notes). On disk: what the keeper writes, and alloc.json, what is
// known of an alloc.
//
// All methods may be called from any goroutine, for one directory by one at a
// time. A Runtime that is closed, or dies, leaves its tasks running; the next
// one finds them with Adopt.
//
// What cannot be had (root, cgroups, namespaces) is a note and no failure, unless
// a task cannot be run without it. It never restarts a task and never decides to
// stop one.
package runtime
