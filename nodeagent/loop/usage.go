package loop

import (
	"context"
	"slices"
	"time"

	"github.com/musterhq/muster/nodeagent"
	"github.com/musterhq/muster/schema"
)

// Walks through directories cost by the number of files, which tasks choose: so
// there is one at a time, and pauses that grow with what it took.
const (
	pauseAfterWalk = 20  // times what the walk took, until the next one
	restAfterWalk  = 100 // times that, until the same directory is walked again
	leastPause     = 20 * time.Millisecond
	// wakeWalker is how long a pause must be to be made: shorter ones are put
	// together, for to wake up costs as much as a walk.
	wakeWalker = 10 * leastPause
	// idleWalker is how long the walker sleeps when nothing is due.
	idleWalker = time.Second
)

// walk is what is known of a generation's disk.
type walk struct {
	due time.Time
	use nodeagent.DiskUse
	at  time.Time // zero: not measured yet
}

// measure starts the goroutines that measure, which end with ctx.
func (l *Loop) measure(ctx context.Context) {
	if l.cfg.Meter == nil {
		return
	}
	l.workers.Go(func() {
		ticker := time.NewTicker(l.cfg.SampleEvery)
		defer ticker.Stop()
		for {
			l.sample(ctx)
			l.refill()
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
			}
		}
	})
	l.workers.Go(func() {
		for {
			pause := l.walkNext(ctx)
			select {
			case <-ctx.Done():
				return
			case <-time.After(pause):
			}
		}
	})
}

// refill makes what is missing of the ballast, unless the disk is short.
func (l *Loop) refill() {
	room := l.Usage()
	if room == nil || room.DiskFree < l.cfg.Limits.DiskBytes+l.cfg.BallastBytes || room.InodesTotal > 0 && room.InodesFree < l.cfg.Limits.Inodes {
		return
	}
	if err := l.disk.ballast.fill(); err != nil && !noRoom(err) && !noWrite(err) {
		l.cfg.Log.Warn("cannot keep room for what has to be written to a full disk", "err", err)
	}
}

// sampled is an incarnation and what it uses.
type sampled struct {
	g       *generation
	number  int
	process Process
	usage   *schema.Usage // nil: nothing of it is left
}

// sample measures the machine and all that runs on it, and has the loop take it.
func (l *Loop) sample(ctx context.Context) {
	var live []sampled
	if l.call(ctx, func() {
		for _, g := range l.held {
			if g.process != nil && g.Alive() {
				live = append(live, sampled{g: g, number: g.last().Number, process: g.process})
			}
		}
	}) != nil {
		return
	}
	began := time.Now()
	room, err := l.cfg.Meter.Machine()
	for i := range live {
		if u, ok := live[i].process.Usage(); ok {
			live[i].usage = &u
		}
	}
	l.metrics.spent.WithLabelValues("sample").Add(time.Since(began).Seconds())
	l.send(ctx, func() { l.sampled(room, err, live) })
}

// sampled takes a sample.
func (l *Loop) sampled(room schema.MachineUsage, err error, live []sampled) {
	if err != nil {
		l.metrics.errors.Inc()
		l.cfg.Log.Error("cannot measure the machine", "err", err)
		return
	}
	for _, s := range live {
		c := s.g.find(s.number)
		if c == nil || s.usage == nil {
			continue
		}
		if before := c.Usage; before == nil || s.usage.OOMKills > before.OOMKills {
			l.oomKilled(s, before)
		}
		s.g.walk.into(s.usage)
		c.Usage = s.usage
	}
	all := room
	all.Machine, all.Tasks = l.cfg.Machine.Name, []schema.TaskUsage{}
	var run []nodeagent.Runner
	for _, g := range l.held {
		if !g.Alive() || g.last().Usage == nil || g.Assignment.Job.Kind == schema.Allocs {
			continue
		}
		c, ref := g.last(), schema.TaskRef{Task: g.Assignment.Task, Generation: g.Assignment.Generation}
		run = append(run, nodeagent.Runner{TaskRef: ref, Priority: l.priority(g), Usage: c.Usage})
		all.Tasks = append(all.Tasks, schema.TaskUsage{Task: ref.Task, Generation: ref.Generation, Incarnation: c.Number, Usage: *c.Usage})
	}
	schema.SortUsage(all.Tasks)
	l.usage.Store(&all)
	now := time.Now()
	was := l.pressure.DiskShort
	l.pressure = l.pressure.Next(room, run, l.cfg.Limits, now)
	if was.IsZero() && !l.pressure.DiskShort.IsZero() {
		for _, g := range l.held { // who has to go is decided by what is there now
			if g.Alive() {
				g.walk.due = time.Time{}
			}
		}
	}
	l.logConditions(l.cfg.Limits.Pressure(&l.machineState.conditions, &room, now))
	l.metrics.left.WithLabelValues("memory").Set(float64(room.RAMAvailable))
	l.metrics.left.WithLabelValues("disk").Set(float64(room.DiskFree))
	l.metrics.inodes.Set(float64(room.InodesFree))
}

