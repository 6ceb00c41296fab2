package placement_test

import (
	"fmt"
	"testing"

	"github.com/musterhq/muster/placement"
	"github.com/musterhq/muster/schema"
)

// TestOrderOfDevices: hundreds of asks of which some want devices are decided in the order in which
// they come where all find room so, and largest first where they do not.
func TestOrderOfDevices(t *testing.T) {
	t.Parallel()
	machines := func(n int, gpus ...int) (out []placement.Machine) {
		for i := range n {
			for _, g := range gpus {
				out = append(out, placement.Machine{
					Name: fmt.Sprintf("m%03d-%d", i, g), Up: true, Capacity: schema.Resources{CPUMilli: 64_000, RAMBytes: 1 << 38},
					Devices: []placement.Device{{Kind: "gpu", Count: g}},
				})
			}
		}
		return out
	}
	ask := func(i, count, milli int) placement.Ask {
		return placement.Ask{
			Name: schema.JobName{Cell: "c", User: "u", Job: fmt.Sprintf("j%03d", i)}.Task(0), Limit: schema.Resources{CPUMilli: 100, RAMBytes: 1},
			Devices: []placement.DeviceAsk{{Kind: "gpu", Count: count, Milli: milli}},
		}
	}
	place := func(m []placement.Machine, asks []placement.Ask, oneByOne bool) (decisions []placement.Decision, pending int) {
		s := placement.NewSnapshot(m, nil)
		s.Configure(placement.Options{OneByOne: oneByOne})
		decisions = placement.Place(s, asks, 1)
		for _, d := range decisions {
			if d.Machine == "" {
				pending++
			}
		}
		if !s.CountsFill() {
			t.Error("what is kept of how full the cell is is not what its tasks say")
		}
		return decisions, pending
	}

	var mixed []placement.Ask
	for i := range 100 {
		mixed = append(mixed, ask(3*i, 1, 300), ask(3*i+1, 2, 0), ask(3*i+2, 1, 0))
	}
	got, pending := place(machines(30, 4, 8), mixed, false)
	want, _ := place(machines(30, 4, 8), mixed, true)
	if pending > 0 || len(got) != len(want) {
		t.Fatalf("%d of %d decided, %d pending: want all, and none", len(got), len(want), pending)
	}
	for i := range got {
		if got[i].Name != want[i].Name {
			t.Fatalf("decision %d is of %v, one by one of %v", i, got[i].Name, want[i].Name)
		}
	}

	var rising []placement.Ask // the largest last, for which what is small leaves no room
	for i := range 300 {
		a := ask(i, 1, 100)
		a.Limit.CPUMilli = 1000 + int64(i*i)*40_000/300/300
		rising = append(rising, a)
	}
	if _, pending := place(machines(75, 8), rising, true); pending == 0 {
		t.Fatal("one by one all find room: this shows nothing")
	}
	if _, pending := place(machines(75, 8), rising, false); pending > 0 {
		t.Errorf("%d are pending: want none, since largest first all find room", pending)
	}
}

// TestRoomInOnePiece: hundreds of asks of which some want devices, and that all find room, leave machines
// of which all devices are free: what comes later may want them all.
func TestRoomInOnePiece(t *testing.T) {
	t.Parallel()
	var machines []placement.Machine
	for i := range 40 {
		machines = append(machines, placement.Machine{
			Name: fmt.Sprintf("m%03d", i), Up: true, Capacity: schema.Resources{CPUMilli: 64_000, RAMBytes: 1 << 38},
			Devices: []placement.Device{{Kind: "gpu", Count: 8}},
		})
	}
	wanted := 0 // thousandths of devices
	var asks []placement.Ask
	for i := range 300 {
		a := placement.Ask{Name: schema.JobName{Cell: "c", User: "u", Job: fmt.Sprintf("j%03d", i)}.Task(0)}
		a.Limit = schema.Resources{CPUMilli: 1000 + int64(i*7919%5000), RAMBytes: 1 << (28 + i%4)}
		switch i % 3 {
		case 0:
			a.Devices = []placement.DeviceAsk{{Kind: "gpu", Milli: 300}}
			wanted += 300
		case 1:
			a.Devices = []placement.DeviceAsk{{Kind: "gpu", Count: 1 + i%2}}
			wanted += 1000 * (1 + i%2)
		}
		asks = append(asks, a)
	}
	free := len(machines)
	used := map[string]bool{}
	for _, d := range placement.Place(placement.NewSnapshot(machines, nil), asks, 1) {
		if d.Machine == "" {
			t.Fatalf("%v finds no room", d.Name)
		}
		if len(d.Devices) > 0 && !used[d.Machine] {
			used[d.Machine] = true
			free--
		}
	}
	if least := len(machines) - (wanted+7999)/8000 - 2; free < least {
		t.Errorf("all devices of %d machines are free: want at least %d", free, least)
	}
}
