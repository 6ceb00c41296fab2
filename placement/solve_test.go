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
	m := placement.Machine{Name: "a", Up: true, Capacity: schema.Resources{RAMBytes: 1 << 20}}
	ram := map[int]int64{}
	var held []placement.Task
	free := m.Capacity.RAMBytes
	for i := range tasks {
		ram[i] = 10_000 + int64(i*i) // no two alike
		free -= ram[i]
		held = append(held, placement.Task{
			Name: schema.JobName{Cell: "c", User: "u", Job: "j"}.Task(i), Machine: "a", Priority: schema.Priority(i % 3),
			Limit: schema.Resources{RAMBytes: ram[i]},
		})
	}
	s := placement.NewSnapshot([]placement.Machine{m}, held)
	s.Configure(placement.Options{Preempt: true})
	want := free + 200_000
	d := placement.Place(s, []placement.Ask{{
		Name: schema.JobName{Cell: "c", User: "v", Job: "big"}.Task(0), Priority: 200, Limit: schema.Resources{RAMBytes: want},
	}}, 1)[0]
	for _, v := range d.Victims {
		free += ram[v.Name.Index]
	}
	if d.Machine != "a" || len(d.Victims) == 0 || free < want {
		t.Fatalf("%d victims leave %d, want %d: %v", len(d.Victims), free, want, d)
	}
	for _, v := range d.Victims {
		if free-ram[v.Name.Index] >= want {
			t.Errorf("%v goes for nothing: %d of %d would be free without it", v.Name, free-ram[v.Name.Index], want)
		}
	}
}
