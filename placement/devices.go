package placement

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/musterhq/muster/placement/device"
	"github.com/musterhq/muster/placement/layers"
	"github.com/musterhq/muster/schema"
)

// deviceKinds numbers the kinds and models of devices, and what attributes they have.
type deviceKinds struct {
	layers.Index[string, int16]
	// sets are the attributes that some device has or had, numbered from 1, and setIDs their
	// numbers.
	sets   layers.Table[map[string]string]
	setIDs layers.Index[string, int32]
}

func newDeviceKinds() deviceKinds {
	return deviceKinds{Index: layers.NewIndex[string, int16](0), setIDs: layers.NewIndex[string, int32](0)}
}

func (k *deviceKinds) fork() deviceKinds {
	return deviceKinds{k.Fork(), k.sets.Fork(), k.setIDs.Fork()}
}

func (k *deviceKinds) parts() []layers.Part { return []layers.Part{&k.Index, &k.sets, &k.setIDs} }

// number returns the number of a kind or model.
func (k *deviceKinds) number(name string) int16 {
	id, ok := k.Get(name)
	if !ok {
		id = int16(k.Len())
		k.Set(name, id)
	}
	return id
}

// set returns the number of attributes, 0 for none.
func (k *deviceKinds) set(attributes map[string]string) int32 {
	if len(attributes) == 0 {
		return 0
	}
	var key []byte
	for _, name := range slices.Sorted(maps.Keys(attributes)) {
		key = appendStrings(key, name, attributes[name])
	}
	id, ok := k.setIDs.Get(string(key))
	if !ok {
		id = k.sets.Add(attributes) + 1
		k.setIDs.Set(string(key), id)
	}
	return id
}

// attribute returns the value of an attribute in a numbered set, "" without one.
func (k *deviceKinds) attribute(set int32, name string) string {
	if set == 0 {
		return ""
	}
	return (*k.sets.At(set - 1))[name]
}

// list appends groups of devices one by one, all of which are free.
func (k *deviceKinds) list(out []device.Device, groups []Device) []device.Device {
	for _, g := range groups {
		d := device.Device{Kind: k.number(g.Kind), Model: k.number("model " + g.Model), Free: DeviceMilli, Set: k.set(g.Attributes)}
		for range g.Count {
			out = append(out, d)
		}
	}
	return out
}

// needs makes asks for devices ready to be asked of many machines, as of choice.
func (k *deviceKinds) needs(asks []DeviceAsk) []device.Need {
	var out []device.Need
	for _, a := range asks {
		n := device.Need{Kind: k.number(a.Kind), Count: max(a.Count, 1), Milli: a.milli()}
		for _, m := range a.Models {
			n.Models = append(n.Models, k.number("model "+m))
		}
		slices.Sort(n.Models)
		n.Models = slices.Compact(n.Models)
		if len(a.Constraints) > 0 {
			n.Suits = k.suits(a.Constraints)
		}
		switch n.Same = a.Same != ""; {
		case n.Count == 1:
		case n.Same:
			n.Near = []func(device.Device) int32{k.sameness(a.Same)}
		default:
			n.Near = []func(device.Device) int32{k.valuesOf(schema.DeviceLink), k.valuesOf(schema.DeviceNUMA)}
		}
		out = append(out, n)
	}
	return out
}

// choice makes what an ask wants of devices ready to be asked of many machines, by one goroutine at
// a time.
func (k *deviceKinds) choice(a *Ask) device.Choice {
	if !a.wantsDevices() {
		return nil
	}
	if len(a.FirstOf) == 0 {
		return device.Choice{k.needs(a.Devices)}
	}
	out := make(device.Choice, 0, len(a.FirstOf))
	for _, all := range a.FirstOf {
		out = append(out, k.needs(slices.Concat(a.Devices, all)))
	}
	return out
}

