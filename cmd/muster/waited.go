package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/musterhq/muster/cmd/internal/screen"
	"github.com/musterhq/muster/reconciler/status"
	"github.com/musterhq/muster/reconciler/web/client"
	"github.com/musterhq/muster/schema"
)

// waited is what is waited for.
type waited struct {
	group   status.Group
	machine string    // or an object that matches some; "" for none
	commit  string    // that it shall be at; "" is any
	end     time.Time // when the wait is over
	on      bool      // until then, also where only a person can help
	whole   bool      // the status at its end is shown in full
	// standing is how commit stands to the head of the newest status.
	standing status.Standing
}

// stands finds out how the commit that is waited for stands to the head of s.
func (w *waited) stands(ctx context.Context, cl *client.Client, s *status.Status) error {
	switch {
	case w.commit == "" || s.Commit == "" || s.Master != nil || w.standing.Head == s.Commit:
		return nil
	case strings.HasPrefix(s.Commit, w.commit):
		w.standing = status.Standing{Name: w.commit, Head: s.Commit, Is: status.StandsAtHead}
		return nil
	}
	found, err := cl.Standing(ctx, w.commit)
	var answer *client.Error
	switch {
	case errors.As(err, &answer) && answer.Code >= 400 && answer.Code != http.StatusForbidden: // a master that is older, or leads no more
		w.standing = status.Standing{Name: w.commit, Head: s.Commit, Is: status.StandsUnknown, Message: answer.Message}
	case err != nil:
		return err
	default:
		w.standing = *found
	}
	return nil
}

// at reports whether what is waited for is at a commit, or at one that contains it.
func (w *waited) at(commit string) bool {
	return strings.HasPrefix(commit, w.commit) || w.standing.Is == status.StandsContained && w.standing.Head == commit
}

// superseded reports whether s is at a commit that contains the one waited for.
func (w *waited) superseded(s *status.Status) bool {
	return w.commit != "" && w.at(s.Applied) && !strings.HasPrefix(s.Applied, w.commit)
}

// elsewhere reports whether the commit that is waited for is not on the branch.
func (w *waited) elsewhere(s *status.Status) bool {
	return w.standing.Is == status.StandsElsewhere && w.standing.Head == s.Commit && !w.on
}

// waitResult says how a wait has ended, beside the status at its end.
type waitResult struct {
	Outcome waitOutcome `json:"outcome"`
	// Commit is the one that was waited for, and Message what there is to say of it
	// if it is neither the head nor superseded.
	Commit  string `json:"commit,omitempty"`
	Message string `json:"message,omitempty"`
}

type waitOutcome string

// The outcomes; but for the first three, muster wait exits with 1.
const (
	waitConverged  waitOutcome = "converged"
	waitSuperseded waitOutcome = "superseded" // converged, at a commit that contains the one waited for
	waitDrained    waitOutcome = "drained"
	waitBlocked    waitOutcome = "blocked"   // only a person can help
	waitElsewhere  waitOutcome = "elsewhere" // the commit is not on the branch
	waitTimeout    waitOutcome = "timeout"
)

// result says how a wait has ended at s.
func (w *waited) result(s *status.Status, done bool) waitResult {
	r := waitResult{Outcome: waitTimeout, Commit: w.commit}
	switch {
	case done && w.machine != "":
		r.Outcome = waitDrained
	case done && w.superseded(s):
		r.Outcome = waitSuperseded
	case done:
		r.Outcome = waitConverged
	case w.elsewhere(s):
		r.Outcome, r.Message = waitElsewhere, w.standing.Message
	case len(w.blockers(s)) > 0:
		r.Outcome = waitBlocked
	case w.commit != "" && !w.at(s.Commit):
		r.Message = w.absent()
	}
	return r
}

// absent says why the commit that is waited for has not come.
func (w *waited) absent() string {
	if w.standing.Is == status.StandsUnknown && w.standing.Message != "" {
		return fmt.Sprintf("whether the head contains commit %s is not known: %s", short(w.commit), w.standing.Message)
	}
	return fmt.Sprintf("commit %s has not been seen on the branch", short(w.commit))
}

// has reports whether a status has what is waited for.
func (w *waited) has(s *status.Status) bool {
	if !w.at(s.Applied) {
		return false
	}
	if w.machine == "" {
		return s.Converged && len(w.unfinished(s)) == 0
	}
	list := w.draining(s)
	return len(list) > 0 && !slices.ContainsFunc(list, func(m status.MachineStatus) bool { return m.Draining.Left > 0 })
}

// jobs reports whether w is for jobs that are named, or picked by their labels.
func (w *waited) jobs() bool { return w.group.Name != "" || !w.group.Selector.Empty() }

