package sim

import (
	"slices"

	"github.com/musterhq/muster/schema"
)

// checkWaves: of the machines that one object drains those are emptied whose turn it
// is: the first by name that hold something and can be asked to stop it. One that is
// silent has no turn, and keeps nobody waiting. What a deadline stops waits for nobody.
func (w *World) checkWaves(before snap, drains map[string]*schema.Machine) {
	if w.master.last.Draining == nil {
		return
	}
	now := w.clock.read(w.now)
	holds, stopped := map[string]int{}, map[string]int{}
	for name, c := range w.master.state.Chunks {
		for i := range c.Tasks {
			t := &c.Tasks[i]
			if t.Machine == "" {
				continue
			}
			holds[t.Machine]++
			was := before.record(name.Job.Task(t.Index))
			if t.Stop != nil && t.Stop.Kind == schema.CauseMaintenance && was != nil && was.Generation == t.Generation && was.Stop == nil {
				stopped[t.Machine]++
			}
		}
	}
	turns := map[string]int{} // of machines, by the object
	for _, machine := range sortedKeys(drains) {
		o, said := drains[machine], w.master.last.Draining[machine]
		switch {
		case said == nil || holds[machine] == 0:
			continue
		case !w.responds(machine):
			if stopped[machine] > 0 {
				w.violate("%d tasks are to leave %s, which is drained and says nothing", stopped[machine], machine)
			}
			continue
		}
		mine := turns[o.Name] < max(1, o.Drain.AtOnce) || due(o, now)
		turns[o.Name]++
		switch {
		case !mine && stopped[machine] > 0:
			w.violate("%d tasks are to leave %s, and it is not its turn to be emptied: machine.%s wants %d at a time", stopped[machine], machine, o.Name, o.Drain.AtOnce)
		case mine && said.Turn:
			w.violate("%s waits for others of machine.%s to be emptied, and it is its turn: %d at a time", machine, o.Name, o.Drain.AtOnce)
		case !mine && !said.Turn:
			w.violate("%s is emptied, and it is not its turn: machine.%s wants %d at a time", machine, o.Name, o.Drain.AtOnce)
		}
	}
	w.checkLeaves(drains)
	w.checkSilentDrains()
}

// checkLeaves: of each task on a machine whose turn it is to be emptied it is known
// what it waits for, unless it is stopping.
func (w *World) checkLeaves(drains map[string]*schema.Machine) {
	for name, c := range w.master.state.Chunks {
		for i := range c.Tasks {
			t := &c.Tasks[i]
			said := w.master.last.Draining[t.Machine]
			r := w.master.state.Jobs[name.Job]
			if t.Machine == "" || drains[t.Machine] == nil || said == nil || said.Turn || !w.responds(t.Machine) {
				continue
			}
			if t.Stop == nil && t.Alloc == nil && r != nil && r.Admitted != "" && said.Wait(name.Job.Task(t.Index)) == "" {
				w.violate("task %s is left on %s, which is emptied, and nobody says what it waits for", name.Job.Task(t.Index), t.Machine)
			}
		}
	}
}

// checkSilentDrains: a machine that is drained and has not reported is said to be
// silent, not to wait for others.
func (w *World) checkSilentDrains() {
	for machine, said := range w.master.last.Draining {
		if said.Left > 0 && !w.responds(machine) && (said.Turn || !slices.Contains(said.Waits, "it is silent")) {
			w.violate("%s is drained and has not reported, and is said to wait for %v, others first: %t", machine, said.Waits, said.Turn)
		}
	}
}
