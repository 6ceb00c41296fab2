// Package keeper holds one incarnation of one task: a process of its own that
// outlives the agent, so that no task dies, and no exit status is lost, when an
// agent does.
//
// In: a directory with spec.json, and two signals. Out: in the same directory
// state.json when the task runs, exit.json when it has ended and nothing of it
// is left, and the task's output in stdout and stderr. Whoever holds the lock
// file's lock decides about the directory: a keeper holds it for life, an agent
// takes it to judge what a killed keeper has left behind. A keeper that finds
// exit.json under its lock starts nothing, so no directory runs twice.
//
// A task with a Sandbox has namespaces of its own. Their first process is the keeper's
// child; it makes them ready, starts the task's main process, reaps orphans, and reports
// to the keeper how the main process ended. All pids on disk are the machine's.
//
// A task with a Container has what an OCI runtime makes, see package bundle. The keeper forks
// its main process right into that, see container.go.
//
// A keeper gets ready while its agent makes what the task needs (Launch); with the Spec it
// begins with what needs no cgroups (Prepare), and it starts the task when the agent says that
// they are there (Begin). If the agent dies before, the task was never started.
//
// A Spare is a keeper that was started before there is a directory for it. It makes nothing, and ends
// with its agent.
//
// Commands beside a task are forked right into its namespaces and cgroups, see
// enter.go. Health checks of all tasks are run by one process of the machine (Checker),
// others by one each (StartExec).
//
// Main is the keeper; it uses its whole process. Start and Open are the agent's
// side; they may be called from any goroutine, for one directory by one at a
// time. The package links the standard library and golang.org/x/sys only: there
// is a keeper for each task of a machine.
//
// It never restarts a task and never decides to stop one.
package keeper
