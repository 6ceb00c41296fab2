package sim

import (
	"slices"

	"github.com/musterhq/muster/schema"
)

// assigned is a task that is assigned to a machine.
type assigned struct {
	task   schema.TaskName
	data   *schema.Job
	record *schema.TaskRecord
	before bool // it was, before the step
	after  bool // it is, after it
}

// assigned returns the tasks that are assigned to machines before a step or after it, and are not known to be
// dead, by machine.
func (w *World) assigned(before snap) map[string][]assigned {
	out := map[string][]assigned{}
	s := w.master.state
	for name, c := range s.Chunks {
		for i := range c.Tasks {
			r, task := &c.Tasks[i], name.Job.Task(c.Tasks[i].Index)
			was := before.record(task)
			kept := was != nil && was.Generation == r.Generation && was.Machine == r.Machine
			if r.Machine != "" && !w.dead(r.Machine, r.Generation) {
				out[r.Machine] = append(out[r.Machine], assigned{task, s.Data[r.Data], r, kept, true})
			}
			if !kept && was != nil && was.Machine != "" && w.oracle.data[was.Data] != nil {
				out[was.Machine] = append(out[was.Machine], assigned{task, w.oracle.data[was.Data], was, true, false})
			}
		}
	}
	return out
}

// checkPlaced: what a step gives a machine has there the numbers of ports that it asks for, which nobody else has,
// and the devices of one of its alternatives; it is near what it must be near to, and nothing is near of which it,
// or the other, says that it must not be. before is what was stored when it decided.
func (w *World) checkPlaced(before snap) {
	if !w.cfg.Picky {
		return
	}
	var all map[string][]assigned
	for name, c := range w.master.state.Chunks {
		if before[name] == c {
			continue
		}
		for i := range c.Tasks {
			r, task := &c.Tasks[i], name.Job.Task(c.Tasks[i].Index)
			was := before.record(task)
			if r.Machine == "" || was != nil && was.Generation == r.Generation || w.oracle.unknown[r.Generation] || w.survived(r.Generation) || w.oracle.took[task] == r.Generation {
				continue
			}
			if all == nil {
				all = w.assigned(before)
			}
			t := &assigned{task: task, data: w.master.state.Data[r.Data], record: r, after: true}
			w.checkNumbers(t, all[r.Machine])
			w.checkRelations(t, all)
			w.checkAlternative(t, all[r.Machine])
		}
	}
}

// checkNumbers: a port has the number that its job asks for, and no other task of the machine has that.
func (w *World) checkNumbers(t *assigned, there []assigned) {
	for _, port := range t.record.Ports {
		if want := t.data.Task.Resources.PortNumbers[port.Name]; want != 0 && want != port.Port {
			w.violate("task %s has the number %d on %s for a port that is to have %d", t.task, port.Port, t.record.Machine, want)
		}
		for i := range there {
			if o := &there[i]; o.after && o.task != t.task && o.has(port.Port) {
				w.violate("task %s is given the number %d on %s, which %s has there", t.task, port.Port, t.record.Machine, o.task)
			}
		}
	}
}

func (t *assigned) has(port int) bool {
	return slices.ContainsFunc(t.record.Ports, func(p schema.Port) bool { return p.Port == port })
}

// checkRelations: where a step puts a task there are such as it must be near to, and none from which it must be
// apart, or which must be apart from it. Those count that have not left by then; the first of those that must be near
// each other may be anywhere.
func (w *World) checkRelations(t *assigned, all map[string][]assigned) {
	if t.record.Alloc != nil {
		return
	}
	objects := w.inForce()
	for _, a := range t.data.Affinity {
		if a.Weight == 0 && !w.isNear(t, a, all, objects) {
			w.violate("task %s is put on %s, and no task of %s is there by %s", t.task, t.record.Machine, a.Selector, a.By)
		}
	}
	for _, there := range all {
		for i := range there {
			if o := &there[i]; o.after && o.task != t.task {
				w.checkApart(t, o, objects)
				w.checkApart(o, t, objects)
			}
		}
	}
}

func (w *World) checkApart(of, other *assigned, objects []schema.Machine) {
	if w.areApart(of, other, objects) {
		w.violate("task %s is on %s, and must be apart from %s on %s", of.task, of.record.Machine, other.task, other.record.Machine)
	}
}

// areApart reports whether a task is where another one is that it says it must be apart from.
func (w *World) areApart(of, other *assigned, objects []schema.Machine) bool {
	return other.record.Alloc == nil && slices.ContainsFunc(of.data.AntiAffinity, func(a schema.Affinity) bool {
		return a.Weight == 0 && other.isPicked(of, a) && w.together(of.record.Machine, other.record.Machine, a.By, objects)
	})
}

// isNear reports whether a task is where others are that it must be near to, or are about to come, since their places
// are kept for them. One that it may be near to itself, while there is no other, is so anywhere.
func (w *World) isNear(t *assigned, a schema.Affinity, all map[string][]assigned, objects []schema.Machine) bool {
	alone := t.isPicked(t, a)
	for machine, there := range all {
		for i := range there {
			o := &there[i]
			if o.task == t.task || !o.isPicked(t, a) {
				continue
			}
			if w.together(t.record.Machine, machine, a.By, objects) || w.comesTo(o, t.record.Machine, a.By, objects) {
				return true
			}
			alone = alone && !(o.before && o.after)
		}
	}
	return alone || w.isAwaited(t, a, objects)
}

