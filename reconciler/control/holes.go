package control

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/musterhq/muster/placement"
	"github.com/musterhq/muster/placement/rebalance"
	"github.com/musterhq/muster/reconciler/control/facts"
	"github.com/musterhq/muster/reconciler/control/snapshot"
	"github.com/musterhq/muster/schema"
)

// A task that has waited for long may have room on no machine, and yet there is enough in
// all: a few tasks that move to others leave it. A waiting task is worth as many restarts as
// holeMoves, of tasks of its own band or of lower ones, none of which comes to be spread
// worse or goes below the disruption budget of its job. Those that leave the machine at
// once hold the room for it as victims do, see claim.

const (
	// holeAfter is how long a task waits before others are moved for it.
	holeAfter = placement.DefaultReserveAfter
	// holeMoves is how many tasks are moved for one that waits.
	holeMoves = 3
	// holeAgain is for how long a task that was moved is not moved for another one.
	holeAgain = time.Hour
	// A search looks at the machines that lack the least, and at so many in all: some
	// hundredths of a second.
	holeMachines, holeChecks = 16, 1 << 19
	// holeSearches is how many jobs are searched for in one step.
	holeSearches = 4
)

// holes moves tasks to make room for those that wait.
type holes struct {
	pass
	search  holeSearch
	moves   *moves
	waiting *scheduler
}

// open makes room for tasks that have found none in this step, of the jobs whose turn it
// is: one of a job, of high priority and long waits first.
func (s *holes) open() {
	if s.waiting.noPreempt || len(s.waiting.why) == 0 || len(s.Up()) < 2 {
		return
	}
	s.search.held = heldFor(s.Facts, s.waiting.why)
	type waiter struct {
		ask    snapshot.Ask
		waited time.Duration
	}
	var list []waiter
	seen := map[schema.JobName]bool{}
	for _, a := range s.waiting.asks.list {
		name := a.Task.JobName
		if _, pending := s.waiting.why[a.Task]; seen[name] || !pending {
			continue
		}
		seen[name] = true
		began := lookedAt(name, s.Now)
		s.book(name, s.At(began.Add(repairEvery)))
		if !s.Now.Before(began.Add(repairLooks)) {
			continue
		}
		if p := s.waiting.placement(a); mayOpen(&a, &p) {
			list = append(list, waiter{a, p.Waited})
		}
	}
	slices.SortFunc(list, func(a, b waiter) int {
		return cmp.Or(cmp.Compare(b.ask.Job.Priority, a.ask.Job.Priority), cmp.Compare(b.waited, a.waited), a.ask.Task.Compare(b.ask.Task))
	})
	for _, w := range list[:min(len(list), holeSearches)] {
		why, until := s.moves.bounds.refuse(1)
		s.bookCell(until)
		if why != "" || s.moves.bounds.crowded(1) != "" {
			return
		}
		if h, ok := s.search.hole(w.ask); ok {
			s.openFor(w.ask, &h, w.waited)
		}
	}
}

// mayOpen reports whether tasks are moved for one that waits: as p asks.
func mayOpen(a *snapshot.Ask, p *placement.Ask) bool {
	return a.Job.Kind != schema.System && a.Job.AllocSet == "" && p.On == "" && p.Together == 0 && p.Gang == nil && p.Waited >= holeAfter
}

// openFor moves what a hole takes, as far as that can be at once.
func (s *holes) openFor(a snapshot.Ask, h *rebalance.Hole, waited time.Duration) {
	list, by := stage(h)
	if by == "" && s.waiting.stops.unclaimed > 0 {
		return // one of these may be the first of a hole for the same task
	}
	if why, until := s.moves.bounds.refuse(len(h.Moves)); why != "" {
		s.bookCell(until)
		return
	}
	if s.moves.bounds.crowded(len(list)) != "" {
		return
	}
	what := fmt.Sprintf("room on %s for %s, which has waited for %d min", h.Machine, a.Task.Short(), int(waited.Minutes()))
	for _, m := range list {
		cause := schema.Cause{By: by, To: m.To, Message: fmt.Sprintf("moves to %s, which makes %s", m.To, what)}
		if by == "" {
			cause.Message = fmt.Sprintf("moves to %s, and %s then make %s", m.To, schema.Count(len(h.Moves)-1, "more move"), what)
		}
		s.moves.move(m.Task.JobName, *s.Task(m.Task), cause)
		if by != "" && s.Task(m.Task).Stop != nil {
			s.waiting.preempted[by] = append(s.waiting.preempted[by], snapshot.On{Task: m.Task, Machine: m.From})
			s.another() // it has a claim from now on, which counts for the spread of its job
		}
	}
}

