package snapshot

import (
	"slices"
	"testing"

	"github.com/musterhq/muster/reconciler/control/draft"
	"github.com/musterhq/muster/reconciler/control/facts"
	"github.com/musterhq/muster/reconciler/intent"
	"github.com/musterhq/muster/reconciler/model"
	"github.com/musterhq/muster/schema"
)

// TestGoesWithFollows: what goes with an alloc is what runs inside, also after a task has come or gone in the
// same step; a stop changes nothing.
func TestGoesWithFollows(t *testing.T) {
	t.Parallel()
	h := &history{t: t, state: model.NewState("c")}
	set, job := &schema.Job{Cell: "c", User: "u", Name: "set", Kind: schema.Allocs, Tasks: 1}, &schema.Job{Cell: "c", User: "u", Name: "in", Kind: schema.Service, Tasks: 2, AllocSet: "set"}
	h.put(set)
	h.put(job)
	d := draft.New(h.state, now)
	c := New(facts.New(d.View(), &intent.Desired{}, model.NewObserved(now), now, nil), nil)
	d.Watch(c.Changed)
	alloc := schema.TaskRecord{Generation: 1, Machine: "m", Data: schema.DigestOf(set)}
	task := func(index int, host string) schema.TaskRecord {
		r := schema.TaskRecord{Index: index, Generation: 2, Machine: host, Data: schema.DigestOf(job)}
		if host != "" {
			r.Alloc = &schema.AllocUse{Set: "set", Generation: 1}
		}
		return r
	}
	d.Set(set.ID(), alloc)
	d.Set(job.ID(), task(0, "m"))
	check := func(what string, inside ...int) {
		t.Helper()
		want := []On{{set.ID().Task(0), "m"}}
		for _, i := range inside {
			want = append(want, On{job.ID().Task(i), "m"})
		}
		if got := c.GoesWith(set.ID(), &alloc); !slices.Equal(got, want) {
			t.Errorf("%s: %v go, want %v", what, got, want)
		}
	}
	check("one is inside", 0)
	d.Set(job.ID(), task(1, "m"))
	check("another one comes", 0, 1)
	stopping := task(1, "m")
	stopping.Stop = &schema.Cause{Kind: schema.CauseMaintenance}
	d.Set(job.ID(), stopping)
	check("it is to stop", 0, 1)
	if c.inside == nil {
		t.Error("all tasks are looked at again after a stop")
	}
	d.Set(job.ID(), task(0, ""))
	check("the first one has ended", 1)
	d.Remove(job.ID(), 1)
	check("the other one is removed")
}
