package nodeagent

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/musterhq/muster/schema"
)

// look is when the machine was looked at.
type look struct {
	at      time.Time
	writing bool // the look at the disk is in progress
	next    time.Time
}

// hangsAfter is how long a write to the state directory may take: a disk that hangs
// is as good as none.
const hangsAfter = 30 * time.Second

// lookAround has the machine looked at when that is due.
func (a *Agent) lookAround(now time.Time) {
	changed, wake := a.conditions.Turn(now)
	a.changed(changed)
	l := &a.look
	every := cmp.Or(a.cfg.LookEvery, longSleep)
	l.next = l.at.Add(every)
	if since := now.Sub(l.at); since >= every || since < 0 {
		l.next = now.Add(every)
		a.pending.Clocks = a.cfg.LookEvery > 0
		switch {
		case a.cfg.LookEvery == 0:
		case !l.writing:
			l.at, l.writing, a.pending.Look = now, true, true
		case since >= hangsAfter:
			a.Condition(schema.ReadOnlyFS, Bad, fmt.Sprintf("a write to the state directory has taken more than %v", hangsAfter), now)
		}
	}
	if !wake.IsZero() && wake.Before(l.next) {
		l.next = wake
	}
}

// Looked takes whether the state directory can be written to.
func (a *Agent) Looked(err error, now time.Time) {
	a.look.writing = false
	if err != nil {
		a.Condition(schema.ReadOnlyFS, Bad, err.Error(), now)
		return
	}
	a.Condition(schema.ReadOnlyFS, Good, "", now)
}

// Clock takes by how much the master's clock is ahead of the machine's, and how far
// that may be off.
func (a *Agent) Clock(ahead, within time.Duration, now time.Time) {
	a.changed(a.conditions.SeeClock(ahead, within, now))
}

// Condition takes what a look at the machine says of a condition, see Conditions.
func (a *Agent) Condition(kind schema.ConditionKind, level Level, message string, now time.Time) {
	a.changed(a.conditions.See(kind, level, message, now))
}

// changed adds an event if the conditions have changed.
func (a *Agent) changed(changed bool) {
	if changed {
		a.log(LogEntry{Kind: LogConditions})
	}
}

// measure says what is to be measured now, and when again.
func (a *Agent) measure(t *Turn, now time.Time) {
	if r := a.info.Ports; r.First <= r.Last {
		if now.Sub(a.ports.at) >= a.ports.every() {
			a.ports.at, a.ports.own, t.Ports = now, a.ownPorts(), true
		}
		a.wakeBy(a.ports.at.Add(a.ports.every()))
	}
	if a.plan.Alive > 0 && !a.cfg.NoLines {
		if now.Sub(a.lines.at) >= lineEvery {
			t.Lines = a.readLines(now)
		}
		a.wakeBy(a.lines.at.Add(lineEvery))
	}
	cpu, at := a.throttle(now)
	if t.CPU = cpu; !at.IsZero() {
		a.wakeBy(at)
	}
}

// portScan is who listens on the machine's range of ports.
type portScan struct {
	busy []int // in use by others than tasks
	at   time.Time
	own  map[int]bool // of tasks, when the scan began
}

// scanEvery is the time between two looks at who listens: often enough that the cell
// chooses few ports that are taken, and one read of two files.
const scanEvery = 30 * time.Second

// scanBusy is scanEvery while others hold some of them: a task may wait for one.
const scanBusy = 3 * time.Second

func (p *portScan) every() time.Duration {
	if len(p.busy) > 0 {
		return scanBusy
	}
	return scanEvery
}

// Scanned takes the ports of the machine's range, sorted, on which something listens.
// One that a task held at either end of the scan is not known to be another's.
func (a *Agent) Scanned(busy []int) {
	own := a.ports.own
	a.ports.busy = slices.DeleteFunc(slices.Clone(busy), func(p int) bool { return own[p] })
}

// ownPorts returns the ports that generations with a process were given.
func (a *Agent) ownPorts() map[int]bool {
	own := map[int]bool{}
	for _, g := range a.tasks {
		if g.Alive() && !g.Assignment.OwnNetwork {
			for _, p := range g.Assignment.Ports {
				own[p.Port] = true
			}
		}
	}
	return own
}