// suits returns whether constraints hold of numbered attributes. It remembers what it found.
func (k *deviceKinds) suits(all []Constraint) func(set int32) bool {
	var ok []bool
	return func(set int32) bool {
		for next := int32(len(ok)); next <= set; next++ {
			ok = append(ok, !slices.ContainsFunc(all, func(c Constraint) bool { return !c.holdsOf(k.attribute(next, c.Attribute)) }))
		}
		return ok[set]
	}
}

// sameness returns the value, as a number, of what devices must have the same of: an attribute,
// or the model, which is none of them; 0 for none.
func (k *deviceKinds) sameness(of string) func(device.Device) int32 {
	if of != schema.DeviceModel {
		return k.valuesOf(of)
	}
	none := k.number("model ")
	return func(d device.Device) int32 {
		if d.Model == none {
			return 0
		}
		return int32(d.Model) + 1
	}
}

// valuesOf returns the value of an attribute of a device, as a number; 0 for none. It
// remembers what it found.
func (k *deviceKinds) valuesOf(attribute string) func(device.Device) int32 {
	known, numbers := []int32{0}, map[string]int32{"": 0}
	return func(d device.Device) int32 {
		for next := int32(len(known)); next <= d.Set; next++ {
			v := k.attribute(next, attribute)
			if _, ok := numbers[v]; !ok {
				numbers[v] = int32(len(numbers))
			}
			known = append(known, numbers[v])
		}
		return known[d.Set]
	}
}

// milli returns what is asked of each device.
func (d DeviceAsk) milli() int16 {
	if d.Milli <= 0 || d.Milli > DeviceMilli || d.Count > 1 {
		return DeviceMilli
	}
	return int16(d.Milli)
}

// withLeastDevices returns asks of which the alternatives that want the least of devices come first, and whether
// that changes any.
func withLeastDevices(asks []Ask) (out []Ask, changed bool) {
	much := func(alternative []DeviceAsk) (milli int) {
		for i := range alternative {
			milli += int(alternative[i].milli()) * max(alternative[i].Count, 1)
		}
		return milli
	}
	byMuch := func(a, b []DeviceAsk) int { return cmp.Compare(much(a), much(b)) }
	out = slices.Clone(asks)
	for i := range out {
		if a := &out[i]; !slices.IsSortedFunc(a.FirstOf, byMuch) {
			a.FirstOf, changed = slices.Clone(a.FirstOf), true
			slices.SortStableFunc(a.FirstOf, byMuch)
		}
	}
	return out, changed
}

// wantsDevices reports whether an ask is for devices, of one alternative at least.
func (a *Ask) wantsDevices() bool { return len(a.Devices)+len(a.FirstOf) > 0 }

// preferred returns the devices that are asked for by the first alternative.
func (a *Ask) preferred() []DeviceAsk {
	if len(a.FirstOf) == 0 {
		return a.Devices
	}
	return slices.Concat(a.Devices, a.FirstOf[0])
}

// firstDevice is the first of preferred, nil for none.
func (a *Ask) firstDevice() *DeviceAsk {
	switch {
	case len(a.Devices) > 0:
		return &a.Devices[0]
	case len(a.FirstOf) > 0 && len(a.FirstOf[0]) > 0:
		return &a.FirstOf[0][0]
	}
	return nil
}

// devices returns how much of devices is asked for, in thousandths of one: by the first
// alternative.
func (a *Ask) devices() (milli int64) {
	for _, d := range a.preferred() {
		milli += int64(d.milli()) * int64(max(d.Count, 1))
	}
	return milli
}

// Chosen returns which of the alternatives of devices a task has got on a machine with such
// devices, counted from 0; -1 if there are none, or if the devices have become others.
func Chosen(a *Ask, groups []Device, uses []DeviceUse) int {
	if len(a.FirstOf) == 0 {
		return -1
	}
	k := newDeviceKinds()
	return k.choice(a).Chosen(k.list(nil, groups), devicesOf(uses))
}

