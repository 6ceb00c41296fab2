package intent

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/musterhq/muster/schema"
)

// UnlikeGangs warns of each gang of some objects whose jobs have several priorities: none of its
// tasks would get a place. It does so once, at the first job by name that differs from the one
// before it.
func UnlikeGangs(packages []*schema.Package, objects *schema.Objects) []schema.Diagnostic {
	var jobs []*schema.Job
	for i := range objects.Jobs {
		if j := &objects.Jobs[i]; j.Gang != "" {
			jobs = append(jobs, j)
		}
	}
	gang := func(a, b *schema.Job) int {
		return cmp.Or(cmp.Compare(a.Cell, b.Cell), cmp.Compare(a.User, b.User), cmp.Compare(a.Gang, b.Gang))
	}
	slices.SortFunc(jobs, func(a, b *schema.Job) int { return cmp.Or(gang(a, b), cmp.Compare(a.Name, b.Name)) })
	var out []schema.Diagnostic
	for len(jobs) > 0 {
		first, n := jobs[0], 1
		for n < len(jobs) && gang(first, jobs[n]) == 0 {
			n++
		}
		same := jobs[:n]
		jobs = jobs[n:]
		if i := slices.IndexFunc(same, func(j *schema.Job) bool { return j.Priority != first.Priority }); i >= 0 {
			other := same[i]
			out = append(out, schema.Diagnostic{
				Severity: schema.Warning, Rule: schema.RuleNoEffect, Position: priorityOf(packages, KeyOf(other)), Field: KeyOf(other).Field() + ".priority",
				Message:  fmt.Sprintf("gang %q gets no places: job %s has priority %d, and job %s has %d (%s)", first.Gang, other.Name, other.Priority, first.Name, first.Priority, priorityOf(packages, KeyOf(first))),
				Expected: "one priority for all jobs of a gang", Hint: fmt.Sprintf("use the same priority, or another gang for %s", other.Name),
			})
		}
	}
	return out
}

// priorityOf returns where the priority of a job of a gang is declared; of one that has that of its kind, where its
// gang is.
func priorityOf(packages []*schema.Package, key schema.ObjectKey) schema.Position {
	return placeOf(packages, key, "priority", "gang")
}
