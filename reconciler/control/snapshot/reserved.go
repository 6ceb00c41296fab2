package snapshot

import "github.com/musterhq/muster/schema"

// Reservations are what a cell holds back for the generations of tasks, where that is less than
// their limits.
type Reservations interface {
	// Reservation returns that of a generation, the zero value for its limit.
	Reservation(generation uint64) schema.Resources
	// Since returns the tasks whose reservations may be others since an earlier call that
	// returned next, 0 for the first. It is not ok if any may be.
	Since(last int) (tasks []schema.TaskName, next int, ok bool)
}

// Reserve has the cell hold back what of says, nil for all limits. It comes before Snapshot.
func (c *Cell) Reserve(of Reservations) { c.reserved = of }

// updateReserved takes over what changed of reservations.
func (c *Cell) updateReserved() {
	if c.reserved == nil {
		return
	}
	changed, next, ok := c.reserved.Since(c.kept.reserved)
	c.kept.reserved = next
	if !ok {
		c.build()
		return
	}
	seen := make(map[schema.TaskName]bool, len(changed))
	for _, name := range changed {
		if t := c.facts.Task(name); !seen[name] && t != nil && t.Machine != "" {
			seen[name] = true
			c.kept.snapshot.SetTask(c.taskOf(name.JobName, t))
		}
	}
}
