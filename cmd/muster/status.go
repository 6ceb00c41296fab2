package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/musterhq/muster/reconciler"
	"github.com/musterhq/muster/reconciler/web/client"
	"github.com/musterhq/muster/schema"
)

func newStatus(std stdio) *cobra.Command {
	var m masterFlag
	var out *outputFlag
	var l labelFlag
	c := &cobra.Command{
		Use:        "status [USER/JOB | USER/JOB/INDEX | [machine] MACHINE]",
		SuggestFor: []string{"get", "ps", "list", "describe"},
		Short:      "show the cell: what should run, what runs, and what stands between",
		Long: `Show the cell, or a part of it: a job, a task, what a machine holds, or the jobs
that --selector picks. Of jobs, "converged" is said of them alone.`,
		Example: `  muster status
  muster status search/web
  muster status machine m-17
  muster status -l tier=front,muster/user=search
  muster status -o json | jq .converged`,
		Args: cobra.MaximumNArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			args, err := machineArg(args)
			if err != nil {
				return err
			}
			cl, err := m.client()
			if err != nil {
				return err
			}
			s, _, err := cl.Status(cmd.Context(), client.StatusQuery{Group: l.group(args)})
			if err != nil {
				return err
			}
			if err := annotate(cmd.Context(), cl, s, args); err != nil {
				return err
			}
			if err := addUsage(cmd.Context(), cl, s, args); err != nil {
				return err
			}
			if out.value == "json" {
				return printJSON(std.out, s)
			}
			return printStatus(std.out, s, strings.Join(args, ""))
		},
	}
	m.add(c)
	l.add(c)
	out = addOutput(c, "text", "json")
	return c
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
func annotate(ctx context.Context, cl *client.Client, s *reconciler.Status, args []string) error {
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
func addUsage(ctx context.Context, cl *client.Client, s *reconciler.Status, args []string) error {
	if len(args) == 0 || strings.Count(args[0], "/") < 2 {
		return nil
	}
	u, err := cl.Usage(ctx, reconciler.Group{Name: args[0]})
	if err == nil {
		s.Usage = u.Tasks
	}
	return err
}

// printStatus writes s for people. Details and history are told only of what
// was asked for by name; name is "" for the whole cell.
func printStatus(w io.Writer, s *reconciler.Status, name string) error {
	p := painter(isTerminal(w))
	state := p.paint(green, "converged")
	if !s.Converged {
		state = p.paint(yellow, "not converged")
	}
	fmt.Fprintf(w, "cell %s  commit %s  applied %s  %s\n", s.Cell, short(s.Commit), short(s.Applied), state)
	if a := s.Master; a != nil {
		what, _, _ := strings.Cut(a.Message, "\n")
		fmt.Fprintf(w, "  %s %s (since %s); tasks run on, and what follows is as this master knew it last\n", p.paint(red, "master:"), what, a.Since.Format(time.TimeOnly))
	}
	for _, line := range s.Waiting {
		fmt.Fprintf(w, "  waiting: %s\n", line)
	}
	if s.Source != "" {
		what, hint, _ := strings.Cut(s.Source, "\nhint: ")
		fmt.Fprintf(w, "  %s %s\n", p.paint(red, "repository:"), strings.TrimPrefix(what, "repository "))
		if hint != "" {
			fmt.Fprintf(w, "  hint: %s\n", hint)
		}
		if !s.SourceAt.IsZero() {
			fmt.Fprintf(w, "  the repository was last read %s ago\n", s.At.Sub(s.SourceAt).Round(time.Second))
		}
	}
	for _, n := range s.Notes {
		fmt.Fprintf(w, "  note: %s\n", n)
	}
	printTrouble(w, p, s)
	fmt.Fprintln(w)
	if err := table(w, machineRows(s.Machines)); err != nil {
		return err
	}
	fmt.Fprintln(w)
	if err := table(w, jobRows(s.Jobs)); err != nil {
		return err
	}
	fmt.Fprintln(w)
	if err := table(w, taskRows(s.Tasks)); err != nil {
		return err
	}
	if name != "" {
		printDetails(w, s, name)
		printUsage(w, &reconciler.Usage{Tasks: s.Usage})
		for _, t := range s.Tasks {
			if len(t.Inside) > 0 {
				fmt.Fprintf(w, "%s: inside run %s\n", t.Name, listed(t.Inside))
			}
			for _, h := range t.History {
				fmt.Fprintf(w, "%s: %s\n", t.Name, h)
			}
		}
	}
	return nil
}

// printDetails writes the attributes of a machine, or the labels and annotations
// of a job.
func printDetails(w io.Writer, s *reconciler.Status, name string) {
	if !strings.Contains(name, "/") && len(s.Machines) == 1 {
		if r := s.Machines[0].Reserved; r != (schema.Resources{}) {
			fmt.Fprintf(w, "kept for the system: %d milli, %s of RAM, %s of disk\n", r.CPUMilli, bytesOf(r.RAMBytes), bytesOf(r.DiskBytes))
		}
		printDraining(w, s.Machines[0].Draining)
		for _, c := range s.Machines[0].Conditions {
			fmt.Fprintf(w, "condition %s, since %s\n", c, c.Since.Format(time.RFC3339))
		}
		for _, k := range slices.Sorted(maps.Keys(s.Machines[0].Attributes)) {
			fmt.Fprintf(w, "attribute %s: %s\n", k, s.Machines[0].Attributes[k])
		}
	}
	if !strings.Contains(name, "/") || len(s.Jobs) != 1 {
		return
	}
	for _, k := range slices.Sorted(maps.Keys(s.Jobs[0].Labels)) {
		fmt.Fprintf(w, "label %s: %s\n", k, s.Jobs[0].Labels[k])
	}
	for _, k := range slices.Sorted(maps.Keys(s.Jobs[0].Annotations)) {
		lines := strings.Split(strings.ReplaceAll(s.Jobs[0].Annotations[k], "\r", ""), "\n")
		fmt.Fprintf(w, "annotation %s: %s\n", k, strings.Join(lines, "\n    "))
	}
}

// printDraining writes how far a machine is emptied, if it is to be.
func printDraining(w io.Writer, d *reconciler.Draining) {
	if d == nil {
		return
	}
	fmt.Fprintf(w, "to be emptied by %s at %s: ", d.Object, d.Origin)
	switch {
	case d.Left == 0:
		fmt.Fprintln(w, "drained")
	case d.Turn:
		fmt.Fprintf(w, "%s left, others go first\n", schema.Count(d.Left, "task"))
	default:
		fmt.Fprintf(w, "%s left\n", schema.Count(d.Left, "task"))
	}
	if !d.Deadline.IsZero() {
		fmt.Fprintf(w, "deadline %s, and then the %s wins\n", d.Deadline.Format(time.RFC3339), map[string]string{schema.DeadlineStop: "drain", schema.DeadlineBudget: "budget"}[d.AtDeadline])
	}
	for _, line := range d.Waits {
		fmt.Fprintf(w, "waits: %s\n", line)
	}
}

// printTrouble writes what of the newest commit was not taken.
func printTrouble(w io.Writer, p painter, s *reconciler.Status) {
	for i := range s.Suspended {
		x := &s.Suspended[i]
		what := "job " + x.Name
		if x.All() {
			what = "the whole cell: no commit is applied"
		}
		fmt.Fprintf(w, "\n%s %s\n  %s\n", p.paint(yellow, "suspended:"), what, x.Suspension.String())
		if x.Waits != "" {
			fmt.Fprintf(w, "  %s for that to end\n", x.Waits)
		}
		fmt.Fprintf(w, "  next: %s\n", x.Next)
	}
	if u := s.Unread; u != nil {
		fmt.Fprintf(w, "\n%s nothing of the commit could be read: %s\n", p.paint(red, "unread:"), u.Reason)
		printDiagnostics(w, p, u.Diagnostics, nil)
		fmt.Fprintf(w, "  next: %s\n", u.Next)
	}
	for _, st := range s.Stale {
		fmt.Fprintf(w, "\n%s %s keeps its last good data: %s\n", p.paint(red, "stale:"), st.Dir, st.Reason)
		printDiagnostics(w, p, st.Diagnostics, nil)
		fmt.Fprintf(w, "  next: %s\n", st.Next)
	}
	for i := range s.Held {
		h := &s.Held[i]
		fmt.Fprintf(w, "\n%s %s\n", p.paint(yellow, "held:"), h.Reason)
		fmt.Fprintf(w, "  jobs: %s\n", listed(h.Jobs))
		fmt.Fprintf(w, "  next: %s\n", h.Next)
	}
	for i := range s.Losses {
		h := &s.Losses[i]
		fmt.Fprintf(w, "\n%s %s, since %s: the tasks on them are given to nobody\n", p.paint(yellow, "lost machines:"), h.Reason, h.Since.Format(time.RFC3339))
		fmt.Fprintf(w, "  next: %s\n", h.Next)
	}
	if len(s.Warnings) > 0 {
		fmt.Fprintln(w)
		for _, q := range s.Warnings {
			printDiagnostics(w, p, []schema.Diagnostic{q.Diagnostic}, nil)
		}
	}
	for _, r := range s.Rejected {
		fmt.Fprintf(w, "\n%s %s keeps its last admitted data\n", p.paint(red, "rejected:"), r.Job)
		printDiagnostics(w, p, []schema.Diagnostic{r.Diagnostic}, nil)
		fmt.Fprintf(w, "  next: %s\n", r.Next)
	}
}

func machineRows(machines []reconciler.MachineStatus) [][]string {
	rows := [][]string{{"MACHINE", "HEALTH", "TASKS", "CPU (milli)", "RAM", "DISK", "NOTES"}}
	for _, m := range machines {
		switch {
		case m.Draining != nil && m.Draining.Left == 0:
			m.Health += ", drained"
		case m.Draining != nil:
			m.Health += ", draining"
		case m.Cordoned:
			m.Health += ", cordoned"
		}
		for _, c := range m.Conditions {
			m.Health += ", " + string(c.Kind)
		}
		rows = append(rows, []string{
			m.Name, m.Health, strconv.Itoa(m.Tasks),
			fmt.Sprintf("%d of %d", m.Used.CPUMilli, m.Capacity.CPUMilli),
			bytesOf(m.Used.RAMBytes) + " of " + bytesOf(m.Capacity.RAMBytes),
			bytesOf(m.Used.DiskBytes) + " of " + bytesOf(m.Capacity.DiskBytes),
			strings.Join(m.Notes, "; "),
		})
	}
	return rows
}

func jobRows(jobs []reconciler.JobStatus) [][]string {
	rows := [][]string{{"JOB", "KIND", "BAND", "DESIRED", "RUNNING", "PENDING", "FAILED", "DONE", "REASON"}}
	for _, j := range jobs {
		if j.Crashes != "" {
			j.Reason = strings.TrimPrefix(j.Reason+"; it "+j.Crashes, "; ")
		}
		if j.Suspended != "" {
			j.Reason = strings.TrimSuffix("suspended; "+j.Reason, "; ")
		}
		rows = append(rows, []string{
			j.Name, string(j.Kind), string(j.Band), strconv.Itoa(j.Desired), strconv.Itoa(j.Running),
			strconv.Itoa(j.Pending), strconv.Itoa(j.Failed), strconv.Itoa(j.Done), j.Reason,
		})
	}
	return rows
}

func taskRows(tasks []reconciler.TaskStatus) [][]string {
	rows := [][]string{{"TASK", "STATE", "MACHINE", "PID", "RESTARTS", "PORTS", "REASON"}}
	for _, t := range tasks {
		pid := ""
		if t.PID != 0 {
			pid = strconv.Itoa(t.PID)
		}
		state := string(t.State)
		if t.Health == schema.Unhealthy {
			state += " (unhealthy)"
		}
		if t.Line != "" {
			t.Reason = strings.TrimPrefix(t.Reason+"; says: "+t.Line, "; ")
		}
		machine := t.Machine
		if t.Alloc != "" {
			machine += ", in " + t.Alloc
		}
		rows = append(rows, []string{t.Name, state, machine, pid, strconv.Itoa(t.Restarts), portsOf(t.Ports), t.Reason})
	}
	return rows
}

func portsOf(ports map[string]int) string {
	out := make([]string, 0, len(ports))
	for _, name := range slices.Sorted(maps.Keys(ports)) {
		out = append(out, fmt.Sprintf("%s:%d", name, ports[name]))
	}
	return strings.Join(out, " ")
}

// bytesOf writes n bytes with a binary unit.
func bytesOf(n int64) string {
	units := []string{"B", "KiB", "MiB", "GiB", "TiB", "PiB"}
	f, i := float64(n), 0
	for ; f >= 1024 && i < len(units)-1; i++ {
		f /= 1024
	}
	return strings.TrimSuffix(fmt.Sprintf("%.1f", f), ".0") + units[i]
}

// short returns a commit as people name it, or "none".
func short(commit string) string {
	return cmp.Or(reconciler.ShortCommit(commit), "none")
}

// listed joins names, the first few of many.
func listed(names []string) string {
	const most = 10
	if more := len(names) - most; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), more)
	}
	return strings.Join(names, ", ")
}
