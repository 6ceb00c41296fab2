package nodeagent

import (
	"fmt"
	"slices"
	"time"

	"github.com/musterhq/muster/schema"
)

// Welcome takes the epoch that a master has given to the connection. It errs when the
// agent was welcomed with a higher one before: then that master is not the machine's
// any more.
func (a *Agent) Welcome(epoch uint64, now time.Time) error {
	switch {
	case epoch < a.epoch:
		return fmt.Errorf("epoch %d is lower than %d, which this agent has seen: the master is an old one, or has lost its data", epoch, a.epoch)
	case epoch > a.epoch:
		a.epoch, a.info.Seen.Epoch = epoch, epoch
		a.write(Document{Kind: ViewDocument})
	}
	if a.life.Refused { // it knows nothing any more of what it was assigned before
		a.life.Refused, a.life.Began = false, now
		a.write(Document{Kind: IdentityDocument})
	}
	a.linked = now
	return nil
}

// Unlinked takes in that the link to the master that has welcomed the agent is gone.
func (a *Agent) Unlinked() { a.linked = time.Time{} }

// Refuse takes note that a master has another agent for this machine: nothing is
// started until one has welcomed this agent. What runs goes on. It reports whether
// that is new.
func (a *Agent) Refuse() bool {
	if a.life.Refused {
		return false
	}
	a.life.Refused, a.life.Confirmed = true, time.Time{}
	a.write(Document{Kind: IdentityDocument})
	return true
}

// Assign makes v what the machine shall run. It errs for a view that is older than
// the one there is, or that is not of this cell; then nothing has changed.
//
// That a master has sent a view is of this agent's life: whoever drives it hands
// views of its own session on only, and once, for which the master's store has taken
// the machine's join.
func (a *Agent) Assign(v *schema.View, now time.Time) error {
	if err := checkView(v, a.cfg.Cell); err != nil {
		return err
	}
	switch {
	case v.Epoch < a.epoch:
		return fmt.Errorf("assignments of epoch %d: this agent has seen epoch %d", v.Epoch, a.epoch)
	case a.view != nil && v.Epoch == a.view.Epoch && v.Version == a.view.Version:
		return nil
	case !v.Newer(a.view):
		return fmt.Errorf("assignments of version %d: this agent has version %d", v.Version, a.view.Version)
	}
	a.epoch, a.view, a.versions = max(v.Epoch, a.epoch), v, Versions{}
	a.write(Document{Kind: ViewDocument})
	if a.life.Confirmed.IsZero() {
		a.life.Confirmed = now
		a.log(LogEntry{Kind: LogConfirmed, After: now.Sub(a.life.Began)})
	}
	for _, g := range a.tasks {
		a.correct(g)
	}
	return nil
}

// correct gives a generation whose assignment was damaged that of the view.
func (a *Agent) correct(g *generation) {
	if !g.Guessed {
		return
	}
	if x := a.view.Find(g.Assignment.Task, g.Assignment.Generation); x != nil {
		network := g.Assignment.Network
		g.Assignment, g.Guessed = *x, false
		g.Assignment.Network = network
		a.write(Document{Kind: AssignmentDocument, TaskRef: g.ref()})
	}
}

// checkView errs when a view holds what must not become a path or a command.
func checkView(v *schema.View, cell string) error {
	for i := range v.Assignments {
		a := &v.Assignments[i]
		if _, err := schema.ParseTaskName(a.Task.String()); err != nil {
			return fmt.Errorf("assignment %d: %w", i, err)
		}
		switch {
		case a.Task.Cell != cell:
			return fmt.Errorf("assignment of %s: this machine is of cell %s", a.Task, cell)
		case a.Generation == 0:
			return fmt.Errorf("assignment of %s: no generation", a.Task)
		case a.Job == nil || !a.Job.Runnable():
			return fmt.Errorf("assignment of %s generation %d: no data", a.Task, a.Generation)
		case a.Alloc != nil:
			if _, err := schema.ParseTaskName(a.Alloc.Of(a.Task.JobName).String()); err != nil || a.Alloc.Generation == 0 {
				return fmt.Errorf("assignment of %s generation %d: bad alloc %s", a.Task, a.Generation, a.Alloc)
			}
		}
	}
	return nil
}

