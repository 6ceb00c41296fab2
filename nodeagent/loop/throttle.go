package loop

import (
	"context"
	"time"

	"github.com/musterhq/muster/nodeagent"
	"github.com/musterhq/muster/schema"
)

// throttling is what the loop remembers of the CPU that tasks use.
type throttling struct {
	state  nodeagent.Throttle
	io     nodeagent.IOThrottle
	at     time.Time // of the last look, or of the one in flight
	flying bool
	last   map[runningTask]nodeagent.CPUTime
	lastAt time.Time
}

// runningTask identifies an incarnation.
type runningTask struct {
	key
	incarnation int
}

// looked is one task of a look at what tasks use.
type looked struct {
	runningTask
	process Process
	limits  nodeagent.TaskLimits
	free    bool // of the free band
	time    nodeagent.CPUTime
}

// throttle has a look at what tasks use every now and then, as long as there are
// tasks that may have to give way to others. It returns when the next is due, zero for never.
func (l *Loop) throttle(ctx context.Context, now time.Time) time.Time {
	t := &l.throttling
	if t.flying {
		return time.Time{} // it comes back by itself
	}
	if next := t.at.Add(nodeagent.ThrottleEvery); t.last != nil && now.Before(next) && !t.at.After(now) {
		return next
	}
	tasks := l.sharers()
	if tasks == nil {
		if l.unthrottle() {
			return now // to decide with what has changed
		}
		return time.Time{}
	}
	t.at, t.flying = now, true
	l.workers.Go(func() {
		for i := range tasks {
			tasks[i].time = tasks[i].process.CPU()
		}
		at := time.Now()
		l.send(ctx, func() { l.measured(at, tasks) })
	})
	return time.Time{}
}

// sharers returns the running tasks whose limits can be set; nil unless one may
// have to give way to another.
func (l *Loop) sharers() []looked {
	var tasks []looked
	ranks := map[nodeagent.Rank]bool{}
	for k, g := range l.held {
		if !g.Alive() || g.process == nil {
			continue
		}
		c := g.last()
		if !c.Limited || c.PID == 0 || c.Stop != nil || c.Limits == (nodeagent.TaskLimits{}) {
			continue
		}
		free := g.Assignment.Job.Priority.Band() == schema.BandFree
		tasks = append(tasks, looked{runningTask: runningTask{k, c.Number}, process: g.process, limits: c.Limits, free: free})
		ranks[(&nodeagent.CPUSample{Class: c.Limits.Class, Free: free}).Rank()] = true
	}
	if len(ranks) < 2 {
		return nil
	}
	return tasks
}

// unthrottle lifts all bounds; false if there cannot be any.
func (l *Loop) unthrottle() bool {
	if l.throttling.last == nil {
		return false
	}
	for _, g := range l.held {
		g.Throttle, g.IOBound = 0, 0
	}
	l.throttling = throttling{}
	l.metrics.bound.Set(0)
	l.metrics.ioBound.Set(0)
	return true
}

// measured takes what tasks have used up to at, and bounds them accordingly.
func (l *Loop) measured(at time.Time, tasks []looked) {
	t := &l.throttling
	since := at.Sub(t.lastAt)
	last := t.last
	t.flying, t.lastAt, t.last = false, at, make(map[runningTask]nodeagent.CPUTime, len(tasks))
	machine := l.cfg.Machine.Capacity.CPUMilli
	var samples []nodeagent.CPUSample
	var of []looked
	for _, task := range tasks {
		t.last[task.runningTask] = task.time
		machine -= int64(task.limits.Cores) * schema.CoreMilli
		if before, ok := last[task.runningTask]; ok && since > 0 {
			sample := task.limits.Sample(task.time.Sub(before), since)
			sample.Free = task.free
			samples = append(samples, sample)
			of = append(of, task)
		}
	}
	var bounds []int64
	was := t.state.BatchMilli
	t.state, bounds = t.state.Next(at, max(machine, schema.CoreMilli), samples)
	if (was == 0) != (t.state.BatchMilli == 0) {
		l.cfg.Log.Info("CPU of batch tasks", "bound", t.state.BatchMilli)
	}
	l.metrics.bound.Set(float64(t.state.BatchMilli))
	disk := t.io.Bytes
	var ioBounds []int64
	t.io, ioBounds = t.io.Next(at, samples)
	if (disk == 0) != (t.io.Bytes == 0) {
		l.cfg.Log.Info("disk of tasks that give way", "bound", t.io.Bytes)
	}
	l.metrics.ioBound.Set(float64(t.io.Bytes))
	for i, task := range of {
		if g := l.held[task.key]; g != nil && g.Alive() && g.last().Number == task.incarnation {
			g.Throttle, g.IOBound = bounds[i], ioBounds[i]
		}
	}
}
