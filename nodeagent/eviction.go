package nodeagent

import (
	"fmt"
	"time"

	"github.com/musterhq/muster/schema"
)

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

// evictions chooses the tasks that stop for the machine being short of memory or disk.
type evictions struct {
	in         *Input
	items      []item
	collecting bool // remains are being removed for lack of disk: no task stops for that
	causes     map[schema.TaskRef]*schema.Cause
	wake       time.Time // when to choose again; zero: never
}

// evict chooses them: nobody while all stop, or nothing is measured.
func evict(in *Input, items []item, collecting bool) *evictions {
	e := &evictions{in: in, items: items, collecting: collecting, causes: map[schema.TaskRef]*schema.Cause{}}
	if in.Pressure.Room.At.IsZero() || in.Shutdown {
		return e
	}
	for _, s := range e.shortages() {
		e.choose(s)
	}
	return e
}

// shortages returns what the machine lacks, as of its last sample.
func (e *evictions) shortages() []shortage {
	room, limits := &e.in.Pressure.Room, &e.in.Limits
	var list []shortage
	if short := limits.RAMBytes - room.RAMAvailable; short > 0 {
		list = append(list, shortage{schema.MachineRAM, short, worthwhile, func(u *schema.Usage, ask *schema.Resources) (use, limit int64) {
			return u.RAMBytes, ask.RAMBytes
		}})
	}
	if e.collecting || !limits.shortOfDisk(room) || !e.diskMeasured() {
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
// on it is measured again: else who has just filled it could be taken for small.
const measureFor = 10 * time.Second

// diskMeasured reports whether all that runs was measured since the disk is short,
// or whether that takes too long.
func (e *evictions) diskMeasured() bool {
	since := e.in.Pressure.DiskShort
	until := due(e.in.Now, since, measureFor)
	if !until.After(e.in.Now) {
		return true
	}
	for _, it := range e.items {
		h := it.held
		if h == nil {
			continue
		}
		if c := h.last(); h.Alive() && c.Stop == nil && (c.Usage == nil || c.Usage.DiskAt.Before(since)) {
			e.wake = until
			return false
		}
	}
	return true
}

// choose chooses victims for one resource, unless some that were chosen before are
// still leaving. For disk nobody stops who is within its limit while one is not:
// that one goes by itself.
func (e *evictions) choose(s shortage) {
	var tasks []Candidate
	for _, it := range e.items {
		h := it.held
		if h == nil || h.Assignment.Job == nil {
			continue
		}
		c := e.used(h)
		if c == nil {
			continue
		}
		if h.Clearing || c.Exit == nil && c.Stop != nil && c.Stop.Resource == s.what {
			return // until it has gone, it may take more, and nobody knows what will be left
		}
		job, ref := it.job(), h.ref()
		if s.what == schema.MachineDisk && c.Exit == nil && (c.Stop != nil && c.Stop.Resource == schema.OwnDisk || diskExcess(c.Usage, &job.Task.Resources.Resources) != "") {
			return
		}
		use, limit := s.of(c.Usage, &job.Task.Resources.Resources)
		tasks = append(tasks, Candidate{
			TaskRef: ref, Priority: job.Priority, Use: use, Limit: limit, Leaving: c.Exit != nil || c.Stop != nil || e.causes[ref] != nil,
		})
	}
	for _, v := range Victims(s.short, s.least, tasks) {
		cause := e.in.cause(v.Generation)
		cause.Kind, cause.Resource, cause.Message = schema.CauseOutOfResources, s.what, e.text(s, v)
		e.causes[v.TaskRef] = &cause
	}
}

// used returns the incarnation of h that uses something of what was measured of
// the machine: it runs, has ended since, or what it has left is being cleared; nil
// if there is none.
func (e *evictions) used(h *Held) *Incarnation {
	for i := len(h.Incarnations) - 1; i >= 0; i-- {
		c := &h.Incarnations[i]
		switch {
		case c.Boot != e.in.Boot:
			return nil
		case c.Usage == nil:
			continue // it has just been started
		case c.Exit == nil, h.Clearing, c.GoneAt.After(e.in.Pressure.Room.At):
			return c
		}
		return nil
	}
	return nil
}

// text says what is short and what the task has of it.
func (e *evictions) text(s shortage, v Candidate) string {
	room, limits := &e.in.Pressure.Room, &e.in.Limits
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