// stage returns the moves of a hole that can be done now, and the task that then has a
// claim on what they leave: all, if each leaves the hole, else the first, which claims
// nothing.
func stage(h *rebalance.Hole) (list []rebalance.Move, by string) {
	if slices.ContainsFunc(h.Moves, func(m rebalance.Move) bool { return m.From != h.Machine }) {
		return h.Moves[:1], ""
	}
	return h.Moves, h.For.Short()
}

// holeSearch finds holes.
type holeSearch struct {
	*facts.Facts
	cell *snapshot.Cell
	held []heldMachine // sorted by name
	// waiting says what tasks wait for that may be moved later: these count as if they could be moved
	// now. nil for a search that finds what can be done now.
	waiting map[schema.TaskName]stay
}

// heldMachine is a machine that is held for a task which has waited for long.
type heldMachine struct {
	name     string
	waiter   schema.TaskName
	priority schema.Priority
}

// heldFor returns the machines that are held, by what was said of tasks that wait.
func heldFor(f *facts.Facts, why map[schema.TaskName]placement.Why) (list []heldMachine) {
	for task, w := range why {
		if want := f.Admitted(task.JobName); w.Held != "" && want != nil {
			list = append(list, heldMachine{w.Held, task, want.Priority})
		}
	}
	slices.SortFunc(list, func(a, b heldMachine) int { return cmp.Or(cmp.Compare(a.name, b.name), a.waiter.Compare(b.waiter)) })
	return list
}

// avoids adds to an ask the machines that are held for others of its priority or a higher one:
// they would be in the way of these. Those that are held for the one that waits are not among
// them.
func (s *holeSearch) avoids(a *placement.Ask, waits schema.TaskName) {
	avoid := slices.Clone(a.Avoid)
	for _, h := range s.held {
		if h.waiter != waits && h.priority >= a.Priority && !slices.Contains(avoid, h.name) {
			avoid = append(avoid, h.name)
		}
	}
	slices.Sort(avoid)
	a.Avoid = avoid
}

// hole finds the fewest moves that make room for a task; false if there are none, or none
// are needed any more.
func (s *holeSearch) hole(a snapshot.Ask) (rebalance.Hole, bool) {
	ask, _ := s.cell.Placement(a)
	s.avoids(&ask, a.Task)
	search := rebalance.Search{
		Snapshot: s.cell.Snapshot(), Moves: holeMoves, Machines: holeMachines, Checks: holeChecks,
		May: func(t *placement.Task, before []rebalance.Move) (placement.Ask, bool) { return s.may(&a, t, before) },
	}
	h, ok := search.Hole(ask)
	return h, ok && len(h.Moves) > 0
}

// may reports whether a task may be moved for another one, and what it asks for then: one
// of a job only, since its budget is of those that are where they are.
func (s *holeSearch) may(waits *snapshot.Ask, t *placement.Task, before []rebalance.Move) (placement.Ask, bool) {
	own, _ := waits.Job.Priority.Band().Floor()
	if want := s.Admitted(t.Name.JobName); want != nil {
		if floor, _ := want.Priority.Band().Floor(); floor > own {
			return placement.Ask{}, false
		}
	}
	if slices.ContainsFunc(before, func(m rebalance.Move) bool { return m.Task.JobName == t.Name.JobName }) {
		return placement.Ask{}, false
	}
	ask, ok, _ := s.movable(t, snapshot.UnevenFor, holeAgain)
	s.avoids(&ask, waits.Task)
	return ask, ok
}

// movable reports whether a task that has been where it is for so long may be moved for the
// good of others, and what it asks for then. One that was moved before stays for again at least.
// The answer holds until then if nothing happens.
func (s *holeSearch) movable(t *placement.Task, stays, again time.Duration) (ask placement.Ask, ok bool, until facts.Until) {
	why, until := s.stays(t, stays, again)
	switch {
	case why == (stay{}):
	case s.waiting == nil || !why.ends:
		return ask, false, until
	default:
		s.waiting[t.Name] = why
	}
	name := t.Name.JobName
	ask, changes := s.cell.Placement(snapshot.Ask{Task: t.Name, Job: s.Admitted(name), Data: s.Job(name).Admitted})
	return ask, true, until.Or(changes)
}

