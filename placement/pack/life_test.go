package pack

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/musterhq/muster/placement"
)

// What a machine had that fails is pending again for the time that is left, nothing is placed there until it
// is back, and what comes at a time is alike.
func TestLife(t *testing.T) {
	t.Parallel()
	nodes, tasks := churning[0].trace(3)
	life := Life{Burst: 4, Fails: time.Hour, Down: time.Minute}
	x, err := newCell(&Config{Nodes: nodes[:20], Tasks: tasks, Load: 0.6, GPUs: GPUDevices, Life: life}, rand.New(rand.NewPCG(1, 82)))
	if err != nil {
		t.Fatal(err)
	}
	x.place(0, 0, &counts{})
	if len(x.pending) > 0 {
		t.Fatalf("%d tasks find no room", len(x.pending))
	}
	x.arrive(time.Second)
	if n := len(x.pending); n != 4 || x.pending[0].ask.Limit != x.pending[3].ask.Limit || x.pending[0].ask.Name == x.pending[3].ask.Name {
		t.Errorf("%d tasks came, want four that are alike", n)
	}
	x.pending = nil
	there := 0
	for _, list := range x.leaving {
		there += len(list)
	}
	pass := 0
	for len(x.pending) == 0 {
		pass++
		there -= len(x.leaving[pass])
		delete(x.leaving, pass) // they leave, as in each pass
		x.fail(pass, time.Duration(pass)*churnPass)
	}
	var down []string
	for i := range x.failing.back {
		down = append(down, x.failing.all[i].Name)
	}
	left := 0
	for end, list := range x.leaving {
		left += len(list)
		if i := slices.IndexFunc(list, func(g guest) bool { return slices.Contains(down, g.machine) }); i >= 0 {
			t.Errorf("%+v is to leave at pass %d a machine that is down", list[i], end)
		}
	}
	if left+len(x.pending) != there {
		t.Errorf("of %d tasks %d are left, and %d are pending", there, left, len(x.pending))
	}
	for i := range x.pending {
		if g := &x.pending[i]; g.came != time.Duration(pass)*churnPass || g.machine != "" || g.stays <= 0 {
			t.Errorf("pending: %+v", *g)
		}
	}
	for _, d := range placement.Place(x.snapshot, []placement.Ask{x.asks[0]}, 1) {
		if slices.Contains(down, d.Machine) {
			t.Errorf("a task is placed on %s, which is down", d.Machine)
		}
	}
}
