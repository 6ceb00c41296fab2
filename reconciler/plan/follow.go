package plan

import (
	"time"

	"github.com/musterhq/muster/reconciler"
	"github.com/musterhq/muster/reconciler/model"
	"github.com/musterhq/muster/reconciler/status"
	"github.com/musterhq/muster/schema"
)

// Follow follows the cell until a time, whatever happens meanwhile. What happens within grain is
// reported together, that machines have taken what the master gave them included: machines and
// master then know it that much later, at most. It ends before
// that where a condition comes true of those that Until was given: then there is a Breakpoint.
func (c *Cell) Follow(until time.Time, grain time.Duration) error {
	c.reports = max(reportsEvery-grain, model.SilentAfter/2) // a turn comes that much later
	for {
		if err := c.turn(); err != nil {
			return err
		}
		if c.comesTrue() {
			return nil
		}
		next := c.next()
		if late := c.now.Add(grain); next.Before(late) {
			next = late
		}
		switch {
		case !next.After(c.now): // views that were just taken, and grain is 0
		case next.After(until):
			c.now = until
			return nil
		default:
			c.now = next
		}
	}
}

// Now returns the virtual time.
func (c *Cell) Now() time.Time { return c.now }

// Steps returns what has happened to tasks since a Mark, or since it was asked last, in order;
// Step.Seconds are since a moment.
func (c *Cell) Steps(since time.Time) []Step {
	out := c.trace.steps
	for i, at := range c.trace.at {
		out[i].Seconds = at.Sub(since).Seconds()
	}
	c.trace = trace{}
	return out
}

// Sums returns what the machines hold that are up.
func (c *Cell) Sums() Machines { return sumMachines(c.Status()) }

// Return has a machine join again that was lost, empty, as after a new start.
func (c *Cell) Return(name, boot string) error {
	m := c.machines[name]
	info := m.report.Machine
	info.Boot = boot
	return c.Add(info)
}

// Rejoin has a machine join, again or for the first time: what runs on it goes on, or ends as is
// known of it.
func (c *Cell) Rejoin(info schema.MachineInfo) error {
	if had := c.machines[info.Name]; had != nil {
		return c.join(info, had.tasks())
	}
	return c.join(info, nil)
}

// Resume has a machine speak again that was lost, in the session that it had.
func (c *Cell) Resume(name string) error {
	m := c.machines[name]
	if m == nil || !m.silent {
		return nil
	}
	m.silent, m.news = false, true
	r := m.says()
	if err := c.master.UpdateSession(&model.SessionUpdate{Machine: name, Epoch: m.epoch, Resume: &schema.Connection{}, Report: &r}, c.now); err != nil {
		return err
	}
	return c.carryOut()
}

// Report changes what a machine reports, but for its tasks; it returns false if the cell has none
// of that name.
func (c *Cell) Report(name string, change func(*schema.Report)) bool {
	m := c.machines[name]
	if m == nil {
		return false
	}
	change(&m.report)
	m.news, c.active[name] = true, struct{}{}
	return true
}

// Ask asks the master for something, as an operator would.
func (c *Cell) Ask(ask func(*reconciler.Master, time.Time) error) error {
	if err := ask(c.master, c.now); err != nil {
		return err
	}
	return c.carryOut()
}

// Until has Run end with Reached after the decision with which one of the conditions comes true.
// What holds for somebody now has to end first for that one. It returns the conditions that hold.
func (c *Cell) Until(conditions []Condition) (hold []string) {
	c.watch = watch{conditions: conditions, held: make([]map[string]bool, len(conditions))}
	c.look()
	for i, held := range c.watch.held {
		if len(held) > 0 {
			hold = append(hold, conditions[i].text)
		}
	}
	return hold
}

// Breakpoint returns what Run ended at with Reached, nil if it did not.
func (c *Cell) Breakpoint() *Breakpoint { return c.watch.stop }

// comesTrue looks whether a condition has come true since the last look, if anything was decided,
// or has happened, since then. A machine can be lost without anything being written.
func (c *Cell) comesTrue() bool {
	if !c.watch.decided && !c.wrote.Equal(c.now) {
		return false
	}
	c.watch.decided = false
	c.watch.stop = c.look()
	return c.watch.stop != nil
}

// look returns the first condition that has come true since the last look, nil if none has.
func (c *Cell) look() *Breakpoint {
	if len(c.watch.conditions) == 0 {
		return nil
	}
	return c.watch.look(&moment{c.describe(), c.trace.steps})
}

// Why explains user/job or user/job/index as it is now; false if there is none.
func (c *Cell) Why(name string) (status.Explanation, bool) {
	in := c.master.Snapshot(c.now)
	return status.Explain(in, c.looked.Describe(in), name, "")
}
