package model

import (
	"fmt"
	"time"

	"github.com/musterhq/muster/schema"
)

// PlaceOf returns the place of the agent that has a name.
func PlaceOf(r *schema.MachineRecord) schema.Place {
	p := schema.PlaceOf(&r.MachineInfo)
	p.From, p.Since = r.From, r.Joined
	return p
}

// contested is an agent that was refused the name of a machine.
type contested struct {
	here        schema.Place
	why         string
	first, last time.Time
}

// contestedFor is how long an agent that was refused a name counts as being there:
// it asks again every few seconds.
const contestedFor = time.Minute

// RefuseName remembers that an agent may not have a name, and returns that as an
// event if it is new.
func (o *Observed) RefuseName(e *schema.TakenError, now time.Time) []schema.Event {
	was := o.contested[e.Holder]
	c := contested{here: e.Here, why: e.Why, first: now, last: now}
	known := was.here.ID == e.Here.ID && was.here.Host == e.Here.Host && was.here.Boot == e.Here.Boot && now.Sub(was.last) < contestedFor
	if known {
		c.first = was.first
	}
	o.contested[e.Holder] = c
	if known && was.why == e.Why {
		return nil
	}
	return []schema.Event{{At: now, Kind: schema.EventMachine, Machine: e.Holder, Message: e.HolderEvent()}}
}

// uncontested returns the event of a name that no other agent asks for any more.
func (o *Observed) uncontested(machine string, now time.Time) []schema.Event {
	c, ok := o.contested[machine]
	if !ok || now.Sub(c.last) < contestedFor {
		return nil
	}
	delete(o.contested, machine)
	return []schema.Event{{At: now, Kind: schema.EventMachine, Machine: machine, Message: fmt.Sprintf("condition %s is over", schema.NameConflict)}}
}

// NameConflict returns the condition of a machine whose name another agent asks
// for, nil if none does.
func (o *Observed) NameConflict(machine string, now time.Time) []schema.Condition {
	c, ok := o.contested[machine]
	if !ok || now.Sub(c.last) >= contestedFor {
		return nil
	}
	return []schema.Condition{{Kind: schema.NameConflict, Since: c.first, Message: fmt.Sprintf("another agent (%s) says that it is this machine, and is refused: %s", c.here, c.why)}}
}

// Dismiss forgets what a machine has said.
func (o *Observed) Dismiss(machine string) {
	o.changed.Add(machine, len(o.machines))
	delete(o.machines, machine)
	delete(o.usage, machine)
	o.forgetContent(machine)
	delete(o.refused, machine)
	delete(o.contested, machine)
	delete(o.joins, machine)
}
