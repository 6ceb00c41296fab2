package reconciler

import (
	"fmt"
	"slices"
	"strings"

	"github.com/musterhq/muster/schema"
)

// shownSticky is how many jobs a warning names.
const shownSticky = 3

// leavesSticky warns of a machine object of which the tasks move away, where jobs of
// its cell keep something in sticky directories: nothing copies these. Which tasks
// are on the machine only the master knows.
func leavesSticky(m *schema.Machine, origin schema.Position, jobs []*schema.Job) []schema.Diagnostic {
	if m.Drain == nil && !m.Gone {
		return nil
	}
	var names []string
	for _, j := range jobs {
		if j.Cell == m.Cell && j.Task.Sticky && j.Kind != schema.System && j.Tasks > 0 {
			names = append(names, j.ID().Short())
		}
	}
	if len(names) == 0 {
		return nil
	}
	slices.Sort(names)
	if more := len(names) - shownSticky; more > 0 {
		names = append(names[:shownSticky], fmt.Sprintf("and %d more jobs", more))
	}
	does, field := "draining", "drain"
	if m.Gone {
		does, field = "giving up", "gone"
	}
	return []schema.Diagnostic{{
		Severity: schema.Warning, Position: origin, Field: schema.ObjectKey{Kind: schema.KindMachine, Name: m.Name}.Field() + "." + field,
		Message: fmt.Sprintf("%s %s moves tasks away from their sticky directories: what of %s runs there would start empty elsewhere", does, m.Name, strings.Join(names, ", ")),
		Hint:    "copy what they keep first; `muster status machine` shows what runs there",
	}}
}

// leaveSticky is leavesSticky for all machines of packages.
func leaveSticky(packages []*schema.Package, objects *schema.Objects) []schema.Diagnostic {
	jobs := make([]*schema.Job, 0, len(objects.Jobs))
	for i := range objects.Jobs {
		jobs = append(jobs, &objects.Jobs[i])
	}
	var out []schema.Diagnostic
	for _, p := range packages {
		for i := range p.Objects.Machines {
			m := &p.Objects.Machines[i]
			out = append(out, leavesSticky(m, p.Origins[schema.ObjectKey{Kind: schema.KindMachine, Name: m.Cell + "/" + m.Name}], jobs)...)
		}
	}
	return out
}
