package intent

import (
	"fmt"

	"github.com/musterhq/muster/schema"
)

// Unpreempted warns of each job and alloc set of some objects that says preemptible: false where
// that has no effect: nothing may preempt tasks of its priority, its tasks run in allocs that may
// not be preempted, or another job of its gang does not say so, with which it is preempted.
func Unpreempted(packages []*schema.Package, objects *schema.Objects) []schema.Diagnostic {
	var out []schema.Diagnostic
	kept, goes := map[schema.JobName]bool{}, preemptedGangs(objects) // kept are alloc sets
	warn := func(key schema.ObjectKey, why string) {
		field := key.Field() + ".preemptible"
		out = append(out, schema.Diagnostic{
			Severity: schema.Warning, Rule: schema.RuleNoEffect, Position: placeOf(packages, key, "preemptible"), Field: field,
			Message: why + `: "preemptible" has no effect, but counts towards nonPreemptibleTasks of the tenant`, Hint: "remove preemptible: false",
		})
	}
	for i := range objects.AllocSets {
		s := objects.AllocSets[i].Job()
		if kept[s.ID()] = s.NeverPreempted(); s.NeverPreempted() && !mayBePreempted(s.Priority) {
			warn(KeyOf(s), unpreempted(s.Priority))
		}
	}
	for i := range objects.Jobs {
		j := &objects.Jobs[i]
		set, inside := j.HostSet()
		other := goes[gangOf(j)]
		switch {
		case !j.NeverPreempted():
		case !mayBePreempted(j.Priority):
			warn(KeyOf(j), unpreempted(j.Priority))
		case inside && kept[set]:
			warn(KeyOf(j), fmt.Sprintf("the tasks run in allocs of alloc set %q, which may not be preempted", j.AllocSet))
		case j.Gang != "" && other != "":
			warn(KeyOf(j), fmt.Sprintf("gang %q is preempted as a whole, and job %s of it does not say preemptible: false", j.Gang, other))
			out[len(out)-1].Hint = "say it of each job of the gang, or remove preemptible: false"
		}
	}
	return out
}

// gang names a gang of a user in a cell.
type gang struct{ cell, user, name string }

func gangOf(j *schema.Job) gang { return gang{j.Cell, j.User, j.Gang} }

// preemptedGangs returns the gangs that may be preempted, with the first of the jobs, by name, that may be.
func preemptedGangs(objects *schema.Objects) map[gang]string {
	out := map[gang]string{}
	for i := range objects.Jobs {
		j := &objects.Jobs[i]
		if first, ok := out[gangOf(j)]; j.Gang != "" && !j.NeverPreempted() && (!ok || j.Name < first) {
			out[gangOf(j)] = j.Name
		}
	}
	return out
}

func unpreempted(p schema.Priority) string {
	return fmt.Sprintf("no task preempts one of priority %d, which is in band %s", p, p.Band())
}

// mayBePreempted reports whether tasks of a priority may be preempted for any other.
func mayBePreempted(p schema.Priority) bool { return schema.Priority(schema.MaxPriority).Preempts(p) }

// placeOf returns where the first of some fields of an object stands that the object has; where it
// is declared, if that is not known.
func placeOf(packages []*schema.Package, key schema.ObjectKey, fields ...string) schema.Position {
	for _, p := range packages {
		declared, ok := p.Origins[key]
		if !ok {
			continue
		}
		for _, field := range fields {
			if at := p.Place(key, field); at != declared {
				return at
			}
		}
		return declared
	}
	return schema.Position{}
}
