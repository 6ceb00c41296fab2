package sim

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/musterhq/muster/schema"
)

// mostDrained is how many objects may drain machines at once: a cell that has
// lost too much room converges to nothing.
const mostDrained = 2

// Declared is a package that says something of machines, or of all that a
// selector matches; by the names of the objects.
func Declared(objects map[string]schema.Machine) *schema.Package {
	p := &schema.Package{Dir: "cells", Origins: map[schema.ObjectKey]schema.Position{}}
	for i, name := range sortedKeys(objects) {
		m := objects[name]
		m.Name, m.Cell = name, cellName
		p.Objects.Machines = append(p.Objects.Machines, m)
		p.Origins[schema.ObjectKey{Kind: schema.KindMachine, Name: cellName + "/" + name}] = schema.Position{Path: "cells/machines.cue", Line: i + 1, Column: 1}
	}
	return p
}

// Cordoned is a package that keeps new tasks away from machines.
func Cordoned(machines ...string) *schema.Package {
	objects := map[string]schema.Machine{}
	for _, name := range machines {
		objects[name] = schema.Machine{Cordon: true}
	}
	return Declared(objects)
}

// declare commits what f makes of the object of a name.
func (w *World) declare(name string, f func(*schema.Machine)) bool {
	m := w.repo.machines[name]
	if f(&m); m.Cordon || m.Drain != nil || m.Gone || len(m.Labels) > 0 {
		w.repo.machines[name] = m
	} else {
		delete(w.repo.machines, name)
	}
	w.repo.packages["cells"] = Declared(w.repo.machines)
	w.Commit(maps.Clone(w.repo.packages))
	return true
}

func (w *World) cordon(a Action) bool {
	return w.declare(w.machine(a).name, func(m *schema.Machine) { m.Cordon = !m.Cordon })
}

// drain drains a machine, or every fourth time its rack in waves, or ends that;
// with a deadline or without, and either way to go on at it.
func (w *World) drain(a Action) bool {
	m, n := w.machine(a), a.N
	name, match := m.name, ""
	if n%4 == 0 {
		name, match = "rack-"+m.rack(), "rack="+m.rack()
	}
	drained := 0
	for _, o := range w.repo.machines {
		if o.Drain != nil {
			drained++
		}
	}
	if w.repo.machines[name].Drain == nil && drained >= mostDrained {
		return w.undrain()
	}
	return w.declare(name, func(o *schema.Machine) {
		if o.Drain != nil {
			o.Drain, o.Match = nil, ""
			return
		}
		o.Match, o.Drain = match, &schema.Drain{AtOnce: 1 + n/4%2, AtDeadline: schema.DeadlineStop}
		if n/8%3 == 0 {
			o.Drain.AtDeadline = schema.DeadlineBudget
		}
		if n/24%8 != 0 {
			o.Drain.Deadline = serialized(w.now.Add(between(n/192, 1, 40)).Truncate(time.Second))
		}
	})
}

// undrain ends the first drain that there is.
func (w *World) undrain() bool {
	for _, name := range sortedKeys(w.repo.machines) {
		if w.repo.machines[name].Drain != nil {
			return w.declare(name, func(o *schema.Machine) { o.Drain, o.Match = nil, "" })
		}
	}
	return false
}

// speaksOf reports whether an object speaks of a machine: by its name, or its
// rack, which is all that the objects here match by.
func speaksOf(o *schema.Machine, m *machine) bool {
	if o.Match == "" {
		return o.Name == m.name
	}
	return o.Match == "rack="+m.rack()
}

// inForce returns the objects of machines that the master goes by: those of a
// name first, then those that match, by name.
func (w *World) inForce() []schema.Machine {
	var out []schema.Machine
	s := w.master.state
	for _, dir := range sortedKeys(s.Head.Packages) {
		out = append(out, s.Packages[s.Head.Packages[dir]].Objects.Machines...)
	}
	slices.SortStableFunc(out, func(a, b schema.Machine) int {
		return len(a.Match) - len(b.Match) // they are of one length but for ""
	})
	return out
}

