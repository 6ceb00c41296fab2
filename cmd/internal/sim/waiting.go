package sim

import (
	"maps"
	"slices"
	"time"

	"github.com/musterhq/muster/placement"
	"github.com/musterhq/muster/schema"
)

const (
	// waitingEvery is how many turns lie between two looks at tasks that wait and could have a place.
	waitingEvery = 40
	// waitsInVain is how long such a task may wait: a machine is avoided, or returns, or a master begins.
	waitsInVain = 90 * time.Second
)

// inVain is since when a task waits though a machine has all that it asks for.
type inVain struct {
	machine string
	since   time.Time
}

// checkWaiting: a task that asks for the numbers of its ports, to be near others or apart from them, or for devices by
// alternatives, does not wait while a machine has all of that for it: others have it there, on each that it may be on.
func (w *World) checkWaiting() {
	if !w.cfg.Picky || w.turns%waitingEvery != 0 {
		return
	}
	now := map[schema.TaskName]inVain{}
	if w.master != nil && !w.now.Before(w.master.busy) && w.master.last.Recovering == "" && w.master.last.Joining == "" {
		for _, task := range w.firstWaiting() {
			want := w.master.state.Data[w.master.state.Jobs[task.JobName].Admitted]
			was, waited := w.oracle.inVain[task]
			if !waited || !w.couldHave(task, want, was.machine) {
				was = inVain{w.someMachine(task, want), w.now}
			}
			if was.machine == "" {
				continue
			}
			if now[task] = was; w.now.Sub(was.since) >= waitsInVain {
				w.violate("task %s waits for %s, and %s has all that it asks for", task, w.now.Sub(was.since), was.machine)
			}
		}
	}
	w.oracle.inVain = now
}

// firstWaiting returns the first task that waits of each job that asks for more than room.
func (w *World) firstWaiting() []schema.TaskName {
	first := map[schema.JobName]schema.TaskName{}
	for task, why := range w.master.last.Why {
		j := w.master.state.Jobs[task.JobName]
		if j == nil || j.Admitted == "" || why.Waits != "" || !asksMore(w.master.state.Data[j.Admitted]) {
			continue
		}
		if was, ok := first[task.JobName]; !ok || task.Index < was.Index {
			first[task.JobName] = task
		}
	}
	return slices.SortedFunc(maps.Values(first), schema.TaskName.Compare)
}

// asksMore reports whether a job's tasks are placed one by one, on any machine, by more than its room; and by nothing
// that couldHave does not know of.
func asksMore(want *schema.Job) bool {
	r := &want.Task.Resources
	return len(r.PortNumbers)+len(want.Affinity)+len(want.AntiAffinity)+len(r.FirstOf) > 0 &&
		(want.Kind == schema.Service || want.Kind == schema.Batch) && want.AllocSet == "" && !want.Gathers() && want.Spread == nil && len(want.AnyOf) == 0
}

func (w *World) someMachine(task schema.TaskName, want *schema.Job) string {
	for _, m := range w.machines {
		if w.couldHave(task, want, m.name) {
			return m.name
		}
	}
	return ""
}

// couldHave reports whether a task could have a place on a machine, as everybody knows, with nobody stopped.
func (w *World) couldHave(task schema.TaskName, want *schema.Job, machine string) bool {
	m, r := w.named(machine), w.oracle.record(task)
	if !w.takes(m, want) || w.isClaimed(machine) || r != nil && !r.Avoid[machine].IsZero() {
		return false
	}
	for _, number := range want.Task.Resources.PortNumbers {
		if m.foreign[number] || m.listens(number) {
			return false
		}
	}
	return w.suits(task, want, machine, func(*schema.TaskRecord) bool { return false })
}

// suits reports whether a task has its numbers and is near others, and apart from them, as it has to be, on a machine
// that some of the tasks leave that are assigned to machines.
func (w *World) suits(task schema.TaskName, want *schema.Job, machine string, leaves func(*schema.TaskRecord) bool) bool {
	t := &assigned{task: task, data: want, record: &schema.TaskRecord{Machine: machine}}
	all, objects := map[string][]assigned{}, w.inForce()
	for name, c := range w.master.state.Chunks {
		for i := range c.Tasks {
			r := &c.Tasks[i]
			if r.Machine == "" || leaves(r) || name.Job.Task(r.Index) == task {
				continue
			}
			o := assigned{task: name.Job.Task(r.Index), data: w.master.state.Data[r.Data], record: r, before: true, after: true}
			if r.Machine == machine && slices.ContainsFunc(r.Ports, func(p schema.Port) bool {
				return slices.Contains(slices.Collect(maps.Values(want.Task.Resources.PortNumbers)), p.Port)
			}) || w.areApart(t, &o, objects) || w.areApart(&o, t, objects) {
				return false
			}
			if r.Stop == nil {
				all[r.Machine] = append(all[r.Machine], o)
			}
		}
	}
	return !slices.ContainsFunc(want.Affinity, func(a schema.Affinity) bool { return !w.isNear(t, a, all, objects) })
}

// holds reports whether a machine is held for one of the tasks that wait.
func holds(waits map[schema.TaskName]placement.Why, machine string) bool {
	for _, why := range waits {
		if why.Held == machine || slices.Contains(why.Holds, machine) {
			return true
		}
	}
	return false
}
