package packages

import (
	"iter"
	"slices"

	"github.com/musterhq/muster/placement/layers"
)

// Held numbers packages, and says which machines hold those that few do.
type Held struct {
	ids     layers.Index[string, int32]
	holders layers.Index[int32, holders] // by package
}

// All are all machines, with the numbers of the packages that each holds, sorted.
type All = iter.Seq2[int32, []int32]

// NewHeld returns that no machine holds any.
func NewHeld() Held {
	return Held{layers.NewIndex[string, int32](0), layers.NewIndex[int32, holders](0)}
}

// Fork returns the same for a fork of the snapshot; from then on they share it.
func (k *Held) Fork() Held { return Held{k.ids.Fork(), k.holders.Fork()} }

// Len returns how many packages have a number, whoever still holds them.
func (k *Held) Len() int { return k.ids.Len() }

// Parts is what a snapshot shares with its forks.
func (k *Held) Parts() []layers.Part { return []layers.Part{&k.ids, &k.holders} }

// holders are the machines that hold a package.
type holders struct {
	n     int32
	slots []int32 // nil while there are more than mostHolders; never written in place
}

// mostHolders is how many machines may hold a package so that they are listed. Of what
// half as many hold, a sample of the machines has some in a cell of any usual size.
const mostHolders = 512

// Set has a machine hold packages in place of those that it held, and returns their numbers,
// sorted.
func (k *Held) Set(slot int32, was []int32, names []string, all All) []int32 {
	now := k.NumbersOf(names)
	for _, p := range was {
		if _, stays := slices.BinarySearch(now, p); !stays {
			k.unhold(p, slot, all)
		}
	}
	for _, p := range now {
		if _, had := slices.BinarySearch(was, p); had {
			continue
		}
		h, _ := k.holders.Get(p)
		if h.n++; int(h.n) == len(h.slots)+1 && h.n <= mostHolders {
			h.slots = append(slices.Clip(h.slots), slot)
		} else {
			h.slots = nil
		}
		k.holders.Set(p, h)
	}
	return now
}

// unhold takes a machine, which does not hold a package any more, from its holders.
func (k *Held) unhold(p, slot int32, all All) {
	h, _ := k.holders.Get(p)
	h.n--
	switch {
	case h.n == 0:
		k.holders.Remove(p)
		return
	case h.slots != nil:
		h.slots = slices.DeleteFunc(slices.Clone(h.slots), func(x int32) bool { return x == slot })
	case h.n == mostHolders/2: // few again
		for i, holds := range all {
			if _, found := slices.BinarySearch(holds, p); found && i != slot {
				h.slots = append(h.slots, i)
			}
		}
	}
	k.holders.Set(p, h)
}

// Rare appends the machines that hold a package, if few do.
func (k *Held) Rare(p int32, slots []int32) []int32 {
	if h, _ := k.holders.Get(p); h.n <= mostHolders/2 { // below which they are listed always
		slots = append(slots, h.slots...)
	}
	return slots
}

// NumbersOf returns the numbers of packages, sorted, each once.
func (k *Held) NumbersOf(names []string) []int32 {
	var ids []int32
	for _, name := range names {
		id, ok := k.ids.Get(name)
		if !ok {
			id = int32(k.ids.Len())
			k.ids.Set(name, id)
		}
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

// Lacking returns the share of the packages that a machine has to fetch which holds some.
func Lacking(holds, packages []int32) float32 {
	missing := 0
	for _, p := range packages {
		if _, found := slices.BinarySearch(holds, p); !found {
			missing++
		}
	}
	return float32(missing) / float32(len(packages))
}
