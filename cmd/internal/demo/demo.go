package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// Config says where the demo finds its binaries and whom it talks to.
type Config struct {
	// Bin is the directory of muster, muster-agent and muster-keeper.
	Bin string
	// Dir is where everything lives, "" for a new directory that tasks see: not
	// the system's temporary one. It is removed at the end unless Keep is set.
	Dir  string
	Keep bool
	// Talk gets the words, Progress what a step waits for and how that stands
	// ("" when the wait is over). Either may be nil.
	Talk     io.Writer
	Progress func(what, state string)
	// Pause is how long a reader is given after each step.
	Pause time.Duration
}

// Result is what the demo measured.
type Result struct {
	// Steps are the times of the steps, in order.
	Steps []time.Duration
	// Commits are the times from before `git commit` until all tasks of that
	// commit's five new jobs ran.
	Commits []time.Duration
}

// Median returns the median of Commits.
func (r Result) Median() time.Duration {
	if len(r.Commits) == 0 {
		return 0
	}
	s := slices.Sorted(slices.Values(r.Commits))
	return s[len(s)/2]
}

// step is one thing that is shown.
type step struct {
	title string
	do    func(ctx context.Context, w *world) error
}

// steps are the demo, in order. A step leaves the cell as the next expects it.
func steps() []step {
	return []step{
		{"A first commit: a service of 3 tasks, one beside it, and a batch job of 5", firstCommit},
		{"A second commit: 5 tasks instead of 3, and another argument", secondCommit},
		{"A task is killed with SIGKILL, from outside", killTask},
		{"Three commits that are wrong, each in its own way", badCommits},
		{"The master is killed with SIGKILL and started again", killMaster},
		{"How fast? Five commits, each with five more jobs", timeCommits},
		{"The last commit removes everything", removeAll},
	}
}

// Run shows the steps. Its error says which step did not hold, and how; what
// was started is stopped and removed in any case.
func Run(ctx context.Context, cfg Config) (Result, error) {
	if cfg.Talk == nil {
		cfg.Talk = io.Discard
	}
	if cfg.Progress == nil {
		cfg.Progress = func(string, string) {}
	}
	var res Result
	w, err := newWorld(cfg, &res)
	if err != nil {
		return res, err
	}
	err = w.runSteps(ctx)
	if cerr := w.close(); cerr != nil {
		err = errors.Join(err, cerr)
	}
	return res, err
}

func (w *world) runSteps(ctx context.Context) error {
	if err := w.setUp(ctx); err != nil {
		return fmt.Errorf("setting up: %w", err)
	}
	all := steps()
	for i, s := range all {
		w.say("\n%d/%d  %s", i+1, len(all), s.title)
		begin := time.Now()
		if err := s.do(ctx, w); err != nil {
			return fmt.Errorf("step %d (%s): %w", i+1, s.title, err)
		}
		took := time.Since(begin)
		w.res.Steps = append(w.res.Steps, took)
		w.say("     took %.1f s", took.Seconds())
		pause(ctx, w.cfg.Pause)
	}
	return nil
}

// say writes a line of talk.
func (w *world) say(format string, args ...any) {
	w.cfg.Progress("", "")
	fmt.Fprintf(w.cfg.Talk, format+"\n", args...)
}

// dir makes the demo's directory. Tasks run as other users than the demo, so
// they must be able to pass through it, and to run the muster binary from it.
func makeDir(cfg Config) (string, error) {
	dir := cfg.Dir
	if dir == "" {
		var err error
		if dir, err = os.MkdirTemp(seenByTasks(), "muster-demo-"); err != nil {
			return "", err
		}
	} else if err := os.Mkdir(dir, 0o711); err != nil {
		return "", err
	}
	if err := os.Chmod(dir, 0o711); err != nil { //nolint:gosec // see above
		return "", err
	}
	return filepath.EvalSymlinks(dir)
}

// seenByTasks returns a directory for the demo's that tasks see: where they are
// kept apart, each has a /tmp of its own.
func seenByTasks() string {
	const services = "/var/lib"
	if unix.Access(services, unix.W_OK) == nil {
		return services
	}
	if cache, err := os.UserCacheDir(); err == nil && os.MkdirAll(cache, 0o700) == nil {
		return cache
	}
	return os.TempDir()
}

// copyBinary copies the muster binary to where tasks of any user may run it: a
// build directory is often below a home that others may not enter.
func copyBinary(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY|os.O_EXCL, 0o755) //nolint:gosec // others run it
	if err != nil {
		return err
	}
	if _, err := io.Copy(out, in); err != nil {
		out.Close()
		return err
	}
	return out.Close()
}
