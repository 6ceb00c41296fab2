package reconciler

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/musterhq/muster/reconciler/model"
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

// retainedSets returns the alloc sets that are gone from the repository, or are no
// alloc sets there any more, with the jobs that name them by the data that they
// run, which runs says. Such a set stays: what runs is not stopped since its set
// is missing.
func retainedSets(s *model.State, desired *Desired, runs func(schema.JobName) *schema.Job) map[schema.JobName][]string {
	var out map[schema.JobName][]string
	for name, r := range s.Jobs {
		if r.Admitted == "" || s.Data[r.Admitted].Kind != schema.Allocs {
			continue
		}
		if d, ok := desired.Jobs[name]; ok && d.Job.Kind == schema.Allocs {
			continue
		}
		if out == nil {
			out = map[schema.JobName][]string{}
		}
		out[name] = nil
	}
	if out == nil {
		return nil
	}
	for name := range desired.Jobs {
		if data := runs(name); data != nil {
			if host, inside := data.HostSet(); inside {
				if jobs, gone := out[host]; gone {
					out[host] = append(jobs, name.Short())
				}
			}
		}
	}
	maps.DeleteFunc(out, func(_ schema.JobName, jobs []string) bool { slices.Sort(jobs); return len(jobs) == 0 })
	return out
}

// withRetained returns what is desired, and the alloc sets that jobs keep alive
// as they are: refused, so that all are told, and charged to their quota.
func withRetained(s *model.State, desired *Desired, retained map[schema.JobName][]string) Desired {
	d := *desired
	if len(retained) == 0 {
		return d
	}
	d.Jobs = maps.Clone(d.Jobs)
	for name, jobs := range retained {
		r := s.Jobs[name]
		data := s.Data[r.Admitted]
		d.Jobs[name] = DesiredJob{Job: data, Digest: r.Admitted, Origin: r.Origin, Refused: []schema.Diagnostic{{
			Severity: schema.Error, Rule: schema.RuleNoEffect, Position: r.Origin, Field: keyOf(data).Field(),
			Message:  fmt.Sprintf("alloc set %s is declared no more, and stays as it is for the jobs that run in it: %s", name.Short(), strings.Join(jobs, ", ")),
			Expected: "an alloc set that no job names",
			Hint:     "declare it again, or take allocset out of the job first",
		}}}
	}
	return d
}

// admission returns the verdict on the desired jobs, and on the alloc sets that
// stay for those which the verdict leaves as they are.
func (s *step) admission() Admission {
	in := admitInput(s.base, *s.desired, s.now)
	admitted := in.Admitted
	runs := func(name schema.JobName) *schema.Job { return admitted[name] }
	retained := retainedSets(s.base, s.desired, runs)
	for {
		in.Desired = s.withReturned(withRetained(s.base, s.desired, retained))
		verdict := Admit(in)
		if len(retained) == 0 {
			return verdict
		}
		anew := map[schema.JobName]bool{}
		for _, name := range verdict.order {
			anew[name] = true
		}
		still := retainedSets(s.base, s.desired, func(name schema.JobName) *schema.Job {
			if anew[name] {
				return s.desired.Jobs[name].Job
			}
			return admitted[name]
		})
		if len(still) == len(retained) {
			s.retained = retained
			return verdict
		}
		retained = still // what goes makes room
	}
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