// stays says why a task may not be moved for the good of others, the zero value if it may be: see
// movable.
func (s *holeSearch) stays(t *placement.Task, stays, again time.Duration) (why stay, until facts.Until) {
	name := t.Name.JobName
	r, want, job := s.Task(t.Name), s.Admitted(name), s.Job(name)
	switch {
	case r == nil || want == nil || r.Machine != t.Machine:
		return stay{text: "its job is not admitted"}, until
	case r.Data != job.Admitted || job.Rollout != nil:
		return stay{text: "its job is being updated"}, until
	case len(s.Asked[name]) > 0:
		return stay{text: "its job is being restarted"}, until
	case want.Kind != schema.Service:
		return stay{text: "its job is no service: it is of kind ", of: string(want.Kind)}, until
	case want.AllocSet != "":
		return stay{text: "it runs in an alloc"}, until
	case neverMoved(want) != "":
		return stay{text: "tasks of its job are never moved, since ", of: neverMoved(want)}, until
	}
	recent, until := s.Waits(r.At.Add(stays), stays)
	if recent {
		why = stay{text: "it came at ", since: r.At, until: r.At.Add(stays), ends: true}
	}
	for _, c := range slices.Backward(r.Causes) { // it may have ended for something else since
		if c.Kind == schema.CauseRebalance {
			waits, changes := s.Waits(c.At.Add(again), again)
			if until = until.Or(changes); waits {
				why = stay{text: "it was moved at ", since: c.At, until: c.At.Add(again), ends: true}
			}
			break
		}
	}
	if why != (stay{}) {
		return why, until
	}
	blocked, changes := s.Blocked(name, r)
	return stay{text: blocked, ends: blocked != ""}, until.Or(changes)
}

// stay is why a task stays where it is. Many are found, and few said.
type stay struct {
	text, of     string
	since, until time.Time // zero, or what text ends with and for how long that counts
	ends         bool      // it may be moved later, if nothing changes of what is declared
}

func (w stay) String() string {
	if w.until.IsZero() {
		return w.text + w.of
	}
	return fmt.Sprintf("%s%s, and stays until %s", w.text, w.since.UTC().Format(time.RFC3339), w.until.UTC().Format(time.RFC3339))
}

// noneForGangs says that no hole is opened for a task that gets its place together with others.
const noneForGangs = "no tasks are moved for a gang"

// Room says which moves of others would make room for a task that waits, and what becomes
// of that; "" if there is nothing to say. reserved is what is held back for tasks, nil for their
// limits, and last what the newest step decided.
func Room(f *facts.Facts, reserved snapshot.Reservations, last *Output, task schema.TaskName) string {
	want, job := f.Admitted(task.JobName), f.Job(task.JobName)
	if _, pending := last.Why[task]; !pending || want == nil || len(f.Up()) < 2 {
		return ""
	}
	s := holeSearch{Facts: f, cell: snapshot.New(f, nil), held: heldFor(f, last.Why)}
	s.cell.Reserve(reserved)
	a := snapshot.Ask{Task: task, Job: want, Data: job.Admitted}
	p, _ := s.cell.Placement(a)
	switch {
	case (p.Together > 0 || p.Gang != nil) && p.Waited >= holeAfter:
		return noneForGangs
	case !mayOpen(&a, &p):
		return ""
	}
	h, ok := s.hole(a)
	if !ok {
		s.waiting = map[schema.TaskName]stay{}
		h, ok = s.hole(a)
	}
	if !ok {
		return fmt.Sprintf("no %d moves of running tasks make room for it", holeMoves)
	}
	text, wait := movesOf(&h), s.waitsOf(&h)
	bounds := newMoveBounds(f)
	bounds.holding, bounds.draining = last.Holding, last.Draining
	if why, _ := bounds.refuse(len(h.Moves)); why != "" {
		wait = append(wait, why)
	}
	if len(wait) > 0 {
		return text + ", and waits: " + strings.Join(wait, "; ")
	}
	return fmt.Sprintf("%s, at %s", text, f.Say(lookedAt(task.JobName, f.Now).Add(repairEvery)))
}

// movesOf says which moves make a hole.
func movesOf(h *rebalance.Hole) string {
	list := make([]string, 0, len(h.Moves))
	for _, m := range h.Moves {
		list = append(list, fmt.Sprintf("%s from %s to %s", m.Task.Short(), m.From, m.To))
	}
	return fmt.Sprintf("moving %s makes room on %s", strings.Join(list, ", then "), h.Machine)
}

// waitsOf says what the moves of a hole wait for that cannot be done now.
func (s *holeSearch) waitsOf(h *rebalance.Hole) (list []string) {
	for _, m := range h.Moves {
		if why, waits := s.waiting[m.Task]; waits {
			list = append(list, fmt.Sprintf("%s stays for now, since %s", m.Task.Short(), why))
		}
	}
	return list
}
