package intent

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/musterhq/muster/schema"
)

// lostByMove says what a task does not find any more when it runs on another machine: its
// sticky directory, and volumes by their names, sorted. One that nobody of the job writes to
// is the same wherever it is.
func lostByMove(t *schema.TaskSpec) []string {
	var out []string
	if t.Sticky.Has() {
		out = append(out, "the sticky directory")
	}
	for _, name := range slices.Sorted(maps.Keys(t.Volumes)) {
		switch v := t.Volumes[name]; {
		case v.Shared == "":
			out = append(out, fmt.Sprintf("volume %s (memory)", name))
		case !v.ReadOnly:
			out = append(out, fmt.Sprintf("volume %s (%s of the machine)", name, v.Shared))
		}
	}
	return out
}

// leavesVolumes warns of a machine object of which the tasks move away, where jobs of its
// cell write to volumes of machines: elsewhere they find those of another machine.
func leavesVolumes(m *schema.Machine, warning schema.Diagnostic, does string, jobs []*schema.Job) []schema.Diagnostic {
	var move []string
	for _, j := range jobs {
		if j.Cell != m.Cell || j.Kind == schema.System || j.Tasks == 0 {
			continue
		}
		for _, name := range slices.Sorted(maps.Keys(j.Task.Volumes)) {
			if v := j.Task.Volumes[name]; v.Shared != "" && !v.ReadOnly {
				move = append(move, fmt.Sprintf("%s (volume %s)", j.ID().Short(), name))
			}
		}
	}
	if len(move) == 0 {
		return nil
	}
	warning.Message = fmt.Sprintf("%s %s moves tasks away from directories that the machine shares: what of %s runs there would find those of another machine", does, m.Name, shownOf(move))
	warning.Hint = "copy what they keep first; `muster status machine` shows what runs there"
	return []schema.Diagnostic{warning}
}

// leavesSticky warns of a machine object of which the tasks move away, where jobs of
// its cell keep something in sticky directories or volumes: nothing copies these. Those that
// stay with theirs hold the drain. Which tasks are on the machine only the master
// knows.
func leavesSticky(m *schema.Machine, origin schema.Position, jobs []*schema.Job) []schema.Diagnostic {
	if m.Drain == nil && !m.Gone {
		return nil
	}
	var move, stay []string
	for _, j := range jobs {
		switch {
		case j.Cell != m.Cell || !j.Task.Sticky.Has() || j.Kind == schema.System || j.Tasks == 0:
		case j.Task.Sticky == schema.StickyStay && !m.Gone:
			stay = append(stay, j.ID().Short())
		default:
			move = append(move, j.ID().Short())
		}
	}
	does, field := "draining", "drain"
	if m.Gone {
		does, field = "giving up", "gone"
	}
	warning := schema.Diagnostic{Severity: schema.Warning, Rule: schema.RuleSticky, Position: origin, Field: schema.ObjectKey{Kind: schema.KindMachine, Name: m.Name}.Field() + "." + field}
	out := leavesVolumes(m, warning, does, jobs)
	if len(move) > 0 {
		w := warning
		w.Message = fmt.Sprintf("%s %s moves tasks away from their sticky directories: what of %s runs there would start empty elsewhere", does, m.Name, shownOf(move))
		w.Hint = "copy what they keep first; `muster status machine` shows what runs there"
		out = append(out, w)
	}
	if len(stay) > 0 {
		w := warning
		w.Message = fmt.Sprintf("the drain of %s is held by what of %s runs there: it stays with its sticky directory (sticky: %q)", m.Name, shownOf(stay), schema.StickyStay)
		w.Hint = "to move it, copy what it keeps and change it to sticky: true; `muster status machine` shows what runs there"
		if m.Drain.AtDeadline == schema.DeadlineStop && !m.Drain.Deadline.IsZero() {
			w.Hint = "at the deadline it is stopped, and waits for the machine; to move it, change it to sticky: true"
		}
		out = append(out, w)
	}
	return out
}

// shownOf names jobs, sorted, and no more than a line takes.
func shownOf(names []string) string {
	slices.Sort(names)
	if more := len(names) - shownSticky; more > 0 {
		names = append(names[:shownSticky], fmt.Sprintf("and %d more jobs", more))
	}
	return strings.Join(names, ", ")
}

// LeavingSticky is leavesSticky for all machines of packages.
func LeavingSticky(packages []*schema.Package, objects *schema.Objects) []schema.Diagnostic {
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

// shownSticky is how many jobs a warning names.
const shownSticky = 3
