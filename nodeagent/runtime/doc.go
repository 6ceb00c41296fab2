// Package runtime runs incarnations of tasks on this machine: as processes under
// keepers (see nodeagent/keeper), each with a user, a cgroup, namespaces and a
// filter of system calls of its own where the machine gives them.
//
// In: assignments, and the directories they shall run in. Out: processes that
// can be signalled and awaited, what the machine has (Capacity, Attributes), and
// in words what it has not (Notes). On disk: users.json, which user each owner's
// tasks run as; in each generation's directory work, the tasks' home; and the
// tasks' sticky directories (see nodeagent.StickyPath).
//
// All methods may be called from any goroutine, for one directory by one at a
// time. A Runtime that is closed, or dies, leaves its tasks running; the next
// one finds them with Adopt.
//
// What cannot be had (root, cgroups, namespaces) is a note and no failure, unless
// a task cannot be run without it. It never restarts a task and never decides to
// stop one.
package runtime
