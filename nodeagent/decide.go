package nodeagent

import (
	"cmp"
	"slices"
	"time"

	"github.com/musterhq/muster/schema"
)

// Input is everything that a decision depends on.
type Input struct {
	Machine string
	Boot    string // the machine's boot id now
	Now     time.Time
	Life    Life
	// View is nil until the agent has had one: then nothing is started and
	// nothing is stopped.
	View *View
	Held []Held // in any order
	// Capacity is what the machine has for tasks.
	Capacity schema.Resources
	// Sticky are the sticky directories that are here, in any order.
	Sticky []Sticky
	// Shutdown stops all tasks without ending their generations: the next
	// agent starts them again.
	Shutdown bool
	// Pressure is what was measured of the machine, Limits what follows from it.
	Pressure MachinePressure
	Limits   Limits
	// Removing says that what was removed is still being taken off the disk: what
	// that gives is not known yet.
	Removing bool
}

// Plan is what to do now and what to say.
type Plan struct {
	// Actions are to be done in this order, each as its Kind says.
	Actions []Action
	// Sticky are to be done as their Kind says, in any order.
	Sticky []StickyAction
	// Checks are the health checks that shall go on; all others end.
	Checks []Check
	// Tasks are the report's entries, by task and generation. They tell the
	// input's state, not that after Actions.
	Tasks []schema.TaskStatus
	// Wake is when to decide again if nothing happens before; zero: never.
	Wake time.Time
	// Alive counts the generations that may have a process.
	Alive int
	// Overload is for the report.
	Overload *schema.Overload
	// Withheld are the generations that must never run twice and are not started
	// since no master has confirmed them in this life, sorted as Tasks are.
	Withheld []schema.TaskRef
}

// ActionKind is what an Action does.
type ActionKind string

// The kinds of action.
const (
	// Start writes the assignment to disk if it is not there, verifies its
	// ports, and starts Incarnation; of an alloc it makes what holds its tasks.
	Start ActionKind = "start"
	// Term records Cause as the incarnation's Stop if it has none, and then
	// sends SIGTERM, or removes what was made for an alloc.
	Term ActionKind = "term"
	// Kill sends SIGKILL to all of the incarnation.
	Kill ActionKind = "kill"
	// Limit sets Limits on a running incarnation; what cannot be set now is
	// noted.
	Limit ActionKind = "limit"
	// Reap records Exit as the incarnation's: it ended with the machine's
	// last boot, and nobody saw how.
	Reap ActionKind = "reap"
	// End records Cause as the generation's End.
	End ActionKind = "end"
	// Prune removes the directory of an old incarnation.
	Prune ActionKind = "prune"
	// Remove removes the generation's directory.
	Remove ActionKind = "remove"
)

// Action is one thing to do to one generation.
type Action struct {
	Kind        ActionKind
	Task        schema.TaskName
	Generation  uint64
	Incarnation int                // for Start, Term, Kill, Limit, Reap, Prune
	Assignment  *schema.Assignment // for Start
	Cause       *schema.Cause      // for Term, End
	Exit        *schema.Exit       // for Reap
	Unconfirmed bool               // for Start: see Incarnation.Unconfirmed
	Limits      TaskLimits         // for Limit
	// Clear says, for Start and End, that the files in the task's work directory
	// are to be removed first: they are what was too much.
	Clear bool
	// Reason and Bytes say, for Prune and Remove, why, and what was measured of
	// what goes.
	Reason Reason
	Bytes  int64
}

const (
	// ReportFor is how long an ended generation that is out of the view is
	// still reported, so that whoever asks finds its end there.
	ReportFor = 10 * time.Minute
	// killAgain is the time between two SIGKILLs: one can meet a task that
	// is just being started by its keeper.
	killAgain = 5 * time.Second
	// evictionGrace is the longest grace period of a task that stops for want of
	// memory or disk: until it has ended, it may take more.
	evictionGrace = 10 * time.Second
	// stuckAfter is how long after the first SIGKILL the last one is sent of
	// which it is said that it does not help.
	stuckAfter = 2 * killAgain
)

// item is a generation of a task: in the view, on the machine, or both.
type item struct {
	task       schema.TaskName
	generation uint64
	assigned   *schema.Assignment // nil: not in the view
	held       *Held              // nil: never started here
}

// decider gathers the plan of one call of Decide.
type decider struct {
	in   Input
	plan Plan
	// newest is the data that the view has of a generation.
	newest map[schema.TaskRef]*schema.Job
	// evicted says why generations stop that the machine has no room for.
	evicted map[schema.TaskRef]*schema.Cause
	// collecting says that remains are being removed for want of disk.
	collecting bool
	idlest     *Sticky // of those whose tasks are not here, the one for longest
	slack      int64   // memory that each task that exceeds its limit gets above it
	allocs     allocs
}

