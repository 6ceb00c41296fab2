package nodeagent

import (
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
	s.Ports, s.Devices = h.Assignment.Ports, h.Assignment.Devices
	s.End = h.End
	s.State = d.state(it, newest)
	s.Exits = exits(h)
	if s.State == schema.Starting || s.State == schema.Waiting {
		s.Note = d.blockedBy(it)
	}
	if c := h.last(); c != nil {
		s.Incarnation = c.Number
		if s.Note == "" {
			s.Note = c.Note
		}
		if h.Alive() && c.Boot == d.in.Boot {
			s.PID, s.StartedAt, s.Health = c.PID, c.StartedAt, d.health(it, c)
			if c.Stop != nil && c.Stop.Kind == schema.CauseOutOfResources {
				s.Note = c.Stop.String()
			}
		}
	}
	if h.End != nil && it.assigned == nil && d.in.View != nil {
		until := due(d.in.Now, h.End.At, ReportFor)
		if !until.After(d.in.Now) {
			return
		}
		d.wake(until)
	}
	d.plan.Tasks = append(d.plan.Tasks, s)
}

// reportUnheld adds the entry of an assignment that never started here.
func (d *decider) reportUnheld(it item, newest uint64, s schema.TaskStatus) {
	s.State, s.Ports, s.Devices = schema.Starting, it.assigned.Ports, it.assigned.Devices
	if stop := it.assigned.Stop; stop != nil {
		s.State = schema.Dead
		s.End = &schema.Cause{Kind: stop.Kind, Message: stop.Message, Machine: d.in.Machine, Generation: it.generation, At: stop.At}
	} else if it.generation != newest {
		s.State, s.Note = schema.Waiting, "a newer generation is assigned to this machine"
	} else {
		s.Note = d.blockedBy(it)
	}
	d.plan.Tasks = append(d.plan.Tasks, s)
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
	case h.Alive() && (c.PID != 0 || it.isAlloc() && !c.StartedAt.IsZero()):
		return schema.Running
	case h.Alive() || c == nil:
		return schema.Starting
	}
	return schema.Waiting
}

// exits returns the last ends of h's incarnations.
func exits(h *Held) []schema.Exit {
	var list []schema.Exit
	for i := range h.Incarnations {
		c := &h.Incarnations[i]
		if c.Exit == nil {
			continue
		}
		e := *c.Exit
		if c.Stop != nil {
			told := e.Message
			if e.Message = "stopped: " + c.Stop.String(); told != "" {
				e.Message += "; " + told
			}
		}
		list = append(list, e)
	}
	return list[max(0, len(list)-schema.MaxCauses):]
}
