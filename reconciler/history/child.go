package history

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/musterhq/muster/reconciler/checkpoint"
	"github.com/musterhq/muster/reconciler/plan"
	"github.com/musterhq/muster/schema"
)

const (
	// niceness of the process that plans: the master that leads goes first.
	niceness = 10
	// killedFirst is its oom_score_adj.
	killedFirst = "1000"
	// DefaultTimeout is how long a plan may take: some ten times as long as one of a cell of
	// 10,000 machines and 100,000 tasks.
	DefaultTimeout = 2 * time.Minute
	maxOutcome     = 256 << 20 // bytes that are taken of a child
	maxSaid        = 4 << 10   // bytes of what a child says is wrong
)

// Planner plans commits in processes of their own.
type Planner struct {
	// Exe and Args start a program that calls Child with its stdin and stdout.
	Exe  string
	Args []string
	// Timeout is how long one may take; 0 is DefaultTimeout.
	Timeout time.Duration
}

// Plan returns what a cell would do with a commit; write writes the cell as a checkpoint, with
// values. It errs if there is no answer in time.
func (p Planner) Plan(ctx context.Context, commit *schema.Compiled, write func(io.Writer) error) (*plan.Outcome, error) {
	limit := p.Timeout
	if limit == 0 {
		limit = DefaultTimeout
	}
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("it took longer than %v", limit))
	defer cancel()
	cmd := exec.CommandContext(ctx, p.Exe, p.Args...)
	cmd.Env = []string{} // not nil: nil means ours
	// An interrupt at the terminal is for the parent, and its end, however it ends, is the child's. The
	// latter is bound to the thread that starts the child, so that is kept.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var out, said limited
	out.room, said.room = maxOutcome, maxSaid
	cmd.Stdout, cmd.Stderr = &out, &said
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	if err := yield(cmd.Process.Pid); err != nil {
		cancel()
		return nil, errors.Join(fmt.Errorf("lower the priority of the process that plans: %w", err), cmd.Wait())
	}
	asked := ask(in, commit, write)
	if err := cmd.Wait(); err != nil {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		return nil, fmt.Errorf("the process that plans: %w: %s", err, strings.TrimSpace(said.String()))
	}
	if asked != nil {
		return nil, asked
	}
	o := new(plan.Outcome)
	if err := json.Unmarshal(out.Bytes(), o); err != nil {
		return nil, fmt.Errorf("the process that plans answers: %w", err)
	}
	return o, nil
}

// yield has a child give way to all else on the machine: the processor, and the memory when there is
// no more. It would have the score of the master, which is killed last.
func yield(pid int) error {
	err := syscall.Setpriority(syscall.PRIO_PGRP, pid, niceness)
	if err == nil || errors.Is(err, syscall.EACCES) { // this process has less of it already
		err = os.WriteFile(fmt.Sprintf("/proc/%d/oom_score_adj", pid), []byte(killedFirst), 0)
	}
	if errors.Is(err, syscall.ESRCH) || errors.Is(err, fs.ErrNotExist) {
		return nil // it has ended, which Wait says
	}
	return err
}

// ask writes a commit, and a cell.
func ask(in io.WriteCloser, commit *schema.Compiled, write func(io.Writer) error) error {
	to := bufio.NewWriterSize(in, 1<<20)
	err := json.NewEncoder(to).Encode(commit)
	if err == nil {
		err = write(to)
	}
	return errors.Join(err, to.Flush(), in.Close())
}

// limited keeps so many bytes, and takes all.
type limited struct {
	bytes.Buffer
	room int
}

// Write implements io.Writer.
func (l *limited) Write(b []byte) (int, error) {
	if room := l.room - l.Len(); room > 0 {
		l.Buffer.Write(b[:min(room, len(b))])
	}
	return len(b), nil
}

// Child is the whole life of a process that plans: it reads a commit and a checkpoint from in,
// and writes what the cell does with it, without its steps, to out.
func Child(in io.Reader, out io.Writer) error {
	from := bufio.NewReaderSize(in, 1<<20)
	line, err := from.ReadBytes('\n')
	if err != nil {
		return fmt.Errorf("read the commit: %w", err)
	}
	var commit schema.Compiled
	if err := json.Unmarshal(line, &commit); err != nil {
		return fmt.Errorf("read the commit: %w", err)
	}
	saved, err := checkpoint.Read(from)
	if err != nil {
		return fmt.Errorf("read the cell: %w", err)
	}
	o, err := planOn(saved, commit)
	if err != nil {
		return err
	}
	return json.NewEncoder(out).Encode(o)
}

func planOn(saved *checkpoint.Cell, commit schema.Compiled) (*plan.Outcome, error) {
	c, err := plan.New(plan.Config{State: saved.State, Machines: saved.Machines, Now: saved.At, Since: saved.Since, LostAfter: saved.LostAfter()})
	if err != nil {
		return nil, err
	}
	mark := c.Mark()
	if err := c.Commit(commit); err != nil {
		return nil, err
	}
	ending, last, err := c.Run()
	if err != nil {
		return nil, err
	}
	o := c.Outcome(mark, ending, last)
	o.Steps = []plan.Step{}
	for i := range o.Rollouts {
		o.Rollouts[i].Steps = nil
	}
	return o, nil
}
