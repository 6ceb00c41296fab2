package main

import (
	"cmp"
	"context"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/musterhq/muster/cmd/internal/screen"
	"github.com/musterhq/muster/reconciler/model"
	"github.com/musterhq/muster/reconciler/status"
	"github.com/musterhq/muster/reconciler/web/client"
)

// statusFlags are what of the status is wanted, and how.
type statusFlags struct {
	master                            lookFlag
	label                             labelFlag
	out                               *outputFlag
	all, wide, tasks, machines, watch bool
	state                             string

	states []status.TaskState // of state
	args   []string
}

func newStatus(std stdio) *cobra.Command {
	var f statusFlags
	c := &cobra.Command{
		Use:        "status [USER/JOB | USER/JOB/INDEX | [machine] MACHINE]",
		SuggestFor: []string{"get", "ps", "list", "describe"},
		Short:      "show the cell: what should run, what runs, and what stands between",
		Long: `Show the cell, or a part of it: a job, a task, what a machine holds, or the jobs
that --selector picks. For jobs, "converged" is about these jobs only.

The output has the verdict and the commit, then each problem with what it affects, then
machines that are not simply up, and the jobs: AGE and COMMIT are those of the version
that a job runs. Tasks are listed if a job, task or machine is named, with --tasks, and
with --state; finished tasks only with --state done. CPU is in cores: 500m is half of one.

A cell takes at most 30 lines, whatever its size: the problems, worst first, and totals.
--all shows everything, as does a list that is asked for. Lines are as wide as the
screen, or COLUMNS; longer ones are cut, and -o wide shows all columns. Output that is not
to a terminal is never cut.`,
		Example: `  muster status
  muster status search/web
  muster status machine m-17
  muster status -l tier=front,muster/user=search
  muster status --state pending,unknown --watch
  muster status -o json | jq .converged`,
		Args: cobra.MaximumNArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := f.parse(args); err != nil {
				return err
			}
			cl, err := f.master.client()
			if err != nil {
				return err
			}
			if f.watch {
				return watchStatus(cmd.Context(), std, cl, &f)
			}
			s, _, err := cl.Status(cmd.Context(), f.query())
			if err != nil {
				return err
			}
			text, err := f.text(cmd.Context(), std, cl, s)
			if err == nil {
				_, err = io.WriteString(std.out, text)
			}
			return err
		},
	}
	f.master.add(c)
	f.label.add(c)
	f.out = addOutput(c, "text", "wide", "json")
	c.Flags().BoolVar(&f.all, "all", false, "show all jobs, machines and causes, however many lines that takes")
	c.Flags().BoolVar(&f.wide, "wide", false, "show all columns, in lines of any length: same as -o wide")
	c.Flags().BoolVar(&f.tasks, "tasks", false, "list tasks")
	c.Flags().BoolVar(&f.machines, "machines", false, "list all machines, not only those that are not plainly up")
	c.Flags().BoolVarP(&f.watch, "watch", "w", false, "show it again whenever it changes")
	c.Flags().StringVar(&f.state, "state", "", "list tasks in these states alone: "+strings.Join(stateNames(), ", "))
	return c
}

func stateNames() []string {
	var out []string
	for _, s := range status.TaskStates() {
		out = append(out, string(s))
	}
	return out
}

// parse checks what is asked for.
func (f *statusFlags) parse(args []string) (err error) {
	if f.args, err = machineArg(args); err != nil {
		return err
	}
	for name := range strings.SplitSeq(f.state, ",") {
		state := status.TaskState(strings.TrimSpace(name))
		if f.state != "" && !slices.Contains(status.TaskStates(), state) {
			return invalid("one or more of "+strings.Join(stateNames(), ", "), "--state %q: no task is ever %q", f.state, state)
		}
		f.states = append(f.states, state)
	}
	if f.state == "" {
		f.states = nil
	}
	f.tasks = f.tasks || f.state != "" || len(f.args) > 0
	if f.watch && f.out.value == "json" {
		return invalid("leave one of them out", "muster status: --watch is for people, and -o json is not")
	}
	if f.watch && f.master.file != "" {
		return invalid("leave one of them out", "muster status: a checkpoint never changes: --watch would show it for ever")
	}
	return nil
}

// query returns what of the status is to be asked for.
func (f *statusFlags) query() client.StatusQuery {
	return client.StatusQuery{Group: f.label.group(f.args), Brief: !f.tasks && f.out.value != "json", Short: f.bounded(), Most: mostLines}
}

