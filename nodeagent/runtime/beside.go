package runtime

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/nodeagent"
	"github.com/musterhq/muster/nodeagent/keeper"
)

// outputTail is how much of the end of a command's output is kept, in bytes.
const outputTail = 4096

// Run runs a command beside the task of p: as its user, in its cgroups and
// namespaces, environment and working directory. It returns when nothing of it
// is left, the last bytes of what it wrote, and nil if it exited with 0. The
// error is nodeagent.ErrNotRun where it could not be started, and ErrCommand where that is
// its own fault; others say how it ended.
func (p *Process) Run(ctx context.Context, command []string, timeout time.Duration) (output string, err error) {
	if p.alloc != nil {
		return "", fmt.Errorf("%w: an alloc runs nothing", nodeagent.ErrNotRun)
	}
	bounded, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	t, in, err := newTail()
	if err != nil {
		return "", fmt.Errorf("%w: %w", nodeagent.ErrNotRun, err)
	}
	exit, err := p.beside(bounded, command, in)
	_ = in.Close()
	output = t.end() // who still holds it is not waited for
	switch {
	case errors.Is(err, ErrCommand):
		return "", err
	case ctx.Err() != nil || err != nil && !errors.Is(err, context.DeadlineExceeded):
		return output, fmt.Errorf("%w: %w", nodeagent.ErrNotRun, errors.Join(ctx.Err(), err))
	case bounded.Err() != nil:
		return output, tooLong(timeout)
	case exit.Code != 0 || exit.Signal != "":
		return output, errors.New(report(0, exit, "").String())
	}
	return output, nil
}

// beside runs a command that has no input, and returns how it ended. The end of ctx
// kills it, with all that it has started.
func (p *Process) beside(ctx context.Context, command []string, out *os.File) (keeper.Exit, error) {
	if p.handle.Spec.Isolated() && !p.handle.Spec.HasKernel() {
		return p.runtime.checker.Run(ctx, p.dir, command, out)
	}
	null, err := os.Open(os.DevNull)
	if err != nil {
		return keeper.Exit{}, err
	}
	defer null.Close()
	s, err := keeper.StartExec(ctx, p.runtime.cfg.Keeper, p.dir, keeper.Exec{Command: command, Stdio: [3]*os.File{null, out, out}})
	if err != nil {
		return keeper.Exit{}, err
	}
	stop := context.AfterFunc(ctx, func() { s.Signal(syscall.SIGKILL) })
	defer stop()
	return s.Wait()
}

func tooLong(timeout time.Duration) error {
	return fmt.Errorf("no end within %s: %w", timeout, context.DeadlineExceeded)
}

// tailFirst is when a command's output is looked at first: most have ended by then, and
// one that writes more than the 64 KiB of a pipe waits so long, once. tailEvery is the time
// between two looks after that. Only the end of the output is wanted, and a wake-up for each
// write would cost the agent as much as the command likes.
const (
	tailFirst = 100 * time.Millisecond
	tailEvery = 10 * time.Millisecond
)

// tail takes what a command writes, and keeps the last outputTail bytes.
type tail struct {
	fd    int // of a pipe, which does not block
	text  []byte
	begin *time.Timer // of follow
	stop  chan struct{}
	ended chan struct{}
}

// newTail also returns the other end of the pipe.
func newTail() (*tail, *os.File, error) {
	var p [2]int
	if err := unix.Pipe2(p[:], unix.O_CLOEXEC); err != nil {
		return nil, nil, fmt.Errorf("pipe: %w", err)
	}
	in := os.NewFile(uintptr(p[1]), "pipe")
	if err := unix.SetNonblock(p[0], true); err != nil {
		return nil, nil, errors.Join(err, in.Close(), unix.Close(p[0]))
	}
	t := &tail{fd: p[0], stop: make(chan struct{}), ended: make(chan struct{})}
	t.begin = time.AfterFunc(tailFirst, t.follow)
	return t, in, nil
}

// follow takes what is there now and then, until t.stop is closed.
func (t *tail) follow() {
	defer close(t.ended)
	ticker := time.NewTicker(tailEvery)
	defer ticker.Stop()
	for {
		t.take(tailReads)
		select {
		case <-t.stop:
			return
		case <-ticker.C:
		}
	}
}

// How many reads there are at most, of outputTail bytes: those of a full pipe, also of
// one in packet mode, where a read takes one write; and at the end those of the
// largest that a pipe can be made.
const (
	tailReads = 16
	lastReads = 256
)

func (t *tail) take(reads int) {
	var chunk [outputTail]byte
	for range reads {
		n, err := unix.Read(t.fd, chunk[:])
		if n <= 0 && err != unix.EINTR {
			return
		}
		t.text = append(t.text, chunk[:max(n, 0)]...)
		t.text = t.text[max(0, len(t.text)-outputTail):]
	}
}

// end returns what was written last.
func (t *tail) end() string {
	if !t.begin.Stop() {
		close(t.stop)
		<-t.ended
	}
	t.take(lastReads)
	_ = unix.Close(t.fd)
	return strings.ToValidUTF8(string(t.text), "")
}
