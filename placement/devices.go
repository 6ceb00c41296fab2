package placement

import (
	"slices"
	"strings"
)

// need is a DeviceAsk made ready to be asked of many machines.
type need struct {
	kind   int16
	models []int16 // nil for any
	count  int
	milli  int16
}

// number returns the number of a device kind or model.
func (s *Snapshot) number(name string) int16 {
	id, ok := s.kinds.Get(name)
	if !ok {
		id = int16(s.kinds.Len())
		s.kinds.Set(name, id)
	}
	return id
}

// setDevices lists the devices of a machine one by one.
func (s *Snapshot) setDevices(slot int32) {
	n := s.nodes.Edit(slot)
	n.devices = n.devices[:0]
	for _, g := range n.Devices {
		for range g.Count {
			n.devices = append(n.devices, device{s.number(g.Kind), s.number("model " + g.Model), DeviceMilli})
		}
	}
}

func (s *Snapshot) needs(asks []DeviceAsk) []need {
	var out []need
	for _, a := range asks {
		n := need{kind: s.number(a.Kind), count: max(a.Count, 1), milli: a.milli()}
		for _, m := range a.Models {
			n.models = append(n.models, s.number("model "+m))
		}
		slices.Sort(n.models)
		n.models = slices.Compact(n.models)
		out = append(out, n)
	}
	return out
}

// milli returns what is asked of each device.
func (d DeviceAsk) milli() int16 {
	if d.Milli <= 0 || d.Milli > DeviceMilli || d.Count > 1 {
		return DeviceMilli
	}
	return int16(d.Milli)
}

func (n *need) matches(d device) bool {
	return d.kind == n.kind && (n.models == nil || slices.Contains(n.models, d.model))
}

// exist reports whether the machine has such devices, free or not.
func (n *node) exist(needs []need) bool {
	for i := range needs {
		have := 0
		for _, d := range n.devices {
			if needs[i].matches(d) {
				have++
			}
		}
		if have < needs[i].count {
			return false
		}
	}
	return true
}

// pick chooses devices for the needs and appends them to out: of those that
// have room the ones with the least, then the first. It reports false when
// there are not enough.
func pick(devices []device, needs []need, out []deviceUse) ([]deviceUse, bool) {
	for i := range needs {
		n := &needs[i]
		had := len(out)
		if n.milli == DeviceMilli {
			out = n.pickWhole(devices, out)
		} else if best := n.pickShare(devices, out); best >= 0 {
			out = append(out, deviceUse{int16(best), n.milli})
		}
		if len(out)-had < n.count {
			return out, false
		}
	}
	return out, true
}

// pickWhole appends the first devices that are free and not chosen before.
func (n *need) pickWhole(devices []device, out []deviceUse) []deviceUse {
	before := out
	for k, d := range devices {
		if len(out)-len(before) == n.count {
			break
		}
		if d.free == DeviceMilli && n.matches(d) && chosenOf(before, k) == 0 {
			out = append(out, deviceUse{int16(k), DeviceMilli})
		}
	}
	return out
}

// pickShare returns the device with the least room that suffices, or -1.
func (n *need) pickShare(devices []device, chosen []deviceUse) int {
	best := -1
	var least int16
	for k, d := range devices {
		if !n.matches(d) {
			continue
		}
		if free := d.free - chosenOf(chosen, k); free >= n.milli && (best < 0 || free < least) {
			best, least = k, free
		}
	}
	return best
}

// chosenOf returns how much of a device was chosen before.
func chosenOf(chosen []deviceUse, device int) (milli int16) {
	for _, u := range chosen {
		if int(u.index) == device {
			milli += u.milli
		}
	}
	return milli
}

// uses returns the devices that a task gets.
func (n *node) uses(chosen []deviceUse) []DeviceUse {
	var out []DeviceUse
	for _, u := range chosen {
		kind, at := "", int(u.index)
		for _, g := range n.Devices {
			if at < g.Count {
				kind = g.Kind
				break
			}
			at -= g.Count
		}
		out = append(out, DeviceUse{Kind: kind, Index: int(u.index), Milli: int(u.milli)})
	}
	return out
}

// String returns the device ask in words: "2 gpu of T4|A10", "300 gpu milli".
func (d DeviceAsk) String() string {
	s := itoa(max(d.Count, 1)) + " " + d.Kind
	if d.Milli > 0 && d.Milli < DeviceMilli {
		s = itoa(d.Milli) + " " + d.Kind + " milli"
	}
	if len(d.Models) > 0 {
		s += " of " + strings.Join(d.Models, "|")
	}
	return s
}