// unfinished says of each batch job that is waited for by itself how far it is, if
// it is not done.
func (w *waited) unfinished(s *status.Status) []string {
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
func (w *waited) blockers(s *status.Status) []status.Blocker {
	switch {
	case w.on || w.machine != "" || s.Master != nil:
		return nil
	case !w.at(s.Commit):
		return nil // that commit may change it
	case s.Applied != s.Commit && !slices.ContainsFunc(s.Suspended, func(x status.SuspensionStatus) bool { return x.All() }):
		return nil // so may the newest
	case len(s.Pending) > 0:
		return nil // so may the rest of it
	}
	var out []status.Blocker
	for _, b := range s.Blocked {
		if b.Until.IsZero() || b.Until.After(w.end) {
			out = append(out, b)
		}
	}
	return out
}

// object returns the field of the object that w.machine may be.
func (w *waited) object() string {
	return schema.ObjectKey{Kind: schema.KindMachine, Name: w.machine}.Field()
}

// draining returns the machines that w.machine drains.
func (w *waited) draining(s *status.Status) []status.MachineStatus {
	return slices.DeleteFunc(slices.Clone(s.Machines), func(m status.MachineStatus) bool {
		return m.Draining == nil || m.Name != w.machine && m.Draining.Object != w.object()
	})
}

// subject names what is waited for in a cell.
func (w *waited) subject(s *status.Status) string {
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
func (w *waited) many() bool { return w.group.Name == "" && !w.group.Selector.Empty() }

// reached says in which way what is waited for is as it shall be.
func (w *waited) reached(s *status.Status) string {
	done := w.jobs() && !slices.ContainsFunc(s.Jobs, func(j status.JobStatus) bool { return j.Kind != schema.Batch })
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
func (w *waited) print(std stdio, s *status.Status, done bool) error {
	blockers := w.blockers(s)
	switch {
	case w.elsewhere(s):
		screen.Printf(std.err, "muster: %s; the head is %s\n", w.standing.Message, short(s.Commit))
		err := screen.Fprintf(std.err, "hint: it may be on another branch, or a forced push has taken it away; wait for the commit of the merge instead\n")
		return err
	case w.machine != "":
		return w.printDrained(std, s, done)
	case done && w.superseded(s):
		err := screen.Fprintf(std.out, "%s %s at %s: %s is superseded by it, which contains it\n", w.subject(s), w.reached(s), short(s.Applied), short(w.commit))
		return err
	case done:
		err := screen.Fprintf(std.out, "%s %s at %s\n", w.subject(s), w.reached(s), short(s.Applied))
		return err
	case len(blockers) > 0:
		return w.printBlocked(std, s, blockers)
	}
	verb := "has"
	if w.many() {
		verb = "have"
	}
	screen.Printf(std.err, "muster: %s %s not converged: head %s, applied %s: %s\n", w.subject(s), verb, short(s.Commit), short(s.Applied),
		strings.Join(slices.Concat(w.missing(s), s.Waiting, w.unfinished(s)), "; "))
	hint := "see muster status"
	if len(w.missing(s)) > 0 {
		hint = "git push, then muster reconcile; see muster status"
	}
	err := screen.Fprintf(std.err, "hint: %s\n", hint)
	return err
}

// missing says that the commit which is waited for has not come.
func (w *waited) missing(s *status.Status) []string {
	if w.commit == "" || w.at(s.Commit) {
		return nil
	}
	return []string{w.absent()}
}

// mostBlockers is how many are shown, beside the number of the others.
const mostBlockers = 5

// printBlocked says what a person has to act on, and what to type.
func (w *waited) printBlocked(std stdio, s *status.Status, blockers []status.Blocker) error {
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
	screen.Printf(std.err, "muster: %s cannot converge by itself: %s\n", w.subject(s), strings.Join(said, "; "))
	err := screen.Fprintf(std.err, "hint: %s\n", strings.Join(next, "; "))
	return err
}

// printDrained says whether the machines of w are drained.
func (w *waited) printDrained(std stdio, s *status.Status, done bool) error {
	list := w.draining(s)
	if done {
		err := screen.Fprintf(std.out, "cell %s: %s drained\n", s.Cell, machines(list))
		return err
	}
	if len(list) == 0 {
		screen.Printf(std.err, "muster: cell %s drains no machine named %s at %s\n", s.Cell, w.machine, short(s.Applied))
		for _, d := range s.Unmatched { // such as that no machine of this name has ever joined
			if w.speaksOf(d) {
				screen.Printf(std.err, "muster: %s\n", d.Error())
			}
		}
		err := screen.Fprintf(std.err, "hint: machine: %q: {drain: {}} in the repository does, when that machine has joined; muster status lists the machines\n", w.machine)
		return err
	}
	for _, m := range list {
		if m.Draining.Left > 0 {
			screen.Printf(std.err, "muster: machine %s is %s\n", m.Name, m.Draining)
		}
	}
	err := screen.Fprintf(std.err, "hint: see muster status machine %s\n", list[0].Name)
	return err
}

// machines says how many machines are meant.
func machines(list []status.MachineStatus) string {
	if len(list) == 1 {
		return "machine " + list[0].Name + " is"
	}
	return fmt.Sprintf("%d machines are", len(list))
}