// oomKilled says which task had processes killed by the kernel; before is its
// sample before, nil if there was none.
func (l *Loop) oomKilled(s sampled, before *schema.Usage) {
	n := s.usage.OOMKills
	if before != nil {
		n -= before.OOMKills
	}
	if n == 0 {
		return
	}
	l.metrics.oomKills.Add(float64(n))
	l.cfg.Log.Warn("the kernel has killed processes of a task that was out of memory", "task", s.g.Assignment.Task.Short(),
		"generation", s.g.Assignment.Generation, "incarnation", s.number, "processes", n)
}

// priority returns the task's priority as the view has it now.
func (l *Loop) priority(g *generation) schema.Priority {
	if v := l.memory.view; v != nil {
		for i := range v.Assignments {
			if a := &v.Assignments[i]; a.Generation == g.Assignment.Generation && a.Task == g.Assignment.Task {
				return a.Job.Priority
			}
		}
	}
	return g.Assignment.Job.Priority
}

// Usage returns the newest sample, nil before the first. It is immutable.
func (l *Loop) Usage() *schema.MachineUsage { return l.usage.Load() }

// remeasure looks how much disk there is after something was removed: the next
// decision must not count on what was before.
func (l *Loop) remeasure() {
	if !l.removed || l.cfg.Meter == nil || l.pressure.Room.At.IsZero() {
		return
	}
	l.removed = false
	if room, err := l.cfg.Meter.Machine(); err == nil {
		l.pressure.Room.DiskFree, l.pressure.Room.InodesFree = room.DiskFree, room.InodesFree
	}
}

// into puts what is known of the disk into a sample.
func (w *walk) into(u *schema.Usage) {
	u.DiskBytes, u.DiskInodes, u.DiskAt, u.DiskNote = w.use.Bytes, w.use.Inodes, w.at, w.use.Note
}

// diskWalk is one measurement of a generation's directories, or of an incarnation's.
type diskWalk struct {
	g           *generation
	incarnation int // that has ended; 0: the whole generation
	dirs        []string
	limit       int64   // of what may be there; 0: none
	ended       bool    // of the generation
	process     Process // that ran when the walk began

	// What came of it.
	use         nodeagent.DiskUse
	began, done time.Time
}

// maxWalks is how many walks have their results reported together: each report
// causes a decision.
const maxWalks = 64

// walkNext walks what is due, and returns how long to pause. What it finds is reported
// at the end, or at once when a task is over its limit.
func (l *Loop) walkNext(ctx context.Context) time.Duration {
	var due []*diskWalk
	if l.call(ctx, func() { due = l.diskWalks(time.Now()) }) != nil || len(due) == 0 {
		return idleWalker
	}
	pause := time.Duration(0)
	for i, e := range due {
		l.walk(e)
		pause += max(leastPause, pauseAfterWalk*e.done.Sub(e.began))
		if e.use.Over(e.limit) || i == len(due)-1 {
			due = due[:i+1]
			break
		}
		if pause < wakeWalker {
			continue
		}
		select {
		case <-ctx.Done():
			return 0
		case <-time.After(pause):
		}
		pause = 0
	}
	l.send(ctx, func() {
		for _, e := range due {
			l.walked(e)
		}
	})
	return pause
}

