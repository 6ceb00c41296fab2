package runtime

import (
	"context"
	"errors"
	"fmt"
	"io"
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
	if p.handle.Spec.Sandbox != nil {
		return p.check(ctx, bounded, command, timeout)
	}
	s, out, err := p.startBeside(bounded, command)
	defer out.Close() // nil where there is none
	switch {
	case errors.Is(err, ErrCommand):
		return "", err
	case errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil: // while it was started
		_ = out.SetReadDeadline(time.Now())
		return readTail(out), tooLong(timeout)
	case err != nil:
		return "", fmt.Errorf("%w: %w", nodeagent.ErrNotRun, err)
	}
	stop := context.AfterFunc(bounded, func() { s.Signal(syscall.SIGKILL) }) // and all of it goes with its first process
	tail := make(chan string, 1)
	go func() { tail <- readTail(out) }()
	exit, err := s.Wait()
	late := !stop()
	_ = out.SetReadDeadline(time.Now()) // who still holds it is not waited for
	output = <-tail
	switch {
	case err != nil || ctx.Err() != nil:
		return output, fmt.Errorf("%w: %w", nodeagent.ErrNotRun, errors.Join(ctx.Err(), err))
	case late:
		return output, tooLong(timeout)
	case exit.Code != 0 || exit.Signal != "":
		return output, errors.New(report(0, exit).String())
	}
	return output, nil
}

// check is Run for a task with a pid namespace, whose commands take no process of
// their own to hold them. bounded ends with the timeout.
func (p *Process) check(ctx, bounded context.Context, command []string, timeout time.Duration) (output string, err error) {
	out, in, err := os.Pipe()
	if err != nil {
		return "", fmt.Errorf("%w: %w", nodeagent.ErrNotRun, err)
	}
	defer out.Close()
	tail := make(chan string, 1)
	go func() { tail <- readTail(out) }()
	exit, err := p.runtime.checker.Run(bounded, p.dir, command, in)
	_ = in.Close()
	_ = out.SetReadDeadline(time.Now()) // who still holds it is not waited for
	output = <-tail
	switch {
	case errors.Is(err, ErrCommand):
		return "", err
	case err != nil || ctx.Err() != nil:
		return output, fmt.Errorf("%w: %w", nodeagent.ErrNotRun, errors.Join(ctx.Err(), err))
	case bounded.Err() != nil:
		return output, tooLong(timeout)
	case exit.Code != 0 || exit.Signal != "":
		return output, errors.New(report(0, exit).String())
	}
	return output, nil
}

func tooLong(timeout time.Duration) error {
	return fmt.Errorf("no end within %s: %w", timeout, context.DeadlineExceeded)
}

// startBeside starts a command that has no input, and returns the end of a pipe
// with what it writes, also when it was killed as it started.
func (p *Process) startBeside(ctx context.Context, command []string) (s *keeper.Session, out *os.File, err error) {
	null, err := os.Open(os.DevNull)
	if err != nil {
		return nil, nil, err
	}
	defer null.Close()
	out, in, err := os.Pipe()
	if err != nil {
		return nil, nil, err
	}
	defer in.Close()
	s, err = keeper.StartExec(ctx, p.keeper, p.dir, keeper.Exec{Command: command, Stdio: [3]*os.File{null, in, in}})
	return s, out, err
}

// readTail reads to the end, or to its deadline and what is there then, and
// returns the last outputTail bytes.
func readTail(r *os.File) string {
	var tail []byte
	chunk := make([]byte, outputTail)
	take := func(n int) {
		tail = append(tail, chunk[:n]...)
		tail = tail[max(0, len(tail)-outputTail):]
	}
	for {
		n, err := r.Read(chunk)
		take(n)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			err = drain(r, chunk, take)
		}
		if err != nil {
			return strings.ToValidUTF8(string(tail), "")
		}
	}
}

// drain takes what is in a pipe without waiting for more. It returns io.EOF.
func drain(r *os.File, chunk []byte, take func(n int)) error {
	c, err := r.SyscallConn()
	if err != nil {
		return err
	}
	if err := r.SetReadDeadline(time.Time{}); err != nil { // one that has passed ends each read
		return err
	}
	for more := true; more; {
		err := c.Read(func(fd uintptr) bool {
			n, err := unix.Read(int(fd), chunk)
			if more = err == nil && n > 0 || err == unix.EINTR; n > 0 {
				take(n)
			}
			return true
		})
		if err != nil {
			return err
		}
	}
	return io.EOF
}
