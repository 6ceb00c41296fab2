package intent

import (
	"testing"

	"github.com/musterhq/muster/schema"
)

// A gang whose jobs have several priorities is reported once, at the first of them that differs;
// gangs of other users, in other cells and of one priority are not.
func TestUnlikeGangs(t *testing.T) {
	t.Parallel()
	p := &schema.Package{Origins: map[schema.ObjectKey]schema.Position{}}
	for i, j := range []schema.Job{
		{Cell: "c", User: "u", Name: "a", Gang: "train", Priority: 100},
		{Cell: "c", User: "u", Name: "b", Gang: "train", Priority: 100},
		{Cell: "c", User: "u", Name: "d", Gang: "train", Priority: 110},
		{Cell: "c", User: "u", Name: "e", Gang: "train", Priority: 120},
		{Cell: "c", User: "v", Name: "a", Gang: "train", Priority: 0},
		{Cell: "d", User: "u", Name: "a", Gang: "train", Priority: 0},
		{Cell: "c", User: "u", Name: "x", Gang: "other", Priority: 0},
		{Cell: "c", User: "u", Name: "y", Gang: "other", Priority: 0},
		{Cell: "c", User: "u", Name: "z", Priority: 7},
	} {
		p.Objects.Jobs = append(p.Objects.Jobs, j)
		p.Origins[KeyOf(&j)] = schema.Position{Path: "u/x.cue", Line: i + 1, Column: 1}
	}
	p.SetPlace(schema.ObjectKey{Kind: schema.KindJob, Name: "c/u/a"}, "gang", schema.Position{Path: "u/x.cue", Line: 7, Column: 9})
	p.SetPlace(schema.ObjectKey{Kind: schema.KindJob, Name: "c/u/d"}, "gang", schema.Position{Path: "u/x.cue", Line: 8, Column: 9})
	p.SetPlace(schema.ObjectKey{Kind: schema.KindJob, Name: "c/u/d"}, "priority", schema.Position{Path: "u/x.cue", Line: 9, Column: 12})
	ds := UnlikeGangs([]*schema.Package{p}, &p.Objects)
	if len(ds) != 1 {
		t.Fatalf("%d diagnostics, want 1: %v", len(ds), ds)
	}
	const want = `gang "train" gets no places: job d has priority 110, and job a has 100 (u/x.cue:7:9)`
	if d := ds[0]; d.Message != want || d.Position.Line != 9 || d.Field != "job.d.priority" || d.Severity != schema.Warning {
		t.Errorf("got %+v, want %s", d, want)
	}
}
