package device

import "slices"

// Device is one device of a machine, and how much of it is free.
type Device struct {
	Kind, Model int16
	Free        int16 // thousandths
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
}

// Matches reports whether a device is of the kind, and of a model that will do.
func (n *Need) Matches(d Device) bool {
	return d.Kind == n.Kind && (n.Models == nil || slices.Contains(n.Models, d.Model))
}

// Exist reports whether there are such devices, free or not.
func Exist(devices []Device, needs []Need) bool {
	for i := range needs {
		have := 0
		for _, d := range devices {
			if needs[i].Matches(d) {
				have++
			}
		}
		if have < needs[i].Count {
			return false
		}
	}
	return true
}

// Pick chooses devices for the needs and appends them to out: of those that
// have room the ones with the least, then the first. It reports false when
// there are not enough.
func Pick(devices []Device, needs []Need, out []Use) ([]Use, bool) {
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

// pickWhole appends the first devices that are free and not chosen before.
func (n *Need) pickWhole(devices []Device, out []Use) []Use {
	before := out
	for k, d := range devices {
		if len(out)-len(before) == n.Count {
			break
		}
		if d.Free == Whole && n.Matches(d) && chosenOf(before, k) == 0 {
			out = append(out, Use{int16(k), Whole})
		}
	}
	return out
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

// Give gives back what is used of devices.
func Give(devices []Device, uses []Use) {
	for _, u := range uses {
		if int(u.Index) < len(devices) {
			devices[u.Index].Free += u.Milli
		}
	}
}
