package sim

import (
	"slices"

	"github.com/musterhq/muster/schema"
)

// checkVictims: who has stopped others to make room on a machine waits for them,
// and does not take a second machine's tasks down meanwhile: as long as that
// machine is in order, and has the room once they have gone. victim was stopped
// just now, before is what was stored until then.
func (w *World) checkVictims(victim, by schema.TaskName, before snap) {
	s := w.master.state
	j := s.Jobs[by.JobName]
	want := s.Data[j.Admitted]
	if want.AllocSet != "" {
		return // it needs room in an alloc
	}
	now := w.oracle.record(victim).Machine
	for name, c := range before {
		for i := range c.Tasks {
			r := &c.Tasks[i]
			is := w.oracle.record(name.Job.Task(r.Index))
			if r.Stop == nil || r.Stop.By != by.Short() || r.Machine == now || is == nil || is.Generation != r.Generation || is.Stop == nil || is.Stop.By != r.Stop.By || j.Since.After(r.Stop.At) {
				continue
			}
			if waits := w.oracle.record(by); waits != nil && !waits.Avoid[r.Machine].IsZero() {
				continue // it made room there while every other machine was to be avoided, too
			}
			if w.inOrder(r.Machine) && w.roomLeft(r.Machine, by, want) && w.evenWith(r.Machine, by.JobName, want, before) && w.suits(by, want, r.Machine, func(t *schema.TaskRecord) bool { return t.Stop != nil && t.Stop.By == by.Short() }) {
				w.violate("task %s makes room on %s for %s, which waits for %s to leave %s", victim, now, by, name.Job.Task(r.Index), r.Machine)
			}
		}
	}
}

// checkMadeRoom: for a task that has a machine others make room in the step alone that stops it for
// a drain, and none beyond its budget.
func (w *World) checkMadeRoom(victim, by schema.TaskName, before snap) {
	is, was := w.oracle.record(by), before.record(by)
	switch {
	case is == nil || is.Machine == "": // it is pending
	case is.Stop == nil || is.Stop.Kind != schema.CauseMaintenance || is.Stop.To == "":
		w.violate("task %s makes room for %s, which is on %s and does not move", victim, by, is.Machine)
	case was != nil && was.Generation == is.Generation && was.Stop != nil:
		w.violate("task %s makes room for %s, which has been stopping for a drain and has room on %s", victim, by, is.Stop.To)
	default:
		job := w.master.state.Jobs[victim.JobName]
		want := w.master.state.Data[job.Admitted]
		if want == nil || want.Disruption == nil {
			return
		}
		if down, most := w.down(victim.JobName, want, before), want.MayBeDown(); len(down) > most {
			w.violate("task %s makes room for a drain of %s beyond a budget: tasks %v of the job are down, and %d may be", victim, by, down, most)
		}
	}
}

// inOrder reports whether a machine has just said that nothing is wrong with it,
// and is not held for another task.
func (w *World) inOrder(machine string) bool {
	for _, why := range w.master.last.Why {
		if why.Held == machine {
			return false
		}
	}
	r := w.master.reported[machine]
	_, cordoned := w.oracle.cordoned[machine]
	return r != nil && !cordoned && w.drains()[machine] == nil && !w.isGone(machine) && len(r.Conditions)+len(r.BusyPorts) == 0 && w.now.Sub(w.master.reportedAt[machine]) < silentAfter
}

// evenWith reports whether the bounds of a job on how unevenly it is spread surely allow
// one more task on a machine, at whichever moment of the last step they were looked at.
func (w *World) evenWith(machine string, job schema.JobName, want *schema.Job, before snap) bool {
	if want.Spread == nil {
		return true
	}
	objects := w.inForce()
	for attribute, most := range want.Spread.MaxSkew {
		domain := w.attribute(objects, machine, attribute)
		sure, possible := w.domains(objects, attribute)
		if domain == "" || len(sure) < want.Spread.MinDomains[attribute] {
			return false
		}
		there, stay := w.boundsOf(job, attribute, objects, before)
		if !withinSkew(domain, most, there, stay, possible) {
			return false
		}
	}
	return true
}

// boundsOf returns, of the domains of an attribute, how many tasks of a job each had at
// most during the last step, claims and those that are to stop included, and how many it
// had from the beginning to the end, none of them to stop.
func (w *World) boundsOf(job schema.JobName, attribute string, objects []schema.Machine, before snap) (there, stay map[string]int) {
	there, stay = map[string]int{}, map[string]int{}
	w.each(job, func(t *schema.TaskRecord) {
		is, was := "", ""
		old := before.record(job.Task(t.Index))
		if t.Machine != "" {
			is = w.attribute(objects, t.Machine, attribute)
			there[is]++
		}
		if old != nil && old.Machine != "" {
			was = w.attribute(objects, old.Machine, attribute)
		}
		switch {
		case was != is:
			there[was]++
		case t.Stop == nil && old != nil && old.Stop == nil:
			stay[is]++
		}
	})
	for task, claim := range w.master.last.Claims {
		if task.JobName == job {
			there[w.attribute(objects, claim.Machine, attribute)]++
		}
	}
	return there, stay
}

// withinSkew reports whether a domain may have one more task than there are at most, and
// is then ahead of no other that counts, by the tasks that stay there, by more than most.
func withinSkew(domain string, most int, there, stay map[string]int, domains map[string]bool) bool {
	for other := range domains {
		if other != domain && there[domain]+1-stay[other] > most {
			return false
		}
	}
	return true
}

// roomLeft reports whether a machine has room for a task once those have gone
// that were stopped to make room for it.
func (w *World) roomLeft(machine string, by schema.TaskName, want *schema.Job) bool {
	s := w.master.state
	used, devices := want.Task.Resources.Resources, map[schema.DeviceUse]int{}
	for _, c := range s.Chunks {
		for i := range c.Tasks {
			r := &c.Tasks[i]
			if r.Machine != machine || r.Stop != nil && r.Stop.By == by.Short() {
				continue
			}
			if r.Stop != nil && r.Stop.By != "" {
				return false // it is taken up by another that waits
			}
			if r.Alloc == nil {
				used = used.Add(s.Data[r.Data].Task.Resources.Resources)
			}
			for _, u := range r.Devices {
				devices[schema.DeviceUse{Kind: u.Kind, Index: u.Index}] += u.Milli
			}
		}
	}
	m := w.named(machine).info()
	enough := slices.ContainsFunc(want.Task.Resources.Choices(), func(all map[string]schema.DeviceAsk) bool {
		for kind, ask := range all {
			if freeDevices(m.Devices, kind, devices, ask.Milli) < ask.Count {
				return false
			}
		}
		return true
	})
	return enough && used.Fits(m.Capacity)
}

// freeDevices returns how many devices of a kind have so much left, of which used
// says what is taken.
func freeDevices(groups []schema.DeviceGroup, kind string, used map[schema.DeviceUse]int, milli int) int {
	free := 0
	for _, g := range groups {
		for i := range g.Count {
			if g.Kind == kind && used[schema.DeviceUse{Kind: kind, Index: i}]+milli <= schema.DeviceMilli {
				free++
			}
		}
	}
	return free
}
