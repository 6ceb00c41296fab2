package control

import (
	"maps"
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
		if t.Machine == "" {
			t = s.setRight(name, t) // also while its machine takes none
		}
		a := s.asBefore(ask{name.Task(t.Index), s.dataOf(runs.of(t.Index)), runs.of(t.Index)}, &t)
		if s.wants(want, &t) && s.mayAsk(name, t, a.job) {
			s.want(a)
		}
	}
}

// dropKept ends the tasks on machines which are given up that are not to go on
// there when these return: their job is gone or no system job now, or wants other
// machines. That is known once jobs are admitted.
func (s *step) dropKept() {
	for _, task := range slices.SortedFunc(maps.Keys(s.kept), schema.TaskName.Compare) {
		t := s.recordOf(task)
		if t.Machine != "" && !s.goesOn(task.JobName, t) {
			s.end(task.JobName, *t, schema.Cause{Kind: schema.CauseMachineLost, Message: s.kept[task], At: s.now})
		}
	}
}

// goesOn reports whether a task of a system job is to go on when its machine
// returns.
func (s *step) goesOn(job schema.JobName, t *schema.TaskRecord) bool {
	r := s.job(job)
	if r == nil || r.Admitted == "" || t.On != t.Machine || s.machineSpec(t.Machine).Drain != nil {
		return false
	}
	want := s.dataOf(r.Admitted)
	return want.Kind == schema.System && slices.Contains(s.eligible(want), t.Machine)
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
