package services

import (
	"cmp"
	"net/netip"
	"slices"
)

// Service is what connections to some virtual addresses are to find.
type Service struct {
	// Key names it, and is unique.
	Key string
	// Addresses are its virtual addresses. If another service has one too, then the one
	// whose Key is first in order has it alone.
	Addresses []netip.Addr
	Ports     []Port
	// Sticky sends a client to the same backend, as long as that is one.
	Sticky bool
	// PreferLocal sends connections to backends on this machine only, while there are any.
	PreferLocal bool
}

// Port is a port of a service.
type Port struct {
	Protocol Protocol
	Port     uint16
	// Backends are where new connections go; without any of the address's family they are
	// refused.
	Backends []Backend
}

// Backend is where connections may go.
type Backend struct {
	At     netip.AddrPort
	Weight int // with 0 or less, nothing is sent there
	// Local says that it is on this machine.
	Local bool
}

// Protocol is a transport protocol, by its number in IP headers.
type Protocol uint8

// The protocols that services have.
const (
	TCP Protocol = 6
	UDP Protocol = 17
)

// Front is a port of a virtual address.
type Front struct {
	Address  netip.Addr
	Protocol Protocol
	Port     uint16
}

// Compare orders fronts.
func (f Front) Compare(g Front) int {
	return cmp.Or(f.Address.Compare(g.Address), cmp.Compare(f.Protocol, g.Protocol), cmp.Compare(f.Port, g.Port))
}

// Pick is how a slot is picked.
type Pick struct {
	V6     bool
	Sticky bool
	Slots  uint32 // how many there are, at least 1
}

// Slot is one of the slots of a front, and where it leads.
type Slot struct {
	Front Front
	Index uint32 // from 0 on
	At    netip.AddrPort
}

// Picked is how a slot of a front is picked.
type Picked struct {
	Front Front
	Pick  Pick
}

// Pool is what the kernel has for a front.
type Pool struct {
	Sticky bool
	Slots  []netip.AddrPort // never empty
}

func (p Pool) pick(f Front) Pick {
	return Pick{V6: f.Address.Is6(), Sticky: p.Sticky, Slots: uint32(len(p.Slots))}
}

// State is what the kernel has. The zero State is an empty table.
type State struct {
	// Addresses are all virtual addresses. What is sent to one of them, and not to one of
	// its fronts with a pool, is refused.
	Addresses map[netip.Addr]struct{}
	Pools     map[Front]Pool
	// Picks are the ways that there are to pick a slot: at least those of Pools.
	Picks map[Pick]struct{}
	// Hairpins are the local addresses that may be sent connections that come from themselves.
	Hairpins map[netip.Addr]struct{}
}

// Change leads from one State to another. What is removed is removed first: a changed element
// is in both.
type Change struct {
	RemoveFronts, AddFronts       []Picked
	RemoveSlots, AddSlots         []Slot
	RemoveAddresses, AddAddresses []netip.Addr
	RemoveHairpins, AddHairpins   []netip.Addr
	RemovePicks, AddPicks         []Pick
}

// Empty reports whether there is nothing to change.
func (c *Change) Empty() bool { return c.Size() == 0 }

// Size returns how many elements and chains are removed and added.
func (c *Change) Size() int {
	return len(c.RemoveFronts) + len(c.AddFronts) + len(c.RemoveSlots) + len(c.AddSlots) +
		len(c.RemoveAddresses) + len(c.AddAddresses) + len(c.RemoveHairpins) + len(c.AddHairpins) +
		len(c.RemovePicks) + len(c.AddPicks)
}

// pool appends what makes one pool of another; either may have no slots.
func (c *Change) pool(f Front, old, now Pool) {
	was, is := len(old.Slots) > 0, len(now.Slots) > 0
	if !was || !is || old.pick(f) != now.pick(f) {
		if was {
			c.RemoveFronts = append(c.RemoveFronts, Picked{f, old.pick(f)})
		}
		if is {
			c.AddFronts = append(c.AddFronts, Picked{f, now.pick(f)})
		}
	}
	for i := range max(len(old.Slots), len(now.Slots)) {
		had, has := i < len(old.Slots), i < len(now.Slots)
		if had && has && old.Slots[i] == now.Slots[i] {
			continue
		}
		if had {
			c.RemoveSlots = append(c.RemoveSlots, Slot{f, uint32(i), old.Slots[i]})
		}
		if has {
			c.AddSlots = append(c.AddSlots, Slot{f, uint32(i), now.Slots[i]})
		}
	}
}

func sorted[K comparable, V any](m map[K]V, compare func(a, b K) int) []K {
	out := make([]K, 0, len(m))
	for k := range m {
		out = append(out, k)
	}
	slices.SortFunc(out, compare)
	return out
}
