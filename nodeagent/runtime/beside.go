package runtime

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/nodeagent/keeper"
	"github.com/musterhq/muster/schema"
)

// ErrNotRun is in Run's error when the command was not run, for a reason that
// is not its own.
var ErrNotRun = errors.New("could not be run")

const (
	// outputTail is how much of the end of a command's output is kept, in bytes.
	outputTail = 4096
	// sweepFor is how long after its timeout all that a command has started
	// may take to be gone.
	sweepFor = 10 * time.Second
)

// Run runs a command beside the task of p: as its user, in its cgroups and
// namespaces, environment and working directory. It returns when nothing of it
// is left, the last bytes of what it wrote, and nil if it exited with 0. The
// error is ErrNotRun where it could not be started, and ErrCommand where that is
// its own fault; others say how it ended.
func (p *Process) Run(ctx context.Context, command []string, timeout time.Duration) (output string, err error) {
	request, err := json.Marshal(keeper.Beside{Command: command, Timeout: timeout})
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrNotRun, err)
	}
	out, outW, err := os.Pipe()
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrNotRun, err)
	}
	defer out.Close()
	end, endW, err := os.Pipe()
	if err != nil {
		return "", errors.Join(fmt.Errorf("%w: %w", ErrNotRun, err), outW.Close())
	}
	defer end.Close()
	ctx, cancel := context.WithTimeout(ctx, timeout+sweepFor)
	defer cancel()
	cmd := exec.CommandContext(ctx, p.keeper, keeper.BesideArg, p.dir)
	cmd.Dir, cmd.Env = "/", []string{"GOMAXPROCS=1"}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(request), outW, outW
	cmd.ExtraFiles = []*os.File{endW}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = sweepFor
	err = cmd.Start()
	_, _ = outW.Close(), endW.Close()
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrNotRun, err)
	}
	tail := make(chan string, 1)
	go func() { tail <- readTail(out) }()
	var how keeper.BesideEnd
	decodeErr := json.NewDecoder(end).Decode(&how)
	waitErr := cmd.Wait()
	_ = out.SetReadDeadline(time.Now()) // who still holds it is not waited for
	output = <-tail
	if decodeErr != nil {
		return output, fmt.Errorf("%w: %w", ErrNotRun, errors.Join(ctx.Err(), waitErr, decodeErr))
	}
	return output, judge(how, timeout)
}

// judge returns how a command ended, nil if it exited with 0.
func judge(how keeper.BesideEnd, timeout time.Duration) error {
	switch {
	case how.Command:
		return fmt.Errorf("%w: %s", ErrCommand, how.Error)
	case how.Error != "":
		return fmt.Errorf("%w: %s", ErrNotRun, how.Error)
	case how.TimedOut:
		return fmt.Errorf("no end within %s: %w", timeout, context.DeadlineExceeded)
	case how.Code != 0 || how.Signal != "":
		return errors.New(schema.Exit{Code: how.Code, Signal: how.Signal}.String())
	}
	return nil
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
