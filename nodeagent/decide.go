package nodeagent

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/musterhq/muster/schema"
)

const (
	// killAgain is the time between two SIGKILLs: one can meet a task that
	// is just being started by its keeper.
	killAgain = 5 * time.Second
	// evictionGrace is the longest grace period of a task that stops for lack of
	// memory or disk: until it has ended, it may take more.
	evictionGrace = 10 * time.Second
	// stuckAfter is how long after the first SIGKILL the last one is sent of
	// which it is said that it does not help.
	stuckAfter = 2 * killAgain
)

// decider gathers the plan of one call of Decide.
type decider struct {
	in   Input
	plan Plan
	// evicted says why generations stop that the machine has no room for.
	evicted map[schema.TaskRef]*schema.Cause
	slack   int64 // memory that each task that exceeds its limit gets above it
	allocs  allocs
}

// Decide compares what the machine shall run with what it holds.
func Decide(in Input) Plan {
	items := join(in.View, in.Held)
	d := &decider{in: in, slack: slack(in.Capacity.RAMBytes, items), allocs: allocsOf(items)}
	collecting := in.View != nil && d.collect(items)
	e := evict(&in, items, collecting)
	d.evicted = e.causes
	d.wake(e.wake)
	d.plan.Overload = in.Pressure.asks(in.Held)
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

// collect plans what is removed from the disk: sticky directories, and what is left of
// what has ended. It reports whether that is for lack of disk: then what it gives is
// seen before a task has to stop.
func (d *decider) collect(items []item) bool {
	dirs := planSticky(d.in.Sticky, items, d.in.Now)
	c := collectNow(collecting{
		remains: remainsOf(items, d.in.Boot), idlest: dirs.idlest, keep: d.in.Limits.Keep,
		short: d.in.Limits.lackOfDisk(&d.in.Pressure.Room), removing: d.in.Removing, now: d.in.Now,
	})
	for _, r := range c.gone {
		a := Action{Kind: Remove, Task: r.Task, Generation: r.Generation, Reason: r.Reason, Bytes: r.Bytes}
		if r.Incarnation != 0 {
			a.Kind, a.Incarnation = Prune, r.Incarnation
		}
		d.plan.Actions = append(d.plan.Actions, a)
	}
	d.plan.Sticky = slices.Concat(dirs.actions, c.sticky)
	d.wake(dirs.wake)
	d.wake(c.wake)
	return c.forDisk
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
	cause := d.in.cause(it.generation)
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
		stop = cmp.Or(d.evicted[it.held.ref()], d.overDisk(it, c), d.unhealthy(it, c), d.overtime(it, c))
	}
	if stop == nil {
		if check := it.check(c); check != nil {
			d.plan.Checks = append(d.plan.Checks, *check)
		}
		d.limit(it, c)
		d.renew(it, c)
		return
	}
	if d.allocs.inside[allocKey{it.task, it.generation}] > 0 {
		return // they stop too, and it stays until they have ended
	}
	d.stop(it, c, stop)
}

// stop takes an incarnation one step further on its way to its end.
func (d *decider) stop(it item, c *Incarnation, stop *schema.Cause) {
	grace := it.job().Task.Grace()
	if stop.Kind == schema.CauseOutOfResources && stop.Resource != schema.MachineCPU {
		grace = min(grace, evictionGrace)
	}
	if c.TermAt.IsZero() {
		if !d.unlist(it, c, stop) && !d.beforeSignal(it, c, stop, grace) {
			d.act(it, Action{Kind: Term, Incarnation: c.Number, Cause: stop})
		}
		return
	}
	began := c.TermAt
	if !c.StoppingAt.IsZero() {
		began = c.StoppingAt
	}
	at := due(d.in.Now, began, grace)
	if !c.KilledAt.IsZero() {
		at = due(d.in.Now, c.KilledAt, killAgain)
	}
	if at.After(d.in.Now) {
		d.wake(at)
		return
	}
	d.act(it, Action{Kind: Kill, Incarnation: c.Number})
}

// unlist reports whether the stop has to wait until nothing is sent to the task any more. The
// grace period begins after that.
func (d *decider) unlist(it item, c *Incarnation, stop *schema.Cause) bool {
	if d.in.Unlist.Within <= 0 || c.Unlisted || !serves(stop) || len(it.held.Assignment.Ports) == 0 || c.PID == 0 || c.Step > 0 || !c.StoppingAt.IsZero() {
		return false
	}
	if c.UnlistingAt.IsZero() {
		d.act(it, Action{Kind: Unlist, Incarnation: c.Number, Cause: stop})
		return true
	}
	at := d.in.Unlist.until(d.in.Now, c.UnlistingAt)
	d.wake(at)
	return at.After(d.in.Now)
}

