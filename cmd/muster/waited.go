package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/musterhq/muster/reconciler"
	"github.com/musterhq/muster/schema"
)

// waited is what is waited for.
type waited struct {
	group   reconciler.Group
	machine string    // or an object that matches some; "" for none
	commit  string    // that it shall be at; "" is any
	end     time.Time // when the wait is over
	on      bool      // until then, also where only a person can help
}

// has reports whether a status has what is waited for.
func (w waited) has(s *reconciler.Status) bool {
	if !strings.HasPrefix(s.Applied, w.commit) {
		return false
	}
	if w.machine == "" {
		return s.Converged && len(w.unfinished(s)) == 0
	}
	list := w.draining(s)
	return len(list) > 0 && !slices.ContainsFunc(list, func(m reconciler.MachineStatus) bool { return m.Draining.Left > 0 })
}

// jobs reports whether w is for jobs that are named, or picked by their labels.
func (w waited) jobs() bool { return w.group.Name != "" || !w.group.Selector.Empty() }

// unfinished says of each batch job that is waited for by itself how far it is, if
// it is not done.
func (w waited) unfinished(s *reconciler.Status) []string {
	var out []string
	for i := range s.Jobs {
		if j := &s.Jobs[i]; w.jobs() && j.Kind == schema.Batch && j.Done < j.Desired {
			out = append(out, fmt.Sprintf("job %s: %s done", j.Name, schema.Part(j.Done, j.Desired, "task", "is", "are")))
		}
	}
	return out
}

// blockers returns what only a person can end of what keeps s from being what is
// waited for.
func (w waited) blockers(s *reconciler.Status) []reconciler.Blocker {
	switch {
	case w.on || w.machine != "" || s.Master != nil:
		return nil
	case !strings.HasPrefix(s.Commit, w.commit):
		return nil // that commit may change it
	case s.Applied != s.Commit && !slices.ContainsFunc(s.Suspended, func(x reconciler.SuspensionStatus) bool { return x.All() }):
		return nil // so may the newest
	}
	var out []reconciler.Blocker
	for _, b := range s.Blocked {
		if b.Until.IsZero() || b.Until.After(w.end) {
			out = append(out, b)
		}
	}
	return out
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

// subject names what is waited for in a cell.
func (w waited) subject(s *reconciler.Status) string {
	of := "cell " + s.Cell
	switch {
	case !w.jobs():
		return of
	case w.group.Selector.Empty():
		return of + ": " + w.group.Name
	case w.group.Name == "":
		return of + ": jobs with labels " + w.group.Selector.String()
	}
	return of + ": " + w.group.Name + " with labels " + w.group.Selector.String()
}

// many reports whether w's subject is in the plural.
func (w waited) many() bool { return w.group.Name == "" && !w.group.Selector.Empty() }

// reached says in which way what is waited for is as it shall be.
func (w waited) reached(s *reconciler.Status) string {
	done := w.jobs() && !slices.ContainsFunc(s.Jobs, func(j reconciler.JobStatus) bool { return j.Kind != schema.Batch })
	switch {
	case done && w.many():
		return "are done"
	case done:
		return "is done"
	case w.many():
		return "have converged"
	case w.jobs():
		return "has converged"
	}
	return "has converged"
}

// print says how the wait has ended.
func (w waited) print(std stdio, s *reconciler.Status, done bool) error {
	blockers := w.blockers(s)
	switch {
	case w.machine != "":
		return w.printDrained(std, s, done)
	case done:
		_, err := fmt.Fprintf(std.out, "%s %s at %s\n", w.subject(s), w.reached(s), short(s.Applied))
		return err
	case len(blockers) > 0:
		return w.printBlocked(std, s, blockers)
	}
	verb := "has"
	if w.many() {
		verb = "have"
	}
	fmt.Fprintf(std.err, "muster: %s %s not converged: head %s, applied %s: %s\n", w.subject(s), verb, short(s.Commit), short(s.Applied),
		cmp.Or(strings.Join(slices.Concat(s.Waiting, w.unfinished(s)), "; "), "the commit waited for is not the head"))
	_, err := fmt.Fprintln(std.err, "hint: muster status tells more")
	return err
}

// mostBlockers is how many are told of, beside the number of the others.
const mostBlockers = 5

// printBlocked says what a person has to act on, and what to type.
func (w waited) printBlocked(std stdio, s *reconciler.Status, blockers []reconciler.Blocker) error {
	var said, next []string
	for i, b := range blockers {
		if i == mostBlockers {
			said, next = append(said, fmt.Sprintf("%d more", len(blockers)-i)), append(next, "muster status lists all")
			break
		}
		said = append(said, b.Message)
		if !slices.Contains(next, b.Next) {
			next = append(next, b.Next)
		}
	}
	fmt.Fprintf(std.err, "muster: %s cannot converge by itself: %s\n", w.subject(s), strings.Join(said, "; "))
	_, err := fmt.Fprintf(std.err, "hint: %s\n", strings.Join(next, "; "))
	return err
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