// Decide compares what the machine shall run with what it holds.
func Decide(in Input) Plan {
	d := &decider{in: in, newest: map[schema.TaskRef]*schema.Job{}, evicted: map[schema.TaskRef]*schema.Cause{}}
	items := join(in)
	d.slack = slack(in.Capacity.RAMBytes, items)
	d.allocs = allocsOf(items)
	for _, it := range items {
		if it.assigned != nil {
			d.newest[schema.TaskRef{Task: it.task, Generation: it.generation}] = it.assigned.Job
		}
	}
	d.sticky(items)
	d.collect(items)
	d.evictions()
	d.plan.Overload = d.overload()
	for len(items) > 0 {
		n := 1
		for n < len(items) && items[n].task == items[0].task {
			n++
		}
		d.task(items[:n])
		items = items[n:]
	}
	return d.plan
}

// join returns what is in the view, held or both, by task and generation.
func join(in Input) []item {
	var items []item
	if in.View != nil {
		for i := range in.View.Assignments {
			a := &in.View.Assignments[i]
			items = append(items, item{task: a.Task, generation: a.Generation, assigned: a})
		}
	}
	for i := range in.Held {
		h := &in.Held[i]
		items = append(items, item{task: h.Assignment.Task, generation: h.Assignment.Generation, held: h})
	}
	slices.SortStableFunc(items, func(a, b item) int {
		return cmp.Or(a.task.Compare(b.task), cmp.Compare(a.generation, b.generation))
	})
	joined := items[:0]
	for _, it := range items {
		if n := len(joined); n > 0 && joined[n-1].task == it.task && joined[n-1].generation == it.generation {
			joined[n-1].assigned = cmp.Or(joined[n-1].assigned, it.assigned)
			joined[n-1].held = cmp.Or(joined[n-1].held, it.held)
			continue
		}
		joined = append(joined, it)
	}
	return joined
}

// task decides for all generations of one task, oldest first.
func (d *decider) task(generations []item) {
	alive, newest := 0, d.allocs.newest[generations[0].task]
	for _, it := range generations {
		if it.held != nil && it.held.Alive() {
			alive++
		}
	}
	d.plan.Alive += alive
	for i := len(generations) - 1; i >= 0; i-- {
		it := generations[i]
		switch h := it.held; {
		case h == nil:
			if it.generation == newest && alive == 0 {
				d.start(it)
			}
		case h.End != nil:
		case h.Alive():
			d.alive(it, d.stopCause(it, newest))
		default:
			d.down(it, d.stopCause(it, newest), alive > 0)
		}
	}
	for _, it := range generations {
		d.report(it, newest)
	}
}

// stopCause returns why it shall not run, nil if it shall.
func (d *decider) stopCause(it item, newest uint64) *schema.Cause {
	cause := schema.Cause{Machine: d.in.Machine, Generation: it.generation, At: d.in.Now}
	switch {
	case it.assigned != nil && it.assigned.Stop != nil:
		cause.Kind, cause.Message, cause.Resource = it.assigned.Stop.Kind, it.assigned.Stop.Message, it.assigned.Stop.Resource
	case d.in.View != nil && it.assigned == nil:
		cause.Kind, cause.Message = schema.CauseSuperseded, "it is no longer assigned to this machine"
	case d.in.View != nil && it.generation != newest:
		cause.Kind, cause.Message = schema.CauseSuperseded, "a newer generation is assigned to this machine"
	case d.in.Shutdown && d.allocGone(it) == "":
		cause.Kind, cause.Message = schema.CauseShutdown, "the agent is stopping all tasks"
	default:
		why := d.allocGone(it)
		if why == "" {
			return nil
		}
		cause.Kind, cause.Message = schema.CauseAllocGone, why
	}
	return &cause
}

// alive decides for a generation that has a process.
func (d *decider) alive(it item, stop *schema.Cause) {
	c := it.held.last()
	if c.Busy {
		return
	}
	if c.Boot != d.in.Boot {
		d.act(it, Action{Kind: Reap, Incarnation: c.Number, Exit: &schema.Exit{
			Incarnation: c.Number, Code: -1, At: d.in.Now, Message: "the machine was restarted",
		}})
		return
	}
	if stop == nil {
		stop = c.Stop // what was to stop once, stops
	}
	if stop == nil {
		stop = cmp.Or(d.evicted[it.held.ref()], d.overDisk(it, c), d.unhealthy(it, c))
	}
	if stop == nil {
		d.check(it, c)
		d.limit(it, c)
		return
	}
	if d.allocs.inside[allocKey{it.task, it.generation}] > 0 {
		return // they are told to stop, too, and it stays until they have
	}
	if c.TermAt.IsZero() {
		d.act(it, Action{Kind: Term, Incarnation: c.Number, Cause: stop})
		return
	}
	grace := time.Duration(it.job().Task.GraceSeconds) * time.Second
	if stop.Kind == schema.CauseOutOfResources && stop.Resource != schema.MachineCPU {
		grace = min(grace, evictionGrace)
	}
	at := due(d.in.Now, c.TermAt, grace)
	if !c.KilledAt.IsZero() {
		at = due(d.in.Now, c.KilledAt, killAgain)
	}
	if at.After(d.in.Now) {
		d.wake(at)
		return
	}
	d.act(it, Action{Kind: Kill, Incarnation: c.Number})
}

