package reconciler

import (
	"fmt"
	"maps"
	"slices"
	"strings"

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
		if a != nil && a.Machine == "" && len(a.Causes) > 0 {
			return fmt.Sprintf("its alloc %s has ended: %s", name.Short(), a.Causes[len(a.Causes)-1])
		}
		return fmt.Sprintf("its alloc %s has ended", name.Short())
	case a.Stop != nil:
		return fmt.Sprintf("its alloc %s is stopping: %s", name.Short(), a.Stop)
	}
	return ""
}

// retained returns the alloc sets that are gone from the repository, or are no
// alloc sets there any more, and that something still runs in, with the jobs
// that name them by the data that they run. Such a set stays: what runs is not
// stopped since its set is missing, and goes before it.
func (s *State) retained() map[schema.JobName][]string {
	var out map[schema.JobName][]string
	desired := s.desired()
	for name, r := range s.Jobs {
		if r.Admitted == "" || s.Data[r.Admitted].Kind != schema.Allocs {
			continue
		}
		if d, ok := desired.Jobs[name]; ok && d.Job.Kind == schema.Allocs {
			continue
		}
		if jobs, used := s.usersOf(name); used {
			if out == nil {
				out = map[schema.JobName][]string{}
			}
			out[name] = jobs
		}
	}
	return out
}

// usersOf returns the jobs that are declared and run data that names the set,
// sorted, and whether anything uses it, such as a task that is on its way out.
func (s *State) usersOf(set schema.JobName) (jobs []string, used bool) {
	for name, r := range s.Jobs {
		if _, declared := s.desired().Jobs[name]; r.Admitted == "" || !declared {
			continue
		}
		if host, ok := s.Data[r.Admitted].HostSet(); ok && host == set {
			jobs = append(jobs, name.Short())
		}
	}
	slices.Sort(jobs)
	for name, c := range s.Chunks {
		used = used || slices.ContainsFunc(c.Tasks, func(t schema.TaskRecord) bool {
			return t.Alloc != nil && t.Machine != "" && t.Alloc.Of(name.Job).JobName == set
		})
	}
	return jobs, used || len(jobs) > 0
}

// withRetained returns what is desired, and the alloc sets that jobs keep alive
// as they are: refused, so that all are told, and charged to their quota.
func (s *State) withRetained(retained map[schema.JobName][]string) Desired {
	d := *s.desired()
	if len(retained) == 0 {
		return d
	}
	d.Jobs = maps.Clone(d.Jobs)
	for name, jobs := range retained {
		if len(jobs) == 0 {
			delete(d.Jobs, name) // of another kind now, which comes when the set has gone
			continue
		}
		r := s.Jobs[name]
		data := s.Data[r.Admitted]
		d.Jobs[name] = DesiredJob{Job: data, Digest: r.Admitted, Origin: r.Origin, Refused: []schema.Diagnostic{{
			Severity: schema.Error, Position: r.Origin, Field: keyOf(data).Field(),
			Message:  fmt.Sprintf("alloc set %s is declared no more, and stays as it is for the jobs that run in it: %s", name.Short(), strings.Join(jobs, ", ")),
			Expected: "an alloc set that no job names",
			Hint:     "declare it again, or take allocset out of the job first",
		}}}
	}
	return d
}
