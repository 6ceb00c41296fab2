package placement_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/musterhq/muster/placement"
	"github.com/musterhq/muster/schema"
)

// Whatever is done to a fork, its snapshot is as if there had been none, in what it
// holds, in what it remembers and in what it decides next.
func TestForkLeavesSnapshotAlone(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		c := drawCell(t)
		c.forked = false
		o := drawOptions(t)
		s, twin := c.snapshot(o), c.snapshot(o)
		placement.Place(s, c.asks, 7)
		placement.Place(twin, c.asks, 7)
		for range rapid.IntRange(1, 3).Draw(t, "forks") {
			f, l := s.Fork(), c.follower(o)
			for range rapid.IntRange(1, 3).Draw(t, "changes") {
				l.change(t, f)
				placement.Place(f, drawCell(t).asks, 9)
			}
			f.Configure(drawOptions(t))
			f.ClearClaims()
			f.Release()
		}
		if diff := placement.Difference(twin, s); diff != "" {
			t.Fatalf("forks have changed the snapshot (-without +with):\n%s", diff)
		}
		next := drawCell(t).asks
		if diff := cmp.Diff(placement.Place(twin, next, 5), placement.Place(s, next, 5)); diff != "" {
			t.Fatalf("forks have changed what the snapshot decides (-without +with):\n%s", diff)
		}
	})
}

func drawOptions(t *rapid.T) placement.Options {
	return placement.Options{
		Preempt: rapid.Bool().Draw(t, "preempt"), Graceful: rapid.Bool().Draw(t, "graceful"), Policy: drawPolicy(t),
		NoRelaxed: rapid.Bool().Draw(t, "noRelaxed"), Enough: rapid.IntRange(0, 3).Draw(t, "enough"),
	}
}

// A fork decides as a new snapshot of the same content. What is typical is learnt
// from time to time only, so the policy is one without it.
func TestForkDecidesLikeNew(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		c := drawCell(t)
		o := drawOptions(t)
		o.Policy = placement.WorstFit
		s, l := c.snapshot(o), c.follower(o)
		placement.Place(s.Fork(), c.asks, 3)
		f := s.Fork()
		l.change(t, f)
		f.SetBudgets(budgetsOf(c.budgets))
		is := cell{budgets: c.budgets, protected: c.protected}
		for _, name := range sortedKeys(l.machines) {
			is.machines = append(is.machines, l.machines[name])
		}
		for _, name := range sortedKeys(l.tasks) {
			is.tasks = append(is.tasks, l.tasks[name])
		}
		// Of changes that are as small, which one a refusal names goes by slots.
		bare := func(list []placement.Decision) []placement.Decision {
			for i := range list {
				list[i].Why.Change = nil
			}
			return list
		}
		if diff := cmp.Diff(bare(placement.Place(is.snapshot(o), c.asks, 7)), bare(placement.Place(f, c.asks, 7))); diff != "" {
			t.Fatalf("a fork differs from a new snapshot (-new +fork):\n%s", diff)
		}
	})
}

// A fork decides as its snapshot would, if that forgot its scores.
func TestForkDecidesLikeSnapshot(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		c := drawCell(t)
		o := drawOptions(t)
		s := c.snapshot(o)
		placement.Place(s, drawCell(t).asks, 3)
		f := s.Fork()
		s.Configure(o)
		if diff := cmp.Diff(s.Describe(), f.Describe()); diff != "" {
			t.Fatalf("a fork holds something else than its snapshot (-snapshot +fork):\n%s", diff)
		}
		if diff := cmp.Diff(placement.Place(s, c.asks, 7), placement.Place(f, c.asks, 7)); diff != "" {
			t.Fatalf("a fork differs from its snapshot (-snapshot +fork):\n%s", diff)
		}
	})
}

// Snapshots that are forks of each other, changed in any order, each hold the changes
// made to them. Some are released, and others go on.
func TestForksAreApart(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		type forked struct {
			*placement.Snapshot
			changes []func(*placement.Snapshot)
		}
		c := drawCell(t)
		all := []*forked{{Snapshot: placement.NewSnapshot(c.machines, c.tasks)}}
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			at := rapid.IntRange(0, len(all)-1).Draw(t, "which")
			x := all[at]
			switch rapid.IntRange(0, 7).Draw(t, "do") {
			case 0, 1:
				all = append(all, &forked{x.Fork(), slices.Clone(x.changes)})
			case 2:
				if len(all) > 1 {
					x.Release()
					all = slices.Delete(all, at, at+1)
				}
			default:
				change := drawChange(t)
				change(x.Snapshot)
				x.changes = append(x.changes, change)
			}
		}
		for _, x := range all {
			want := placement.NewSnapshot(c.machines, c.tasks)
			for _, change := range x.changes {
				change(want)
			}
			if diff := cmp.Diff(want.Describe(), x.Describe()); diff != "" {
				t.Fatalf("a snapshot among its forks (-alone +among):\n%s", diff)
			}
		}
	})
}