// down decides for a generation that has no process and has not ended: whether
// it ends now, starts again, or waits.
func (d *decider) down(it item, stop *schema.Cause, blocked bool) {
	h := it.held
	if cause := d.end(h, it.job(), stop); cause != nil {
		d.act(it, Action{Kind: End, Cause: cause, Clear: clears(h.last())})
		return
	}
	if stop != nil || d.in.View == nil || blocked {
		return // shutdown, or nothing is known yet, or its task runs elsewhere
	}
	if at := nextStart(h, it.job(), d.in.Now, d.in.Boot); at.After(d.in.Now) {
		d.wake(at)
		return
	}
	d.start(it)
}

// end returns how h ends, nil if it goes on.
func (d *decider) end(h *Held, job *schema.Job, stop *schema.Cause) *schema.Cause {
	cause := schema.Cause{Machine: d.in.Machine, Generation: h.Assignment.Generation, At: d.in.Now}
	c := h.last()
	if c != nil {
		cause.Exit = c.Exit
	}
	used := usedUp(h, job.Task.RestartPolicy(), d.in.Boot)
	switch {
	case finished(h, job.Kind):
		cause.Kind = schema.CauseFinished
	case stop != nil && stop.Kind != schema.CauseShutdown:
		cause.Kind, cause.Message, cause.Resource = stop.Kind, stop.Message, stop.Resource
	case c != nil && evicts(c.Stop):
		cause.Kind, cause.Message, cause.Resource = c.Stop.Kind, c.Stop.Message, c.Stop.Resource
	case h.Refused != nil:
		cause.Kind, cause.Message, cause.Resource = h.Refused.Kind, h.Refused.Message, h.Refused.Resource
	case used != "":
		cause.Kind, cause.Message = schema.CauseFailed, used
		if c.Stop != nil && c.Stop.Kind == schema.CauseOutOfResources {
			cause.Resource = c.Stop.Resource
		}
	default:
		return nil
	}
	return &cause
}

// evicts reports whether a stop is for the machine's sake: the cell finds another
// place.
func evicts(stop *schema.Cause) bool {
	return stop != nil && stop.Kind == schema.CauseOutOfResources && stop.Resource != schema.OwnDisk
}

// clears reports whether an incarnation that has ended left files that were too
// much.
func clears(c *Incarnation) bool {
	return c != nil && c.Stop != nil && c.Stop.Kind == schema.CauseOutOfResources &&
		(c.Stop.Resource == schema.OwnDisk || c.Stop.Resource == schema.MachineDisk)
}

// start starts the next incarnation of it, unless all tasks shall stop.
func (d *decider) start(it item) {
	if d.in.Shutdown {
		return
	}
	why, neverTwice := d.withheld(it)
	if neverTwice {
		d.plan.Withheld = append(d.plan.Withheld, schema.TaskRef{Task: it.task, Generation: it.generation})
	}
	if why != "" || d.blockedBy(it) != "" {
		return
	}
	n := 1
	if it.held != nil && len(it.held.Incarnations) > 0 {
		n = it.held.last().Number + 1
	}
	a := Action{Kind: Start, Incarnation: n, Assignment: it.assigned, Unconfirmed: d.in.Life.Confirmed.IsZero()}
	if it.held != nil {
		a.Clear = clears(it.held.last())
	}
	d.act(it, a)
}

func (d *decider) act(it item, a Action) {
	a.Task, a.Generation = it.task, it.generation
	d.plan.Actions = append(d.plan.Actions, a)
}

// wake makes sure that the next decision is not later than at.
func (d *decider) wake(at time.Time) {
	if d.plan.Wake.IsZero() || at.Before(d.plan.Wake) {
		d.plan.Wake = at
	}
}

// jobOf returns the newest version of h.
func (d *decider) jobOf(h *Held) *schema.Job {
	return cmp.Or(d.newest[h.ref()], h.Assignment.Job)
}

// job returns the newest version of it: that of the view applies in place.
func (it item) job() *schema.Job {
	if it.assigned != nil {
		return it.assigned.Job
	}
	return it.held.Assignment.Job
}