// walk does an errand. Who is over its limit is measured again, and the smaller
// counts: what was renamed, or written anew and the old removed, while the walk was
// between the two has been counted twice.
func (l *Loop) walk(e *diskWalk) {
	e.began = time.Now()
	e.use = l.walkOnce(e)
	if e.use.Over(e.limit) {
		if again := l.walkOnce(e); !again.Over(e.limit) || again.Bytes < e.use.Bytes {
			e.use = again
		}
	}
	e.done = time.Now()
	l.metrics.spent.WithLabelValues("walk").Add(e.done.Sub(e.began).Seconds())
}

func (l *Loop) walkOnce(e *diskWalk) nodeagent.DiskUse {
	var of nodeagent.Processes
	if e.process != nil && e.incarnation == 0 {
		of = e.process.Processes()
	}
	use, err := l.cfg.Meter.Disk(e.dirs, of, e.limit)
	if err != nil {
		use.Note = "not measured: " + err.Error()
	}
	return use
}

// diskWalks returns what is to be walked, the most due first.
func (l *Loop) diskWalks(now time.Time) []*diskWalk {
	limits := l.diskLimits()
	var list []*diskWalk
	for k, g := range l.held {
		if g.unread || !g.written || g.walk.due.After(now) {
			continue
		}
		e := &diskWalk{g: g, dirs: []string{g.dir}, ended: g.End != nil, process: g.process}
		if g.process != nil {
			e.limit = g.Assignment.Job.Task.Resources.DiskBytes
			if limit, ok := limits[k]; ok {
				e.limit = limit
			}
			if g.Assignment.Job.Task.Sticky.Has() {
				e.dirs = append(e.dirs, l.disk.stickyDir(g.Assignment.Task))
			}
		}
		for i := range g.Incarnations {
			if c := &g.Incarnations[i]; g.End == nil && c.Exit != nil && c.Bytes == 0 {
				e.incarnation, e.limit, e.dirs = c.Number, 0, []string{incarnationDir(g.dir, c.Number)}
				break
			}
		}
		list = append(list, e)
	}
	slices.SortFunc(list, func(a, b *diskWalk) int { return a.g.walk.due.Compare(b.g.walk.due) })
	return list[:min(len(list), maxWalks)]
}

// diskLimits returns what the view allows tasks: a new version applies in place.
func (l *Loop) diskLimits() map[key]int64 {
	limits := map[key]int64{}
	if v := l.memory.view; v != nil {
		for i := range v.Assignments {
			a := &v.Assignments[i]
			limits[key{a.Task, a.Generation}] = a.Job.Task.Resources.DiskBytes
		}
	}
	return limits
}

// never is when what does not change is walked again.
const never = 100 * 365 * 24 * time.Hour

// walked takes what a walk has found.
func (l *Loop) walked(e *diskWalk) {
	if e.incarnation != 0 {
		if c := e.g.find(e.incarnation); c != nil {
			c.Bytes = max(e.use.Bytes, 1) // it is measured, whatever it holds
		}
		return
	}
	if e.process != e.g.process {
		e.g.walk.due = time.Time{} // what was there may have been cleared since
		return
	}
	w := &e.g.walk
	w.use, w.at = e.use, e.began // what came later was not seen
	w.due = e.done.Add(max(l.cfg.DiskEvery, restAfterWalk*e.done.Sub(e.began)))
	if e.ended {
		e.g.Bytes, w.due = max(e.use.Bytes, 1), e.done.Add(never)
	}
	if len(e.g.Incarnations) == 0 || e.g.process == nil {
		return
	}
	c := e.g.last()
	if c.Usage == nil && e.g.Assignment.Job.Kind == schema.Allocs { // its tasks have all else
		c.Usage = &schema.Usage{At: w.at}
	}
	if c.Usage != nil {
		u := *c.Usage
		w.into(&u)
		c.Usage = &u
	}
}
