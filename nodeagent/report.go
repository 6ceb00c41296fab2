package nodeagent

import (
	"cmp"
	"fmt"
	"time"

	"github.com/musterhq/muster/schema"
)

// report adds the entry of it, unless it ended long ago and is kept for its
// logs only.
func (d *decider) report(it item, newest uint64) {
	s := schema.TaskStatus{Task: it.task, Generation: it.generation}
	if it.held == nil {
		d.reportUnheld(it, newest, s)
		return
	}
	h := it.held
	if h.End != nil && it.assigned == nil && d.in.View != nil {
		until := due(d.in.Now, h.End.At, ReportFor)
		if !until.After(d.in.Now) {
			return
		}
		d.wake(until)
	}
	s.Ports, s.Devices, s.Alloc = h.Assignment.Ports, h.Assignment.Devices, h.Assignment.Alloc
	s.Own = ownOf(&h.Assignment)
	if s.Data = h.Assignment.Data; it.assigned != nil {
		s.Data = it.assigned.Data // what was changed in place
	}
	s.End = h.End
	s.State = d.state(it, newest)
	s.Exits = exits(h, d.in.Boot)
	if s.State == schema.Starting || s.State == schema.Waiting {
		d.noteWait(it, &s)
	}
	if c := h.last(); c != nil {
		if len(h.Assignment.Job.Task.Before) > 0 {
			s.Attempt = c.Attempt
		}
		s.Incarnation, s.Note = c.Number, cmp.Or(s.Note, c.notes(h.Throttle, h.IOBound))
		if h.Alive() && c.Boot == d.in.Boot {
			still, until := d.in.Life.unconfirmed(c, d.in.Now)
			s.Unconfirmed = still
			d.wake(until)
			it.reportProcess(c, &s)
			if c.Usage != nil {
				s.OOMKills = c.Usage.OOMKills
			}
			if c.Stop != nil && c.Stop.Kind == schema.CauseOutOfResources {
				s.Note = c.Stop.String()
			}
		}
	}
	d.reportBrought(it, &s)
	d.reportRenewal(it, &s)
	if s.Unconfirmed {
		s.Note = joined(s.Note, schema.Unconfirmed)
	}
	if s.Stuck = d.stuck(it); s.Stuck {
		s.Note = schema.NoteStuck
	}
	if s.State == schema.Waiting && h.End == nil {
		d.reportWait(it, &s)
	}
	d.plan.Tasks = append(d.plan.Tasks, s)
}

// ownOf returns the network of a generation that has one of its own.
func ownOf(a *schema.Assignment) *schema.TaskNetwork {
	if a.OwnNetwork && a.Network == nil {
		return &schema.TaskNetwork{}
	}
	return a.Network
}

// reportProcess reports what runs: the task, or what comes before it.
func (it item) reportProcess(c *Incarnation, s *schema.TaskStatus) {
	s.Line = c.Line
	switch {
	case c.Step == 0:
		s.PID, s.StartedAt = c.PID, c.StartedAt
		it.reportHealth(c, s)
	case s.State == schema.Starting:
		s.Note = joined(fmt.Sprintf("%s runs, which has %d (incarnation %d)", stepName(c.Step), len(it.job().Task.Before), c.Number), s.Note)
	}
}

// reportUnheld adds the entry of an assignment that never started here.
func (d *decider) reportUnheld(it item, newest uint64, s schema.TaskStatus) {
	s.State, s.Ports, s.Devices = schema.Starting, it.assigned.Ports, it.assigned.Devices
	s.Data, s.Alloc, s.Own = it.assigned.Data, it.assigned.Alloc, ownOf(it.assigned)
	if stop := it.assigned.Stop; stop != nil {
		s.State = schema.Dead
		s.End = &schema.Cause{Kind: stop.Kind, Message: stop.Message, Machine: d.in.Machine, Generation: it.generation, At: stop.At}
	} else if it.generation != newest {
		s.State, s.Note = schema.Waiting, "a newer generation is assigned to this machine"
	} else {
		d.noteWait(it, &s)
	}
	d.plan.Tasks = append(d.plan.Tasks, s)
}

// noteWait notes what the next start of it waits for.
func (d *decider) noteWait(it item, s *schema.TaskStatus) {
	var until time.Time
	s.Note, s.Withheld, until = d.in.Life.withholds(it, d.in.Now)
	d.wake(until)
	s.Note = cmp.Or(s.Note, d.blockedBy(it), d.unbrought(it), d.secretMissing(it))
}

// state returns where a held generation stands.
func (d *decider) state(it item, newest uint64) schema.TaskState {
	h, c := it.held, it.held.last()
	stop := d.stopCause(it, newest)
	switch {
	case h.End != nil:
		return schema.Dead
	case stop != nil && stop.Kind != schema.CauseShutdown:
		return schema.Stopping
	case h.Alive() && c.Boot != d.in.Boot:
		return schema.Waiting
	case h.Alive() && (stop != nil || c.Stop != nil):
		return schema.Stopping
	case h.Alive() && c.Step > 0:
		return schema.Starting
	case h.Alive() && (c.PID != 0 || it.isAlloc() && !c.StartedAt.IsZero()):
		return schema.Running
	case h.Alive() || c == nil:
		return schema.Starting
	}
	return schema.Waiting
}

// stuck reports whether it was killed long ago and is still there.
func (d *decider) stuck(it item) bool {
	c := it.held.last()
	if c == nil || c.Exit != nil || c.TermAt.IsZero() || c.KilledAt.IsZero() {
		return false
	}
	killed := c.TermAt.Add(it.job().Task.Grace())
	return c.KilledAt.Sub(killed) >= stuckAfter
}

// reportWait says when the next incarnation of it starts, and after how many
// failures.
func (d *decider) reportWait(it item, s *schema.TaskStatus) {
	h := it.held
	if c := h.last(); c == nil || c.Exit == nil {
		return
	}
	s.Failures, _ = failures(h, d.in.Boot, it.job().Task.RestartPolicy())
	if at := nextStart(h, it.job(), d.in.Now, d.in.Boot); at.After(d.in.Now) {
		s.RestartAt = at
	}
}
