package keeper

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/nodeagent/bundle"
	"github.com/musterhq/muster/nodeagent/cgroup"
)

// Starting is an incarnation whose keeper gets ready. Begin or Drop must be called, once.
type Starting struct {
	h     *Handle
	ready *os.File // a socket of which the keeper has the other end
}

// Launch starts exe as the keeper of dir, which is empty. What the task needs need not be there
// yet: the caller makes it while the keeper gets ready. program, if it is not nil, is what is
// executed as the Container's runtime, sealed in memory. After an error nothing is left but the
// directory, which holds its Exit.
func Launch(exe, dir string, program *os.File) (*Starting, error) {
	h := &Handle{dir: dir}
	log, err := os.OpenFile(filepath.Join(dir, panicFile), panicFlags, 0o600)
	if err != nil {
		return nil, errors.Join(err, Abandon(dir, &Spec{}))
	}
	defer log.Close()
	ready, err := h.launch(launching{exe: exe, args: []string{dir}, log: log, program: program})
	if err != nil {
		return nil, errors.Join(err, Abandon(dir, &Spec{}))
	}
	return &Starting{h, ready}, nil
}

// Prepare writes spec to the directory, for which all is there but its cgroups: then the keeper
// begins with what needs none. It comes before anything that spec names is made: whatever
// happens then, it is known what to look for.
func (s *Starting) Prepare(spec *Spec) error {
	s.h.Spec, s.h.known.Boot = *spec, spec.Boot
	if err := writeNow(s.h.dir, SpecFile, spec); err != nil {
		return err
	}
	_, _ = s.ready.Write([]byte{goAhead}) // a keeper that has failed says so to Begin
	return nil
}

// Begin has the keeper start the task, after Prepare, and returns when that runs. After an
// error nothing of it runs or is left but the directory, which holds its Exit.
func (s *Starting) Begin(ctx context.Context) (*Handle, error) {
	h := s.h
	defer s.ready.Close()
	stop := context.AfterFunc(ctx, func() { _ = s.ready.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	_, _ = s.ready.Write([]byte{goAhead}) // a keeper that has failed has closed it, after its answer
	b, err := io.ReadAll(s.ready)
	if errors.Is(err, unix.ECONNRESET) { // it was not read
		err = nil
	}
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
	case a.Container:
		_, why, _ := strings.Cut(a.Error, bundle.ErrRuntime.Error()+": ")
		err = fmt.Errorf("%w: %s", bundle.ErrRuntime, why)
	case a.State == nil:
		err = errors.New(a.Error)
	default:
		h.State = *a.State
		return h, nil
	}
	return nil, errors.Join(err, h.abort(notStarted+err.Error()))
}

// Drop gives the incarnation up, as one that was never started. When it returns, nothing is
// left but the directory, which holds its Exit. At the end of ctx the keeper is killed.
func (s *Starting) Drop(ctx context.Context) error {
	err := s.ready.Close()
	stop := context.AfterFunc(ctx, func() { _ = s.h.send(unix.SIGKILL) })
	defer stop()
	_, werr := s.h.Wait()
	return errors.Join(err, werr, s.h.Clean(), s.h.Close())
}

// launching is how a keeper is started.
type launching struct {
	exe     string
	args    []string
	log     *os.File // its standard error; nil: none
	program *os.File // as of Launch
}

// launch starts the keeper and returns our end of the socket by which it answers.
func (h *Handle) launch(l launching) (*os.File, error) {
	null, err := os.Open(os.DevNull)
	if err != nil {
		return nil, err
	}
	defer null.Close()
	log, program := cmp.Or(l.log, null), cmp.Or(l.program, null)
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("socketpair: %w", err)
	}
	w := os.NewFile(uintptr(fds[1]), "answer")
	defer w.Close()
	err = unix.SetNonblock(fds[0], true) // so that Go's poller takes it
	ready := os.NewFile(uintptr(fds[0]), "ready")
	if err != nil {
		return nil, errors.Join(err, ready.Close())
	}
	fd := -1
	pid := 0
	err = withTimerSlack(idleSlack, func(before int) (err error) {
		pid, err = syscall.ForkExec(l.exe, append([]string{l.exe}, l.args...), &syscall.ProcAttr{
			Dir:   "/",
			Env:   []string{"GOMAXPROCS=1", repairVariable, slackVariable + "=" + strconv.Itoa(before)}, // it waits: more threads would only cost memory
			Files: []uintptr{null.Fd(), null.Fd(), log.Fd(), readyFD: w.Fd(), runtimeFD: program.Fd()},
			Sys:   &syscall.SysProcAttr{Setsid: true, PidFD: &fd},
		})
		return err
	})
	runtime.KeepAlive(l)
	if err != nil {
		_ = ready.Close()
		return nil, fmt.Errorf("start keeper %s: %w", l.exe, err)
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
	h := &Handle{dir: dir, known: Known{Boot: spec.Boot}, Spec: *spec}
	_, err := h.resolveExit("")
	return errors.Join(err, cgroup.Dirs(spec.Cgroups).Remove())
}
