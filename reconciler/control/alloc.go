package control

import (
	"fmt"
	"slices"

	"github.com/musterhq/muster/schema"
)

// An alloc set is a job whose tasks run no process: all that holds for tasks
// holds for allocs. What is left to do here is to keep the tasks inside with
// their allocs: they are placed into allocs when these are settled, and go when
// theirs does.

// inside reports whether a job's tasks run in allocs, by its admitted data.
func (s *step) inside(name schema.JobName) (set schema.JobName, ok bool) {
	r := s.job(name)
	if r == nil || r.Admitted == "" {
		return schema.JobName{}, false
	}
	return s.dataOf(r.Admitted).HostSet()
}

// useOf returns the alloc that a decision of placement has put a task into.
func (s *step) useOf(alloc schema.TaskName) *schema.AllocUse {
	if alloc == (schema.TaskName{}) {
		return nil
	}
	return &schema.AllocUse{Set: alloc.Job, Index: alloc.Index, Generation: s.recordOf(alloc).Generation}
}

// followAllocs stops the tasks whose alloc has ended, or is to. Jobs that are at
// rest are looked at only when the step has changed something of their set.
func (s *step) followAllocs() {
	changed := map[schema.JobName]bool{}
	for name := range s.chunks {
		changed[name.Job] = true
	}
	active := map[schema.JobName]bool{}
	for _, name := range s.active {
		active[name] = true
	}
	for _, name := range s.allJobs() {
		set, inside := s.inside(name)
		if !active[name] && !(inside && changed[set]) {
			continue
		}
		for _, t := range s.tasks(name) {
			if t.Alloc == nil || t.Machine == "" || t.Stop != nil {
				continue
			}
			if why := s.left(name, &t); why != "" {
				s.stop(name, t, schema.Cause{Kind: schema.CauseAllocGone, Message: why, At: s.now})
			}
		}
	}
}

// left says why a task's alloc is not there for it any more, "" if it is.
func (s *step) left(job schema.JobName, t *schema.TaskRecord) string {
	name := t.Alloc.Of(job)
	a := s.recordOf(name)
	switch {
	case a == nil || a.Generation != t.Alloc.Generation || a.Machine != t.Machine:
		return s.whereLeft(name, a, t.Machine)
	case a.Stop != nil:
		return fmt.Sprintf("its alloc %s is stopping: %s", name.Short(), a.Stop)
	}
	return ""
}

// whereLeft says what has become of an alloc that was on a machine. Of one that
// was lost nobody knows whether it has ended.
func (s *step) whereLeft(name schema.TaskName, a *schema.TaskRecord, machine string) string {
	var last schema.Cause
	if a != nil && len(a.Causes) > 0 {
		last = a.Causes[len(a.Causes)-1]
	}
	switch lost := last.Kind == schema.CauseMachineLost; {
	case lost && a.Machine != "" && a.Machine != machine:
		return fmt.Sprintf("alloc %s moved to %s", name.Short(), a.Machine)
	case lost:
		return fmt.Sprintf("alloc %s left machine %s", name.Short(), machine)
	case a != nil && a.Machine == "" && last.Kind != "":
		return fmt.Sprintf("its alloc %s has ended: %s", name.Short(), last)
	}
	return fmt.Sprintf("its alloc %s has ended", name.Short())
}

// last reports whether a job is an alloc set that is going. Its allocs go when
// nothing runs inside any more, so all others are looked at first.
func (s *step) last(name schema.JobName) bool {
	r := s.job(name)
	return r != nil && r.Admitted == "" && slices.ContainsFunc(s.tasks(name), func(t schema.TaskRecord) bool {
		return t.Machine != "" && s.dataOf(t.Data).Kind == schema.Allocs
	})
}

// occupied reports whether something runs in an alloc.
func (s *step) occupied(alloc schema.TaskName) bool {
	if s.inUse == nil {
		s.inUse = map[schema.TaskName]bool{}
		for _, name := range s.chunkNames() {
			for _, t := range s.chunk(name).Tasks {
				if t.Alloc != nil && t.Machine != "" {
					s.inUse[t.Alloc.Of(name.Job)] = true
				}
			}
		}
	}
	return s.inUse[alloc]
}
