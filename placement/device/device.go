package device

import (
	"cmp"
	"slices"
)

// Device is one device of a machine, and how much of it is free.
type Device struct {
	Kind, Model int16
	Free        int16 // thousandths
	Set         int32 // the number of its attributes; 0 for none
}

// Whole is all of one, in thousandths.
const Whole = 1000

// Use is so much of the device with an index.
type Use struct{ Index, Milli int16 }

// Need is what is asked of devices, made ready to be asked of many machines.
type Need struct {
	Kind   int16
	Models []int16 // nil for any
	Count  int
	Milli  int16
	// Suits reports whether attributes with a number will do; nil if any will.
	Suits func(set int32) bool
	// Near return the value of something that a device has, as a number, 0 for none: several
	// whole devices should all have the same value, of the first if there are enough, else of
	// the next.
	Near []func(d Device) int32
	// Same is true if they must, of the first.
	Same bool
}

// Matches reports whether a device is of the kind, and of a model and with attributes that
// will do.
func (n *Need) Matches(d Device) bool { return n.named(d) && (n.Suits == nil || n.Suits(d.Set)) }

// named is Matches whatever the attributes.
func (n *Need) named(d Device) bool {
	return d.Kind == n.Kind && (n.Models == nil || slices.Contains(n.Models, d.Model))
}

// Choice is lists of needs, in the order in which they are preferred: a machine gives devices for
// the first for which it has enough. nil asks for none.
type Choice [][]Need

// Exist returns the number of the first list for which there are devices, free or not; -1 for
// none.
func (c Choice) Exist(devices []Device) int {
	return slices.IndexFunc(c, func(needs []Need) bool { return exist(devices, needs) })
}

func exist(devices []Device, needs []Need) bool {
	for i := range needs {
		if _, _, together := needs[i].Tally(devices); together < needs[i].Count {
			return false
		}
	}
	return true
}

// Tally counts the devices, free or not, that are of the kind and a model that will do, those of
// them that match, and of these the ones that can be had together: all, or if they must have
// the same value of an attribute, as many as have one.
func (n *Need) Tally(devices []Device) (named, match, together int) {
	for k, d := range devices {
		if !n.named(d) {
			continue
		}
		named++
		if !n.Matches(d) {
			continue
		}
		match++
		if n.Same && n.Count > 1 {
			together = max(together, n.withValue(devices[:k+1], n.Near[0](d)))
		} else {
			together = match
		}
	}
	return named, match, together
}

// Match counts the devices, free or not, that will do for any need.
func (c Choice) Match(devices []Device) (count int) {
	for _, d := range devices {
		if slices.ContainsFunc(c, func(needs []Need) bool { return slices.ContainsFunc(needs, func(n Need) bool { return n.Matches(d) }) }) {
			count++
		}
	}
	return count
}

// withValue counts the devices that match and have a value of the first attribute in which
// they should be near.
func (n *Need) withValue(devices []Device, value int32) (count int) {
	for _, d := range devices {
		if value != 0 && n.Near[0](d) == value && n.Matches(d) {
			count++
		}
	}
	return count
}

// Pick chooses devices for the first list for which there are enough and appends them to out, in
// the order of its needs: of those that have room the ones with the least, then the first, and
// several whole ones near each other. It reports false when there are not enough for any.
func (c Choice) Pick(devices []Device, out []Use) ([]Use, bool) {
	_, out, ok := c.pick(devices, out)
	return out, ok || c == nil
}

// Free returns the number of the list for which Pick chooses devices; -1 for none.
func (c Choice) Free(devices []Device) int {
	var room [16]Use
	if which, _, ok := c.pick(devices, room[:0]); ok {
		return which
	}
	return -1
}

func (c Choice) pick(devices []Device, out []Use) (which int, uses []Use, ok bool) {
	before := len(out)
	for i, needs := range c {
		if out, ok = pick(devices, needs, out[:before]); ok {
			return i, out, true
		}
	}
	return -1, out, false
}

// Least returns the lists with those first that want the least.
func (c Choice) Least() Choice {
	if len(c) < 2 {
		return c
	}
	out := slices.Clone(c)
	slices.SortStableFunc(out, func(a, b []Need) int { return cmp.Compare(Choice{a}.Milli(0), Choice{b}.Milli(0)) })
	return out
}

// With returns what both want together: of each the list that wants the least.
func (c Choice) With(other Choice) Choice {
	if len(c) == 0 || len(other) == 0 {
		return slices.Concat(c, other)
	}
	return Choice{slices.Concat(c.Least()[0], other.Least()[0])}
}

