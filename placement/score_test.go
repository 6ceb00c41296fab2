package placement_test

import (
	"testing"

	"github.com/musterhq/muster/placement"
	"github.com/musterhq/muster/schema"
)

// Headroom is about prod, and about the last tenth of a machine's CPU that the
// limits of prod leave.
func TestHeadroom(t *testing.T) {
	t.Parallel()
	machines := []placement.Machine{{Name: "a", Up: true, Capacity: schema.Resources{CPUMilli: 10_000, RAMBytes: 100}}}
	prod := placement.Task{
		Name: schema.JobName{Cell: "c", User: "u", Job: "held"}.Task(0), Machine: "a", Priority: 200,
		Limit: schema.Resources{CPUMilli: 4000, RAMBytes: 1},
	}
	for _, c := range []struct {
		cores    int64
		priority schema.Priority
		want     bool
	}{{4, 200, false}, {5, 200, false}, {6, 200, true}, {6, 100, false}} {
		s := placement.NewSnapshot(machines, []placement.Task{prod})
		v, ok := s.Verdict(placement.Ask{
			Name: schema.JobName{Cell: "c", User: "u", Job: "j"}.Task(0), Priority: c.priority,
			Limit: schema.Resources{CPUMilli: c.cores * 1000, RAMBytes: 1},
		}, "a")
		if !ok || v.Reason != "" {
			t.Fatalf("%+v: %+v", c, v)
		}
		if got := v.Score.Terms.Headroom < -0.00001; got != c.want {
			t.Errorf("%+v: headroom is %v", c, v.Score.Terms.Headroom)
		}
	}
}
