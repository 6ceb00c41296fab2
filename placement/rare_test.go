package placement_test

import (
	"fmt"
	"testing"

	"github.com/musterhq/muster/placement"
	"github.com/musterhq/muster/schema"
)

// TestRareIsFound: what one of 400 machines has is found by an ask that wishes for it,
// also where only some of the machines are examined.
func TestRareIsFound(t *testing.T) {
	t.Parallel()
	for _, x := range []struct {
		machines, others int // asks that want nothing special
		change           func(a *placement.Ask)
	}{
		{2000, 0, wishesForFast},
		{2000, 0, wantsTool},
		{2000, 4000, wishesForFast},
		{2000, 4000, wantsTool},
		{10_000, 0, wishesForFast},
		{10_000, 0, wantsTool},
		{10_000, 4000, shunsSlow},
	} {
		machines := make([]placement.Machine, x.machines)
		for i := range machines {
			m := placement.Machine{
				Name: fmt.Sprintf("m%05d", i), Up: true, Capacity: schema.Resources{CPUMilli: 64_000, RAMBytes: 64 << 30},
				Attributes: map[string]string{"rack": fmt.Sprintf("r%03d", i/40), "disk": "slow"},
			}
			if i%400 == 399 {
				m.Attributes["disk"], m.Packages = "fast", []string{"tool"}
			}
			machines[i] = m
		}
		s := placement.NewSnapshot(machines, nil)
		var asks []placement.Ask
		for i := range 20 + x.others {
			a := placement.Ask{
				Name: schema.JobName{Cell: "c", User: "u", Job: fmt.Sprintf("j%05d", i)}.Task(0), Priority: 200,
				Limit: schema.Resources{CPUMilli: 1000 + int64(i), RAMBytes: 1 << 30},
			}
			if i < 20 {
				x.change(&a)
			}
			asks = append(asks, a)
		}
		// Each alone, then one whole job, which shares its candidates.
		found := 0
		for _, d := range placement.Place(s, asks, 1) {
			var i, on int
			if _, err := fmt.Sscanf(d.Name.Job+d.Machine, "j%05dm%05d", &i, &on); err != nil {
				t.Fatalf("%v has no machine", d.Name)
			}
			if i < 20 && on%400 == 399 {
				found++
			}
		}
		if found != 20 {
			t.Errorf("%d machines, %d other asks: %d of 20 got what they wished for", x.machines, x.others, found)
		}
		job := make([]placement.Ask, 20)
		for i := range job {
			job[i] = asks[0]
			job[i].Name = schema.JobName{Cell: "c", User: "u", Job: "whole"}.Task(i)
			job[i].Spread = placement.NoSpread
		}
		if d := placement.Place(s, job, 1)[0]; d.Why.Score.Terms.Wish+d.Why.Score.Terms.Packages != 0 {
			t.Errorf("%d machines: the first of a job is on %s: %+v", x.machines, d.Machine, d.Why.Score.Terms)
		}
	}
}

func wishesForFast(a *placement.Ask) {
	a.Preferences = []placement.Preference{{Constraint: placement.Constraint{Attribute: "disk", Op: placement.OpIn, Values: []string{"fast"}}, Weight: 100}}
}

func shunsSlow(a *placement.Ask) {
	a.Preferences = []placement.Preference{{Constraint: placement.Constraint{Attribute: "disk", Op: placement.OpIn, Values: []string{"slow"}}, Weight: -5}}
}

func wantsTool(a *placement.Ask) { a.Packages = []string{"tool"} }

// TestDevicesAreLookedFor: where an eighth of the asks want devices, all machines are examined, and the
// machine is chosen among all, also for hundreds of asks on hundreds of machines.
func TestDevicesAreLookedFor(t *testing.T) {
	t.Parallel()
	var machines []placement.Machine
	for i := range 600 {
		machines = append(machines, placement.Machine{
			Name: fmt.Sprintf("m%05d", i), Up: true, Capacity: schema.Resources{CPUMilli: 32_000 + int64(i*7919%600)*100, RAMBytes: 64 << 30},
			Devices: []placement.Device{{Kind: "gpu", Count: 1 + i*31%8}},
		})
	}
	var asks []placement.Ask
	for i := range 800 {
		a := placement.Ask{
			Name:  schema.JobName{Cell: "c", User: "u", Job: fmt.Sprintf("j%05d", i)}.Task(0),
			Limit: schema.Resources{CPUMilli: 1000 + int64(i), RAMBytes: 1 << 30},
		}
		if i%8 == 0 {
			a.Devices = []placement.DeviceAsk{{Kind: "gpu", Count: 1 + i/8%4}}
		}
		asks = append(asks, a)
	}
	place := func(o placement.Options) []placement.Decision {
		s := placement.NewSnapshot(machines, nil)
		s.Configure(o)
		return placement.Place(s, asks, 1)
	}
	got, want := place(placement.Options{OneByOne: true}), place(placement.Options{OneByOne: true, NoRelaxed: true})
	for i := range want {
		if got[i].Name != want[i].Name || got[i].Machine != want[i].Machine {
			t.Fatalf("decision %d is %v on %s: want %v on %s", i, got[i].Name, got[i].Machine, want[i].Name, want[i].Machine)
		}
	}
}
