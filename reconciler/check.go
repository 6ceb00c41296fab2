package reconciler

import (
	"maps"
	"slices"
	"time"

	"github.com/musterhq/muster/reconciler/intent"
	"github.com/musterhq/muster/reconciler/model"
	"github.com/musterhq/muster/reconciler/quota"
	"github.com/musterhq/muster/schema"
)

// Take returns the objects of a compiled commit that a cell that holds nothing
// yet would take into its desired data, with what their names stand for, and
// everything that keeps it from taking others, sorted by position. It is a
// function of the commit.
func Take(c schema.Compiled) (schema.Objects, []schema.Diagnostic) {
	t := intent.Take(c)
	return t.Objects, intent.Fold(t.Diagnostics)
}

// Check returns everything that is wrong with a compiled commit by itself, as
// a cell that holds nothing yet, and knows no machine, would see it at a time:
// what Take finds, and what is not admitted. Where a package is not taken that
// may grant quota, nothing is said of what is admitted: that would follow.
func Check(c schema.Compiled, now time.Time) (schema.Objects, []schema.Diagnostic) {
	t := intent.Take(c)
	ds := slices.Concat(t.Diagnostics, intent.LeavingSticky(t.Packages, &t.Objects), intent.UnlikeGangs(t.Packages, &t.Objects), intent.Unpreempted(t.Packages, &t.Objects))
	if !slices.ContainsFunc(t.Diagnostics, func(d schema.Diagnostic) bool { return d.Severity == schema.Error }) { // else the jobs that are not there would follow
		ds = append(ds, intent.Unreached(t.Packages, &t.Objects)...)
	}
	for _, cell := range cellsOf(t.Objects) {
		if t.Headless {
			break
		}
		d := intent.DeclaredWith(cell, t.Packages, intent.Undigested)
		adm := quota.Admit(quota.AdmitInput(model.NewState(cell), d, now))
		var found intent.Findings
		for _, name := range d.Names() {
			if r := adm.Rejected[name]; r != nil && len(d.Jobs[name].Refused) == 0 { // or take has reported it
				found.Add(r.Message, intent.KeyOf(d.Jobs[name].Job), *r)
			}
		}
		ds = append(ds, found.Fold()...)
		for _, w := range adm.Warnings {
			ds = append(ds, w.Diagnostic)
		}
	}
	return t.Objects, intent.Fold(ds)
}

// Narrow returns what of a compiled commit is for a cell, as intent.InCell does, and the names
// of the cells that the commit is for, sorted. Where cell is none of them it returns all.
func Narrow(c schema.Compiled, cell string) (schema.Compiled, []string) {
	cells := intent.CellsIn(intent.Take(c).Objects)
	if _, ok := slices.BinarySearch(cells, cell); !ok {
		return c, cells
	}
	return intent.InCell(c, cell, cells), cells
}

func cellsOf(o schema.Objects) []string {
	names := map[string]bool{}
	for i := range o.Jobs {
		names[o.Jobs[i].Cell] = true
	}
	for i := range o.AllocSets {
		names[o.AllocSets[i].Cell] = true
	}
	return slices.Sorted(maps.Keys(names))
}
