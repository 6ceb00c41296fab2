package plan

import "time"

// Follow follows the cell until a time, whatever happens meanwhile. What happens within grain is
// reported together: machines and master then know it that much later, at most.
func (c *Cell) Follow(until time.Time, grain time.Duration) error {
	for {
		if err := c.turn(); err != nil {
			return err
		}
		next := c.next()
		if later := c.now.Add(grain); next.After(c.now) && next.Before(later) {
			next = later
		}
		switch {
		case !next.After(c.now): // views that were just taken
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
