package reconciler

import (
	"slices"

	"github.com/musterhq/muster/schema"
)

// stepSystem brings the tasks of a system job forward: one on each machine that
// is eligible and not given up; a cordoned one keeps what it has and gets none.
// An index stays with its machine for as long as that is eligible, also while
// it is given up; a machine that has none gets the lowest that is free.
func (s *step) stepSystem(name schema.JobName, want *schema.Job) {
	eligible := s.eligible(want)
	home := map[string]bool{} // machines that have an index
	for _, t := range s.tasks(name) {
		if t.On == "" && t.Machine != "" && t.Stop == nil && !home[t.Machine] && slices.Contains(eligible, t.Machine) {
			t.On = t.Machine // the job was of another kind
			s.set(name, t)
		}
		_, ok := slices.BinarySearch(eligible, t.On)
		switch {
		case ok && !home[t.On]:
			home[t.On] = true
		case t.Machine == "":
			s.remove(name, t.Index)
		case t.Stop == nil && !s.frozen(name):
			s.stop(name, t, schema.Cause{Kind: schema.CauseScaledDown, Message: "the job has no task on this machine now", At: s.now})
		}
	}
	s.giveIndices(name, eligible, home)
	s.judge(name) // that may have given tasks their place
	runs := s.share(name, want)
	for _, t := range s.tasks(name) {
		a := s.asBefore(ask{name.Task(t.Index), s.dataOf(runs.of(t.Index)), runs.of(t.Index)}, &t)
		if s.wants(want, &t) && s.mayAsk(name, t, a.job) {
			s.want(a)
		}
	}
}

// giveIndices gives each eligible machine without an index the lowest that is
// free.
func (s *step) giveIndices(name schema.JobName, eligible []string, home map[string]bool) {
	have := s.tasks(name)
	next := 0
	for _, machine := range eligible {
		if home[machine] || s.gone(machine) || s.closed(machine) {
			continue
		}
		for len(have) > 0 && have[0].Index == next {
			have = have[1:]
			next++
		}
		s.set(name, schema.TaskRecord{Index: next, On: machine})
		next++
	}
}

// gone reports whether a machine was given up and has not returned.
func (s *step) gone(machine string) bool {
	r := s.machines[machine]
	if r == nil {
		r = s.base.Machines[machine]
	}
	return r == nil || !r.LostSince.IsZero()
}