// Listing takes in that a master says when nothing is sent to tasks of this machine any more.
func (a *Agent) Listing() { a.listing = true }

// Unlisted takes in that no machine of the cell sends anything new to a generation of a task, as far as a master
// knows; generation 0 is any, of a master of an earlier release. It is about what is being stopped: a
// generation that was not ready for a while, and is again, is sent to again.
func (a *Agent) Unlisted(of schema.TaskRef) {
	for _, g := range a.tasks {
		if g.Assignment.Task == of.Task && (of.Generation == 0 || g.Assignment.Generation == of.Generation) && g.Alive() && a.stops(g) {
			g.last().Unlisted = true
		}
	}
}

// stops reports whether what runs of a generation waits until it is unlisted, or will.
func (a *Agent) stops(g *generation) bool {
	if !g.last().UnlistingAt.IsZero() {
		return true
	}
	if a.view == nil {
		return false
	}
	assigned := a.view.Find(g.Assignment.Task, g.Assignment.Generation)
	return assigned == nil || assigned.Stop != nil
}

// Describe replaces the machine's attributes and notes, for the reports to come.
func (a *Agent) Describe(attributes map[string]string, notes []string) {
	a.info.Attributes, a.info.Notes = attributes, notes
}

// Shutdown stops all tasks without ending their generations: the next agent starts
// them again. Nothing is started from then on.
func (a *Agent) Shutdown() { a.shutdown = true }

// act hands out an action of a plan, with what must be written before it, unless one
// on the same generation has just failed.
func (a *Agent) act(x Action, now time.Time) {
	ref := schema.TaskRef{Task: x.Task, Generation: x.Generation}
	g := a.find(ref)
	if g == nil { // only a start can be of what is not held yet
		g = &generation{FoundTask: FoundTask{Held: Held{Assignment: *x.Assignment}}}
		a.put(g)
	}
	if g.failed != nil && now.Before(g.retry) {
		return
	}
	out := &Act{Action: x, Written: g.Written}
	switch x.Kind {
	case Start:
		g.Incarnations = append(g.Incarnations, Incarnation{Number: x.Incarnation, Process: Process{Boot: a.info.Boot}, Busy: true, Unconfirmed: x.Unconfirmed, Step: x.Step, Attempt: x.Attempt})
		if _, ok := a.sticky[x.Task]; !ok && x.Assignment.Job.Task.Sticky.Has() {
			a.sticky[x.Task] = time.Time{} // the start makes it
		}
		g.Clearing, out.InUse, out.Unkept = x.Clear, a.holder(g), a.unkept(x)
		out.Assignment = withSecrets(x.Assignment, a.view)
	case Renew:
		out.Assignment = withSecrets(x.Assignment, a.view)
	case Term, Unlist, StopCommand, Delay:
		// Who stops it is on disk before the task can see the signal, so that an agent
		// which comes after knows it. The signal does not wait for a disk that refuses
		// it: that the exit was not the task's own will its keeper writes down, too.
		if c := g.last(); c.Stop == nil {
			c.Stop = x.Cause
			a.write(Document{StopDocument, ref, c.Number})
		}
	case Limit:
		g.last().LimitsTried, g.last().LimitsAt = x.Limits, now
	case Reap:
		g.last().Exit = x.Exit
	case End:
		if !g.Written {
			a.write(Document{Kind: AssignmentDocument, TaskRef: ref})
		}
		a.write(Document{Kind: EndDocument, TaskRef: ref})
		g.End, g.Clearing = x.Cause, x.Clear
	case Prune:
		g.Incarnations = slices.DeleteFunc(g.Incarnations, func(c Incarnation) bool { return c.Number == x.Incarnation })
	}
	a.pending.Action = out
}

// holder errs when another generation that may have a process was given one of
// the ports of g, in the network in which g has them: it need not listen yet.
func (a *Agent) holder(g *generation) error {
	own := g.Assignment.OwnNetwork
	if own && g.Assignment.Alloc == nil {
		return nil
	}
	for _, port := range g.Assignment.Ports {
		for _, o := range a.tasks {
			if o == g || !o.Alive() || o.Assignment.OwnNetwork != own || own && o.Assignment.NetworkOf() != g.Assignment.NetworkOf() {
				continue
			}
			for _, p := range o.Assignment.Ports {
				if p.Port == port.Port {
					return fmt.Errorf("port %s (%d): address already in use by %s generation %d", port.Name, port.Port, o.Assignment.Task.Short(), o.Assignment.Generation)
				}
			}
		}
	}
	return nil
}