// drawChange draws one change of a snapshot.
func drawChange(t *rapid.T) func(*placement.Snapshot) {
	machine := fmt.Sprint("m", rapid.IntRange(0, 6).Draw(t, "machine"))
	a := drawAsk(t)
	a.Name.Index = rapid.IntRange(0, 3).Draw(t, "index")
	switch rapid.IntRange(0, 8).Draw(t, "change") {
	case 0:
		return func(s *placement.Snapshot) { s.RemoveMachine(machine) }
	case 1:
		m := placement.Machine{
			Name: machine, Up: true, Capacity: schema.Resources{CPUMilli: 4000, RAMBytes: 8, DiskBytes: 8},
			Attributes: map[string]string{"rack": rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "rack")},
			Ports:      schema.PortRange{First: 1000, Last: 1003},
		}
		return func(s *placement.Snapshot) { s.SetMachine(m) }
	case 2:
		return func(s *placement.Snapshot) { s.Claim(a, machine, nil, false) }
	case 3:
		return func(s *placement.Snapshot) { s.RemoveTask(a.Name, machine, 0) }
	case 4:
		return func(s *placement.Snapshot) { s.ClaimMove(a, machine, nil) }
	case 5:
		return func(s *placement.Snapshot) {
			s.ClaimBack([]placement.Ask{a}, func(schema.TaskName) string { return machine })
		}
	}
	h := placement.Task{
		Name: a.Name, Machine: machine, Priority: a.Priority, Limit: a.Limit, Ask: &a, IsAlloc: a.Name.Job == "k" && a.Name.Index == 0,
		Ports: schema.PortsOf(map[string]int{"p": rapid.IntRange(1000, 1003).Draw(t, "port")}), Stopping: rapid.Bool().Draw(t, "stopping"),
	}
	if !h.IsAlloc && rapid.Bool().Draw(t, "inside") {
		h.Alloc = schema.JobName{Cell: "c", User: a.Name.User, Job: "k"}.Task(0)
	}
	return func(s *placement.Snapshot) { s.SetTask(h) }
}

// A snapshot whose forks are not released takes a copy at last, and is fast again.
func TestForksThatAreNotReleased(t *testing.T) {
	t.Parallel()
	s := placement.NewSnapshot(fleet(100), nil)
	var forks []*placement.Snapshot
	for range 100 {
		forks = append(forks, s.Fork())
		if s.Depth() > 10 {
			t.Fatalf("the snapshot shares its content %d times over", s.Depth())
		}
	}
	for _, f := range forks {
		f.Release()
	}
	if s.Fork().Release(); s.Len() != 100 {
		t.Fatalf("%d of 100 machines are left", s.Len())
	}
}

// A snapshot and its forks are used at a time, and each decides as if it were alone.
func TestForksAtATime(t *testing.T) {
	t.Parallel()
	asks := jobs(300, 30, 3)
	s := placement.NewSnapshot(fleet(50), nil)
	s.Configure(placement.Options{Preempt: true})
	placement.Place(s, jobs(600, 60, 6), 1)
	all := []*placement.Snapshot{s, s.Fork(), s.Fork(), s.Fork()}
	decisions := make([][]placement.Decision, len(all))
	var done sync.WaitGroup
	for i, x := range all {
		done.Go(func() {
			x.Configure(placement.Options{Preempt: true})
			x.SetMachine(placement.Machine{Name: fmt.Sprint("more", i), Attributes: map[string]string{"rack": "x"}})
			decisions[i] = placement.Place(x, asks, 7)
		})
	}
	done.Wait()
	for i := range all {
		if diff := cmp.Diff(where(decisions[0]), where(decisions[i])); diff != "" {
			t.Fatalf("fork %d decides otherwise (-snapshot +fork):\n%s", i, diff)
		}
	}
}
