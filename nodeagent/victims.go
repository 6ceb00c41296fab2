package nodeagent

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/musterhq/muster/schema"
)

// Candidate is a task that could stop for the machine to have more of one
// resource.
type Candidate struct {
	schema.TaskRef
	Priority schema.Priority
	// Use is what of the resource would be free without the task, and Limit what
	// it may use; 0: no limit.
	Use, Limit int64
	// Leaving says that the task is ending already.
	Leaving bool
}

// over returns by how much the task is over its limit.
func (c *Candidate) over() int64 {
	if c.Limit <= 0 {
		return 0
	}
	return max(0, c.Use-c.Limit)
}

// Victims returns the tasks that have to stop for short more of a resource to be
// free, in the order in which they are to go, as few as that order allows. A prod
// task never goes before one that is not; among equals in that, those that are
// over their own limit go first, by how much they are; then those of the lowest
// priority, and among these the one that uses most. What is leaving counts as
// free. A task that uses less than least stays: stopping it would help nobody.
// The list may not suffice: then all has gone that helps.
func Victims(short, least int64, tasks []Candidate) []Candidate {
	var may []Candidate
	for _, c := range tasks {
		switch {
		case c.Leaving:
			short -= c.Use
		case c.Use >= max(least, 1):
			may = append(may, c)
		}
	}
	slices.SortFunc(may, func(a, b Candidate) int {
		return cmp.Or(
			schema.CompareBool(a.Priority.Prod(), b.Priority.Prod()),
			schema.CompareBool(a.over() == 0, b.over() == 0),
			cmp.Compare(b.over(), a.over()),
			cmp.Compare(a.Priority, b.Priority),
			cmp.Compare(b.Use, a.Use),
			a.TaskRef.Compare(b.TaskRef),
		)
	})
	n := 0
	for n < len(may) && short > 0 {
		short -= may[n].Use
		n++
	}
	return may[:n]
}

// The least that stopping a task must free, of memory or disk in bytes, and in
// inodes.
const (
	worthwhile       = 1 << 20
	worthwhileInodes = 256
)

// shortage is what of one resource the machine lacks.
type shortage struct {
	what  schema.Resource
	short int64 // by so much
	least int64 // that a victim must have of it
	// of says what a task uses of it, and what it may use.
	of func(u *schema.Usage, ask *schema.Resources) (use, limit int64)
}

// shortages returns what the machine lacks, as of its last sample.
func (d *decider) shortages() []shortage {
	room, limits := &d.in.Pressure.Room, &d.in.Limits
	var list []shortage
	if short := limits.RAMBytes - room.RAMAvailable; short > 0 {
		list = append(list, shortage{schema.MachineRAM, short, worthwhile, func(u *schema.Usage, ask *schema.Resources) (use, limit int64) {
			return u.RAMBytes, ask.RAMBytes
		}})
	}
	if d.collecting || !limits.shortOfDisk(room) || !d.diskMeasured() {
		return list
	}
	if short := limits.DiskBytes - room.DiskFree; short > 0 {
		return append(list, shortage{schema.MachineDisk, short, worthwhile, func(u *schema.Usage, ask *schema.Resources) (use, limit int64) {
			return u.DiskBytes, ask.DiskBytes
		}})
	}
	return append(list, shortage{schema.MachineDisk, limits.Inodes - room.InodesFree, worthwhileInodes, func(u *schema.Usage, ask *schema.Resources) (use, limit int64) {
		return u.DiskInodes, InodeLimit(ask.DiskBytes)
	}})
}

// measureFor is how long a machine that is short of disk waits until all that runs
// on it is measured anew: else who has just filled it could be taken for small.
const measureFor = 10 * time.Second

// evictions chooses the tasks that stop for the machine being short of memory or disk.
// Nobody stops for disk while there are remains to remove.
func (d *decider) evictions() {
	if d.in.Pressure.Room.At.IsZero() || d.in.Shutdown {
		return
	}
	for _, s := range d.shortages() {
		d.evict(s)
	}
}

