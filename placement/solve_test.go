package placement_test

import (
	"testing"

	"github.com/musterhq/muster/placement"
	"github.com/musterhq/muster/schema"
)

// A machine with more tasks than all sets of them can be tried gives up none
// that is of no use.
func TestNoUselessVictimAmongMany(t *testing.T) {
	t.Parallel()
	const tasks = 64
	m := placement.Machine{Name: "a", Up: true, Capacity: schema.Resources{CPUMilli: 1 << 20, RAMBytes: 1 << 20}}
	limits := map[int]schema.Resources{}
	var held []placement.Task
	free := m.Capacity
	for i := range tasks { // half hold CPU, half RAM, and no two as much
		limits[i] = schema.Resources{CPUMilli: 10_000 + int64(i*i)}
		if i%2 == 1 {
			limits[i] = schema.Resources{RAMBytes: 10_000 + int64(i*i)}
		}
		free = free.Sub(limits[i])
		held = append(held, placement.Task{
			Name: schema.JobName{Cell: "c", User: "u", Job: "j"}.Task(i), Machine: "a", Priority: schema.Priority(i % 3), Limit: limits[i],
		})
	}
	s := placement.NewSnapshot([]placement.Machine{m}, held)
	s.Configure(placement.Options{Preempt: true})
	want := schema.Resources{CPUMilli: free.CPUMilli + 200_000, RAMBytes: free.RAMBytes + 200_000}
	d := placement.Place(s, []placement.Ask{{
		Name: schema.JobName{Cell: "c", User: "v", Job: "big"}.Task(0), Priority: 200, Limit: want,
	}}, 1)[0]
	for _, v := range d.Victims {
		free = free.Add(limits[v.Name.Index])
	}
	if d.Machine != "a" || len(d.Victims) == 0 || !want.Fits(free) {
		t.Fatalf("%d victims leave %v, want %v: %v", len(d.Victims), free, want, d)
	}
	for _, v := range d.Victims {
		if want.Fits(free.Sub(limits[v.Name.Index])) {
			t.Errorf("%v goes for nothing: %v would be free without it", v.Name, free.Sub(limits[v.Name.Index]))
		}
	}
}
