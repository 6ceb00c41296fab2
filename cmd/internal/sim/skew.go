package sim

import (
	"slices"

	"github.com/musterhq/muster/schema"
)

// checkSkew: where a step has put tasks of a job that bounds how unevenly they may be
// spread, their domain is ahead of no other by more than that; and of none that has no
// task where there are too few domains. Which domains count by what the master knows of
// their machines is seen from here for some only. before is what was stored when it decided.
func (w *World) checkSkew(before snap) {
	s := w.master.state
	for _, name := range w.changedJobs(before) {
		want := s.Data[s.Jobs[name].Admitted]
		if want == nil || want.Spread == nil {
			continue
		}
		for _, attribute := range sortedKeys(want.Spread.MaxSkew) {
			w.checkSkewOf(name, want, attribute, before)
		}
	}
}

// changedJobs returns the jobs of which a step has changed tasks.
func (w *World) changedJobs(before snap) []schema.JobName {
	var out []schema.JobName
	for name, c := range w.master.state.Chunks {
		if before[name] != c && w.master.state.Jobs[name.Job] != nil {
			out = append(out, name.Job)
		}
	}
	slices.SortFunc(out, schema.JobName.Compare)
	return slices.Compact(out)
}

// spreading is how the tasks of a job are spread over the domains of an attribute.
type spreading struct {
	was, is, claims map[string]int             // tasks, those that are to stop among was only
	placed          map[string]schema.TaskName // by the last step
}

func (w *World) spreadingOf(job schema.JobName, attribute string, objects []schema.Machine, before snap) spreading {
	x := spreading{map[string]int{}, map[string]int{}, map[string]int{}, map[string]schema.TaskName{}}
	w.each(job, func(t *schema.TaskRecord) {
		task := job.Task(t.Index)
		old := before.record(task)
		if old != nil && old.Machine != "" { // it may have been stopped after others were placed
			x.was[w.attribute(objects, old.Machine, attribute)]++
		}
		if t.Machine == "" || t.Stop != nil {
			return
		}
		domain := w.attribute(objects, t.Machine, attribute)
		x.is[domain]++
		isNew := old == nil || old.Generation != t.Generation
		if isNew && w.oracle.claimed[task] != t.Machine && t.Data == w.master.state.Jobs[job].Admitted {
			x.placed[domain] = task
		}
	})
	for task, claim := range w.master.last.Claims { // which some have that have no record yet
		if task.JobName == job {
			x.claims[w.attribute(objects, claim.Machine, attribute)]++
		}
	}
	return x
}

func (w *World) checkSkewOf(job schema.JobName, want *schema.Job, attribute string, before snap) {
	objects := w.inForce()
	tasks := w.spreadingOf(job, attribute, objects, before)
	sure, possible := w.domains(objects, attribute)
	most, atLeast := want.Spread.MaxSkew[attribute], want.Spread.MinDomains[attribute]
	for _, domain := range sortedKeys(tasks.placed) {
		if len(possible) < atLeast && tasks.is[domain] > most {
			w.violate("task %s is the %d. in %s, and only %v can get tasks: its job wants %d domains, and a skew of %d", tasks.placed[domain], tasks.is[domain], domain, sortedKeys(possible), atLeast, most)
		}
		for _, other := range sortedKeys(sure) {
			if n := tasks.is[domain] - max(tasks.is[other], tasks.was[other]) - tasks.claims[other]; n > most {
				w.violate("task %s is placed in %s, which is %d tasks of its job ahead of %s: the bound is %d", tasks.placed[domain], domain, n, other, most)
			}
		}
	}
}

// domains returns the values of an attribute that machines have of which a master knows
// for sure that they can get tasks, and those of machines that it may think so of.
func (w *World) domains(objects []schema.Machine, attribute string) (sure, possible map[string]bool) {
	sure, possible = map[string]bool{}, map[string]bool{}
	for _, m := range w.machines {
		_, cordoned := w.oracle.cordoned[m.name]
		domain, r := w.attribute(objects, m.name, attribute), w.master.state.Machines[m.name]
		if domain == "" || r == nil || w.closed(objects, m) {
			continue
		}
		possible[domain] = true // also if a cordon has just ended, which the oracle sees after the master
		said := w.master.reported[m.name]
		if !cordoned && w.settled(m) && r.LostSince.IsZero() && r.Forgotten == nil && said != nil && len(said.Conditions) == 0 {
			sure[domain] = true
		}
	}
	return sure, possible
}

// closed reports whether what is declared of a machine keeps new tasks away.
func (w *World) closed(objects []schema.Machine, m *machine) bool {
	return slices.ContainsFunc(objects, func(o schema.Machine) bool {
		return speaksOf(&o, m) && (o.Cordon || o.Drain != nil || o.Gone)
	})
}
