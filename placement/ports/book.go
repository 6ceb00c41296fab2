package ports

import (
	"hash/fnv"
	"slices"
)

// Book is which ports of a machine are taken, whoever has them.
type Book struct {
	Taken []uint16 // sorted
	again []uint16 // those of taken that have more than one holder, once for each more; sorted
}

// Reset has all ports be free.
func (b *Book) Reset() { b.Taken, b.again = b.Taken[:0], b.again[:0] }

// Detach gives a copy lists of its own, which are written to in place.
func (b *Book) Detach() { b.Taken, b.again = slices.Clone(b.Taken), slices.Clone(b.again) }

// Has reports whether a port is taken.
func (b *Book) Has(p uint16) bool {
	_, taken := slices.BinarySearch(b.Taken, p)
	return taken
}

// HasAny reports whether one of some ports is taken.
func (b *Book) HasAny(list []uint16) bool {
	for _, p := range list {
		if b.Has(p) {
			return true
		}
	}
	return false
}

// Free returns how many ports of a range are free; 0 if there is none (first is 0).
func (b *Book) Free(first, last int) int32 {
	if first == 0 {
		return 0
	}
	from, _ := slices.BinarySearch(b.Taken, uint16(first))
	to, taken := slices.BinarySearch(b.Taken, uint16(last))
	if taken {
		to++
	}
	return int32(last - first + 1 - (to - from))
}

// Take gives a port one holder more: a task, or another program.
func (b *Book) Take(p int) {
	at, held := slices.BinarySearch(b.Taken, uint16(p))
	if !held {
		b.Taken = slices.Insert(b.Taken, at, uint16(p))
		return
	}
	at, _ = slices.BinarySearch(b.again, uint16(p))
	b.again = slices.Insert(b.again, at, uint16(p))
}

// Give takes one holder from a port.
func (b *Book) Give(p int) {
	if at, more := slices.BinarySearch(b.again, uint16(p)); more {
		b.again = slices.Delete(b.again, at, at+1)
	} else if at, held := slices.BinarySearch(b.Taken, uint16(p)); held {
		b.Taken = slices.Delete(b.Taken, at, at+1)
	}
}

// Choose returns numbers for the zeros of a list: free ports of a range, searching from a start
// that depends on a name and a seed, so that a port that was just released or refused is
// rarely the next one given. The range has as many that are free.
func (b *Book) Choose(list []int, first, last int, name string, seed uint64) {
	h := fnv.New64a()
	h.Write([]byte(name))
	count := uint64(last - first + 1)
	at := (h.Sum64() ^ seed) % count
	for i := range list {
		for list[i] == 0 {
			port := first + int(at)
			at = (at + 1) % count
			if !b.Has(uint16(port)) && !slices.Contains(list, port) {
				list[i] = port
			}
		}
	}
}