// Chosen returns the number of the first list that uses of devices, as Pick chose them, suffice for;
// -1 if the devices have become others.
func (c Choice) Chosen(devices []Device, uses []Use) int {
	return slices.IndexFunc(c, func(needs []Need) bool {
		left := uses
		for i := range needs {
			n := &needs[i]
			if len(left) < n.Count || !n.suffice(devices, left[:n.Count]) {
				return false
			}
			left = left[n.Count:]
		}
		return len(left) == 0
	})
}

// suffice reports whether uses of devices are what is needed.
func (n *Need) suffice(devices []Device, uses []Use) bool {
	for _, u := range uses {
		if int(u.Index) >= len(devices) || u.Milli != n.Milli || !n.Matches(devices[u.Index]) {
			return false
		}
		if of := devices[u.Index]; n.Same && n.Count > 1 && (n.Near[0](of) == 0 || n.Near[0](of) != n.Near[0](devices[uses[0].Index])) {
			return false
		}
	}
	return true
}

// Milli is how much of devices is asked for, in thousandths of one: by the list with a number.
func (c Choice) Milli(which int) (milli int) {
	if which >= 0 && which < len(c) {
		for _, n := range c[which] {
			milli += int(n.Milli) * n.Count
		}
	}
	return milli
}

func pick(devices []Device, needs []Need, out []Use) ([]Use, bool) {
	for i := range needs {
		n := &needs[i]
		had := len(out)
		if n.Milli == Whole {
			out = n.pickWhole(devices, out)
		} else if best := n.pickShare(devices, out); best >= 0 {
			out = append(out, Use{int16(best), n.Milli})
		}
		if len(out)-had < n.Count {
			return out, false
		}
	}
	return out, true
}

// pickWhole appends devices that are free and not chosen before: those that are near each
// other, else the first.
func (n *Need) pickWhole(devices []Device, out []Use) []Use {
	if n.Count > 1 {
		for _, of := range n.Near {
			if value := n.tightest(devices, out, of); value != 0 {
				return n.pickFirst(devices, out, func(d Device) bool { return of(d) == value })
			}
			if n.Same {
				return out
			}
		}
	}
	return n.pickFirst(devices, out, nil)
}

// pickFirst appends the first devices of some that are free and not chosen before.
func (n *Need) pickFirst(devices []Device, out []Use, of func(Device) bool) []Use {
	before := out
	for k, d := range devices {
		if len(out)-len(before) == n.Count {
			break
		}
		if n.isFree(d, k, before) && (of == nil || of(d)) {
			out = append(out, Use{int16(k), Whole})
		}
	}
	return out
}

func (n *Need) isFree(d Device, k int, before []Use) bool {
	return d.Free == Whole && n.Matches(d) && chosenOf(before, k) == 0
}

// tightest returns the value that enough free devices have and the fewest, the first of
// such; 0 for none.
func (n *Need) tightest(devices []Device, before []Use, of func(Device) int32) (best int32) {
	least := len(devices) + 1
	for _, d := range devices {
		value := of(d)
		if value == 0 || value == best {
			continue
		}
		count := 0
		for k, o := range devices {
			if of(o) == value && n.isFree(o, k, before) {
				count++
			}
		}
		if count >= n.Count && count < least {
			best, least = value, count
		}
	}
	return best
}

// pickShare returns the device with the least room that suffices, or -1.
func (n *Need) pickShare(devices []Device, chosen []Use) int {
	best := -1
	var least int16
	for k, d := range devices {
		if !n.Matches(d) {
			continue
		}
		if free := d.Free - chosenOf(chosen, k); free >= n.Milli && (best < 0 || free < least) {
			best, least = k, free
		}
	}
	return best
}

// chosenOf returns how much of a device was chosen before.
func chosenOf(chosen []Use, device int) (milli int16) {
	for _, u := range chosen {
		if int(u.Index) == device {
			milli += u.Milli
		}
	}
	return milli
}

// HasFree reports whether so much of devices is free.
func HasFree(devices []Device, uses []Use) bool {
	for i, u := range uses {
		if devices[u.Index].Free < u.Milli+chosenOf(uses[:i], int(u.Index)) {
			return false
		}
	}
	return true
}

// Give gives back what is used of devices.
func Give(devices []Device, uses []Use) {
	for _, u := range uses {
		if int(u.Index) < len(devices) {
			devices[u.Index].Free += u.Milli
		}
	}
}
