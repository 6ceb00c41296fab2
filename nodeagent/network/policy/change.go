package policy

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
)

// Guard is where packets to an address are decided upon.
type Guard struct {
	Address netip.Addr
	To      string
}

// PortGuard is where packets to a port are decided upon.
type PortGuard struct {
	Port
	To string
}

// Source is an address that a group has.
type Source struct {
	Group   string
	Address netip.Addr
}

// Change leads from one State to another. What is removed is removed first: a changed element is in
// both. Sources of groups that are removed are not listed.
type Change struct {
	RemoveGuards, AddGuards   []Guard
	RemovePorts, AddPorts     []PortGuard
	RemoveSelves, AddSelves   []netip.Addr
	RemoveSources, AddSources []Source
	RemoveGroups, AddGroups   []string
	// Ranges are groups that stay and have other ranges.
	Ranges []string
	// From and To are numbers of the states that it leads from and to, of those of one Follower; 0 is that of none.
	From, To uint64
}

// Size returns how many elements and chains are removed and added.
func (c *Change) Size() int {
	return len(c.RemoveGuards) + len(c.AddGuards) + len(c.RemovePorts) + len(c.AddPorts) + len(c.RemoveSelves) + len(c.AddSelves) +
		len(c.RemoveSources) + len(c.AddSources) + len(c.RemoveGroups) + len(c.AddGroups) + len(c.Ranges)
}

// Difference returns what leads from a state to another, in order.
func Difference(have, want State) Change {
	c := betweenGuards(have, want)
	for _, name := range slices.Sorted(maps.Keys(have.Groups)) {
		if _, stays := want.Groups[name]; !stays {
			c.RemoveGroups = append(c.RemoveGroups, name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(want.Groups)) {
		c.group(name, have.Groups, want.Groups[name])
	}
	return c
}

// betweenGuards is Difference but for groups.
func betweenGuards(have, want State) Change {
	var c Change
	c.RemoveGuards, c.AddGuards = difference(have.Guards, want.Guards, netip.Addr.Compare, func(a netip.Addr, to string) Guard { return Guard{a, to} })
	c.RemovePorts, c.AddPorts = difference(have.Ports, want.Ports, Port.compare, func(p Port, to string) PortGuard { return PortGuard{p, to} })
	c.RemoveSelves, c.AddSelves = difference(have.Selves, want.Selves, netip.Addr.Compare, func(a netip.Addr, _ struct{}) netip.Addr { return a })
	return c
}

// group adds what leads to a group from one of several that there were.
func (c *Change) group(name string, before map[string]Group, is Group) {
	was, there := before[name]
	switch {
	case !there:
		c.AddGroups = append(c.AddGroups, name)
	case !slices.Equal(was.Ranges, is.Ranges):
		c.Ranges = append(c.Ranges, name)
	}
	remove, add := difference(was.Sources, is.Sources, netip.Addr.Compare, func(a netip.Addr, _ struct{}) Source { return Source{name, a} })
	c.RemoveSources, c.AddSources = append(c.RemoveSources, remove...), append(c.AddSources, add...)
}

// compare orders ports.
func (p Port) compare(o Port) int {
	return cmp.Or(p.Address.Compare(o.Address), cmp.Compare(p.Protocol, o.Protocol), cmp.Compare(p.Port, o.Port))
}

// difference returns what of a map is removed and added to make it another, in the order of keys.
func difference[K comparable, V comparable, T any](have, want map[K]V, compare func(K, K) int, item func(K, V) T) (remove, add []T) {
	for _, k := range slices.SortedFunc(maps.Keys(have), compare) {
		if v, stays := want[k]; !stays || v != have[k] {
			remove = append(remove, item(k, have[k]))
		}
	}
	for _, k := range slices.SortedFunc(maps.Keys(want), compare) {
		if v, there := have[k]; !there || v != want[k] {
			add = append(add, item(k, want[k]))
		}
	}
	return remove, add
}