// Done says that an action was carried out, or has begun to be, or why it could not
// be: then it is tried again after a while.
func (a *Agent) Done(x *Act, err error, now time.Time) {
	ref := schema.TaskRef{Task: x.Task, Generation: x.Generation}
	g := a.find(ref)
	if g == nil {
		return
	}
	switch x.Kind {
	case Unlist:
		g.last().UnlistingAt = now
	case StopCommand, Delay:
		g.last().StoppingAt = now
	case Term:
		g.last().TermAt = now
	case Kill:
		g.last().KilledAt = now
	}
	if err != nil {
		g.failed, g.retry = err, now.Add(retryAfter)
		return
	}
	g.failed, a.acted = nil, true
	switch x.Kind {
	case Renew:
		c := g.last()
		c.Given, c.Renewed = x.Renewal.Given, true
		a.write(Document{GivenDocument, ref, c.Number})
	case Prune:
		a.unsaved.forget(ref, x.Incarnation)
		a.removals.unmeasured = true
	case Remove:
		a.unsaved.forget(ref, 0)
		a.drop(ref)
		a.removals.unmeasured = true
	}
}

// StickyDone says that what was to be done to a sticky directory was done, or that it
// was not there any more, or why it could not be done.
func (a *Agent) StickyDone(x StickyAction, there bool, err error, now time.Time) {
	if err != nil {
		return
	}
	a.acted = true
	switch {
	case x.Kind == Drop:
		delete(a.sticky, x.Task)
		a.removals.unmeasured = true
	case !there: // its start has failed before
		delete(a.sticky, x.Task)
	case x.Kind == Leave:
		a.sticky[x.Task] = now
	case x.Kind == Return:
		a.sticky[x.Task] = time.Time{}
	}
}

// StartOutcome is what has come of a start.
type StartOutcome struct {
	Written bool    // its assignment is on disk
	Process Process // that runs now
	// Network is that of the generation, of one that has its own and of which it is there.
	Network *schema.TaskNetwork
	// Refused says why nothing of it runs; nil: it does. Err is what the disk has
	// refused then, if that is why. Tried says that it was tried to run it, and Fault
	// that this failed for no fault of the task.
	Refused      *schema.Cause
	Err          error
	Tried, Fault bool
}

// Started takes the outcome of a start. It returns the incarnation, nil if it does not
// run.
func (a *Agent) Started(r Running, out *StartOutcome, now time.Time) *Incarnation {
	g := a.find(r.TaskRef)
	if g == nil || g.incarnation(r.Incarnation) == nil {
		return nil
	}
	g.Written = out.Written
	if out.Network != nil {
		g.Assignment.Network = out.Network
	}
	if g.Clearing {
		a.cleared(g)
	}
	if out.Err != nil {
		a.refused(out.Err, now)
	}
	if out.Fault {
		a.changed(a.conditions.SeeStart(out.Refused.Message, now))
	}
	c := g.last()
	switch {
	case out.Refused == nil:
		*c = Incarnation{Number: r.Incarnation, Process: out.Process, Unconfirmed: c.Unconfirmed, Step: c.Step, Attempt: c.Attempt, Given: out.Process.Given}
		g.walk, g.logs = walk{}, ""
		a.changed(a.conditions.SeeStart("", now))
		return c
	case !out.Tried:
		g.Incarnations = g.Incarnations[:len(g.Incarnations)-1]
	default:
		c.Busy, c.Exit = false, &schema.Exit{Incarnation: r.Incarnation, Code: -1, At: now, Message: "could not be started"}
	}
	if g.Refused = out.Refused; out.Refused.Kind == schema.CausePortInUse {
		a.ports.at = time.Time{} // it is reported to the master now, not at the next scan
	}
	return nil
}

