package reserve

import (
	"maps"
	"slices"
	"time"

	"github.com/musterhq/muster/schema"
)

// Book has the reservations of the tasks of a cell, by their generations: no two tasks have the
// same one. The zero value is empty.
type Book struct {
	estimates map[uint64]*estimate
	on        map[string][]uint64 // generations by the machine that has said last what they use
	changed   []schema.TaskName   // in order, some more than once
	forgotten int                 // how many were before these
}

// mostChanges is how many changes are remembered.
const mostChanges = 1 << 16

// Take takes a sample of a machine. limit returns what a task may use, or false if nothing of it
// is to be reclaimed. What the sample has not does not run there any more.
func (b *Book) Take(u *schema.MachineUsage, limit func(schema.TaskName, uint64) (schema.Resources, bool), now time.Time) {
	if b.estimates == nil {
		b.estimates, b.on = map[uint64]*estimate{}, map[string][]uint64{}
	}
	seen := make([]uint64, 0, len(u.Tasks))
	runs := make(map[uint64]bool, len(u.Tasks))
	for i := range u.Tasks {
		t := &u.Tasks[i]
		most, ok := limit(t.Task, t.Generation)
		if !ok {
			continue
		}
		e := b.estimates[t.Generation]
		if e == nil {
			e = &estimate{task: t.Task, since: now, at: now, exact: most, passed: most}
			b.estimates[t.Generation] = e
		}
		if e.take(most, schema.Resources{CPUMilli: t.CPUMilli, RAMBytes: t.RAMBytes, DiskBytes: t.DiskBytes}, now) {
			b.changed = append(b.changed, t.Task)
		}
		seen, runs[t.Generation] = append(seen, t.Generation), true
	}
	for _, generation := range b.on[u.Machine] {
		if !runs[generation] {
			delete(b.estimates, generation)
		}
	}
	b.on[u.Machine] = seen
	if drop := len(b.changed) - mostChanges; drop > 0 {
		b.changed, b.forgotten = append([]schema.TaskName(nil), b.changed[drop:]...), b.forgotten+drop
	}
}

// Clone returns a book of its own with the same reservations. It costs a copy of what is held back
// for each task.
func (b *Book) Clone() *Book {
	out := &Book{
		estimates: make(map[uint64]*estimate, len(b.estimates)), on: make(map[string][]uint64, len(b.on)),
		changed: slices.Clone(b.changed), forgotten: b.forgotten,
	}
	for generation, e := range b.estimates {
		is := *e
		out.estimates[generation] = &is
	}
	maps.Copy(out.on, b.on) // a sample has another list, and leaves these
	return out
}

// Reservation returns what is held back for a generation; the zero value if nothing is known of
// it: then that is its limit.
func (b *Book) Reservation(generation uint64) schema.Resources {
	if e := b.estimates[generation]; e != nil {
		return e.passed
	}
	return schema.Resources{}
}

// Since returns the tasks whose reservations may be others since an earlier call that returned
// next, 0 for the first; some may be there more than once. It is not ok if any may be.
func (b *Book) Since(last int) (tasks []schema.TaskName, next int, ok bool) {
	next = b.forgotten + len(b.changed)
	if last < b.forgotten {
		return nil, next, false
	}
	return b.changed[last-b.forgotten:], next, true
}
