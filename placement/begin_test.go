package placement_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/musterhq/muster/placement"
	"github.com/musterhq/muster/schema"
)

// With as much Begin as Packing an empty machine gets a task only if no other one has room, be the cell
// steady or not, and however large machines are; and it is the one that it would be without.
func TestBeginNoEmptyMachine(t *testing.T) {
	t.Parallel()
	name := func(i int) schema.TaskName {
		return schema.JobName{Cell: "c", User: "u", Job: fmt.Sprint("j", i)}.Task(0)
	}
	begun, spared, steady := 0, 0, 0
	for seed := range uint64(900) {
		r := rand.New(rand.NewPCG(seed, 11))
		var machines []placement.Machine
		var tasks []placement.Task
		empty := map[string]bool{}
		for i := range 12 {
			m := placement.Machine{Name: fmt.Sprint("m", i), Up: true, Capacity: schema.Resources{CPUMilli: 4000 << r.IntN(5), RAMBytes: gib << (2 + r.IntN(5))}}
			machines, empty[m.Name] = append(machines, m), true
			everywhere := &placement.Ask{Name: name(1000 + i), Everywhere: true, Limit: schema.Resources{CPUMilli: 100}}
			tasks = append(tasks, placement.Task{Name: everywhere.Name, Machine: m.Name, Limit: everywhere.Limit, Ask: everywhere})
			for left := r.IntN(4) * int(seed%5); left > 0; left-- {
				a := &placement.Ask{Name: name(len(tasks)), Priority: 200, Spread: placement.NoSpread, Limit: schema.Resources{CPUMilli: m.Capacity.CPUMilli / (1 + r.Int64N(40)), RAMBytes: m.Capacity.RAMBytes / (4 + r.Int64N(40))}}
				tasks, empty[m.Name] = append(tasks, placement.Task{Name: a.Name, Machine: m.Name, Priority: 200, Limit: a.Limit, Ask: a}), false
			}
		}
		ask := placement.Ask{Name: name(2000), Priority: 200, Spread: placement.NoSpread, Limit: schema.Resources{CPUMilli: 100 + r.Int64N(6000), RAMBytes: gib/4 + r.Int64N(8)*gib/2}}
		var to [2]string
		for i, begin := range []float32{0, placement.DefaultWeights().Packing} {
			s, w := placement.NewSnapshot(machines, tasks), placement.DefaultWeights()
			w.Begin = begin
			s.Configure(placement.Options{Weights: &w})
			to[i] = placement.Place(s, []placement.Ask{ask}, seed)[0].Machine
			if s.IsSteady() {
				steady++
			}
		}
		if to[0] != to[1] {
			spared++
		}
		if !empty[to[1]] || to[1] == "" {
			continue
		}
		begun++
		if to[0] != to[1] {
			t.Errorf("seed %d: %s is begun, and %s without that weight", seed, to[1], to[0])
		}
		s := placement.NewSnapshot(machines, tasks)
		for _, m := range machines {
			if v, ok := s.Verdict(ask, m.Name); ok && v.Reason == "" && !empty[m.Name] {
				t.Errorf("seed %d: %s is begun, and %s has room", seed, to[1], m.Name)
			}
		}
	}
	if begun < 20 || spared < 20 || steady < 40 {
		t.Errorf("%d machines were begun, and %d were not for that weight; %d cells were steady: this tests too little", begun, spared, steady)
	}
}
