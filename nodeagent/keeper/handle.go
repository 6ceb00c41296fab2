package keeper

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/nodeagent/cgroup"
	"github.com/musterhq/muster/nodeagent/durable"
	"github.com/musterhq/muster/schema/filelock"
)

// ErrCommand is in Start's error when the command cannot be executed: it is not
// there, or the task's user may not.
var ErrCommand = errors.New("the command cannot be executed")

// Handle is an incarnation as the agent sees it. Its methods may be called from
// any goroutine.
type Handle struct {
	dir   string
	known Known
	Spec  Spec
	State State // zero if it never ran
	// Exit is set when it had ended already as the Handle was made.
	Exit *Exit
	// pid is a pidfd of the keeper; nil with Exit.
	pid    *os.File
	closed atomic.Bool
	// seen is what was there at the last Verify; nil before.
	seen map[string]seenFile
}

// Known is what an agent knows of an incarnation before it opens its directory.
type Known struct {
	Boot      string // the machine's boot id now
	Documents durable.Documents
	// Lost, if set, returns what can be known of the Spec of dir when that is
	// damaged: Cgroups and Mark, by which the task is found.
	Lost func(dir string) Spec
	// Past says that a later incarnation was started in its place: nothing of this one
	// is left, whatever its files say, and what looks like it is the later one's.
	Past bool
}

// Close gives up the Handle and ends its calls of Wait. The incarnation goes on.
func (h *Handle) Close() error {
	if h.pid == nil || h.closed.Swap(true) {
		return nil
	}
	return h.pid.Close()
}

// Term sends SIGTERM to the task's process group. It is no error if it has
// ended.
func (h *Handle) Term() error { return h.send(unix.SIGTERM) }

// Kill ends all of the task. It is no error if it has ended.
func (h *Handle) Kill() error { return h.send(unix.SIGUSR1) }

// Signal sends a signal to the task's main process. It is no error if that has ended.
func (h *Handle) Signal(sig unix.Signal) error {
	if err := signalProcess(h.State.Task, sig); err != nil && !errors.Is(err, unix.ESRCH) {
		return err
	}
	return nil
}

func (h *Handle) send(sig unix.Signal) error {
	if h.pid == nil {
		return nil
	}
	c, err := h.pid.SyscallConn()
	if err != nil {
		return err
	}
	var sent error
	err = c.Control(func(fd uintptr) { sent = unix.PidfdSendSignal(int(fd), sig, nil, 0) })
	if errors.Is(sent, unix.ESRCH) {
		sent = nil
	}
	return errors.Join(err, sent)
}

// Wait returns the incarnation's end, when it has come. The error is
// os.ErrClosed when the Handle was closed before; others say that the end cannot
// be found out or written down.
func (h *Handle) Wait() (Exit, error) {
	return h.end("")
}

// end is Wait; why is what to say if the keeper has said nothing, "" for what can
// be found out.
func (h *Handle) end(why string) (Exit, error) {
	if h.Exit != nil {
		return *h.Exit, nil
	}
	if err := h.await(); err != nil {
		return Exit{}, err
	}
	for since := time.Now(); ; time.Sleep(openEvery) {
		exit, err := h.resolveExit(why)
		// A child that the keeper was just forking has the lock until its exec.
		if !errors.Is(err, filelock.ErrHeld) || time.Since(since) > openFor {
			return exit, err
		}
	}
}

// Clean removes the task's cgroups, once it has ended: a keeper does so itself
// unless it was killed.
func (h *Handle) Clean() error { return cgroup.Dirs(h.Spec.Cgroups).Remove() }

// await waits for the end of the keeper, without a thread of its own: a pidfd
// becomes readable then.
func (h *Handle) await() error {
	c, err := h.pid.SyscallConn()
	if err != nil {
		return err
	}
	err = c.Read(func(fd uintptr) bool {
		p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		if n, err := unix.Poll(p, 0); n == 0 && err == nil || errors.Is(err, unix.EINTR) {
			return false
		}
		// If it is our child, nobody else frees its entry.
		_ = unix.Waitid(unix.P_PIDFD, int(fd), nil, unix.WEXITED|unix.WNOHANG, nil)
		return true
	})
	if err != nil && h.closed.Load() {
		return fmt.Errorf("wait for the keeper of %s: %w", h.dir, os.ErrClosed)
	}
	return err
}

