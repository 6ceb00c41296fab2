package loop

import (
	"context"
	"io"
	"time"

	"github.com/musterhq/muster/nodeagent"
	"github.com/musterhq/muster/schema"
)

// Runtime runs incarnations. Its methods are called for one directory by one
// goroutine at a time.
type Runtime interface {
	// Start starts the task of a in dir, which it makes, and returns when its process
	// runs. Its logs are in dir, as nodeagent/logfile writes them. After an error nothing of it runs.
	// The error is nodeagent.ErrTask if it is not the machine's fault.
	Start(ctx context.Context, dir string, a *schema.Assignment) (Process, error)
	// Adopt finds the incarnation that was started in dir, by this agent or
	// one before it. What it cannot account for it kills, and calls ended.
	Adopt(ctx context.Context, dir string) (Process, error)
	// Remains lists the directories, there or not, that hold what the tasks of a
	// generation have made for themselves, but for logs and what is sticky; dir is
	// the generation's.
	Remains(dir string) []string
}

// Images brings images and packages to the machine, by the names that TaskSpec.Brings has for
// them. Its methods may be called from any goroutine.
type Images interface {
	// Bring returns when one is here as a whole; from is what the master says of where it
	// may come from. After an error, at is when to try again if whoever was asked for it has
	// said so, and else zero.
	Bring(ctx context.Context, name string, from nodeagent.Sources) (at time.Time, err error)
	// Keep says which must stay until the next call; others may be removed.
	Keep(names []string)
}

// Meter measures the machine. Its methods may be called from any goroutine.
type Meter interface {
	// Machine measures the machine as a whole, without its tasks.
	Machine() (schema.MachineUsage, error)
	// Disk measures what directories take of their file system, with what the
	// processes of a task have deleted there and still use. It may end early when
	// that is more than a limit in bytes allows, and take seconds.
	Disk(dirs []string, of nodeagent.Processes, limit int64) (nodeagent.DiskUse, error)
}

// Limited is the part of a Process that holds it to its limits.
type Limited interface {
	// Limit sets limits on it. What cannot be set now leaves the old limit in
	// force, and the error says why.
	Limit(l nodeagent.TaskLimits) error
	// CPU returns what it has used of processors since it started.
	CPU() nodeagent.CPUTime
}

// Observable is the part of a Process that describes it.
type Observable interface {
	// State returns how it stands now.
	State() nodeagent.Process
	// Usage measures what it uses, without its disk; false when nothing of it is
	// left.
	Usage() (schema.Usage, bool)
	// Processes returns its processes now; none of an alloc.
	Processes() nodeagent.Processes
	// Line returns the beginning of what the task says of itself: any bytes,
	// and few.
	Line() string
}

// Renewable is the part of a Process whose task gets new content while it runs.
type Renewable interface {
	// Renew puts what has changed into its place, as a has it, and then sends the
	// signals to the task's main process. It is no error if that has ended.
	Renew(a *schema.Assignment, r nodeagent.Renewal) error
}

// Adjustable is the part of a Process that changes it while it runs.
type Adjustable interface {
	Limited
	Renewable
}

// Joined is the part of a Process that runs commands beside it.
type Joined interface {
	// Exec runs a command and speaks frames over conn, until nothing of the
	// command is left. An error means that it has not run.
	Exec(ctx context.Context, r schema.ExecRequest, conn io.ReadWriter) error
	// Run runs a command until the timeout or its end, and returns the end of
	// its output. The error is nil if the command exited with 0.
	Run(ctx context.Context, command []string, timeout time.Duration) (output string, err error)
}

// Process is an incarnation. Its methods may be called from any goroutine.
type Process interface {
	Observable
	// Signal sends SIGTERM to its process group or, with kill, SIGKILL to
	// all of it. It is no error if it has ended.
	Signal(kill bool) error
	// Wait returns when it has ended and its Exit is known.
	Wait(ctx context.Context) error
	Adjustable
	Joined
}

// Finder is the part of a Runtime that finds what runs by other ways than the
// directories of its tasks. tasks is the directory above those.
type Finder interface {
	// Running lists the directories of living incarnations, there or not.
	Running(tasks string) ([]string, error)
	// Sweep kills what runs of this agent's tasks beside the incarnations whose
	// directories are held, and returns their names when it is gone.
	Sweep(ctx context.Context, tasks string, held []string) ([]string, error)
}

// Verified is the part of a Process, or of the Runtime, that keeps files of its own.
type Verified interface {
	// Verify has what is damaged or lost of them written again, and reports it.
	Verify()
}
