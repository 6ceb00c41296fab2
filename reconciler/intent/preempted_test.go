package intent

import (
	"testing"

	"github.com/musterhq/muster/schema"
)

// What says preemptible: false without effect is reported: nothing may preempt it anyway.
func TestUnpreempted(t *testing.T) {
	t.Parallel()
	p := &schema.Package{Origins: map[schema.ObjectKey]schema.Position{}}
	never, may := new(bool), new(bool)
	*may = true
	for i, j := range []schema.Job{
		{Cell: "c", User: "u", Name: "free", Staying: schema.Staying{Preemptible: never}},
		{Cell: "c", User: "u", Name: "prod", Priority: 299, Staying: schema.Staying{Preemptible: never}},
		{Cell: "c", User: "u", Name: "watch", Priority: 300, Staying: schema.Staying{Preemptible: never}},
		{Cell: "c", User: "u", Name: "watches", Priority: 300, Staying: schema.Staying{Preemptible: may}},
		{Cell: "c", User: "u", Name: "inside", AllocSet: "kept", Staying: schema.Staying{Preemptible: never}},
		{Cell: "c", User: "u", Name: "within", AllocSet: "set", Staying: schema.Staying{Preemptible: never}},
		{Cell: "c", User: "u", Name: "beside", AllocSet: "kept"},
		{Cell: "c", User: "u", Name: "one", Gang: "some", Staying: schema.Staying{Preemptible: never}},
		{Cell: "c", User: "u", Name: "two", Gang: "some"},
		{Cell: "c", User: "u", Name: "three", Gang: "all", Staying: schema.Staying{Preemptible: never}},
		{Cell: "c", User: "u", Name: "four", Gang: "all", Staying: schema.Staying{Preemptible: never}},
		{Cell: "c", User: "v", Name: "five", Gang: "all"},
		{Cell: "d", User: "u", Name: "six", Gang: "all"},
		{Cell: "c", User: "u", Name: "alone", Kind: schema.System, Staying: schema.Staying{Preemptible: never}},
	} {
		p.Objects.Jobs = append(p.Objects.Jobs, j)
		p.Origins[KeyOf(&j)] = schema.Position{Path: "u/x.cue", Line: i + 1, Column: 1}
	}
	for i, s := range []schema.AllocSet{
		{Cell: "c", User: "u", Name: "kept", Preemptible: never}, {Cell: "c", User: "u", Name: "set"}, {Cell: "c", User: "u", Name: "high", Priority: 399, Preemptible: never},
	} {
		p.Objects.AllocSets = append(p.Objects.AllocSets, s)
		p.Origins[KeyOf(s.Job())] = schema.Position{Path: "u/x.cue", Line: i + 21, Column: 1}
	}
	p.SetPlace(schema.ObjectKey{Kind: schema.KindJob, Name: "c/u/watch"}, "preemptible", schema.Position{Path: "u/x.cue", Line: 3, Column: 9})
	const end = `: "preemptible" has no effect, but counts towards nonPreemptibleTasks of the tenant`
	want := []string{
		"u/x.cue:23:1: allocset.high.preemptible: no task preempts one of priority 399, which is in band monitoring" + end,
		"u/x.cue:3:9: job.watch.preemptible: no task preempts one of priority 300, which is in band monitoring" + end,
		`u/x.cue:5:1: job.inside.preemptible: the tasks run in allocs of alloc set "kept", which may not be preempted` + end,
		`u/x.cue:8:1: job.one.preemptible: gang "some" is preempted as a whole, and job two of it does not say preemptible: false` + end,
	}
	ds := Unpreempted([]*schema.Package{p}, &p.Objects)
	if len(ds) != len(want) {
		t.Fatalf("%d diagnostics, want %d: %v", len(ds), len(want), ds)
	}
	for i, d := range ds {
		if got := d.Position.String() + ": " + d.Field + ": " + d.Message; got != want[i] || d.Severity != schema.Warning {
			t.Errorf("got %s, want %s", got, want[i])
		}
	}
}
