// Package host is the machine as each way of running a task needs it: users for
// owners, cgroups with their limits, cores, devices, directories, limits on disk, and
// what machine and tasks use.
//
// In: the agent's state directory and flags, assignments, and the processes that a
// way of running tasks has started. Out: cgroups that are made and held to limits,
// directories that are owned and filled, measurements; what the machine has (Capacity,
// Attributes), and in words what it has not (Notes). On disk: users.json, which user
// each owner's tasks run as; in each generation's directory work, the tasks' home;
// and the tasks' sticky directories (see nodeagent.StickyPath).
//
// All methods may be called from any goroutine, for one directory or cgroup by one at
// a time. A Host that is closed, or dies, leaves the tasks' cgroups as they are.
//
// What cannot be had (root, cgroups) is a note and no failure. It starts no process,
// signals none, and knows nothing of how tasks are run: that is nodeagent/runtime.
package host
