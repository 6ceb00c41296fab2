package loop_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/musterhq/muster/nodeagent"
	"github.com/musterhq/muster/schema"
)

// limits returns the limits in force of the live task of a job.
func (k *kernel) limitsOf(job string) nodeagent.TaskLimits {
	k.mu.Lock()
	defer k.mu.Unlock()
	for dir, p := range k.procs {
		if strings.Contains(dir, "/u/"+job+"/") && p.is.Exit == nil {
			return p.is.Limits
		}
	}
	return nodeagent.TaskLimits{}
}

// note returns what the report says of the live task of a job.
func (s *story) note(job string) string {
	tasks := s.agent.Report().Tasks
	if i := slices.IndexFunc(tasks, func(t schema.TaskStatus) bool { return t.Task.Job == job }); i >= 0 {
		return tasks[i].Note
	}
	return "no such task"
}

// limited is an assignment whose task may use so much CPU.
func limited(job string, kind schema.JobKind, milli int64) schema.Assignment {
	a := assignment(job, 0, 1, kind)
	a.Job.Task.Resources.CPUMilli = milli
	a.Data = schema.DigestOf(a.Job)
	return a
}

// TestResizeInPlace: new version of a generation changes the limits of what runs;
// what cannot be changed is reported, and tried again.
func TestResizeInPlace(t *testing.T) {
	bubble(t, func(s *story) {
		s.kernel.limited = true
		s.assign(limited("web", schema.Service, 100))
		s.until("u/web/0 g1 running")
		rest()
		if got := s.kernel.limitsOf("web").CPUMilli; got != 100 {
			s.t.Errorf("cpuMilli %d, want 100", got)
		}
		s.kernel.set(func(k *kernel) { k.stiff = true })
		s.assign(limited("web", schema.Service, 300))
		rest()
		if got, note := s.kernel.limitsOf("web").CPUMilli, s.note("web"); got != 100 || note != "fake; it keeps what it has" {
			s.t.Errorf("cpuMilli %d, note %q", got, note)
		}
		s.kernel.set(func(k *kernel) { k.stiff = false })
		time.Sleep(nodeagent.LimitAgain)
		rest()
		if got, note := s.kernel.limitsOf("web").CPUMilli, s.note("web"); got != 300 || note != "fake" {
			s.t.Errorf("after a while: cpuMilli %d, note %q", got, note)
		}
		// The next agent does not know what is in force, and sees to it.
		s.kernel.procs[s.kernel.alive()[0]].is.Limits = nodeagent.TaskLimits{}
		s.restart()
		rest()
		if got := s.kernel.limitsOf("web").CPUMilli; got != 300 || len(s.kernel.starts) != 1 {
			s.t.Errorf("after a restart of the agent: cpuMilli %d", got)
		}
	})
}

// bounded is what a latency-sensitive task waits for, and how batch is bounded then.
type bounded struct {
	wait  func(k *kernel, milli int64) // sets for how much of the time it waits
	after int                          // looks until batch is bounded
	bound func(l nodeagent.TaskLimits) int64
	least int64 // that it may be bounded to
	most  int64
	note  string
}

// play plays it: batch is bounded while the other waits, and says so; when that waits
// no more, or is gone, all is well again.
func (w bounded) play(s *story) {
	s.kernel.limited = true
	web, crunch := limited("web", schema.Service, 2000), limited("crunch", schema.Batch, 2000)
	s.assign(web, crunch)
	s.until("u/crunch/0 g1 running", "u/web/0 g1 running")
	wait := func(milli int64, d time.Duration) {
		s.kernel.set(func(k *kernel) { w.wait(k, milli) })
		time.Sleep(d)
		rest()
	}
	free := func(when string) {
		s.t.Helper()
		if got := w.bound(s.kernel.limitsOf("crunch")); got != 0 || s.note("crunch") != "fake" {
			s.t.Errorf("%s: bound %d, note %q", when, got, s.note("crunch"))
		}
	}
	wait(0, time.Minute)
	free("no waiter")
	wait(500, time.Duration(w.after)*nodeagent.ThrottleEvery)
	if got := w.bound(s.kernel.limitsOf("crunch")); got < w.least || got > w.most || !strings.Contains(s.note("crunch"), w.note) {
		s.t.Errorf("it waits: bound %d, note %q", got, s.note("crunch"))
	}
	if got := w.bound(s.kernel.limitsOf("web")); got != 0 {
		s.t.Errorf("the one that waits is bounded to %d", got)
	}
	wait(0, 5*time.Minute)
	free("it does not wait any more")
	wait(900, 3*nodeagent.ThrottleEvery)
	s.assign(crunch)
	time.Sleep(time.Minute)
	rest()
	free("the other is gone")
}

// TestBatchIsHeldBack: when a latency-sensitive task waits for processors, batch
// is bounded.
func TestBatchIsHeldBack(t *testing.T) {
	bubble(t, func(s *story) {
		s.kernel.wait = map[string]int64{}
		bounded{
			wait:  func(k *kernel, milli int64) { k.wait["web"] = milli },
			after: 3, least: 1, most: 750, note: nodeagent.ThrottleNote,
			bound: func(l nodeagent.TaskLimits) int64 { return l.QuotaMilli },
		}.play(s)
	})
}

// TestBatchLeavesTheDisk: when a latency-sensitive task waits for the disk, what
// batch reads and writes is bounded.
func TestBatchLeavesTheDisk(t *testing.T) {
	bubble(t, func(s *story) {
		s.kernel.diskWait = map[string]int64{"crunch": 900}
		bounded{
			wait:  func(k *kernel, milli int64) { k.diskWait["web"] = milli },
			after: 5, least: nodeagent.IOLeastBytes, most: nodeagent.IOLeastBytes, note: nodeagent.IOThrottleNote,
			bound: func(l nodeagent.TaskLimits) int64 { return l.IOBytes },
		}.play(s)
	})
}
