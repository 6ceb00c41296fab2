package control

import (
	"fmt"
	"testing"
	"time"

	"github.com/musterhq/muster/placement"
	"github.com/musterhq/muster/reconciler/control/facts"
	"github.com/musterhq/muster/reconciler/control/snapshot"
	"github.com/musterhq/muster/reconciler/intent"
	"github.com/musterhq/muster/reconciler/model"
	"github.com/musterhq/muster/schema"
)

// idleCell is a cell of machines that run nothing, and have been there for long.
func idleCell(t *testing.T, now time.Time, machines int) Input {
	t.Helper()
	in := Input{State: model.NewState("c"), Observed: model.NewObserved(now), Now: now, Memo: &Memo{}}
	for i := range machines {
		info := schema.MachineInfo{Name: fmt.Sprint("m", i+1), Capacity: schema.Resources{CPUMilli: 4000, RAMBytes: 4000}}
		if err := in.State.Apply([]model.Write{in.State.Document(model.KeyMachine+info.Name, &schema.MachineRecord{MachineInfo: info, Joined: now.Add(-48 * time.Hour)})}); err != nil {
			t.Fatal(err)
		}
		in.Observed.AddReport(schema.Report{Machine: info}, now)
	}
	return in
}

// desire has the cell empty machines of which less than that is used.
func (in *Input) desire(below int) {
	in.Desired = intent.Of(in.State)
	in.Desired.Policy.Rebalance = &schema.RebalancePolicy{MovesPerHour: 60, EmptyBelow: below}
}

// In a cell that does not empty machines nothing is looked at, and where the last look has found
// nothing and nothing has changed none is booked.
func TestEmptyingSleeps(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 2, 12, 40, 0, 0, time.UTC)
	in := idleCell(t, now, 2)
	kept := &in.Memo.emptied
	wake := func() time.Time {
		p := newPass(&in)
		cell := snapshot.New(p.Facts, &in.Memo.cell)
		s := emptying{looking{p, holeSearch{Facts: p.Facts, cell: cell}, &moves{pass: p, bounds: newMoveBounds(p.Facts)}, &scheduler{}}, kept}
		s.empty()
		return p.wake
	}
	in.desire(0)
	if at := wake(); !at.IsZero() || !kept.now.IsZero() {
		t.Errorf("a cell that empties no machines looks again at %v", at)
	}
	in.desire(20)
	in.Now = now.Add(3 * time.Second)
	next := now.Add(emptyEvery)
	if at := wake(); !at.Equal(next) || !kept.began.IsZero() {
		t.Errorf("between two looks the next one is at %v, want %v", at, next)
	}
	kept.moves = true
	if at := wake(); !at.Equal(now.Add(emptyNext)) {
		t.Errorf("while a machine is being emptied the next look is at %v, want %v", at, now.Add(emptyNext))
	}
	in.Now = now
	kept.moves = false
	wake()
	if at := wake(); !at.IsZero() || !kept.all {
		t.Errorf("when all was looked at the next look is at %v, want none", at)
	}
	kept.until = facts.Until{Wall: now.Add(3 * time.Hour)}
	if at := wake(); !at.Equal(now.Add(3 * time.Hour)) {
		t.Errorf("the next look is at %v, want when something changes, at %v", at, now.Add(3*time.Hour))
	}
	in.desire(30)
	if at := wake(); !at.Equal(next) || kept.all {
		t.Errorf("when something has changed the next look is at %v, want %v", at, next)
	}
}

// In a cell that empties machines new tasks begin none that is empty, also where it would suit them
// better, from when its policy says so and until it does not.
func TestEmptyMachinesAreNotBegun(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 2, 12, 40, 0, 0, time.UTC)
	in := idleCell(t, now, 3)
	for _, step := range []struct {
		below int
		want  string
	}{{0, "m1"}, {20, "m2"}, {0, "m1"}} {
		in.desire(step.below)
		cell := snapshot.New(newPass(&in).Facts, &in.Memo.cell)
		s := cell.Snapshot()
		job := schema.JobName{Cell: "c", User: "u", Job: "has"}
		has := placement.Ask{Name: job.Task(0), Limit: schema.Resources{CPUMilli: 500, RAMBytes: 1500}}
		s.SetTask(placement.Task{Name: has.Name, Machine: "m2", Limit: has.Limit, Ask: &has})
		ask := placement.Ask{Name: schema.JobName{Cell: "c", User: "u", Job: "new"}.Task(0), Limit: schema.Resources{CPUMilli: 125, RAMBytes: 1350}}
		d := placement.Place(s, []placement.Ask{ask}, 1)[0]
		if d.Machine != step.want {
			t.Errorf("with emptyBelow %d it is placed on %s (%s), want %s", step.below, d.Machine, d.Why, step.want)
		}
		s.RemoveTask(ask.Name, d.Machine, 0)
		cell.Leave()
	}
}
