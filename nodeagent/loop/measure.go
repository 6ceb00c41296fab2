package loop

import (
	"context"
	"strings"
	"time"

	"github.com/musterhq/muster/nodeagent"
	"github.com/musterhq/muster/schema"
)

// Walks through directories cost by the number of files, which tasks choose: so
// there is one at a time, and pauses that grow with what it took.
const (
	pauseAfterWalk = 20 // times what the walk took, until the next one
	leastPause     = 20 * time.Millisecond
	// wakeWalker is how long a pause must be to be made: shorter ones are put
	// together, for to wake up costs as much as a walk.
	wakeWalker = 10 * leastPause
	// idleWalker is how long the walker sleeps when nothing is due.
	idleWalker = time.Second
)

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
	if err := l.owner.disk.ballast.fill(); err != nil && !noRoom(err) && !noWrite(err) {
		l.cfg.Log.Warn("cannot keep room for what has to be written to a full disk", "err", err)
	}
}

// sample measures the machine and all that runs on it, and has the agent take it.
func (l *Loop) sample(ctx context.Context) {
	var live []nodeagent.Sample
	var processes []Process
	if l.ask(ctx, func() {
		for _, r := range l.owner.agent.Alive() {
			if p := l.owner.processes[r.TaskRef]; p != nil {
				live, processes = append(live, nodeagent.Sample{Running: r}), append(processes, p)
			}
		}
	}) != nil {
		return
	}
	began := time.Now()
	room, err := l.cfg.Meter.Machine()
	for i, p := range processes {
		if u, ok := p.Usage(); ok {
			live[i].Usage = &u
		}
	}
	l.owner.metrics.spent.WithLabelValues("sample").Add(time.Since(began).Seconds())
	l.send(ctx, func() { l.owner.sampled(room, err, live) })
}

// walkNext walks what is due, and returns how long to pause. What it finds is reported
// at the end, or at once when a task is over its limit.
func (l *Loop) walkNext(ctx context.Context) time.Duration {
	var due []diskWalk
	if l.ask(ctx, func() { due = l.owner.diskWalks() }) != nil || len(due) == 0 {
		return idleWalker
	}
	pause := time.Duration(0)
	for i := range due {
		e := &due[i]
		l.walk(e)
		pause += max(leastPause, pauseAfterWalk*e.Done.Sub(e.Began))
		if e.Use.Over(e.Limit) || i == len(due)-1 {
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
		for i := range due {
			l.owner.agent.Walked(&due[i].Walk)
		}
	})
	return pause
}

// walk does a walk. Who is over its limit is measured again, and the smaller
// counts: what was renamed, or written again and the old removed, while the walk was
// between the two has been counted twice.
func (l *Loop) walk(e *diskWalk) {
	e.Began = time.Now()
	e.Use = l.walkOnce(e)
	if e.Use.Over(e.Limit) {
		if again := l.walkOnce(e); !again.Over(e.Limit) || again.Bytes < e.Use.Bytes {
			e.Use = again
		}
	}
	e.Done = time.Now()
	l.owner.metrics.spent.WithLabelValues("walk").Add(e.Done.Sub(e.Began).Seconds())
}

func (l *Loop) walkOnce(e *diskWalk) nodeagent.DiskUse {
	var of nodeagent.Processes
	if e.process != nil && e.Incarnation == 0 {
		of = e.process.Processes()
	}
	use, err := l.cfg.Meter.Disk(e.dirs, of, e.Limit)
	if err != nil {
		use.Note = "not measured: " + err.Error()
	}
	return use
}

// diskWalk is a nodeagent.Walk with what is walked.
type diskWalk struct {
	nodeagent.Walk
	dirs    []string
	process Process // that ran when the walk began
}

// diskWalks returns what is to be walked, the most due first.
func (o *owner) diskWalks() []diskWalk {
	var list []diskWalk
	for _, w := range o.agent.Walks(time.Now()) {
		e := diskWalk{Walk: w, process: o.processes[w.TaskRef]}
		dir := o.disk.dir(w.Task, w.Generation)
		if e.dirs = []string{dir}; w.Incarnation != 0 {
			e.dirs = []string{incarnationDir(dir, w.Incarnation)}
		}
		if w.Sticky {
			e.dirs = append(e.dirs, o.disk.stickyDir(w.Task))
		}
		list = append(list, e)
	}
	return list
}

// sampled takes a sample.
func (o *owner) sampled(room schema.MachineUsage, err error, live []nodeagent.Sample) {
	if err != nil {
		o.metrics.errors.Inc()
		o.cfg.Log.Error("cannot measure the machine", "err", err)
		return
	}
	o.agent.Sampled(room, live, time.Now())
	o.usage.Store(o.agent.Usage())
	o.metrics.left.WithLabelValues("memory").Set(float64(room.RAMAvailable))
	o.metrics.left.WithLabelValues("disk").Set(float64(room.DiskFree))
	o.metrics.inodes.Set(float64(room.InodesFree))
}

// look measures of the machine what the agent wants to know before it goes on.
func (o *owner) look(ctx context.Context, ready *nodeagent.Ready) {
	if c := o.clock.Load(); ready.Clocks && c != nil && o.clock.CompareAndSwap(c, nil) {
		o.agent.Clock(c.ahead, c.within, time.Now())
	}
	if ready.Room && o.cfg.Meter != nil {
		if room, err := o.cfg.Meter.Machine(); err == nil {
			o.agent.Room(&room)
		}
	}
	if !ready.Look {
		return
	}
	o.scrub(ctx)
	o.workers.Go(func() {
		err := o.disk.try()
		o.send(ctx, func() { o.agent.Looked(err, time.Now()) })
	})
}

// scan looks in a goroutine of its own who listens on the machine's range.
func (o *owner) scan(ctx context.Context) {
	o.workers.Go(func() {
		busy, err := listeners(o.cfg.Machine.Ports)
		o.send(ctx, func() {
			if err != nil {
				o.cfg.Log.Warn("cannot see which ports are in use", "err", err)
				return
			}
			o.agent.Scanned(busy)
		})
	})
}

// readLines reads, in a goroutine of its own, what running tasks say of themselves.
func (o *owner) readLines(ctx context.Context, list []nodeagent.Running) {
	if len(list) == 0 {
		return
	}
	processes := make([]Process, len(list))
	for i, r := range list {
		processes[i] = o.processes[r.TaskRef]
	}
	o.workers.Go(func() {
		lines := make([]string, len(list))
		for i, p := range processes {
			lines[i] = firstLine(p.Line())
		}
		o.send(ctx, func() { o.agent.Lines(list, lines) })
	})
}

// firstLine returns what can be shown of the first line of s that says
// something.
func firstLine(s string) string {
	line, _, _ := strings.Cut(strings.TrimLeft(s, " \t\r\n"), "\n")
	return printable(line, schema.MaxLine)
}

// measureCPU reads in a goroutine of its own what tasks have used of processors.
func (o *owner) measureCPU(ctx context.Context, tasks []nodeagent.CPUUse) {
	if len(tasks) == 0 {
		return
	}
	processes := make([]Process, len(tasks))
	for i := range tasks {
		processes[i] = o.processes[tasks[i].TaskRef]
	}
	o.workers.Go(func() {
		for i, p := range processes {
			tasks[i].Used = p.CPU()
		}
		at := time.Now()
		o.send(ctx, func() { o.agent.Measured(at, tasks) })
	})
}