// beforeSignal reports whether the signal has to wait, for the task's stop command or its
// delay, and begins them.
func (d *decider) beforeSignal(it item, c *Incarnation, stop *schema.Cause, grace time.Duration) bool {
	command, timeout := it.job().Task.Stop.CommandWithin(grace)
	wait := timeout
	if c.StopRan {
		wait = 0
	}
	if serves(stop) {
		wait = max(wait, it.job().Task.Stop.Delay(grace))
	}
	if wait <= 0 || c.PID == 0 || c.Step > 0 {
		return false
	}
	if !c.StoppingAt.IsZero() {
		at := due(d.in.Now, c.StoppingAt, wait)
		d.wake(at)
		return at.After(d.in.Now)
	}
	x := Action{Kind: Delay, Incarnation: c.Number, Cause: stop}
	if len(command) > 0 {
		a := it.held.Assignment // with the ports that it was given
		a.Job = it.job()
		x.Kind, x.Command, x.Timeout = StopCommand, a.Expand(command), timeout
	}
	d.act(it, x)
	return true
}

// serves reports whether requests may still be on their way to a task that is stopped for
// such a cause, and will not be once this is known.
func serves(stop *schema.Cause) bool {
	switch stop.Kind {
	case schema.CauseUnhealthy, schema.CauseOutOfResources, schema.CauseShutdown:
		return false
	}
	return true
}

// overDisk returns why a task has to stop that is over its own disk limit, nil if
// it is not.
func (d *decider) overDisk(it item, c *Incarnation) *schema.Cause {
	excess := diskExcess(c.Usage, &it.job().Task.Resources.Resources)
	if excess == "" {
		return nil
	}
	cause := d.in.cause(it.generation)
	cause.Kind, cause.Resource, cause.Message = schema.CauseOutOfResources, schema.OwnDisk, "disk: "+excess
	return &cause
}

// unhealthy returns why a running incarnation is to be stopped that fails its
// check, nil if it does not.
func (d *decider) unhealthy(it item, c *Incarnation) *schema.Cause {
	failure := it.unhealthy(c)
	if failure == "" {
		return nil
	}
	cause := d.in.cause(it.generation)
	cause.Kind, cause.Message = schema.CauseUnhealthy, failure
	return &cause
}

// overtime returns why what runs before a task is to be stopped that takes too long, nil
// if it does not.
func (d *decider) overtime(it item, c *Incarnation) *schema.Cause {
	before := it.job().Task.Before
	if c.Step == 0 || c.Step > len(before) || c.PID == 0 || before[c.Step-1].TimeoutSeconds == 0 {
		return nil
	}
	b := &before[c.Step-1]
	if at := due(d.in.Now, c.StartedAt, b.Timeout()); at.After(d.in.Now) {
		d.wake(at)
		return nil
	}
	cause := d.in.cause(it.generation)
	cause.Kind, cause.Message = schema.CauseFailed, fmt.Sprintf("it has not ended within %d s", b.TimeoutSeconds)
	return &cause
}

// limit keeps a running incarnation at the limits that it shall have.
func (d *decider) limit(it item, c *Incarnation) {
	if c.PID == 0 || !c.Limited {
		return
	}
	want := it.limits(d.slack)
	if c.Limits == want {
		return
	}
	if c.LimitsTried == want {
		if at := due(d.in.Now, c.LimitsAt, LimitAgain); at.After(d.in.Now) {
			d.wake(at)
			return
		}
	}
	d.act(it, Action{Kind: Limit, Incarnation: c.Number, Limits: want})
}

// renew gives a running incarnation what has changed of what its task is given.
func (d *decider) renew(it item, c *Incarnation) {
	if c.PID == 0 || it.assigned == nil || c.Step > 0 { // the task itself has the newest from its start
		return
	}
	if r, ok := c.Given.renewal(d.in.Versions.changeables(it.assigned)); ok && d.secretMissing(it) == "" {
		d.act(it, Action{Kind: Renew, Incarnation: c.Number, Assignment: it.assigned, Renewal: r})
	}
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
	cause := d.in.cause(h.Assignment.Generation)
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
	why, neverTwice, until := d.in.Life.withholds(it, d.in.Now)
	d.wake(until)
	if neverTwice {
		d.plan.Withheld = append(d.plan.Withheld, schema.TaskRef{Task: it.task, Generation: it.generation})
	}
	if why != "" || d.blockedBy(it) != "" || d.unbrought(it) != "" || d.secretMissing(it) != "" {
		return
	}
	n := 1
	if it.held != nil && len(it.held.Incarnations) > 0 {
		n = it.held.last().Number + 1
	}
	a := Action{Kind: Start, Incarnation: n, Assignment: it.assigned, Unconfirmed: d.in.Life.Confirmed.IsZero()}
	steps := len(it.job().Task.Before)
	a.Step, a.Attempt = min(1, steps), 1
	if it.held != nil {
		a.Clear, a.Step = clears(it.held.last()), it.held.nextStep(steps, d.in.Boot)
		a.Attempt = it.held.nextAttempt(a.Step, steps)
	}
	d.act(it, a)
}

func (d *decider) act(it item, a Action) {
	a.Task, a.Generation = it.task, it.generation
	d.plan.Actions = append(d.plan.Actions, a)
}

// wake makes sure that the next decision is not later than at, if that is not zero.
func (d *decider) wake(at time.Time) { d.plan.Wake = earlier(d.plan.Wake, at) }