// busyPorts returns the ports for the report: in use, and not by a task.
func (a *Agent) busyPorts() []int {
	if len(a.ports.busy) == 0 {
		return nil
	}
	own := a.ownPorts()
	var busy []int
	for _, p := range a.ports.busy {
		if !own[p] {
			busy = append(busy, p)
		}
	}
	return busy
}

// lineScan is when it was last read what tasks say of themselves.
type lineScan struct {
	at      time.Time
	reading bool
}

// lineEvery is the time between two such reads: no task can make the agent report
// more often than that.
const lineEvery = 3 * time.Second

func (a *Agent) readLines(now time.Time) []Running {
	a.lines.at = now
	if a.lines.reading {
		return nil
	}
	list := a.running(func(c *Incarnation) bool { return !c.Busy })
	a.lines.reading = len(list) > 0
	return list
}

// Lines takes what tasks say of themselves, in the order in which they were asked
// for.
func (a *Agent) Lines(of []Running, lines []string) {
	a.lines.reading = false
	for i, r := range of {
		if g := a.find(r.TaskRef); g != nil {
			if c := g.incarnation(r.Incarnation); c != nil {
				c.Line = lines[i]
			}
		}
	}
}

// running lists the incarnations that are alive and of which which says so.
func (a *Agent) running(which func(*Incarnation) bool) []Running {
	var list []Running
	for _, g := range a.tasks {
		if c := g.last(); g.Alive() && g.Unreadable == "" && which(c) {
			list = append(list, Running{g.ref(), c.Number})
		}
	}
	return list
}

// Alive lists the incarnations whose process there is.
func (a *Agent) Alive() []Running {
	return a.running(func(c *Incarnation) bool { return !c.Busy })
}

// Sample is what an incarnation uses; nil when nothing of it is left.
type Sample struct {
	Running
	Usage *schema.Usage
}

// Sampled takes what was measured of the machine as a whole, and of all that is Alive.
func (a *Agent) Sampled(room schema.MachineUsage, samples []Sample, now time.Time) {
	for _, s := range samples {
		g := a.find(s.TaskRef)
		if g == nil || s.Usage == nil {
			continue
		}
		c := g.incarnation(s.Incarnation)
		if c == nil {
			continue
		}
		kills := s.Usage.OOMKills
		if c.Usage != nil {
			kills -= min(kills, c.Usage.OOMKills)
		}
		if kills > 0 {
			a.log(LogEntry{Kind: LogOOM, Running: s.Running, N: kills})
		}
		g.walk.into(s.Usage)
		c.Usage = s.Usage
	}
	all := room
	all.Machine, all.Tasks = a.info.Name, []schema.TaskUsage{}
	var run []Runner
	for _, g := range a.tasks {
		c := g.last()
		if !g.Alive() || c.Usage == nil || g.Assignment.Job.Kind == schema.Allocs {
			continue
		}
		run = append(run, Runner{TaskRef: g.ref(), Priority: a.job(g).Priority, Usage: c.Usage})
		all.Tasks = append(all.Tasks, schema.TaskUsage{Task: g.Assignment.Task, Generation: g.Assignment.Generation, Incarnation: c.Number, Usage: *c.Usage})
	}
	schema.SortUsage(all.Tasks)
	a.usage = &all
	was := a.pressure.DiskShort
	a.pressure = a.pressure.Next(room, run, a.cfg.Limits, now)
	if was.IsZero() && !a.pressure.DiskShort.IsZero() {
		for _, g := range a.tasks { // who has to go is decided by what is there now
			if g.Alive() {
				g.walk.due = time.Time{}
			}
		}
	}
	a.changed(a.cfg.Limits.Pressure(&a.conditions, &room, now))
}

// job returns g's as the view has it now: a newer version applies in place.
func (a *Agent) job(g *generation) *schema.Job {
	if x := a.view.Find(g.Assignment.Task, g.Assignment.Generation); x != nil {
		return x.Job
	}
	return g.Assignment.Job
}

// Room takes how much disk there is after something was removed: the next decision
// must not count on what was before.
func (a *Agent) Room(room *schema.MachineUsage) {
	a.pressure.Room.DiskFree, a.pressure.Room.InodesFree = room.DiskFree, room.InodesFree
}

