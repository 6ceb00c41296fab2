package placement

import (
	"slices"
	"strconv"
	"strings"

	"github.com/musterhq/muster/placement/device"
	"github.com/musterhq/muster/placement/layers"
)

// deviceKinds numbers the kinds and models of devices.
type deviceKinds struct {
	layers.Index[string, int16]
}

// number returns the number of a kind or model.
func (k *deviceKinds) number(name string) int16 {
	id, ok := k.Get(name)
	if !ok {
		id = int16(k.Len())
		k.Set(name, id)
	}
	return id
}

// list appends groups of devices one by one, all of which are free.
func (k *deviceKinds) list(out []device.Device, groups []Device) []device.Device {
	for _, g := range groups {
		for range g.Count {
			out = append(out, device.Device{Kind: k.number(g.Kind), Model: k.number("model " + g.Model), Free: DeviceMilli})
		}
	}
	return out
}

// needs makes asks for devices ready to be asked of many machines.
func (k *deviceKinds) needs(asks []DeviceAsk) []device.Need {
	var out []device.Need
	for _, a := range asks {
		n := device.Need{Kind: k.number(a.Kind), Count: max(a.Count, 1), Milli: a.milli()}
		for _, m := range a.Models {
			n.Models = append(n.Models, k.number("model "+m))
		}
		slices.Sort(n.Models)
		n.Models = slices.Compact(n.Models)
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

// usesOf returns the devices that a task gets of groups of them.
func usesOf(groups []Device, chosen []device.Use) []DeviceUse {
	var out []DeviceUse
	for _, u := range chosen {
		kind, at := "", int(u.Index)
		for _, g := range groups {
			if at < g.Count {
				kind = g.Kind
				break
			}
			at -= g.Count
		}
		out = append(out, DeviceUse{Kind: kind, Index: int(u.Index), Milli: int(u.Milli)})
	}
	return out
}

// String returns the device ask in words: "2 gpu of T4|A10", "300 gpu milli".
func (d DeviceAsk) String() string {
	s := strconv.Itoa(max(d.Count, 1)) + " " + d.Kind
	if d.Milli > 0 && d.Milli < DeviceMilli {
		s = strconv.Itoa(d.Milli) + " " + d.Kind + " milli"
	}
	if len(d.Models) > 0 {
		s += " of " + strings.Join(d.Models, "|")
	}
	return s
}
