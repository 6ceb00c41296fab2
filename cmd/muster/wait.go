package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/musterhq/muster/reconciler"
	"github.com/musterhq/muster/reconciler/web/client"
	"github.com/musterhq/muster/schema"
)

// appearEvery is how often a master is asked for a job that it does not have.
const appearEvery = 200 * time.Millisecond

func newWait(std stdio) *cobra.Command {
	var m masterFlag
	var out *outputFlag
	var timeout time.Duration
	var commit string
	var l labelFlag
	c := &cobra.Command{
		Use:   "wait [USER/JOB | machine NAME]",
		Short: "wait until the cell is as its repository says",
		Long: `Wait until the cell has converged: the newest commit is applied, nothing of it is
stale, rejected or held, and all runs as it says. With a job, or with --selector,
wait for these jobs alone, also for the first of them to appear. With a machine,
or an object that matches machines, wait until nothing is left on what it drains.
Exits 1 when that takes longer than --timeout, and says what stands in the way; and
at once when nothing but a suspension does, a rollout is paused or has returned to
older data, or, with --commit, a guard holds removals.`,
		Example: `  git commit -am "scale up" && muster wait --commit "$(git rev-parse HEAD)" --timeout 2m
  muster wait -l tier=front
  muster wait machine rack-r3 --timeout 2h`,
		Args: cobra.MaximumNArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			machine, args, err := waitArgs(args)
			if err := cmp.Or(err, checkWait(timeout, commit, cmd.Flags().Changed("commit"))); err != nil {
				return err
			}
			cl, err := m.client()
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), timeout)
			defer cancel()
			until := waited{group: l.group(args), machine: machine, commit: commit}
			s, done, err := waitFor(ctx, cl, until)
			if cmd.Context().Err() != nil {
				return cmd.Context().Err()
			}
			if err != nil {
				return err
			}
			if s == nil {
				return &failure{code: exitDiffers, err: fmt.Errorf("no answer from the master within %s", timeout)}
			}
			if out.value == "json" {
				err = printJSON(std.out, s)
			} else {
				err = printWaited(std, s, until, done)
			}
			if err == nil && !done {
				err = &failure{code: exitDiffers}
			}
			return err
		},
	}
	m.add(c)
	l.add(c)
	out = addOutput(c, "text", "json")
	c.Flags().DurationVar(&timeout, "timeout", time.Minute, "how long to wait")
	c.Flags().StringVar(&commit, "commit", "", "wait until this commit is the one applied")
	return c
}

// commitName is a commit's hash, or the beginning of one.
var commitName = regexp.MustCompile(`^[0-9a-f]{1,64}$`)

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
// is waited for has come. While the cell has nothing of the group it goes on, and
// if that was the last answer it errs. When only a person can end what stands in
// the way, waiting ends.
func waitFor(ctx context.Context, cl *client.Client, w waited) (s *reconciler.Status, done bool, err error) {
	q := client.StatusQuery{Group: w.group, Wait: 10 * time.Second}
	var none *client.Error
	for {
		next, version, err := cl.Status(ctx, q)
		switch {
		case ctx.Err() != nil:
			if s == nil && none != nil {
				return nil, false, &failure{code: exitDiffers, err: none, hint: none.Hint}
			}
			return s, false, nil
		case errors.As(err, &none) && none.Code == http.StatusNotFound:
			s = nil
			select {
			case <-time.After(appearEvery):
			case <-ctx.Done():
			}
			continue
		case err != nil:
			return nil, false, err
		}
		s, q.After = next, version
		if w.has(s) {
			return s, true, nil
		}
		if w.hopeless(s) {
			return s, false, nil
		}
	}
}

// waited is what is waited for.
type waited struct {
	group   reconciler.Group
	machine string // or an object that matches some; "" for none
	commit  string // that it shall be at; "" is any
}

// has reports whether a status has what is waited for.
func (w waited) has(s *reconciler.Status) bool {
	if !strings.HasPrefix(s.Applied, w.commit) {
		return false
	}
	if w.machine == "" {
		return s.Converged
	}
	list := w.draining(s)
	return len(list) > 0 && !slices.ContainsFunc(list, func(m reconciler.MachineStatus) bool { return m.Draining.Left > 0 })
}

