package placement_test

import (
	"fmt"
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

// An ask that is larger than what the cell holds in the mean begins an idle machine less
// readily than a small one; one that is not is judged as if it were of the mean.
func TestLargerThanHeld(t *testing.T) {
	t.Parallel()
	machines := []placement.Machine{
		{Name: "begun", Up: true, Capacity: schema.Resources{CPUMilli: 100_000, RAMBytes: 1000}},
		{Name: "idle", Up: true, Capacity: schema.Resources{CPUMilli: 100_000, RAMBytes: 1000}},
	}
	name := func(job string, i int) schema.TaskName {
		return schema.JobName{Cell: "c", User: "u", Job: job}.Task(i)
	}
	var held []placement.Task
	for i := range 10 {
		held = append(held, placement.Task{Name: name("held", i), Machine: "begun", Limit: schema.Resources{CPUMilli: 2000, RAMBytes: 20}})
	}
	place := func(cores int64, w placement.Weights) *placement.Score {
		s := placement.NewSnapshot(machines, held)
		s.Configure(placement.Options{Weights: &w})
		d := placement.Place(s, []placement.Ask{{Name: name("asks", 0), Limit: schema.Resources{CPUMilli: cores * 1000, RAMBytes: cores * 10}}}, 0)[0]
		for _, score := range []*placement.Score{d.Why.Score, d.Why.RunnerUp} {
			if score != nil && score.Machine == "idle" {
				return score
			}
		}
		t.Fatalf("%d cores: the idle machine is not among the best two: %+v", cores, d.Why)
		return nil
	}
	plain := placement.DefaultWeights()
	plain.OpenLarge, plain.OpenSizeLarge = 0, 0
	for _, c := range []struct {
		cores int64
		more  bool
	}{{1, false}, {2, false}, {4, true}, {16, true}} {
		open, bySize := plain, plain
		open.OpenLarge, bySize.OpenSizeLarge = 0.1, 0.1
		without := place(c.cores, plain).Terms
		if more := place(c.cores, open).Terms.Open < without.Open; more != c.more {
			t.Errorf("%d cores beside tasks of 2: with OpenLarge an idle machine counts less: %t, want %t", c.cores, more, c.more)
		}
		if more := place(c.cores, bySize).Terms.Open < without.Open; more != c.more {
			t.Errorf("%d cores beside tasks of 2: with OpenSizeLarge an idle machine counts less: %t, want %t", c.cores, more, c.more)
		}
	}
}

// Of idle machines the small ones are begun first, but for asks of what some machines lack.
func TestSmallOnesFirst(t *testing.T) {
	t.Parallel()
	var machines []placement.Machine
	for i, cores := range []int64{96, 32, 64} {
		machines = append(machines, placement.Machine{
			Name: fmt.Sprintf("m%d", i), Up: true, Capacity: schema.Resources{CPUMilli: cores * 1000, RAMBytes: cores},
			Devices: []placement.Device{{Kind: "gpu", Count: 1}},
		})
	}
	place := func(devices []placement.DeviceAsk, w placement.Weights) placement.Decision {
		s := placement.NewSnapshot(machines, nil)
		s.Configure(placement.Options{Weights: &w})
		return placement.Place(s, []placement.Ask{{
			Name: schema.JobName{Cell: "c", User: "u", Job: "j"}.Task(0), Limit: schema.Resources{CPUMilli: 1000, RAMBytes: 1}, Devices: devices,
		}}, 0)[0]
	}
	with, without := placement.DefaultWeights(), placement.DefaultWeights()
	with.OpenSize, without.OpenSize = 0.5, 0
	if d := place(nil, with); d.Machine != "m1" || d.Why.RunnerUp.Machine != "m2" || d.Why.Score.Terms.Open <= d.Why.RunnerUp.Terms.Open {
		t.Errorf("%+v, then %+v: want the small machine m1, then the middle one m2, since these are small", d.Why.Score, d.Why.RunnerUp)
	}
	gpu := []placement.DeviceAsk{{Kind: "gpu", Count: 1}}
	if a, b := place(gpu, with), place(gpu, without); *a.Why.Score != *b.Why.Score {
		t.Errorf("%+v with OpenSize, %+v without: want the same for an ask for a device", a.Why.Score, b.Why.Score)
	}
}

// ShapeDevices takes the place of Shape in a cell with a device to each two machines: a few machines
// with devices make no other cell of it.
func TestShapeDevices(t *testing.T) {
	t.Parallel()
	shape := func(having int, weight float32) float32 {
		var machines []placement.Machine
		for i := range 8 {
			m := placement.Machine{Name: fmt.Sprintf("m%d", i), Up: true, Capacity: schema.Resources{CPUMilli: 8000, RAMBytes: 8000}}
			if i < having {
				m.Devices = []placement.Device{{Kind: "gpu", Count: 1}}
			}
			machines = append(machines, m)
		}
		w := placement.DefaultWeights()
		w.ShapeDevices = weight
		s := placement.NewSnapshot(machines, nil)
		s.Configure(placement.Options{Weights: &w})
		return placement.Place(s, []placement.Ask{{
			Name: schema.JobName{Cell: "c", User: "u", Job: "j"}.Task(0), Limit: schema.Resources{CPUMilli: 1000, RAMBytes: 1000},
		}}, 0)[0].Why.Score.Terms.Shape
	}
	for having, counts := range map[int]bool{0: false, 3: false, 4: true, 8: true} {
		if differs := shape(having, 4) != shape(having, 1); differs != counts {
			t.Errorf("%d of 8 machines have a device: ShapeDevices counts: %t, want %t", having, differs, counts)
		}
	}
}
