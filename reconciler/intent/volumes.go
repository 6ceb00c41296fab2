package intent

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/musterhq/muster/schema"
	"github.com/musterhq/muster/schema/valid"
)

// volumes are the shared directories that cells declare, by the cells that do.
type volumes map[string]map[string]schema.CellVolume

func volumesOf(packages map[string]*schema.Package) volumes {
	out := volumes{}
	for _, p := range packages {
		for i := range p.Objects.Cells {
			if c := &p.Objects.Cells[i]; c.Volumes != nil {
				out[c.Name] = c.Volumes
			}
		}
	}
	return out
}

// lack reports whether a cell declares volumes, and not one of a name.
func (v volumes) lack(cell, name string) bool {
	declared, limited := v[cell]
	_, ok := declared[name]
	return limited && !ok
}

// violations returns a diagnostic for each shared directory that jobs of p name and their cell does not declare, or
// declares to be only read.
func (v volumes) violations(p *schema.Package) []schema.Diagnostic {
	var found Findings
	for i := range p.Objects.Jobs {
		j := &p.Objects.Jobs[i]
		declared, limited := v[j.Cell]
		if !limited {
			continue
		}
		for _, name := range slices.Sorted(maps.Keys(j.Task.Volumes)) {
			t := j.Task.Volumes[name]
			if t.Shared == "" {
				continue
			}
			switch c, ok := declared[t.Shared]; {
			case !ok:
				undeclaredVolume(p, j, name, slices.Sorted(maps.Keys(declared)), &found)
			case c.ReadOnly && !t.ReadOnly:
				field := "task.volumes." + name + ".shared"
				found.Add("write "+j.Cell+"/"+t.Shared, KeyOf(j), schema.Diagnostic{
					Rule: schema.RuleInvalidValue, Position: p.Place(KeyOf(j), field), Field: KeyOf(j).Field() + "." + field,
					Message:  fmt.Sprintf("no task may write to volume %q of cell %s", t.Shared, j.Cell),
					Expected: "readOnly: true beside it", Hint: "add readOnly: true, or remove it from the volume in the cell",
				})
			}
		}
	}
	return found.Fold()
}

// undeclaredVolume finds that a job's volume is none of those that its cell declares, by their sorted names.
func undeclaredVolume(p *schema.Package, j *schema.Job, name string, declared []string, found *Findings) {
	key, field, shared := KeyOf(j), "task.volumes."+name+".shared", j.Task.Volumes[name].Shared
	expected := "no shared volume, as the cell declares none"
	if len(declared) > 0 {
		expected = "one of " + strings.Join(declared, ", ")
	}
	add := fmt.Sprintf("declare it in the cell: cell: %s: volumes: %s: {}", schema.Label(j.Cell), schema.Label(shared))
	hint := "correct the name, or " + add
	if near := valid.Nearest(shared, declared); near != "" {
		hint = fmt.Sprintf("did you mean %q? Else %s", near, add)
	}
	found.Add("volume "+j.Cell+"/"+shared, key, schema.Diagnostic{
		Rule: schema.RuleUndefined, Position: p.Place(key, field), Field: key.Field() + "." + field,
		Message: fmt.Sprintf("no volume %q is declared in cell %s", shared, j.Cell), Expected: expected, Hint: hint,
	})
}

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