// hopeless reports whether only a person can end what stands in the way of w.
func (w waited) hopeless(s *reconciler.Status) bool {
	failed := func(j reconciler.JobStatus) bool { return j.Rollout.Failed() }
	switch {
	case w.machine != "" || !strings.HasPrefix(s.Commit, w.commit):
		return false
	case s.Applied == s.Commit && slices.ContainsFunc(s.Jobs, failed):
		return true // a rollout that has failed does not go on by itself
	case w.commit == "" && len(s.Held) > 0:
		return false // the commit that gives leave may be on its way
	}
	return s.WaitsForSomebody()
}

// object returns the field of the object that w.machine may be.
func (w waited) object() string {
	return schema.ObjectKey{Kind: schema.KindMachine, Name: w.machine}.Field()
}

// draining returns the machines that w.machine drains.
func (w waited) draining(s *reconciler.Status) []reconciler.MachineStatus {
	return slices.DeleteFunc(slices.Clone(s.Machines), func(m reconciler.MachineStatus) bool {
		return m.Draining == nil || m.Name != w.machine && m.Draining.Object != w.object()
	})
}

func (w waited) String() string {
	switch {
	case w.group.Selector.Empty() && w.group.Name == "":
		return " has"
	case w.group.Selector.Empty():
		return ": " + w.group.Name + " has"
	case w.group.Name == "":
		return ": jobs with labels " + w.group.Selector.String() + " have"
	}
	return ": " + w.group.Name + " with labels " + w.group.Selector.String() + " has"
}

// printDrained says whether the machines of w are drained.
func (w waited) printDrained(std stdio, s *reconciler.Status, done bool) error {
	list := w.draining(s)
	if done {
		_, err := fmt.Fprintf(std.out, "cell %s: %s drained\n", s.Cell, machines(list))
		return err
	}
	if len(list) == 0 {
		fmt.Fprintf(std.err, "muster: cell %s drains no machine by the name %s at %s\n", s.Cell, w.machine, short(s.Applied))
		for _, n := range s.Notes { // such as that no machine of this name has ever joined
			if strings.Contains(n, ": "+w.object()+": ") {
				fmt.Fprintf(std.err, "muster: %s\n", n)
			}
		}
		_, err := fmt.Fprintf(std.err, "hint: machine: %q: {drain: {}} in the repository does, when that machine has joined; muster status lists the machines\n", w.machine)
		return err
	}
	for _, m := range list {
		if m.Draining.Left > 0 {
			fmt.Fprintf(std.err, "muster: machine %s is %s\n", m.Name, m.Draining)
		}
	}
	_, err := fmt.Fprintf(std.err, "hint: muster status machine %s tells more\n", list[0].Name)
	return err
}

// machines says how many machines are meant.
func machines(list []reconciler.MachineStatus) string {
	if len(list) == 1 {
		return "machine " + list[0].Name + " is"
	}
	return fmt.Sprintf("%d machines are", len(list))
}

func printWaited(std stdio, s *reconciler.Status, w waited, done bool) error {
	if w.machine != "" {
		return w.printDrained(std, s, done)
	}
	if done {
		_, err := fmt.Fprintf(std.out, "cell %s%s converged at %s\n", s.Cell, w, short(s.Applied))
		return err
	}
	if s.WaitsForSomebody() {
		fmt.Fprintf(std.err, "muster: cell %s has not converged, and waits for somebody: %s\n", s.Cell, strings.Join(s.Waiting, "; "))
		_, err := fmt.Fprintf(std.err, "hint: %s\n", nextOf(s))
		return err
	}
	fmt.Fprintf(std.err, "muster: cell %s has not converged: head %s, applied %s: %s\n", s.Cell, short(s.Commit), short(s.Applied),
		cmp.Or(strings.Join(s.Waiting, "; "), "the commit waited for is not the head"))
	_, err := fmt.Fprintln(std.err, "hint: muster status tells more")
	return err
}

// nextOf says what a person can do about what only a person can end.
func nextOf(s *reconciler.Status) string {
	var next []string
	for i := range s.Suspended {
		if s.Suspended[i].Waits != "" {
			next = append(next, s.Suspended[i].Next)
		}
	}
	for i := range s.Held {
		next = append(next, s.Held[i].Next)
	}
	return strings.Join(next, "; ")
}
