package main

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/spf13/cobra"

	"github.com/musterhq/muster/reconciler/status"
	"github.com/musterhq/muster/reconciler/web/client"
	"github.com/musterhq/muster/schema/lazyregexp"
)

// appearEvery is how often a master is asked for a job that it does not have.
const appearEvery = 200 * time.Millisecond

func newWait(std stdio) *cobra.Command {
	var m masterFlag
	var out *outputFlag
	var timeout time.Duration
	var until waited
	var l labelFlag
	c := &cobra.Command{
		Use:   "wait [USER/JOB | machine NAME]",
		Short: "wait until the cell has converged on its newest commit",
		Long: `Wait until the cell has converged: the newest commit is applied, nothing of it is
stale, rejected or held, and all tasks run as desired. With a job, or with --selector,
wait for these jobs only; for a batch job, until all its tasks are done. With a machine,
or a machine object that matches several, wait until they are drained.

Exits 1 after --timeout, and prints what has not converged. Where an action of a user is
needed it exits 1 at once, with the next command: a job is rejected, a directory is
stale, a removal is held, a canary waits for promotion, a rollout has failed, or
something is suspended; or the newest commit is applied and has no such job or machine.
With --no-fail-fast it waits until the timeout in these cases too.

The master may not have seen the last push when muster wait begins: run muster reconcile
before, or give --commit, which waits until the commit is seen. A commit that the head
contains is superseded: then the command waits for the head to converge, or with a job,
for that job; it fails where a newer commit made the directory stale. A commit that is
not on the branch that the master follows fails at once.`,
		Example: `  git commit -am "scale up" && muster wait --commit "$(git rev-parse HEAD)" --timeout 2m
  git push && muster reconcile && muster wait
  muster wait -l tier=front
  muster wait machine rack-r3 --timeout 2h`,
		Args: cobra.MaximumNArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			machine, args, err := waitArgs(args)
			if err := cmp.Or(err, checkWait(timeout, until.commit, cmd.Flags().Changed("commit"))); err != nil {
				return err
			}
			until.group, until.machine, until.end, until.whole = l.group(args), machine, time.Now().Add(timeout), out.value == "json"
			return runWait(cmd.Context(), std, &m, until, out.value)
		},
	}
	m.add(c)
	l.add(c)
	out = addOutput(c, "text", "json")
	c.Flags().DurationVar(&timeout, "timeout", time.Minute, "how long to wait")
	c.Flags().StringVar(&until.commit, "commit", "", "wait until this commit, or one that contains it, is applied")
	c.Flags().BoolVar(&until.on, "no-fail-fast", false, "wait until the timeout, also where an action of a user is needed")
	return c
}

// runWait waits, and says how that has ended.
func runWait(parent context.Context, std stdio, m *masterFlag, until waited, format string) error {
	cl, err := m.client()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithDeadline(parent, until.end)
	defer cancel()
	s, done, err := waitFor(ctx, std, cl, &until)
	switch {
	case parent.Err() != nil:
		return parent.Err()
	case err != nil:
		return err
	case s == nil:
		return &failure{code: exitDiffers, err: errors.New("no answer from the master within --timeout")}
	case format == "json":
		err = printJSON(std.out, struct {
			*status.Status
			Wait waitResult `json:"wait"`
		}{s, until.result(s, done)})
	default:
		err = until.print(std, s, done)
	}
	if err == nil && !done {
		err = &failure{code: exitDiffers}
	}
	return err
}

// commitName is a commit's hash, or the beginning of one.
var commitName = lazyregexp.New(`^[0-9a-f]{1,64}$`)

// checkWait errs if nothing could come of what the flags say. A commit that is
// named and empty is the answer of a git that failed: any commit would do for it.
func checkWait(timeout time.Duration, commit string, named bool) error {
	if timeout <= 0 {
		return invalid("such as --timeout 2m", "--timeout %s: want more than 0", timeout)
	}
	if named && !commitName.MatchString(commit) {
		return invalid(`such as --commit "$(git rev-parse HEAD)", in the config repository`, "--commit %q: want a commit's hash, or the beginning of one, in lower-case hexadecimal digits", commit)
	}
	return nil
}

// waitArgs checks what wait is given, and returns the machine of "machine NAME",
// or the job.
func waitArgs(args []string) (machine string, job []string, err error) {
	switch len(args) {
	case 2:
		name, err := machineArg(args)
		if err != nil {
			return "", nil, err
		}
		return name[0], nil, nil
	case 1:
		if _, index, err := parseWhat(args[0]); err != nil {
			return "", nil, err
		} else if index >= 0 {
			return "", nil, invalid("a job is USER/JOB, such as search/web", "%q is a task: wait is for jobs", args[0])
		}
	}
	return "", args, nil
}

// waitFor returns the last status that it got before ctx ended, and whether what
// is waited for has come. While the cell has nothing of the group it goes on as long
// as a commit may bring it, and else it errs. When only a person can end what stands
// in the way, waiting ends.
func waitFor(ctx context.Context, std stdio, cl *client.Client, w *waited) (s *status.Status, done bool, err error) {
	var none *client.Error
	for ctx.Err() == nil {
		for next, err := range cl.StatusChanges(ctx, w.query(), patient(std)) {
			switch {
			case errors.As(err, &none) && none.Code == http.StatusNotFound:
				if s, err = w.missed(ctx, cl, none); (s != nil || err != nil) && ctx.Err() == nil {
					return s, false, err
				}
				s = nil
				continue
			case err != nil:
				return nil, false, err
			}
			s = next
			if done, over, err := w.look(ctx, cl, s); over || err != nil {
				return s, done, err
			}
		}
		select {
		case <-time.After(appearEvery):
		case <-ctx.Done():
		}
	}
	if s == nil && none != nil {
		return nil, false, &failure{code: exitDiffers, err: none, hint: none.Hint}
	}
	return s, false, nil
}

// look reports whether what is waited for has come, and whether waiting is over, be it
// since only a person can help.
func (w *waited) look(ctx context.Context, cl *client.Client, s *status.Status) (done, over bool, err error) {
	if err := w.stands(ctx, cl, s); err != nil && ctx.Err() == nil {
		return false, true, err
	}
	done = w.has(s)
	return done, done || w.elsewhere(s) || len(w.blockers(s)) > 0 || w.machineUnknown(s), nil
}

// query returns what of the status is to be asked for. Of a whole cell, what is as
// desired does not matter.
func (w *waited) query() client.StatusQuery {
	return client.StatusQuery{Group: w.group, Brief: !w.whole, Short: !w.whole && !w.jobs() && w.machine == ""}
}