// pick chooses devices for an ask on a machine of which some are free: those that it had there, or else as Choice.Pick does.
func (a *Ask) pick(needs device.Choice, machine string, devices []device.Device) []device.Use {
	if a.Had.On == machine {
		uses := devicesOf(a.Had.Devices)
		if needs.Chosen(devices, uses) >= 0 && device.HasFree(devices, uses) {
			return uses
		}
	}
	uses, _ := needs.Pick(devices, nil)
	return uses
}

// devicesOf returns what a task has of devices as the snapshot holds it.
func devicesOf(uses []DeviceUse) []device.Use {
	out := make([]device.Use, 0, len(uses))
	for _, u := range uses {
		out = append(out, device.Use{Index: int16(u.Index), Milli: int16(u.Milli)})
	}
	return out
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
	if len(d.Constraints) > 0 {
		s += " with " + d.conditions()
	}
	if d.Same != "" {
		s += " of one " + d.Same
	}
	return s
}

// conditions returns the constraints in words: "memory >= 40Gi and ecc=on".
func (d DeviceAsk) conditions() string {
	words := make([]string, len(d.Constraints))
	for i, c := range d.Constraints {
		words[i] = c.String()
	}
	return strings.Join(words, " and ")
}

// Alternative returns what an ask wants of devices by an alternative, in words: "1 gpu of A100", or
// "no devices".
func Alternative(a *Ask, which int) string {
	return cmp.Or(listOf(slices.Concat(a.Devices, a.FirstOf[which])), "no devices")
}

// listOf returns device asks in words: "1 gpu of A100 and 1 nic".
func listOf(asks []DeviceAsk) string {
	words := make([]string, 0, len(asks))
	for _, d := range asks {
		words = append(words, d.String())
	}
	return strings.Join(words, " and ")
}

// lackOf says what of the devices that are asked for a machine does not have, free or not: "" if it
// is the kind itself.
func lackOf(devices []device.Device, needs device.Choice, a *Ask) string {
	if len(a.FirstOf) == 0 {
		return lackOfOne(devices, needs[0], a.Devices)
	}
	var all []string
	for i, alternative := range a.FirstOf {
		asks := slices.Concat(a.Devices, alternative)
		if lack := strings.TrimPrefix(cmp.Or(lackOfOne(devices, needs[i], asks), "none"), "have "); !slices.Contains(all, lack) {
			all = append(all, lack)
		}
	}
	if len(all) == 1 && all[0] == "none" {
		return ""
	}
	return "lack the devices of each alternative (" + strings.Join(all, "; ") + ")"
}

// lackOfOne is lackOf for one alternative.
func lackOfOne(devices []device.Device, needs []device.Need, asks []DeviceAsk) string {
	for i := range needs {
		n, d := &needs[i], &asks[i]
		named, match, together := n.Tally(devices)
		switch {
		case together >= n.Count:
			continue
		case named < n.Count:
			return tooFew(devices, n, d, named)
		case match == 0:
			return "have " + d.Kind + " but none with " + d.conditions()
		case match < n.Count:
			return "have " + d.Kind + " but fewer than " + strconv.Itoa(n.Count) + " with " + d.conditions()
		}
		return "have " + d.Kind + " but not " + d.String()
	}
	return ""
}

// tooFew says that a machine has fewer devices of a kind, or of its models, than are asked for.
func tooFew(devices []device.Device, n *device.Need, d *DeviceAsk, named int) string {
	ofKind := 0
	for _, x := range devices {
		if x.Kind == n.Kind {
			ofKind++
		}
	}
	models := strings.Join(d.Models, "|")
	switch {
	case ofKind == 0:
		return ""
	case named == 0:
		return "have " + d.Kind + " but none of " + models
	case models != "":
		return "have only " + strconv.Itoa(named) + " " + d.Kind + " of " + models
	}
	return "have only " + strconv.Itoa(named) + " " + d.Kind
}
