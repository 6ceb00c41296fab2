package placement_test

import (
	"testing"
	"time"

	"github.com/musterhq/muster/placement"
	"github.com/musterhq/muster/schema"
)

// Beside a task for which a machine is held runs one that has ports, too, as long as these are not the
// same, and there are enough of them for both.
func TestBesideWithPorts(t *testing.T) {
	t.Parallel()
	const held = 6 * time.Minute
	ask := func(job string, cpu int64, ports map[string]int, waits time.Duration, names ...string) placement.Ask {
		return placement.Ask{
			Name: schema.JobName{Cell: "c", User: "u", Job: job}.Task(0), Priority: 100, Limit: schema.Resources{CPUMilli: cpu},
			Ports: names, PortNumbers: ports, Waiting: placement.Waiting{Waited: waits},
		}
	}
	for _, tt := range []struct {
		name    string
		a, held placement.Ask
		beside  bool
	}{
		{"none", ask("new", 500, nil, 0), ask("big", 3500, nil, held), true},
		{"any", ask("new", 500, nil, 0, "http"), ask("big", 3500, nil, held, "http"), true},
		{"more than there are", ask("new", 500, nil, 0, "http", "grpc"), ask("big", 3500, nil, held, "http", "grpc"), false},
		{"other numbers", ask("new", 500, map[string]int{"http": 80}, 0, "http"), ask("big", 3500, map[string]int{"http": 81}, held, "http"), true},
		{"the same number", ask("new", 500, map[string]int{"http": 80}, 0, "http"), ask("big", 3500, map[string]int{"http": 80}, held, "http"), false},
		{"too large", ask("new", 501, nil, 0), ask("big", 3500, nil, held), false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := placement.NewSnapshot(nil, nil)
			s.SetMachine(placement.Machine{Name: "m1", Up: true, Capacity: schema.Resources{CPUMilli: 4000}, Ports: schema.PortRange{First: 20000, Last: 20002}})
			s.SetTask(placement.Task{Name: schema.JobName{Cell: "c", User: "u", Job: "old"}.Task(0), Machine: "m1", Priority: 100, Limit: schema.Resources{CPUMilli: 1000}})
			got := placement.Place(s, []placement.Ask{tt.a, tt.held}, 1)
			if held := got[0].Why.Held; held != "m1" {
				t.Fatalf("%q is held, want m1", held)
			}
			if beside := got[1].Machine != ""; beside != tt.beside {
				t.Errorf("beside: %v, want %v: %v", beside, tt.beside, got[1].Why)
			}
		})
	}
}
