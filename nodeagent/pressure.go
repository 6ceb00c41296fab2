package nodeagent

import (
	"fmt"
	"slices"
	"time"

	"github.com/musterhq/muster/schema"
)

// Limits are what an agent is configured to do when its machine runs short. A zero
// field turns off what depends on it.
type Limits struct {
	// RAMBytes and DiskBytes are the least that shall be left on the machine:
	// of its memory, and of the file system of the state directory.
	RAMBytes, DiskBytes int64
	// Inodes is the least number of files for which that file system shall have
	// room.
	Inodes int64
	// OverloadAfter is how long prod tasks wait for processors before the master
	// is asked to move others away.
	OverloadAfter time.Duration
	// Processors is what the machine has, in thousandths of a core.
	Processors int64
	Keep       Keep
}

// MachinePressure is what an agent has seen of its machine: the newest sample, and what
// of it is short. It is in memory only: an agent that is restarted begins again.
type MachinePressure struct {
	Room schema.MachineUsage // without tasks; zero At: not measured yet
	// DiskShort is since when less disk, or inodes, is left than Limits say; zero: it is not.
	DiskShort time.Time
	// Starving is since when prod tasks wait for processors; zero: they do not.
	Starving time.Time
	Overload *schema.Overload // what the report says
}

// enough is how much more than what Limits say must be left for a pressure to be
// over, in percent of it.
const enough = 125

// Pressure takes what a sample of the machine says of its memory and disk into
// its conditions, and reports as Conditions.See does.
func (l Limits) Pressure(c *Conditions, room *schema.MachineUsage, now time.Time) (changed bool) {
	ram := fmt.Sprintf("%s of %s of memory are left, want %s", schema.Bytes(room.RAMAvailable), schema.Bytes(room.RAMTotal), schema.Bytes(l.RAMBytes))
	disk := fmt.Sprintf("%s of %s of disk are left, want %s", schema.Bytes(room.DiskFree), schema.Bytes(room.DiskTotal), schema.Bytes(l.DiskBytes))
	level := levelOf(room.DiskFree, l.DiskBytes)
	if room.InodesTotal > 0 {
		if few := levelOf(room.InodesFree, l.Inodes); few > level {
			level, disk = few, fmt.Sprintf("%d of %s of the disk are left, want %d", room.InodesFree, inodes(room.InodesTotal), l.Inodes)
		}
	}
	changed = c.See(schema.MemoryPressure, levelOf(room.RAMAvailable, l.RAMBytes), ram, now)
	return c.See(schema.DiskPressure, level, disk, now) || changed
}

// levelOf says how good it is that so much is left.
func levelOf(left, least int64) Level {
	switch {
	case left < least:
		return Bad
	case left*100 >= least*enough:
		return Good
	}
	return Between
}

// Runner is a task that runs, as far as what it uses is concerned.
type Runner struct {
	schema.TaskRef
	Priority schema.Priority
	Usage    *schema.Usage // nil: not measured yet
}

// Next returns the pressure after a sample of the machine and of what runs on it.
// Neither s nor its arguments are written to.
func (s MachinePressure) Next(room schema.MachineUsage, run []Runner, limits Limits, now time.Time) MachinePressure {
	n := s
	n.Room = room
	switch {
	case !limits.shortOfDisk(&room):
		n.DiskShort = time.Time{}
	case s.DiskShort.IsZero():
		n.DiskShort = now
	}
	n.Starving, n.Overload = n.overload(run, limits, now)
	return n
}

// What counts as waiting for processors, in thousandths: a prod task of which the
// CPU limit is not the reason, on a machine that is busy.
const (
	waitingShare = 200 // of the time in which its threads run or wait
	waitingLeast = 50  // of a second in each second
	throttled    = 50  // below that its own limit is not why it waits
	busyShare    = 900 // of the machine's processors
)

// waits reports whether u is of a task that has too little CPU.
func waits(u *schema.Usage) bool {
	return u.DelayMilli >= waitingLeast && u.ThrottledMilli < throttled &&
		u.DelayMilli*1000 >= waitingShare*(u.DelayMilli+u.CPUMilli)
}

// overload keeps account of prod tasks that wait, and asks for help when they
// have for long. What it asks for stays as it is until something of it is gone;
// then the time begins again, since what is left may be enough.
func (s MachinePressure) overload(run []Runner, limits Limits, now time.Time) (since time.Time, asks *schema.Overload) {
	var suffers *Runner
	lack, alive := int64(0), map[schema.TaskRef]bool{}
	for i := range run {
		r := &run[i]
		alive[r.TaskRef] = true
		if r.Usage == nil || !r.Priority.Prod() || !waits(r.Usage) {
			continue
		}
		lack += r.Usage.DelayMilli
		if suffers == nil || r.Usage.DelayMilli > suffers.Usage.DelayMilli {
			suffers = r
		}
	}
	busy := limits.Processors > 0 && s.Room.CPUMilli*1000 >= busyShare*limits.Processors
	if suffers == nil || !busy || limits.OverloadAfter <= 0 {
		return time.Time{}, nil
	}
	if o := s.Overload; s.Starving.IsZero() || o != nil && slices.ContainsFunc(o.Relief, func(r schema.TaskRef) bool { return !alive[r] }) {
		return now, nil
	}
	if s.Overload != nil || now.Sub(s.Starving) < limits.OverloadAfter {
		return s.Starving, s.Overload
	}
	return s.Starving, &schema.Overload{
		Since: s.Starving, Suffers: suffers.Task, Relief: relief(run, lack),
		Message: fmt.Sprintf("its CPUs are %d%% busy, and %s has waited for CPU for %d ms per second for more than %s",
			s.Room.CPUMilli*100/limits.Processors, suffers.Task.Short(), suffers.Usage.DelayMilli, limits.OverloadAfter),
	}
}

// asks returns what the report says of an overload: nothing while a task that was
// asked to be moved is leaving, since what is left may be enough.
func (s MachinePressure) asks(held []Held) *schema.Overload {
	o := s.Overload
	if o == nil {
		return nil
	}
	stay := 0
	for i := range held {
		if h := &held[i]; h.Alive() && h.last().Stop == nil && slices.Contains(o.Relief, h.ref()) {
			stay++
		}
	}
	if stay < len(o.Relief) {
		return nil
	}
	return o
}

const (
	maxRelief   = 8  // tasks that are named
	reliefLeast = 50 // thousandths of a core that moving one must free
)

// relief returns the non-prod tasks that have to go for lack thousandths of a
// core to be free: lowest priority first, and of one priority who uses most.
func relief(run []Runner, lack int64) []schema.TaskRef {
	var may []Candidate
	for _, r := range run {
		if r.Usage != nil && !r.Priority.Prod() && r.Usage.CPUMilli >= reliefLeast {
			may = append(may, Candidate{TaskRef: r.TaskRef, Priority: r.Priority, Use: r.Usage.CPUMilli})
		}
	}
	var out []schema.TaskRef
	for _, v := range Victims(lack, reliefLeast, may) {
		if len(out) < maxRelief {
			out = append(out, v.TaskRef)
		}
	}
	return out
}
