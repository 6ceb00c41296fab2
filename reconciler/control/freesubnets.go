package control

import (
	"hash/fnv"
	"net/netip"
)

// freeSubnets are the subnets of a range that nobody has.
type freeSubnets struct {
	of    subnetRange
	taken map[netip.Prefix]bool // subnets of the range in which somebody has addresses
	wider map[netip.Prefix]bool // what others have that is larger than a subnet of the range
	bits  map[int]bool          // how long prefixes in wider are
	next  map[uint64]uint64     // from subnets that are not free: what is to be looked at then
	full  bool                  // one was looked for, and there is none
}

// newFreeSubnets returns those that are left of a range by what machines have, of any range.
func newFreeSubnets(of subnetRange, had map[netip.Prefix]bool) *freeSubnets {
	f := &freeSubnets{of: of, taken: map[netip.Prefix]bool{}, wider: map[netip.Prefix]bool{}, bits: map[int]bool{}, next: map[uint64]uint64{}}
	for s := range had {
		switch {
		case !s.Overlaps(of.of):
		case s.Bits() < of.bits:
			f.wider[s], f.bits[s.Bits()] = true, true
		default:
			f.taken[netip.PrefixFrom(s.Addr(), of.bits).Masked()] = true
		}
	}
	return f
}

// take returns one, which is another's no more; false if there is none. Where it looks first
// follows from the machine's name, so that one that comes back most often has the same again, and
// that of one that has gone is seldom given to the next.
func (f *freeSubnets) take(machine string) (netip.Prefix, bool) {
	h := fnv.New64a()
	h.Write([]byte(machine))
	count := f.of.count()
	at := h.Sum64() % count
	var passed []uint64
	for range min(count, maxTries) {
		if f.full {
			break
		}
		next, known := f.next[at]
		if s := f.of.subnet(at); !known && !f.taken[s] && !f.covered(s) {
			f.taken[s] = true
			for _, number := range append(passed, at) {
				f.next[number] = (at + 1) % count
			}
			return s, true
		}
		passed = append(passed, at)
		if at = (at + 1) % count; known {
			at = next
		}
	}
	f.full = true
	return netip.Prefix{}, false
}

// covered reports whether a subnet is part of what another has.
func (f *freeSubnets) covered(s netip.Prefix) bool {
	for bits := range f.bits {
		if f.wider[netip.PrefixFrom(s.Addr(), bits).Masked()] {
			return true
		}
	}
	return false
}
