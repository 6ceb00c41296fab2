package placement_test

import (
	"slices"

	"github.com/musterhq/muster/placement"
)

// first returns the number of the first alternative of devices for which so much of them is enough;
// -1 for none. Without alternatives there is one.
func (o *oracle) first(m placement.Machine, devices []int, a placement.Ask) int {
	return slices.IndexFunc(alternatives(a), func(asks []placement.DeviceAsk) bool { return suffice(m, slices.Clone(devices), asks) })
}

// alternatives returns what an ask wants of devices, by each of its alternatives.
func alternatives(a placement.Ask) (out [][]placement.DeviceAsk) {
	for _, all := range a.FirstOf {
		out = append(out, slices.Concat(a.Devices, all))
	}
	if out == nil {
		out = [][]placement.DeviceAsk{a.Devices}
	}
	return out
}

// suffice reports whether so much of devices is enough, and takes it.
func suffice(m placement.Machine, devices []int, asks []placement.DeviceAsk) bool {
	for _, d := range asks {
		if d.Same != "" { // so many that are free and have one value
			if !mostOfOne(m, d, func(i int) bool { return devices[i] == placement.DeviceMilli }) {
				return false
			}
			continue
		}
		for range d.Count {
			milli := d.Milli
			if milli == 0 {
				milli = placement.DeviceMilli
			}
			best := -1
			for i, f := range devices {
				if f >= milli && wanted(m, d, i) && (best < 0 || f < devices[best]) {
					best = i
				}
			}
			if best < 0 {
				return false
			}
			devices[best] -= milli
		}
	}
	return true
}

func (o *oracle) freeDevices(m placement.Machine, held []placement.Task) []int {
	var free []int
	for _, d := range m.Devices {
		for range d.Count {
			free = append(free, placement.DeviceMilli)
		}
	}
	for _, t := range held {
		for _, u := range t.Devices {
			free[u.Index] -= u.Milli
		}
	}
	return free
}

// has reports whether a machine has all devices of an ask, free or not.
func has(m placement.Machine, a placement.Ask) bool {
	return slices.ContainsFunc(alternatives(a), func(asks []placement.DeviceAsk) bool { return haveAll(m, asks) })
}

func haveAll(m placement.Machine, asks []placement.DeviceAsk) bool {
	return !slices.ContainsFunc(asks, func(d placement.DeviceAsk) bool {
		if d.Same != "" {
			return !mostOfOne(m, d, func(int) bool { return true })
		}
		n := 0
		for i := range flat(m) {
			if wanted(m, d, i) {
				n++
			}
		}
		return n < d.Count
	})
}

// flat returns the devices of a machine one by one.
func flat(m placement.Machine) (all []placement.Device) {
	for _, g := range m.Devices {
		for range g.Count {
			all = append(all, g)
		}
	}
	return all
}

// wanted reports whether a device of a machine is one that is asked for. Constraints of its
// memory are lower bounds.
func wanted(m placement.Machine, d placement.DeviceAsk, i int) bool {
	g := flat(m)[i]
	sizes := map[string]int{"": 0, "8Gi": 8, "16Gi": 16}
	return g.Kind == d.Kind && (d.Models == nil || slices.Contains(d.Models, g.Model)) &&
		!slices.ContainsFunc(d.Constraints, func(c placement.Constraint) bool { return sizes[g.Attributes["memory"]] < sizes[c.Values[0]] })
}

// mostOfOne reports whether enough of the devices that are asked for have one value of the
// attribute that must be the same.
func mostOfOne(m placement.Machine, d placement.DeviceAsk, of func(i int) bool) bool {
	count := map[string]int{}
	for i, g := range flat(m) {
		if v := g.Attributes[d.Same]; v != "" && wanted(m, d, i) && of(i) {
			if count[v]++; count[v] >= d.Count {
				return true
			}
		}
	}
	return false
}
