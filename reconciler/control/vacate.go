package control

import (
	"fmt"
	"maps"
	"slices"

	"github.com/musterhq/muster/placement"
	"github.com/musterhq/muster/reconciler/control/snapshot"
	"github.com/musterhq/muster/schema"
)

// A task on a machine that is drained gets room elsewhere as a new task of its priority would,
// by preemption if need be. It runs on meanwhile: tasks of lower priority are stopped first,
// in the name of the task (see Claim), and it is stopped when they are gone, with its new
// machine in the cause, where room is kept for it. Unlike a pending task it can wait, so that
// budgets of the victims are kept.

// vacated is room that is made, or was, for a task that is still where it was.
type vacated struct {
	machine string
	claim   *Claim // what it waits for, nil once there is room
}

// keepVacated holds the room that tasks leave, or have left, for those on machines that are
// drained.
func (s *scheduler) keepVacated() {
	s.vacated = map[schema.TaskName]vacated{}
	for _, short := range slices.Sorted(maps.Keys(s.preempted)) {
		task, err := schema.ParseTaskName(s.Base.Cell + "/" + short)
		if err != nil || !s.leavesDrained(task) {
			continue
		}
		for _, machine := range s.leftBy(task) {
			leaving := s.leaving(task, machine)
			if !s.cell.Snapshot().Claim(s.elsewhere(task), machine, leaving, false) {
				continue
			}
			s.vacated[task] = vacatedBy(machine, leaving)
			break
		}
	}
}

func vacatedBy(machine string, leaving []placement.Victim) vacated {
	if len(leaving) == 0 {
		return vacated{machine: machine}
	}
	c := claimOn(machine, leaving)
	return vacated{machine, &c}
}

// leavesDrained reports whether a task runs on a machine that is drained, and is not stopping.
func (s *scheduler) leavesDrained(task schema.TaskName) bool {
	t := s.Task(task)
	return t != nil && t.Machine != "" && t.Stop == nil && s.IsUp(t.Machine) && s.MachineSpec(t.Machine).Drain != nil && s.Admitted(task.JobName) != nil
}

// elsewhere returns what a task asks for that leaves its machine. Where tasks get places
// together the others have theirs.
func (s *scheduler) elsewhere(task schema.TaskName) placement.Ask {
	a := s.placement(snapshot.Ask{Task: task, Job: s.Admitted(task.JobName), Data: s.Job(task.JobName).Admitted})
	a.Avoid = slices.Compact(slices.Sorted(slices.Values(append(slices.Clone(a.Avoid), s.Task(task).Machine))))
	a.Together, a.Gang = 0, nil
	return a
}

// vacate has tasks of lower priority make room for one on a machine that is drained, as far as
// their budgets allow. It says what the task waits for then, or what keeps them where they are,
// if there are any.
func (s *scheduler) vacate(task schema.TaskName) (waits, kept string) {
	if s.noPreempt {
		return "", ""
	}
	for other := range s.vacated { // whose stop the budget of the job has to allow first
		if other.JobName == task.JobName {
			return fmt.Sprintf("others make room for %s first", other.Short()), ""
		}
	}
	s.configure()
	a := s.elsewhere(task)
	fork := s.cell.Without(snapshot.On{Task: task, Machine: s.Task(task).Machine})
	defer fork.Release()
	d := placement.Place(fork, []placement.Ask{a}, s.seed)[0]
	if d.Machine == "" || len(d.Victims) == 0 {
		return "", ""
	}
	if kept = s.kept(d.Victims); kept != "" {
		return "", fmt.Sprintf("preempting %s on %s would make room, but %s", schema.Count(len(d.Victims), "task"), d.Machine, kept)
	}
	s.evict(task, a.Priority, d)
	leaving := s.leaving(task, d.Machine)
	s.cell.Snapshot().SetBudgets(s.spare) // they are less by who goes now
	s.cell.Snapshot().Claim(a, d.Machine, leaving, false)
	s.vacated[task] = vacatedBy(d.Machine, leaving)
	return s.vacated[task].String(), ""
}

// String says what the task waits for.
func (v vacated) String() string {
	if v.claim == nil {
		return fmt.Sprintf("it has room on %s", v.machine)
	}
	return "it " + v.claim.String()
}

// kept says what keeps victims of a task that can wait where they are, "" if nothing does: the
// budget of a job, with all that goes with them, or what another one claims.
func (s *scheduler) kept(victims []placement.Victim) string {
	lost, seen := map[schema.JobName]int{}, map[schema.TaskName]bool{}
	add := func(job schema.JobName, t *schema.TaskRecord) {
		if name := job.Task(t.Index); t.Machine != "" && t.Stop == nil && !seen[name] {
			seen[name] = true
			for _, l := range s.LostWith(job, t) {
				lost[l.Job] += len(l.Serve)
			}
		}
	}
	for _, v := range victims {
		r := s.Task(v.Name)
		if r == nil || r.Machine == "" || r.Stop != nil {
			return fmt.Sprintf("%s has a claim on it", v.Name.Short())
		}
		add(v.Name.JobName, r)
		for _, job := range s.company(v.Name.JobName) {
			for _, t := range s.Tasks(job) {
				add(job, &t)
			}
		}
	}
	for _, job := range slices.SortedFunc(maps.Keys(lost), schema.JobName.Compare) {
		if left, bound := s.spare(job); bound && lost[job] > left {
			return fmt.Sprintf("the disruption budget of %s does not allow that now", job.Short())
		}
	}
	return ""
}

// company returns the jobs of which all tasks go when one of a job is preempted.
func (s *scheduler) company(job schema.JobName) (out []schema.JobName) {
	if want := s.Admitted(job); want == nil || !want.Gathers() {
		return nil
	}
	gang := s.cell.Gang(job)
	if gang == nil {
		return []schema.JobName{job}
	}
	for _, member := range gang.Jobs {
		out = append(out, member.Name)
	}
	return out
}