// drains returns the object that drains each machine.
func (w *World) drains() map[string]*schema.Machine {
	objects, out := w.inForce(), map[string]*schema.Machine{}
	for _, m := range w.machines {
		for i := range objects {
			if o := &objects[i]; o.Drain != nil && speaksOf(o, m) {
				out[m.name] = o
				break
			}
		}
	}
	return out
}

// checkDrains holds what a step at now has stopped for drains, and what it has
// left, against what the objects say; before is what was stored, and suspended what it
// was to leave as it was.
func (w *World) checkDrains(before snap, suspended map[schema.JobName]suspendedJob, now time.Time) {
	drains := w.drains()
	if len(drains) == 0 {
		return
	}
	left, turns := map[string][]string{}, map[string]map[string]bool{}
	for name, c := range w.master.state.Chunks {
		for i := range c.Tasks {
			r, task := &c.Tasks[i], name.Job.Task(c.Tasks[i].Index)
			o := drains[r.Machine]
			if o == nil {
				continue
			}
			was := before.record(task)
			switch {
			case r.Stop == nil && r.Alloc == nil && w.master.state.Data[r.Data].Kind != schema.System && !w.mayNotStop(name.Job, suspended):
				left[r.Machine] = append(left[r.Machine], task.Short())
			case r.Stop != nil && r.Stop.Kind == schema.CauseMaintenance && was != nil && was.Stop == nil && !due(o, now):
				if turns[o.Name] == nil {
					turns[o.Name] = map[string]bool{}
				}
				turns[o.Name][r.Machine] = true
			}
		}
	}
	for name, machines := range turns {
		if o := drains[sortedKeys(machines)[0]]; len(machines) > max(1, o.Drain.AtOnce) {
			w.violate("machines %v are emptied at once, and machine.%s wants %d at a time", sortedKeys(machines), name, o.Drain.AtOnce)
		}
	}
	for _, m := range w.machines {
		if o := drains[m.name]; o != nil && due(o, now) && w.settled(m) && len(left[m.name]) > 0 {
			slices.Sort(left[m.name])
			w.violate("tasks %v are left on %s, whose drain had its deadline at %s", left[m.name], m.name, o.Drain.Deadline)
		}
	}
}

// due reports whether what is left of a drain is to be stopped at now.
func due(o *schema.Machine, now time.Time) bool {
	return o.Drain.AtDeadline == schema.DeadlineStop && !o.Drain.Deadline.IsZero() && !now.Before(o.Drain.Deadline)
}

// mayNotStop reports whether nothing of a job is stopped by choice: it is
// suspended, or not wanted and on its way out.
func (w *World) mayNotStop(job schema.JobName, suspended map[schema.JobName]suspendedJob) bool {
	r := w.master.state.Jobs[job]
	_, left := suspended[job]
	return left || r == nil || r.Admitted == ""
}

// unbound reports whether a stop for maintenance is not bound by budgets: the
// drain's deadline has come, or it is of a system job, which leaves with its
// machine.
func (w *World) unbound(r *schema.TaskRecord, drains map[string]*schema.Machine, now time.Time) bool {
	o := drains[r.Machine]
	if r.Stop == nil || r.Stop.Kind != schema.CauseMaintenance || o == nil {
		return false
	}
	return due(o, now) || w.master.state.Data[r.Data].Kind == schema.System
}

// emptied errs unless machines that are drained hold nothing.
func (w *World) emptied() error {
	drains := w.drains()
	for _, m := range w.machines {
		if drains[m.name] != nil && len(m.alive) > 0 {
			return fmt.Errorf("%s has converged, and %d tasks are left on %s, which is drained", cellName, len(m.alive), m.name)
		}
	}
	return nil
}