// diskMeasured reports whether all that runs was measured since the disk is short,
// or whether that takes too long.
func (d *decider) diskMeasured() bool {
	since := d.in.Pressure.DiskShort
	until := due(d.in.Now, since, measureFor)
	if !until.After(d.in.Now) {
		return true
	}
	for i := range d.in.Held {
		h := &d.in.Held[i]
		if c := h.last(); h.Alive() && c.Stop == nil && (c.Usage == nil || c.Usage.DiskAt.Before(since)) {
			d.wake(until)
			return false
		}
	}
	return true
}

// evict chooses victims for one resource, unless some that were chosen before are
// still leaving. For disk nobody stops who is within its limit while one is not:
// that one goes by itself.
func (d *decider) evict(s shortage) {
	var tasks []Candidate
	for i := range d.in.Held {
		h := &d.in.Held[i]
		c := d.used(h)
		if c == nil || h.Assignment.Job == nil {
			continue
		}
		if h.Clearing || c.Exit == nil && c.Stop != nil && c.Stop.Resource == s.what {
			return // until it has gone, it may take more, and nobody knows what will be left
		}
		job, ref := d.jobOf(h), h.ref()
		if s.what == schema.MachineDisk && c.Exit == nil && (c.Stop != nil && c.Stop.Resource == schema.OwnDisk || diskExcess(c.Usage, &job.Task.Resources.Resources) != "") {
			return
		}
		use, limit := s.of(c.Usage, &job.Task.Resources.Resources)
		tasks = append(tasks, Candidate{
			TaskRef: ref, Priority: job.Priority, Use: use, Limit: limit, Leaving: c.Exit != nil || c.Stop != nil || d.evicted[ref] != nil,
		})
	}
	for _, v := range Victims(s.short, s.least, tasks) {
		d.evicted[v.TaskRef] = &schema.Cause{
			Kind: schema.CauseOutOfResources, Resource: s.what, Machine: d.in.Machine, Generation: v.Generation, At: d.in.Now,
			Message: d.evictionText(s, v),
		}
	}
}

// used returns the incarnation of h that uses something of what was measured of
// the machine: it runs, has ended since, or what it has left is being cleared; nil
// if there is none.
func (d *decider) used(h *Held) *Incarnation {
	for i := len(h.Incarnations) - 1; i >= 0; i-- {
		c := &h.Incarnations[i]
		switch {
		case c.Boot != d.in.Boot:
			return nil
		case c.Usage == nil:
			continue // it has just been started
		case c.Exit == nil, h.Clearing, c.GoneAt.After(d.in.Pressure.Room.At):
			return c
		}
		return nil
	}
	return nil
}

// evictionText says what is short and what the task has of it.
func (d *decider) evictionText(s shortage, v Candidate) string {
	room, limits := &d.in.Pressure.Room, &d.in.Limits
	left, total, least, amount := room.RAMAvailable, room.RAMTotal, limits.RAMBytes, schema.Bytes
	switch {
	case s.what == schema.MachineDisk && s.least == worthwhileInodes:
		left, total, least, amount = room.InodesFree, room.InodesTotal, limits.Inodes, inodes
	case s.what == schema.MachineDisk:
		left, total, least = room.DiskFree, room.DiskTotal, limits.DiskBytes
	}
	limit := "without a limit"
	if v.Limit > 0 {
		limit = "limit " + amount(v.Limit)
	}
	return fmt.Sprintf("%s: %s of %s left, want %s; the task used %s, %s", s.what, amount(left), amount(total), amount(least), amount(v.Use), limit)
}

// overDisk returns why a task has to stop that is over its own disk limit, nil if
// it is not.
func (d *decider) overDisk(it item, c *Incarnation) *schema.Cause {
	excess := diskExcess(c.Usage, &it.job().Task.Resources.Resources)
	if excess == "" {
		return nil
	}
	return &schema.Cause{
		Kind: schema.CauseOutOfResources, Resource: schema.OwnDisk, Machine: d.in.Machine, Generation: it.generation, At: d.in.Now,
		Message: "disk: " + excess,
	}
}
