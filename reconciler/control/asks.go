package control

import (
	"maps"
	"slices"
	"time"

	"github.com/musterhq/muster/placement"
	"github.com/musterhq/muster/reconciler/control/facts"
	"github.com/musterhq/muster/reconciler/control/snapshot"
	"github.com/musterhq/muster/schema"
)

// asks are the tasks that want a machine, in the order in which they have asked.
type asks struct {
	pass
	cell  *snapshot.Cell
	list  []snapshot.Ask
	of    map[schema.JobName]span // where those of a job that was looked at are in list
	at    map[schema.TaskName]int // where that of a task is in list, of as many as found says
	found int
	again int // those of idle jobs: they had no place before
}

// span is a part of a list.
type span struct{ from, to int }

// add asks what an idle job asks.
func (s *asks) add(r *idleJob) {
	s.list = append(s.list, r.asks...)
	s.again += len(r.asks)
}

// ofJob returns what a job has asked for that was looked at.
func (s *asks) ofJob(job schema.JobName) []snapshot.Ask {
	is := s.of[job]
	return s.list[is.from:is.to]
}

// ofTask returns what was asked for a task, and where that is in list; -1 if nothing was.
func (s *asks) ofTask(task schema.TaskName) (a snapshot.Ask, at int) {
	if s.at == nil {
		s.at = make(map[schema.TaskName]int, len(s.list))
	}
	for ; s.found < len(s.list); s.found++ {
		s.at[s.list[s.found].Task] = s.found
	}
	at, ok := s.at[task]
	if !ok {
		return snapshot.Ask{}, -1
	}
	return s.list[at], at
}

// places returns where asks of placement are, by where what was asked for their tasks is in list:
// one more than that, 0 for those that are not among them.
func (s *asks) places(asks []placement.Ask) []int {
	out := make([]int, len(s.list))
	for i := range asks {
		if _, at := s.ofTask(asks[i].Name); at >= 0 {
			out[at] = i + 1
		}
	}
	return out
}

// consider asks for a machine for a task that has none and wants one now; t is its record,
// nil if it has none.
func (s *asks) consider(a snapshot.Ask, t *schema.TaskRecord) {
	if t != nil {
		a = asBefore(s.Facts, a, t)
		if t.Machine != "" {
			return
		}
		pending := s.renew(a.Task.JobName, *t, a.Job)
		waits, until := s.Waits(pending.NotBefore, facts.RetryCap)
		if pending.Done != nil {
			return
		}
		if s.book(a.Task.JobName, until); waits {
			return
		}
	}
	is, asked := s.of[a.Task.JobName]
	if !asked {
		is.from = len(s.list)
	}
	s.list = append(s.list, a)
	is.to = len(s.list)
	s.of[a.Task.JobName] = is
}

// highest returns the highest priority of those that ask for a machine of the cell, system jobs
// apart.
func (s *asks) highest() (p schema.Priority) {
	for i := range s.list {
		if job := s.list[i].Job; job.Kind != schema.System && job.AllocSet == "" {
			p = max(p, job.Priority)
		}
	}
	return p
}

// renew stores the record of a pending task without what holds it up no more, and returns
// it: what the previous version has earned, and waits that are over.
func (s *asks) renew(job schema.JobName, t schema.TaskRecord, want *schema.Job) schema.TaskRecord {
	if t = s.forget(job, t, want); t.Done != nil {
		return t
	}
	return s.setRight(job, t)
}

// forget returns the record of a pending task without what the previous version has
// earned: that it was done, when the job is no batch now, and its back-off, when
// a new process may do better. A machine that was short of something is so for
// the new version, too.
func (s *asks) forget(job schema.JobName, t schema.TaskRecord, want *schema.Job) schema.TaskRecord {
	switch {
	case t.Done != nil && want.Kind == schema.Batch:
		return t
	case t.Done == nil && (t.Failures == 0 && t.NotBefore.IsZero() && len(t.Avoid) == 0 || s.cell.InPlace(t.Data, want, snapshot.On{})):
		return t
	}
	avoid := t.Avoid
	t.Done, t.Failures, t.NotBefore, t.Avoid = nil, 0, time.Time{}, nil
	if n := len(t.Causes); n > 0 && t.Causes[n-1].Kind == schema.CauseOutOfResources {
		if until, ok := avoid[t.Causes[n-1].Machine]; ok {
			t.Avoid = map[string]time.Time{t.Causes[n-1].Machine: until}
		}
	}
	s.Set(job, t)
	return t
}

// setRight returns the record of a pending task without the waits that are over
// since the clock was set back, and has them stored so: as time passes, less is
// left of them, and they would begin again.
func (s pass) setRight(job schema.JobName, t schema.TaskRecord) schema.TaskRecord {
	changed := false
	if t.NotBefore.Sub(s.Now) > 2*facts.RetryCap {
		t.NotBefore, changed = time.Time{}, true
	}
	tooLong := func(_ string, until time.Time) bool { return until.Sub(s.Now) > 2*facts.AvoidFor }
	avoid := maps.Clone(t.Avoid)
	if maps.DeleteFunc(avoid, tooLong); len(avoid) < len(t.Avoid) {
		t.Avoid, changed = avoid, true
	}
	if n := len(t.Causes); n > 0 && t.Causes[n-1].At.After(s.Now) { // what it waits for is counted from there
		t.Causes = slices.Clone(t.Causes)
		t.Causes[n-1].At, changed = s.Now, true
	}
	if h := t.Held; h != nil && h.Since.After(s.Now) {
		right := schema.HeldFor{Machine: h.Machine, Since: s.Now}
		if !h.Until.IsZero() {
			right.Until = h.Until.Add(s.Now.Sub(h.Since))
		}
		t.Held, changed = &right, true
	}
	if changed {
		s.Set(job, t)
	}
	return t
}