// isAwaited reports whether a task that an affinity picks has ended, and has a place kept for it where another task is.
func (w *World) isAwaited(t *assigned, a schema.Affinity, objects []schema.Machine) bool {
	for name, c := range w.master.state.Chunks {
		for i := range c.Tasks {
			r := &c.Tasks[i]
			o := assigned{task: name.Job.Task(r.Index), data: w.master.state.Data[r.Data], record: r}
			to := o.movesTo()
			if n := len(r.Causes); to == "" && r.Machine == "" && n > 0 {
				to = r.Causes[n-1].To
			}
			if to != "" && o.data != nil && o.isPicked(t, a) && w.together(t.record.Machine, to, a.By, objects) {
				return true
			}
		}
	}
	return false
}

// comesTo reports whether a task has a place kept for it where a machine is.
func (w *World) comesTo(t *assigned, machine, by string, objects []schema.Machine) bool {
	for _, to := range []string{w.oracle.claimed[t.task], w.master.last.Claims[t.task].Machine, t.movesTo()} {
		if to != "" && w.together(machine, to, by, objects) {
			return true
		}
	}
	return false
}

// movesTo returns the machine that a task was stopped to go to; "" for none.
func (t *assigned) movesTo() string {
	if t.record.Stop == nil {
		return ""
	}
	return t.record.Stop.To
}

// isPicked reports whether an affinity of a task picks another one.
func (t *assigned) isPicked(by *assigned, a schema.Affinity) bool {
	if t.data.User != by.data.User {
		return false
	}
	s, err := schema.ParseSelector(a.Selector)
	return err == nil && s.Matches(t.data.AllLabels())
}

// together reports whether machines have the same value of an attribute.
func (w *World) together(a, b, by string, objects []schema.Machine) bool {
	if by == schema.AttributeMachine {
		return a == b
	}
	value := w.attribute(objects, a, by)
	return value != "" && value == w.attribute(objects, b, by)
}

// cameBack reports whether a task is where it was before it was stopped for another version or process.
func (t *assigned) cameBack() bool {
	n := len(t.record.Causes)
	if n == 0 {
		return false
	}
	last := t.record.Causes[n-1]
	return (last.Kind == schema.CauseUpdate || last.Kind == schema.CauseRestart) && last.Machine == t.record.Machine
}

// checkAlternative: a task that may have devices by alternatives has those of one; and those of an earlier one were not
// free there, also if all had still what they have left in the step, or have got in it.
func (w *World) checkAlternative(t *assigned, there []assigned) {
	choices := t.data.Task.Resources.Choices()
	if len(choices) < 2 {
		return
	}
	which := slices.IndexFunc(choices, func(all map[string]schema.DeviceAsk) bool { return uses(t.record.Devices, all) })
	if which < 0 {
		w.violate("task %s has the devices %v on %s, which none of its alternatives asks for", t.task, t.record.Devices, t.record.Machine)
		return
	}
	if w.isClaimed(t.record.Machine) || t.data.Gathers() || t.cameBack() {
		return // what is kept for others is not free; a gang may need less; and what comes back has what it had
	}
	used := map[schema.DeviceUse]int{}
	take := func(list []schema.DeviceUse) {
		for _, u := range list {
			used[schema.DeviceUse{Kind: u.Kind, Index: u.Index}] += u.Milli
		}
	}
	for i := range there {
		if o := &there[i]; o.task != t.task || o.before {
			take(o.record.Devices)
		}
	}
	for _, r := range w.named(t.record.Machine).alive { // what is superseded has them until it has stopped
		take(r.of.assignment.Devices)
	}
	if last := w.master.Input(w.now).Observed.Last(t.record.Machine); last != nil { // nor is what has not been reported to have stopped
		for i := range last.Report.Tasks {
			if r := &last.Report.Tasks[i]; r.State != schema.Dead && !slices.ContainsFunc(there, func(o assigned) bool { return o.task == r.Task && o.record.Generation == r.Generation }) {
				take(r.Devices)
			}
		}
	}
	for i, all := range choices[:which] {
		free := true
		for kind, ask := range all {
			free = free && freeDevices(w.named(t.record.Machine).info().Devices, kind, used, ask.Milli) >= ask.Count
		}
		if free {
			w.violate("task %s got alternative %d on %s, and there are devices for alternative %d", t.task, which+1, t.record.Machine, i+1)
		}
	}
}

// uses reports whether devices are what is asked for, each of them once.
func uses(devices []schema.DeviceUse, all map[string]schema.DeviceAsk) bool {
	left := len(devices)
	for kind, ask := range all {
		seen := map[int]bool{}
		for _, u := range devices {
			if u.Kind == kind && u.Milli == ask.Milli {
				seen[u.Index] = true
			}
		}
		if len(seen) != ask.Count {
			return false
		}
		left -= ask.Count
	}
	return left == 0
}

// isClaimed reports whether a machine is held for a task that waits, or has one coming for which others make room.
func (w *World) isClaimed(machine string) bool {
	for _, on := range w.oracle.claimed {
		if on == machine {
			return true
		}
	}
	for _, c := range w.master.last.Claims {
		if c.Machine == machine {
			return true
		}
	}
	return holds(w.master.last.Why, machine) || holds(w.oracle.waits, machine)
}
