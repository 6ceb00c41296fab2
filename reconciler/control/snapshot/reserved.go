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
