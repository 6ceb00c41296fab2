package nodeagent

import (
	"cmp"
	"fmt"

	"github.com/musterhq/muster/schema"
)

// An alloc is held like a task, and has no process: what is started is its
// cgroup and its directory, and it is alive until these are gone. A task inside
// is started when its alloc is there, and stops when that stops; the alloc ends
// when nothing inside is alive.

// allocs is what tasks and allocs of one machine need to know of each other.
type allocs struct {
	known  map[allocKey]item
	inside map[allocKey]int           // tasks inside that may have a process
	newest map[schema.TaskName]uint64 // generation that the view wants, by task
}

func allocsOf(items []item) allocs {
	a := allocs{known: map[allocKey]item{}, inside: map[allocKey]int{}, newest: map[schema.TaskName]uint64{}}
	for _, it := range items {
		if it.assigned != nil && it.assigned.Stop == nil {
			a.newest[it.task] = it.generation // items come oldest first
		}
		if it.isAlloc() {
			a.known[allocKey{it.task, it.generation}] = it
		}
		if key, ok := it.host(); ok && it.held != nil && it.held.Alive() {
			a.inside[key]++
		}
	}
	return a
}

// blockedBy says what a task that runs in an alloc waits for before it can be
// started, "" for nothing.
func (d *decider) blockedBy(it item) string {
	key, ok := it.host()
	if !ok {
		return ""
	}
	a, known := d.allocs.known[key]
	if !known || a.held == nil || !a.held.Alive() {
		return fmt.Sprintf("its alloc %s has not started yet", key.name.Short())
	}
	if c := a.held.last(); c.Busy || c.Boot != d.in.Boot || c.StartedAt.IsZero() || c.Stop != nil {
		return fmt.Sprintf("its alloc %s has not started yet", key.name.Short())
	}
	return d.allocGone(it) // this plan stops it
}

// allocGone says why the alloc of a task is not there for it any more, "" if it
// is, or may come.
func (d *decider) allocGone(it item) string {
	key, ok := it.host()
	if !ok {
		return ""
	}
	a, known := d.allocs.known[key]
	switch {
	case !known && d.in.View != nil:
		return fmt.Sprintf("its alloc %s is not assigned to this machine", key.name.Short())
	case !known:
		return ""
	case a.held != nil && a.held.End != nil:
		return fmt.Sprintf("its alloc %s has ended: %s", key.name.Short(), a.held.End)
	}
	if stop := d.stopCause(a, d.allocs.newest[key.name]); stop != nil && stop.Kind != schema.CauseShutdown {
		return fmt.Sprintf("its alloc %s is stopping: %s", key.name.Short(), stop)
	}
	if stop := d.tooLarge(a); stop != nil {
		return fmt.Sprintf("its alloc %s is stopping: %s", key.name.Short(), stop)
	}
	return ""
}

// tooLarge returns why a running alloc has to stop for what its tasks have put
// into their shared directory, nil if it has not.
func (d *decider) tooLarge(a item) *schema.Cause {
	if a.held == nil || !a.held.Alive() {
		return nil
	}
	c := a.held.last()
	if c.Stop != nil && c.Stop.Kind == schema.CauseOutOfResources {
		return c.Stop
	}
	return cmp.Or(d.evicted[a.held.ref()], d.overDisk(a, c))
}
