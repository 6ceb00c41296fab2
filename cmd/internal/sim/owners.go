package sim

import (
	"maps"
	"slices"

	"github.com/musterhq/muster/schema"
)

// quotas are the shares of what a user is granted at first, in percent.
var quotas = []int{100, 40, 70, 130}

// quota commits another quota of the owner of Job. What is admitted stays.
func (w *World) quota(a Action) bool {
	user, _, _ := w.repo.job(a.Job)
	w.repo.quotas[user] = quotas[modulo(a.N, len(quotas))]
	w.repo.packages["."] = w.repo.root()
	w.Commit(maps.Clone(w.repo.packages))
	return true
}

// transfer commits that one job of an owner at production makes room for another: one
// has fewer tasks, the other more.
func (w *World) transfer(a Action) bool {
	user, _, _ := w.repo.job(a.Job)
	from, to := 0, 1 // web and api
	if a.N%2 == 1 {
		from, to = to, from
	}
	return w.change(user, func() {
		jobs := w.repo.jobs[user]
		jobs[from].there, jobs[from].tasks = true, modulo(a.N/2, 3)
		jobs[to].there, jobs[to].tasks = true, w.repo.catalogue[to].most
	})
}

// relabel commits another label of Machine, or none, whatever runs there.
func (w *World) relabel(a Action) bool {
	tiers := []string{"", "a", "b"}
	return w.declare(w.machine(a).name, func(m *schema.Machine) {
		m.Labels = nil
		if tier := tiers[modulo(a.N, len(tiers))]; tier != "" {
			m.Labels = map[string]string{"tier": tier}
		}
	})
}

// removesSet commits that the alloc set of an owner is gone and its jobs are not, or the
// other way round, or that both are there.
func (w *World) removesSet(a Action) bool {
	user, _, _ := w.repo.job(a.Job)
	return w.change(user, func() {
		for i := range w.repo.catalogue {
			if w.repo.catalogue[i].name == "pair" {
				w.repo.jobs[user][i].there, w.repo.jobs[user][i].without = true, modulo(a.N, 3)
			}
		}
	})
}

// part leaves out of a package the alloc sets, when without is 1, or the jobs inside
// them, when it is 2.
func part(p *schema.Package, without int) {
	switch without {
	case 1:
		for i := range p.Objects.AllocSets {
			delete(p.Origins, schema.ObjectKey{Kind: schema.KindAllocSet, Name: p.Objects.AllocSets[i].ID().String()})
		}
		p.Objects.AllocSets = nil
	case 2:
		var jobs []schema.Job
		for _, j := range p.Objects.Jobs {
			if j.AllocSet == "" {
				jobs = append(jobs, j)
			} else {
				delete(p.Origins, schema.ObjectKey{Kind: schema.KindJob, Name: j.ID().String()})
			}
		}
		p.Objects.Jobs, p.References = jobs, nil
	}
}

// checkSets: an alloc set that is removed from the repository stays while a job that the
// repository has names it, and nothing of either is stopped for that.
func (w *World) checkSets(before snap) {
	for name, c := range w.master.state.Chunks {
		for i := range c.Tasks {
			t, task := &c.Tasks[i], name.Job.Task(c.Tasks[i].Index)
			was := before.record(task)
			if t.Stop == nil || t.Stop.Kind != schema.CauseRemoved || was == nil || was.Generation != t.Generation || was.Stop != nil || w.master.state.Data[t.Data].Kind != schema.Allocs {
				continue
			}
			for _, p := range w.oracle.good {
				for j := range p.Objects.Jobs {
					inner := &p.Objects.Jobs[j]
					r := w.master.state.Jobs[inner.ID()]
					if inner.User == name.Job.User && inner.AllocSet == name.Job.Job && r != nil && r.Admitted != "" && w.uses(inner.ID(), task, t.Generation) {
						w.violate("alloc %s is stopped as removed, and job %s, which the repository has, runs in it", task, inner.ID())
					}
				}
			}
		}
	}
}

// checkInside: what a step gives a place to that belongs into an alloc is in one of the
// right set, and nothing else is in any.
func (w *World) checkInside(before snap) {
	for name, c := range w.master.state.Chunks {
		if before[name] == c {
			continue
		}
		for i := range c.Tasks {
			t, task := &c.Tasks[i], name.Job.Task(c.Tasks[i].Index)
			if was := before.record(task); t.Machine == "" || was != nil && was.Generation == t.Generation || w.oracle.unknown[t.Generation] {
				continue
			}
			set, inside := w.master.state.Data[t.Data].HostSet()
			if inside != (t.Alloc != nil) || inside && t.Alloc.Of(name.Job).JobName != set {
				w.violate("task %s is placed in alloc %v, and its job runs in alloc set %q", task, t.Alloc, set.Job)
			}
		}
	}
}

// uses reports whether a task of a job is to stay in a generation of an alloc.
func (w *World) uses(job schema.JobName, alloc schema.TaskName, generation uint64) bool {
	found := false
	w.each(job, func(t *schema.TaskRecord) {
		found = found || t.Machine != "" && t.Stop == nil && t.Alloc != nil && t.Alloc.Of(job) == alloc && t.Alloc.Generation == generation
	})
	return found
}

// checkConstraints: what a step gives to a machine may be there by what its job demands
// of machines.
func (w *World) checkConstraints(before snap) {
	s := w.master.state
	var objects []schema.Machine
	for name, c := range s.Chunks {
		if before[name] == c {
			continue
		}
		for i := range c.Tasks {
			t, task := &c.Tasks[i], name.Job.Task(c.Tasks[i].Index)
			if was := before.record(task); t.Machine == "" || t.Stop != nil || was != nil && was.Generation == t.Generation || w.oracle.unknown[t.Generation] {
				continue
			}
			if objects == nil {
				objects = w.inForce()
			}
			w.checkWhere(task, s.Data[t.Data], objects, t.Machine)
		}
	}
}

// checkWhere: a task may be on a machine by what its job demands of machines.
func (w *World) checkWhere(task schema.TaskName, want *schema.Job, objects []schema.Machine, machine string) {
	for _, demand := range want.Constraints {
		if has := w.attribute(objects, machine, demand.Attribute); demand.Operator == schema.Equal && has != demand.Value {
			w.violate("task %s is placed on %s, whose %s is %q: its job demands %q", task, machine, demand.Attribute, has, demand.Value)
		}
	}
	if len(want.AnyOf) > 0 && !slices.ContainsFunc(want.AnyOf, func(x schema.Alternative) bool { return w.holdsOf(objects, machine, x.Constraints) }) {
		w.violate("task %s is placed on %s, of which none of the alternatives of its job holds", task, machine)
	}
}

// holdsOf reports whether all constraints hold of a machine, which are equalities.
func (w *World) holdsOf(objects []schema.Machine, machine string, all []schema.Constraint) bool {
	return !slices.ContainsFunc(all, func(c schema.Constraint) bool { return w.attribute(objects, machine, c.Attribute) != c.Value })
}

// attribute returns an attribute of a machine: as it is declared, or else as its agent
// says. Objects that name the machine go before those that match it.
func (w *World) attribute(objects []schema.Machine, machine, name string) string {
	for i := range objects {
		if value, ok := objects[i].Labels[name]; ok && speaksOf(&objects[i], w.named(machine)) {
			return value
		}
	}
	return w.named(machine).info().Attributes[name]
}
