package keeper

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// ErrCommand is in Start's error when the command cannot be executed: it is not
// there, or the task's user may not.
var ErrCommand = errors.New("the command cannot be executed")

// Handle is an incarnation as the agent sees it. Its methods may be called from
// any goroutine.
type Handle struct {
	dir   string
	boot  string
	Spec  Spec
	State State // zero if it never ran
	// Exit is set when it had ended already as the Handle was made.
	Exit *Exit
	// pid is a pidfd of the keeper; nil with Exit.
	pid    *os.File
	closed atomic.Bool
}

// Prepare writes spec to dir, which must be there and empty. It comes before
// anything that spec names is made: whatever happens then, it is known what to
// look for.
func Prepare(dir string, spec *Spec) error { return writeNow(dir, SpecFile, spec) }

// Start starts exe as the keeper of dir, which holds spec, and returns when the
// task runs. After an error nothing of it runs or is left but the directory,
// which holds its Exit.
func Start(ctx context.Context, exe, dir string, spec *Spec) (*Handle, error) {
	h := &Handle{dir: dir, boot: spec.Boot, Spec: *spec}
	ready, err := h.launch(exe)
	if err != nil {
		return nil, errors.Join(err, Abandon(dir, spec))
	}
	defer ready.Close()
	stop := context.AfterFunc(ctx, func() { _ = ready.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	b, err := io.ReadAll(ready)
	var a answer
	if err == nil && len(b) == 0 {
		err = errors.New("it was killed, or has crashed")
	} else if err == nil {
		err = json.Unmarshal(b, &a)
	}
	switch {
	case ctx.Err() != nil:
		err = context.Cause(ctx)
	case err != nil:
		return nil, errors.Join(fmt.Errorf("no answer from the keeper: %w", err), h.abort(""))
	case a.Command:
		err = fmt.Errorf("%w: %s", ErrCommand, a.Error)
	case a.State == nil:
		err = errors.New(a.Error)
	default:
		h.State = *a.State
		return h, nil
	}
	return nil, errors.Join(err, h.abort(notStarted+err.Error()))
}

// launch starts the keeper and returns the reading end of its ready pipe.
func (h *Handle) launch(exe string) (*os.File, error) {
	null, err := os.Open(os.DevNull)
	if err != nil {
		return nil, err
	}
	defer null.Close()
	log, err := os.OpenFile(filepath.Join(h.dir, panicFile), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	ready, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer w.Close()
	fd := -1
	pid, err := syscall.ForkExec(exe, []string{exe, h.dir}, &syscall.ProcAttr{
		Dir:   "/",
		Env:   []string{"GOMAXPROCS=1"}, // it waits: more would only cost memory
		Files: []uintptr{null.Fd(), null.Fd(), log.Fd(), w.Fd()},
		Sys:   &syscall.SysProcAttr{Setsid: true, PidFD: &fd},
	})
	if err != nil {
		_ = ready.Close()
		return nil, fmt.Errorf("start keeper %s: %w", exe, err)
	}
	if err := unix.SetNonblock(fd, true); err != nil { // so that Go's poller takes it
		_ = unix.Kill(pid, unix.SIGKILL)
		_, _ = unix.Wait4(pid, nil, 0, nil)
		return nil, errors.Join(fmt.Errorf("pidfd of the keeper, for which Linux 5.4 is needed: %w", err), ready.Close())
	}
	h.pid = os.NewFile(uintptr(fd), "pidfd")
	return ready, nil
}

// abort ends a start that failed, and leaves a verdict in the directory: the
// keeper's or, if it could not write one, why, or else what can be found out.
func (h *Handle) abort(why string) error {
	_ = h.send(unix.SIGKILL)
	_, err := h.end(why)
	return errors.Join(err, h.Clean(), h.Close())
}

// Abandon gives up dir, whose keeper was never started, and removes what spec
// names.
func Abandon(dir string, spec *Spec) error {
	_, err := settle(dir, spec.Boot, spec, "")
	return errors.Join(err, cgroups(spec.Cgroups).remove())
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
		exit, err := settle(h.dir, h.boot, &h.Spec, why)
		// A child that the keeper was just forking has the lock until its exec.
		if !errors.Is(err, errHeld) || time.Since(since) > openFor {
			return exit, err
		}
	}
}

// Clean removes the task's cgroups, once it has ended: a keeper does so itself
// unless it was killed.
func (h *Handle) Clean() error { return cgroups(h.Spec.Cgroups).remove() }

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

// openEvery is the time between two looks at a keeper that is just starting or
// ending, openFor how long that may take.
const (
	openEvery = 2 * time.Millisecond
	openFor   = 10 * time.Second
)

// Open finds the incarnation in dir, which this or an earlier agent has begun;
// boot is the machine's boot id now. What is left of a task without a keeper it
// kills. It errs when the disk cannot be read or written, or when somebody has
// the lock who is no keeper.
func Open(ctx context.Context, dir, boot string) (*Handle, error) {
	h := &Handle{dir: dir, boot: boot}
	if _, err := os.Stat(dir); err != nil {
		return nil, err
	}
	if _, err := read(dir, SpecFile, &h.Spec); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, openFor, errors.New("its lock is held, but not by a keeper that answers"))
	defer cancel()
	for {
		exit, err := settle(dir, boot, &h.Spec, "")
		if err == nil {
			h.Exit = &exit
			_, err = read(dir, StateFile, &h.State)
			return h, err
		}
		if !errors.Is(err, errHeld) {
			return nil, err
		}
		ok, err := h.attach()
		if err != nil {
			return nil, err
		}
		if ok {
			return h, nil
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("%s: %w", dir, context.Cause(ctx))
		case <-time.After(openEvery):
		}
	}
}

// attach opens the keeper that has the lock; false if it is just starting or
// ending.
func (h *Handle) attach() (bool, error) {
	ok, err := read(h.dir, StateFile, &h.State)
	if err != nil || !ok {
		return false, err
	}
	fd, err := openPID(h.State.Keeper)
	if errors.Is(err, unix.ESRCH) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	h.pid = os.NewFile(uintptr(fd), "pidfd")
	return true, nil
}

// settle takes the lock of dir and returns its end. If there is none, nobody
// saw it: then what is left is killed, and the verdict is written, with why as its
// message unless that is "". The error is errHeld while a keeper lives.
func settle(dir, boot string, spec *Spec, why string) (Exit, error) {
	// A keeper takes the lock first of all, and one that comes too late for
	// it runs nothing.
	_, err := os.Lstat(filepath.Join(dir, LockFile))
	began := !errors.Is(err, os.ErrNotExist)
	lock, err := claim(dir)
	if err != nil {
		return Exit{}, err
	}
	defer lock.Close()
	var exit Exit
	if ok, err := read(dir, ExitFile, &exit); ok || err != nil {
		return exit, err
	}
	if exit, ok := takeAside(dir); ok {
		return exit, nil
	}
	exit, err = bury(dir, boot, spec, began)
	if err != nil {
		return Exit{}, err
	}
	if why != "" {
		exit.Unseen, exit.Message = false, why
	}
	if err = writeEnd(dir, exit); err != nil && putAside(dir, exit) == nil {
		err = nil
	}
	return exit, err
}

// bury kills what is left of an incarnation that has no keeper, and judges it;
// began is false if it never had one.
func bury(dir, boot string, spec *Spec, began bool) (Exit, error) {
	var state State
	ran, err := read(dir, StateFile, &state)
	if err != nil {
		return Exit{}, err
	}
	if spec.Boot == boot {
		sweepOrphans(spec, state.Task)
	}
	exit := Exit{Code: -1, At: time.Now(), OOM: cgroups(spec.Cgroups).oomKills() > 0}
	switch {
	case len(spec.Command) == 0 && began: // only a machine that goes down loses it
		exit.Message = "the machine was restarted"
	case len(spec.Command) == 0, spec.Boot == boot && !ran && !began:
		exit.Never, exit.Message = true, "it was never started"
	case spec.Boot != boot:
		exit.Message = "the machine was restarted"
	case !ran:
		exit.Unseen, exit.Message = !exit.OOM, "its keeper was killed while it started"
	default:
		exit.Unseen, exit.Message = !exit.OOM, "its keeper was killed, and the task with it"
	}
	return exit, nil
}

// sweepOrphans kills what is left of a task whose keeper is dead, and returns
// when it is gone.
func sweepOrphans(spec *Spec, main Identity) {
	groups := cgroups(spec.Cgroups)
	list := func() ([]process, error) { return marked(spec.Mark, main) }
	for pause := time.Millisecond; ; pause = min(2*pause, longestPause) {
		left, err := list()
		if len(left) > 0 {
			killAll(list)
		}
		if !groups.kill() && len(left) == 0 || err != nil {
			return
		}
		time.Sleep(pause)
	}
}
