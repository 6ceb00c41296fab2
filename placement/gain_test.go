package placement_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/musterhq/muster/placement"
	"github.com/musterhq/muster/schema"
)

// worn is a cell from which some of the tasks have gone that filled it.
func worn(r *rand.Rand) (*placement.Snapshot, []placement.Machine) {
	var machines []placement.Machine
	for i := range 8 {
		machines = append(machines, placement.Machine{
			Name: fmt.Sprint("m", i), Up: true, Capacity: schema.Resources{CPUMilli: 8000 + 8000*r.Int64N(3), RAMBytes: 64 * gib},
			Devices: []placement.Device{{Kind: "gpu", Count: r.IntN(3)}}, Attributes: map[string]string{"rack": fmt.Sprint("r", i%3)}, Overloaded: i == 5,
		})
	}
	s := placement.NewSnapshot(machines, nil)
	var asks []placement.Ask
	for job := range 40 {
		a := placement.Ask{Priority: 200, Limit: schema.Resources{CPUMilli: 1000 * (1 + r.Int64N(6)), RAMBytes: gib * (1 + r.Int64N(10))}}
		if r.IntN(4) == 0 {
			a.Devices = []placement.DeviceAsk{{Kind: "gpu", Count: 1, Milli: []int{0, 500}[r.IntN(2)]}}
		}
		if r.IntN(4) == 0 {
			a.Preferences = []placement.Preference{{Constraint: placement.Constraint{Attribute: "rack", Op: placement.OpIn, Values: []string{"r1"}}, Weight: 50}}
		}
		if r.IntN(4) == 0 {
			a.Spread = placement.NoSpread
		}
		if r.IntN(4) == 0 {
			a.Apart = []schema.JobName{{Cell: "c", User: "u", Job: fmt.Sprint("j", r.IntN(40))}}
		}
		for i := range 1 + r.IntN(2) {
			a.Name = schema.JobName{Cell: "c", User: "u", Job: fmt.Sprint("j", job)}.Task(i)
			asks = append(asks, a)
		}
	}
	for _, d := range placement.Place(s, asks, 1) {
		if d.Machine != "" && r.IntN(6) == 0 {
			s.RemoveTask(d.Name, d.Machine, 0)
		}
	}
	return s, machines
}

// A move makes as much room as is said, there is no other machine on which it makes more, and
// its job is spread no worse there.
func TestBestMove(t *testing.T) {
	t.Parallel()
	found, none := 0, 0
	for seed := range uint64(40) {
		s, machines := worn(rand.New(rand.NewPCG(seed, 7)))
		if !s.IsSteady() {
			continue
		}
		for _, m := range machines {
			for _, task := range placement.TasksOn(s, m.Name) {
				want, at := float32(0), []string(nil)
				for _, to := range machines {
					fork := s.Fork()
					before := fork.Worth()
					if to.Name != m.Name && !worse(s, &task, to.Name) && placement.Move(fork, *task.Ask, m.Name, to.Name) {
						switch gain := fork.Worth() - before; {
						case gain > want+1e-3:
							want, at = gain, []string{to.Name}
						case gain > want-1e-3 && at != nil:
							at = append(at, to.Name)
						}
					}
					fork.Release()
				}
				g, ok := placement.BestMove(s, *task.Ask, m.Name)
				ok = ok && g.Worth > 1e-3 // less is rounding
				if ok != (at != nil) || ok && (!slices.Contains(at, g.To) || abs(g.Worth-want) > 1e-2) {
					t.Fatalf("seed %d: %v moves from %s: %+v, %t; want %v on one of %q", seed, task.Name, m.Name, g, ok, want, at)
				}
				if ok {
					found++
				} else {
					none++
				}
			}
		}
	}
	if found < 50 || none < 50 {
		t.Errorf("%d tasks had a move, and %d none: this tests too little", found, none)
	}
}

// worse reports whether a task would be where its job is spread worse, where a preference of
// it does not hold that does now, or where there is noise that there is not now.
func worse(s *placement.Snapshot, task *placement.Task, to string) bool {
	fork := s.Fork()
	defer fork.Release()
	fork.RemoveTask(task.Name, task.Machine, 0)
	is, was := fork.CompanyOf(*task.Ask, to), fork.CompanyOf(*task.Ask, task.Machine)
	misses := func(machine string) bool {
		return len(task.Ask.Preferences) > 0 && int(machine[1]-'0')%3 != 1
	}
	return slices.Compare(is[:], was[:]) > 0 || misses(to) && !misses(task.Machine) || noisy(s, task, to) && !noisy(s, task, task.Machine)
}

// noisy reports whether a machine is the overloaded one, or holds a task from which another is
// kept apart.
func noisy(s *placement.Snapshot, task *placement.Task, machine string) bool {
	return machine == "m5" || slices.ContainsFunc(placement.TasksOn(s, machine), func(o placement.Task) bool {
		return o.Name != task.Name && slices.Contains(task.Ask.Apart, o.Name.JobName)
	})
}

func abs(x float32) float32 { return max(x, -x) }