// Removing says that what was removed is still being taken off the disk.
func (a *Agent) Removing() { a.removals.going = true }

// Emptied says that it is off the disk, but for what still is not.
func (a *Agent) Emptied(still bool) { a.removals.going, a.removals.unmeasured = still, true }

// walk is what is known of a generation's disk.
type walk struct {
	due time.Time
	use DiskUse
	at  time.Time // zero: not measured yet
}

// into puts what is known of the disk into a sample.
func (w *walk) into(u *schema.Usage) {
	u.DiskBytes, u.DiskInodes, u.DiskAt, u.DiskNote = w.use.Bytes, w.use.Inodes, w.at, w.use.Note
}

// Walk is one measurement of what a generation has on the disk, or of what an
// incarnation has that has ended.
type Walk struct {
	schema.TaskRef
	Incarnation int   // that has ended; 0: the whole generation
	Process     int   // the incarnation that ran when it was asked for; 0: none
	Sticky      bool  // the sticky directory counts, too
	Ended       bool  // of the generation
	Limit       int64 // of what may be there, in bytes; 0: none

	// What came of it: Use was measured from Began to Done.
	Use         DiskUse
	Began, Done time.Time
}

// maxWalks is how many walks have their results reported together: each report
// causes a decision.
const maxWalks = 64

// Walks returns what is to be walked now, the most due first.
func (a *Agent) Walks(now time.Time) []Walk {
	type dueWalk struct {
		Walk
		due time.Time
	}
	var list []dueWalk
	for _, g := range a.tasks {
		if g.Unreadable != "" || !g.Written || g.walk.due.After(now) {
			continue
		}
		w := Walk{TaskRef: g.ref(), Ended: g.End != nil, Process: g.process()}
		if w.Process != 0 {
			w.Limit, w.Sticky = a.job(g).Task.Resources.DiskBytes, g.Assignment.Job.Task.Sticky.Has()
		}
		for i := range g.Incarnations {
			if c := &g.Incarnations[i]; g.End == nil && c.Exit != nil && c.Bytes == 0 {
				w.Incarnation, w.Limit, w.Sticky = c.Number, 0, false
				break
			}
		}
		list = append(list, dueWalk{w, g.walk.due})
	}
	slices.SortStableFunc(list, func(a, b dueWalk) int { return a.due.Compare(b.due) })
	var out []Walk
	for _, w := range list[:min(len(list), maxWalks)] {
		out = append(out, w.Walk)
	}
	return out
}

// process is the number of the incarnation that runs, 0 if none does.
func (g *generation) process() int {
	if c := g.last(); g.Alive() && !c.Busy {
		return c.Number
	}
	return 0
}

const (
	// restAfterWalk is how many times what a walk took passes until the same
	// directory is walked again: what it costs is chosen by tasks.
	restAfterWalk = 100
	// never is when what does not change is walked again.
	never = 100 * 365 * 24 * time.Hour
)

// Walked takes what a walk has found.
func (a *Agent) Walked(e *Walk) {
	g := a.find(e.TaskRef)
	if g == nil {
		return
	}
	if e.Incarnation != 0 {
		if c := g.incarnation(e.Incarnation); c != nil {
			c.Bytes = max(e.Use.Bytes, 1) // it is measured, whatever it holds
		}
		return
	}
	if e.Process != g.process() {
		g.walk.due = time.Time{} // what was there may have been cleared since
		return
	}
	w := &g.walk
	w.use, w.at = e.Use, e.Began // what came later was not seen
	w.due = e.Done.Add(max(a.cfg.DiskEvery, restAfterWalk*e.Done.Sub(e.Began)))
	if e.Ended {
		g.Bytes, w.due = max(e.Use.Bytes, 1), e.Done.Add(never)
	}
	if e.Process == 0 {
		return
	}
	c := g.last()
	if c.Usage == nil && g.Assignment.Job.Kind == schema.Allocs { // its tasks have all else
		c.Usage = &schema.Usage{At: w.at}
	}
	if c.Usage != nil {
		u := *c.Usage
		w.into(&u)
		c.Usage = &u
	}
}

