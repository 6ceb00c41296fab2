package control

import (
	"maps"
	"slices"

	"github.com/musterhq/muster/reconciler/control/snapshot"
	"github.com/musterhq/muster/schema"
)

// systems has the tasks of system jobs be where they belong.
type systems struct {
	pass
	cell  *snapshot.Cell
	judge *judge
	asks  *asks
}

// scale brings the tasks of a system job forward: one on each machine that
// is eligible and not given up; a cordoned one, and one that has no network for
// a new task, keep what they have and get none.
// An index stays with its machine for as long as that is eligible, also while
// it is given up; a machine that has none gets the lowest that is free.
func (s *systems) scale(name schema.JobName, want *schema.Job) {
	eligible, stay := s.cell.Eligible(want), s.cell.MayStay(want)
	home := map[string]bool{} // machines that have an index
	for _, t := range s.Tasks(name) {
		if t.On == "" && t.Machine != "" && t.Stop == nil && !home[t.Machine] && slices.Contains(stay, t.Machine) {
			t.On = t.Machine // the job was of another kind
			s.Set(name, t)
		}
		may := eligible
		if t.Machine != "" {
			may = stay
		}
		_, ok := slices.BinarySearch(may, t.On)
		switch {
		case ok && !home[t.On]:
			home[t.On] = true
		case t.Machine == "":
			s.Remove(name, t.Index)
		case t.Stop == nil && !s.Frozen(name):
			s.stop(name, t, schema.Cause{Kind: schema.CauseScaledDown, Message: "the job has no task on this machine now", At: s.Now})
		}
	}
	s.giveIndices(name, eligible, home)
	s.judge.judge(name) // that may have given tasks their place
	scope := s.Scope(name, want)
	for _, t := range s.Tasks(name) {
		if t.Machine == "" {
			t = s.setRight(name, t) // also while its machine takes none
		}
		if s.Wants(want, &t) {
			s.asks.consider(snapshot.Ask{Task: name.Task(t.Index), Job: s.Data(scope.Of(t.Index)), Data: scope.Of(t.Index)}, &t)
		}
	}
}

// dropKept ends the tasks on machines which are given up that are not to go on
// there when these return: their job is gone or no system job now, or wants other
// machines. That is known once jobs are admitted.
func (s *systems) dropKept(kept map[schema.TaskName]string) {
	for _, task := range slices.SortedFunc(maps.Keys(kept), schema.TaskName.Compare) {
		t := s.Task(task)
		if t.Machine != "" && !s.goesOn(task.JobName, t) {
			s.end(task.JobName, *t, schema.Cause{Kind: schema.CauseMachineLost, Message: kept[task], At: s.Now})
		}
	}
}

// goesOn reports whether a task of a system job is to go on when its machine
// returns.
func (s *systems) goesOn(job schema.JobName, t *schema.TaskRecord) bool {
	r := s.Job(job)
	if r == nil || r.Admitted == "" || t.On != t.Machine || s.MachineSpec(t.Machine).Drain != nil {
		return false
	}
	want := s.Data(r.Admitted)
	return want.Kind == schema.System && slices.Contains(s.cell.MayStay(want), t.Machine)
}

// giveIndices gives each eligible machine without an index the lowest that is
// free. One that is declared gone gets none: it may have had one until a master died
// while it forgot the machine.
func (s *systems) giveIndices(name schema.JobName, eligible []string, home map[string]bool) {
	have := s.Tasks(name)
	next := 0
	for _, machine := range eligible {
		if home[machine] || s.GivenUp(machine) || s.Closed(machine) || s.DeclaredGone(machine) {
			continue
		}
		for len(have) > 0 && have[0].Index == next {
			have = have[1:]
			next++
		}
		s.Set(name, schema.TaskRecord{Index: next, On: machine})
		next++
	}
}
