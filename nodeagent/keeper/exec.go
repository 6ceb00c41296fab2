package keeper

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// Exec is a command to run beside a task: in its namespaces and cgroups, as its
// user, with its environment.
type Exec struct {
	Command []string
	// Copy, in place of Command, has a program of ours copy files, as an archive on Stdio:
	// a CopyOut, CopyIn or CopyTar, the path, and the name of what is copied in.
	Copy []string
	// Task, in place of Command, sends that signal to the main process of a task with a
	// kernel of its own, see HasKernel.
	Task syscall.Signal
	Env  []string // replaces variables of the task's, NAME=value
	// Stdio are the command's standard descriptors, which stay the caller's.
	// With TTY they are one terminal, which becomes the controlling one.
	Stdio [3]*os.File
	TTY   bool
}

// ErrNotFound is the ErrCommand of a command that is not there.
var ErrNotFound = fmt.Errorf("%w", ErrCommand)

// Session is a command that runs beside a task. Its methods may be called from
// any goroutine.
type Session struct {
	control *os.File
	close   sync.Once
	ended   chan struct{} // closed when exit is known
	exit    Exit
	err     error
}

// StartExec starts a session of the incarnation in dir, with exe as what holds
// it, and returns when its command runs. When ctx ends before, the command is killed,
// and the error is that of ctx when nothing of it is left. It is ErrCommand when it
// is the command's fault.
func StartExec(ctx context.Context, exe, dir string, e Exec) (*Session, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("socketpair: %w", err)
	}
	peer := os.NewFile(uintptr(fds[1]), "peer")
	defer peer.Close()
	if err := unix.SetNonblock(fds[0], true); err != nil {
		return nil, errors.Join(err, unix.Close(fds[0]))
	}
	s := &Session{control: os.NewFile(uintptr(fds[0]), "control"), ended: make(chan struct{})}
	log, err := os.OpenFile(filepath.Join(dir, panicFile), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return nil, errors.Join(err, s.control.Close())
	}
	defer log.Close()
	files := []uintptr{e.Stdio[0].Fd(), e.Stdio[1].Fd(), e.Stdio[2].Fd(), peer.Fd()}
	pid, err := syscall.ForkExec(exe, []string{exe, execArg, dir}, &syscall.ProcAttr{
		Dir: "/", Env: environment, Files: files, Sys: &syscall.SysProcAttr{Setsid: true},
	})
	runtime.KeepAlive(e)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start %s: %w", exe, err), s.control.Close())
	}
	_ = peer.Close()
	first, stop, err := s.begin(ctx, call{Command: e.Command, Copy: e.Copy, Env: e.Env, TTY: e.TTY, Task: int(e.Task)})
	if err == nil && !first.Started {
		err = errors.New(first.Error)
		switch {
		case first.Missing:
			err = fmt.Errorf("%w: %s", ErrNotFound, first.Error)
		case first.Command:
			err = fmt.Errorf("%w: %s", ErrCommand, first.Error)
		}
	}
	if !stop() {
		err = ctx.Err()
	}
	if err != nil {
		_ = s.control.Close()
		_, _ = unix.Wait4(pid, nil, 0, nil)
		return nil, err
	}
	go s.await(pid)
	return s, nil
}

// begin says what is to be run, and returns what the session says to it. Until stop
// is called, the end of ctx kills it: a SIGHUP, as at the end of control, would
// leave the command more time than it was given.
func (s *Session) begin(ctx context.Context, c call) (first ending, stop func() bool, err error) {
	err = s.send(c)
	stop = context.AfterFunc(ctx, func() { s.Signal(syscall.SIGKILL) })
	if err != nil {
		return ending{}, stop, fmt.Errorf("the session's keeper: %w", err)
	}
	first, err = s.receive()
	return first, stop, err
}

func (s *Session) send(c call) error {
	b, err := json.Marshal(c)
	if err == nil && len(b) > maxPacket {
		err = fmt.Errorf("%w: it has %d bytes with its arguments, want at most %d", ErrCommand, len(b), maxPacket)
	}
	if err == nil {
		_, err = s.control.Write(b)
	}
	return err
}

func (s *Session) receive() (ending, error) {
	var e ending
	b := make([]byte, maxPacket)
	n, err := s.control.Read(b)
	if err == nil {
		err = json.Unmarshal(b[:n], &e)
	}
	if err != nil {
		err = fmt.Errorf("the session's keeper ended: %w", err)
	}
	return e, err
}

// await takes the end.
func (s *Session) await(pid int) {
	defer close(s.ended)
	e, err := s.receive()
	switch {
	case err == nil && e.Exit != nil:
		s.exit = *e.Exit
	default:
		s.exit, s.err = Exit{Code: -1}, errors.Join(err, errors.New("how the command ended is not known"))
	}
	s.Close()
	reapOne(pid)
}

// Signal sends a signal to the command's process group. It is no error if it has
// ended.
func (s *Session) Signal(sig syscall.Signal) { _ = s.send(call{Signal: int(sig)}) }

// Close ends the session, if it has not ended: with SIGHUP, and soon after that
// by force, all that the command has started with it.
func (s *Session) Close() { s.close.Do(func() { _ = s.control.Close() }) }

// Wait returns how the command ended, when nothing of the session is left.
func (s *Session) Wait() (Exit, error) {
	<-s.ended
	return s.exit, s.err
}