// resolveExit takes the lock of the directory and returns its end. If there is none,
// nobody saw it: then what is left is killed, and the verdict is written, with why as
// its message unless that is "". The error is filelock.ErrHeld while a keeper lives.
func (h *Handle) resolveExit(why string) (Exit, error) {
	// A keeper takes the lock first of all, and one that comes too late for
	// it runs nothing.
	_, err := os.Lstat(filepath.Join(h.dir, LockFile))
	began := !errors.Is(err, os.ErrNotExist)
	lock, err := look(h.dir)
	if lostDir(h.dir) {
		return h.forget()
	}
	if err != nil {
		return Exit{}, err
	}
	defer func() { _ = lock.Close() }() // given back all the same
	docs := h.known.Documents
	docs.Old = docs.Old || h.Spec.Old
	var exit Exit
	ok, err := read(docs, h.dir, ExitFile, &exit)
	lost := damaged(err)
	if !ok && err == nil && h.known.Past {
		lost = &durable.Damage{File: filepath.Join(h.dir, ExitFile), Why: "it is missing"}
		if docs.Report != nil {
			docs.Report(*lost)
		}
	}
	if ok {
		dropAside(h.dir) // the disk took the end, and said that it did not
	}
	if ok || err != nil && lost == nil {
		return exit, err
	}
	if exit, ok := takeAside(h.dir); ok {
		return exit, nil
	}
	exit, err = h.endOrphan(began, lost)
	if err != nil {
		return Exit{}, err
	}
	if why != "" {
		exit.Unseen, exit.Message = false, why
	}
	// That it never began who comes next finds out again.
	if err = writeEnd(h.dir, exit); err != nil && (exit.Never || putAside(h.dir, exit) == nil) {
		err = nil
	}
	return exit, err
}

// lostDir reports whether there is no directory of that name any more.
func lostDir(dir string) bool {
	info, err := os.Lstat(dir)
	return err == nil && !info.IsDir() || errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ENOTDIR)
}

// forget is settle for an incarnation whose directory was removed while it ran.
func (h *Handle) forget() (Exit, error) {
	dropAside(h.dir)
	exit, err := h.endOrphan(true, nil)
	exit.Unseen, exit.OOM, exit.Message = true, false, "its directory was lost, and with it how it ended"
	return exit, err
}

// endOrphan kills what is left of an incarnation that has no keeper, and makes its Exit;
// began is false if it never had one, and lost is what is wrong with its end.
func (h *Handle) endOrphan(began bool, lost *durable.Damage) (Exit, error) {
	quiet := h.known.Documents
	quiet.Report = nil // who opens the directory reports
	quiet.Old = quiet.Old || h.Spec.Old
	var state State
	ran, err := read(quiet, h.dir, StateFile, &state)
	cut := damaged(err)
	if err != nil && cut == nil {
		return Exit{}, err
	}
	if living(h.dir, h.known.Boot, &state) != nil {
		return Exit{}, fmt.Errorf("%s: %w", h.dir, filelock.ErrHeld) // its lock was taken from it
	}
	lost, began = cmp.Or(lost, cut), began || ran || cut != nil
	spec := h.Spec
	if h.known.Lost != nil && len(spec.Command) == 0 && !spec.Probe && began {
		spec, lost = h.known.Lost(h.dir), cmp.Or(h.lostSpec(quiet), lost)
	}
	if !h.known.Past && (spec.Boot == "" || spec.Boot == h.known.Boot) {
		sweepOrphans(&spec, state.Task)
	}
	exit := Exit{Code: -1, At: time.Now(), OOM: cgroup.Dirs(spec.Cgroups).OOMKills() > 0}
	restarted := cmp.Or(spec.Boot, state.Boot, h.known.Boot) != h.known.Boot
	switch {
	case !began && (spec.Boot == h.known.Boot || spec.Boot == ""):
		exit.Never, exit.Message = true, neverStarted
	case restarted:
		exit.Message = "the machine was restarted"
	case lost != nil:
		exit.Unseen, exit.OOM, exit.Message = true, false, lost.Error()
	case !ran:
		exit.Unseen, exit.Message = !exit.OOM, "its keeper was killed while it started"
	default:
		exit.Unseen, exit.Message = !exit.OOM, "its keeper was killed, and the task with it"
	}
	return exit, nil
}

// lostSpec says what is wrong with the Spec of an incarnation that had one.
func (h *Handle) lostSpec(docs durable.Documents) *durable.Damage {
	file := filepath.Join(h.dir, SpecFile)
	_, err := read(docs, h.dir, SpecFile, &Spec{})
	if d := damaged(err); d != nil {
		return d
	}
	return &durable.Damage{File: file, Why: "it is missing"}
}

// sweepOrphans kills what is left of a task whose keeper is dead, and returns
// when it is gone.
func sweepOrphans(spec *Spec, main Identity) {
	groups := cgroup.Dirs(spec.Cgroups)
	orphans := carrying(spec.Mark, main, main.Start)
	for pause := time.Millisecond; ; pause = min(2*pause, longestPause) {
		left, err := orphans.list()
		if len(left) > 0 {
			killAll(orphans.list)
		}
		if !groups.Kill() && len(left) == 0 || err != nil {
			return
		}
		time.Sleep(pause)
	}
}