// throttling is what is remembered of the CPU that tasks use.
type throttling struct {
	state     Throttle
	io        IOThrottle
	at        time.Time // of the last look, or of the one in progress
	measuring bool
	last      map[Running]CPUTime
	lastAt    time.Time
}

// CPUUse is what an incarnation has used of processors since it started.
type CPUUse struct {
	Running
	Used   CPUTime
	limits TaskLimits
	free   bool // of the free band
}

// throttle has the CPU measured that tasks use every now and then, as long as there
// are tasks that may have to give way to others. It returns when that is due again,
// zero for never.
func (a *Agent) throttle(now time.Time) ([]CPUUse, time.Time) {
	t := &a.throttling
	if t.measuring {
		return nil, time.Time{} // it comes back by itself
	}
	if next := t.at.Add(ThrottleEvery); t.last != nil && now.Before(next) && !t.at.After(now) {
		return nil, next
	}
	tasks := a.sharers()
	if tasks == nil {
		if a.unthrottle() {
			return nil, now // to decide with what has changed
		}
		return nil, time.Time{}
	}
	t.at, t.measuring = now, true
	return tasks, time.Time{}
}

// sharers returns the running tasks whose limits can be set; nil unless one may
// have to give way to another.
func (a *Agent) sharers() []CPUUse {
	var tasks []CPUUse
	ranks := map[Rank]bool{}
	for _, g := range a.tasks {
		c := g.last()
		if !g.Alive() || !c.Limited || c.PID == 0 || c.Stop != nil || c.Limits == (TaskLimits{}) {
			continue
		}
		free := g.Assignment.Job.Priority.Band() == schema.BandFree
		tasks = append(tasks, CPUUse{Running: Running{g.ref(), c.Number}, limits: c.Limits, free: free})
		ranks[(&CPUSample{Class: c.Limits.Class, Free: free}).Rank()] = true
	}
	if len(ranks) < 2 {
		return nil
	}
	return tasks
}

// unthrottle lifts all bounds; false if there cannot be any.
func (a *Agent) unthrottle() bool {
	if a.throttling.last == nil {
		return false
	}
	for _, g := range a.tasks {
		g.Throttle, g.IOBound = 0, 0
	}
	a.throttling = throttling{}
	return true
}

// Bounds returns what batch tasks may use of processors together, in thousandths of a
// core, and what tasks that give way may read or write in a second, in bytes; 0 for
// no bound.
func (a *Agent) Bounds() (cpuMilli, ioBytes int64) {
	return a.throttling.state.BatchMilli, a.throttling.io.Bytes
}

// Measured takes what tasks have used of processors up to at, and bounds them
// accordingly.
func (a *Agent) Measured(at time.Time, tasks []CPUUse) {
	t := &a.throttling
	since := at.Sub(t.lastAt)
	last := t.last
	t.measuring, t.lastAt, t.last = false, at, make(map[Running]CPUTime, len(tasks))
	machine := a.cfg.Machine.Capacity.CPUMilli
	var samples []CPUSample
	var of []Running
	for _, task := range tasks {
		t.last[task.Running] = task.Used
		machine -= int64(task.limits.Cores) * schema.CoreMilli
		if before, ok := last[task.Running]; ok && since > 0 {
			sample := task.limits.Sample(task.Used.Sub(before), since)
			sample.Free = task.free
			samples, of = append(samples, sample), append(of, task.Running)
		}
	}
	was, wasIO := a.Bounds()
	var cpu, io []int64
	t.state, cpu = t.state.Next(at, max(machine, schema.CoreMilli), samples)
	t.io, io = t.io.Next(at, samples)
	if n := t.state.BatchMilli; (was == 0) != (n == 0) {
		a.log(LogEntry{Kind: LogCPUBound, N: n})
	}
	if n := t.io.Bytes; (wasIO == 0) != (n == 0) {
		a.log(LogEntry{Kind: LogIOBound, N: n})
	}
	for i, r := range of {
		if g := a.find(r.TaskRef); g != nil && g.Alive() && g.last().Number == r.Incarnation {
			g.Throttle, g.IOBound = cpu[i], io[i]
		}
	}
}