// Exited takes the end of an incarnation, as it stands now. It returns how that was,
// nil if it is known already.
func (a *Agent) Exited(r Running, is Process, now time.Time) *schema.Exit {
	g := a.find(r.TaskRef)
	if g == nil {
		return nil
	}
	c := g.incarnation(r.Incarnation)
	if c == nil || c.Exit != nil {
		return nil
	}
	exit := schema.Exit{Code: -1, At: now}
	if is.Exit != nil {
		exit = *is.Exit
	}
	exit.Incarnation = r.Incarnation
	c.Process, c.GoneAt = is, now
	c.Exit = &exit
	g.walk.due = time.Time{}
	return c.Exit
}

// StopCommandRan takes the end of an incarnation's stop command: note says what went wrong,
// "" if nothing did.
func (a *Agent) StopCommandRan(r Running, note string) {
	if c := a.live(r); c != nil {
		c.StopRan, c.StopNote = true, note
	}
}

// Limited takes the limits of an incarnation that are in force since others were set; err
// says why these are not. It returns whether that is to be reported.
func (a *Agent) Limited(r Running, is TaskLimits, err error) bool {
	c := a.live(r)
	if c == nil {
		return false
	}
	note := ""
	if err != nil {
		note = err.Error()
	}
	news := note != "" && note != c.LimitsNote
	c.Limits, c.LimitsNote = is, note
	return news
}

// Probed takes what the health checks of an incarnation have come to.
func (a *Agent) Probed(r Running, p Probe) {
	c := a.live(r)
	if c == nil {
		return
	}
	was := c.Probe.State
	if c.Probe = p; was != p.State {
		a.write(Document{HealthDocument, r.TaskRef, r.Incarnation})
		a.log(LogEntry{Kind: LogHealth, Running: r, Probe: p})
	}
}

// Logged takes what is wrong with the logs of an incarnation, "" if nothing is.
func (a *Agent) Logged(r Running, note string) {
	if g := a.find(r.TaskRef); g != nil && g.last() != nil && g.last().Number == r.Incarnation {
		g.logs = note
	}
}

// live returns an incarnation that has not ended, nil if it has or is not there.
func (a *Agent) live(r Running) *Incarnation {
	g := a.find(r.TaskRef)
	if g == nil {
		return nil
	}
	if c := g.incarnation(r.Incarnation); c != nil && c.Exit == nil {
		return c
	}
	return nil
}

// Cleared says that the work directory of a generation that has ended is gone.
func (a *Agent) Cleared(r schema.TaskRef) {
	if g := a.find(r); g != nil {
		a.cleared(g)
	}
}

func (a *Agent) cleared(g *generation) {
	g.Clearing, g.walk.due, a.removals.unmeasured = false, time.Time{}, true
}

// rereadAfter is the time between two attempts at an unreadable directory.
const rereadAfter = 10 * time.Second

// reread has directories read again that could not be, when that is due. It may take
// as long as the disk, or a keeper, does.
func (a *Agent) reread(now time.Time) {
	for _, g := range a.tasks {
		if g.Unreadable != "" && !now.Before(g.retry) {
			g.retry = now.Add(longSleep) // until it is done
			a.pending.Reread = append(a.pending.Reread, g.ref())
		}
	}
}

// Reread takes what was found of a generation that could not be read; nil if there is
// nothing any more. It reports whether that is what there is of it now.
func (a *Agent) Reread(r schema.TaskRef, found *FoundTask, now time.Time) bool {
	g := a.find(r)
	if g == nil || g.Unreadable == "" {
		return false
	}
	if found == nil {
		a.drop(r)
		return true
	}
	g = &generation{FoundTask: a.taken(*found)}
	if g.Unreadable != "" {
		g.retry = now.Add(rereadAfter)
	}
	a.put(g)
	a.correct(g)
	return true
}

// taken returns what is held of what was found. What is unreadable may have a process:
// it counts as busy.
func (a *Agent) taken(t FoundTask) FoundTask {
	if t.Unreadable != "" {
		t.Held = Held{
			Assignment:   schema.Assignment{Task: t.Assignment.Task, Generation: t.Assignment.Generation, Job: &schema.Job{}},
			Incarnations: []Incarnation{{Busy: true, Process: Process{Boot: a.info.Boot, Note: "cannot read its directory: " + t.Unreadable}}},
		}
	}
	return t
}