// text returns a status as it is printed.
func (f *statusFlags) text(ctx context.Context, std stdio, cl *client.Client, s *status.Status) (string, error) {
	if err := annotate(ctx, cl, s, f.args); err != nil {
		return "", err
	}
	if err := addUsage(ctx, cl, s, f.args); err != nil {
		return "", err
	}
	if f.out.value == "json" {
		if len(f.states) > 0 {
			s.Tasks = slices.DeleteFunc(s.Tasks, func(t status.TaskStatus) bool { return !slices.Contains(f.states, t.State) })
		}
		var b strings.Builder
		err := printJSON(&b, s)
		return b.String(), err
	}
	lines := 0
	if f.bounded() {
		lines = mostLines
	}
	wide := f.wide || f.out.value == "wide"
	return screen.Status(s, screen.View{
		Lines: lines, All: f.all || wide,
		Width: lineCells(std.out, wide), Painter: screen.Painter(isTerminal(std.out)), Name: strings.Join(f.args, ""),
		Tasks: f.tasks, Machines: f.machines, States: f.states,
	}), nil
}

// mostLines is how many lines a cell has whatever its size: a screen of them.
const mostLines = 30

// bounded reports whether the cell is shown in mostLines.
func (f *statusFlags) bounded() bool {
	return f.out.value == "text" && !f.wide && !f.all && !f.machines && len(f.args) == 0
}

// watchStatus shows the status whenever it changes, until ctx ends: on a terminal in
// its place, else below the one before. While the master does not answer, that is
// what is shown.
func watchStatus(ctx context.Context, std stdio, cl *client.Client, f *statusFlags) error {
	var last string
	begun := false
	show := func(text string) error {
		if text == last {
			return nil
		}
		again := begun
		last, begun = text, true
		return redraw(std.out, text, again)
	}
	for ctx.Err() == nil {
		var failed error
		// What interrupts the watch is shown in the status' place, and ends nothing.
		say := client.Watch{Patience: retryFor, Say: func(text string) { failed = cmp.Or(failed, show("muster: "+screen.Printable(text)+"\n")) }}
		for s, err := range cl.StatusChanges(ctx, f.query(), say) {
			var text string
			if err == nil {
				text, err = f.text(ctx, std, cl, s)
			}
			switch {
			case ctx.Err() != nil:
				return nil
			case err != nil && !begun:
				return err
			case err != nil:
				text = "muster: " + string(screen.Error(err)) + "\n"
			}
			if err := cmp.Or(failed, show(text)); err != nil {
				return err
			}
		}
		select { // such as until the cell has the job again
		case <-ctx.Done():
		case <-time.After(appearEvery):
		}
	}
	return nil
}

// redraw writes text over what is on a terminal, as far as it has room, line by line
// so that nothing flickers; to all else below an empty line.
func redraw(w io.Writer, text string, again bool) error {
	rows := height(w)
	if rows == 0 {
		if again {
			text = "\n" + text
		}
		_, err := io.WriteString(w, text)
		return err
	}
	list := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	list = list[:min(len(list), max(rows-1, 1))]
	begin := "\x1b[H"
	if !again {
		begin = "\x1b[2J\x1b[H"
	}
	_, err := io.WriteString(w, begin+strings.Join(list, "\x1b[K\n")+"\x1b[K\n\x1b[J")
	return err
}

// machineArg takes the word machine off the front of "machine NAME".
func machineArg(args []string) ([]string, error) {
	if len(args) < 2 {
		return args, nil
	}
	if args[0] != "machine" || strings.Contains(args[1], "/") {
		return nil, invalid("of two arguments the first is the word machine, as in machine m-17", "%q and %q: want one name", args[0], args[1])
	}
	return args[1:], nil
}

// annotate adds the annotations of the job that was asked for by name, if one
// was.
func annotate(ctx context.Context, cl *client.Client, s *status.Status, args []string) error {
	if len(args) == 0 || !strings.Contains(args[0], "/") || len(s.Jobs) != 1 {
		return nil
	}
	why, err := cl.Why(ctx, client.WhyQuery{Job: s.Jobs[0].Name, Index: -1})
	if err == nil && why.Job != nil {
		s.Jobs[0].Annotations = why.Job.Annotations
	}
	return err
}

// addUsage adds what tasks use that were asked for by name.
func addUsage(ctx context.Context, cl *client.Client, s *status.Status, args []string) error {
	if len(args) == 0 || strings.Count(args[0], "/") < 2 {
		return nil
	}
	u, err := cl.Usage(ctx, status.Group{Name: args[0]})
	if err == nil {
		s.Usage = u.Tasks
	}
	return err
}

// short returns a commit as people name it, or "none".
func short(commit string) string {
	return cmp.Or(model.ShortCommit(commit), "none")
}
