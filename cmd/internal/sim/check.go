package sim

import (
	"maps"
	"slices"

	"github.com/musterhq/muster/schema"
)

// process is what a live process is.
type process struct {
	machine    *machine
	generation uint64
	pid        int
	job        *schema.Job
}

// processes returns the live processes of each task.
func (w *World) processes() map[schema.TaskName][]process {
	out := map[schema.TaskName][]process{}
	for _, m := range w.machines {
		for _, h := range m.held {
			if c := m.live(h); c != nil {
				out[h.Assignment.Task] = append(out[h.Assignment.Task], process{m, h.Assignment.Generation, c.PID, h.Assignment.Job})
			}
		}
	}
	return out
}

// check holds the invariants against the world.
func (w *World) check() {
	all := w.processes()
	for _, task := range slices.SortedFunc(maps.Keys(all), schema.TaskName.Compare) {
		w.checkTask(task, all[task])
	}
	w.checkMachines()
	w.checkQuota()
}

// checkTask: one generation has one process at most, and a task has two only
// while one of them is where the master cannot reach it.
func (w *World) checkTask(task schema.TaskName, ps []process) {
	generations := map[uint64]bool{}
	reachable := 0
	for _, p := range ps {
		if generations[p.generation] {
			w.violate("task %s generation %d runs twice", task, p.generation)
		}
		generations[p.generation] = true
		if !p.machine.silent && !p.machine.agentDown && p.machine.returnedFor(w) {
			reachable++
		}
	}
	if reachable > 1 {
		w.violate("task %s has %d processes on machines that the master reaches", task, reachable)
	}
}

// returnedFor reports whether the machine has had the time to hear, and to
// obey, what the master has to say. A superseded generation is to stop within
// 10 s of its machine's return.
func (m *machine) returnedFor(w *World) bool {
	return w.master != nil && m.view != nil && w.master.epochs[m.name] == m.epoch && m.view.Epoch == m.epoch &&
		!slices.ContainsFunc(m.plan.Tasks, func(t schema.TaskStatus) bool { return t.State == schema.Stopping })
}

// checkMachines: what the state assigns to a machine fits it, and no port is
// given twice.
func (w *World) checkMachines() {
	if w.master == nil {
		return
	}
	s := w.master.state
	used := map[string]schema.Resources{}
	ports := map[string]map[int]schema.TaskName{}
	for _, c := range s.Chunks {
		for i := range c.Tasks {
			t := &c.Tasks[i]
			if t.Machine == "" {
				continue
			}
			used[t.Machine] = used[t.Machine].Add(s.Data[t.Data].Task.Resources.Resources)
			if ports[t.Machine] == nil {
				ports[t.Machine] = map[int]schema.TaskName{}
			}
			for _, p := range t.Ports {
				if other, taken := ports[t.Machine][p]; taken {
					w.violate("port %d of %s is given to %s and %s", p, t.Machine, other, c.Job.Task(t.Index))
				}
				ports[t.Machine][p] = c.Job.Task(t.Index)
			}
		}
	}
	for _, m := range w.machines {
		if !used[m.name].Fits(m.info().Capacity) {
			w.violate("machine %s is overcommitted: %+v", m.name, used[m.name])
		}
	}
}

// checkQuota: what is admitted at a band above free is within its quota, as
// long as the quotas of the world never shrink.
func (w *World) checkQuota() {
	if w.master == nil {
		return
	}
	s := w.master.state
	used := map[string]int{}
	for _, j := range s.Jobs {
		if d := s.Data[j.Admitted]; d != nil && d.Priority.Band() != schema.BandFree {
			used[d.User+" "+string(d.Priority.Band())] += d.Tasks
		}
	}
	have := map[string]int{}
	for _, digest := range s.Head.Packages {
		for _, q := range s.Packages[digest].Objects.Quotas {
			have[q.User+" "+string(q.Band)] += q.Tasks
		}
	}
	for k, n := range used {
		if n > have[k] {
			w.violate("%s: %d tasks are admitted, quota is %d", k, n, have[k])
		}
	}
}
