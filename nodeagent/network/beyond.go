package network

import (
	"net/netip"
	"slices"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"

	"github.com/musterhq/muster/nodeagent/network/netfilter"
)

// beyondRanges returns the subnets with routes that are not of the cell's ranges any more, and of which
// tasks may still have addresses: what is sent between these, and from and to others, keeps its source.
func beyondRanges(routes []route, ranges []netip.Prefix) []netip.Prefix {
	var out []netip.Prefix
	for _, r := range routes {
		if !slices.ContainsFunc(ranges, func(p netip.Prefix) bool { return p.Bits() <= r.to.Bits() && p.Overlaps(r.to) }) {
			out = append(out, r.to)
		}
	}
	return out // in the order of routes, which is that of their addresses
}

// span is addresses from one on, and before another; that is invalid if there is none after them.
type span struct{ from, before netip.Addr }

// spans returns the addresses of subnets of one family, which are in order: those that follow each other,
// or overlap, are one span, since an interval of nftables must not begin before or where another ends.
func spans(subnets []netip.Prefix, v4 bool) []span {
	var out []span
	for _, s := range subnets {
		if s.Addr().Is4() != v4 {
			continue
		}
		is := span{s.Addr(), after(s)}
		n := len(out)
		if n == 0 || out[n-1].before.IsValid() && out[n-1].before.Less(is.from) {
			out = append(out, is)
		} else if was := &out[n-1].before; was.IsValid() && (!is.before.IsValid() || was.Less(is.before)) {
			*was = is.before
		}
	}
	return out
}

// after returns the first address after a subnet; invalid if there is none.
func after(s netip.Prefix) netip.Addr {
	last := s.Addr().AsSlice()
	mask := netOf(s).Mask
	for i := range last {
		last[i] |= ^mask[i]
	}
	a, _ := netip.AddrFromSlice(last)
	return a.Next()
}

// unlessBeyond makes a set of the subnets beyond the ranges, of one family, and returns what matches
// packets that are not for one of them; nothing if there are none.
func unlessBeyond(c *nftables.Conn, t *nftables.Table, beyond []netip.Prefix, v4 bool) ([]expr.Any, error) {
	list := spans(beyond, v4)
	if len(list) == 0 {
		return nil, nil
	}
	set := &nftables.Set{Table: t, Name: "beyond6", KeyType: nftables.TypeIP6Addr, Interval: true}
	if v4 {
		set.Name, set.KeyType = "beyond4", nftables.TypeIPAddr
	}
	if err := c.AddSet(set, nil); err != nil {
		return nil, err
	}
	var elements []nftables.SetElement
	for _, s := range list {
		elements = append(elements, nftables.SetElement{Key: s.from.AsSlice()})
		if s.before.IsValid() {
			elements = append(elements, nftables.SetElement{Key: s.before.AsSlice(), IntervalEnd: true})
		}
	}
	for part := range slices.Chunk(elements, netfilter.PerMessage) {
		if err := c.SetAddElements(set, part); err != nil {
			return nil, err
		}
	}
	size, offset := uint32(16), uint32(24) // of the destination in the header of IPv6
	if v4 {
		size, offset = 4, 16
	}
	return []expr.Any{
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: offset, Len: size},
		&expr.Lookup{SourceRegister: 1, SetName: set.Name, SetID: set.ID, Invert: true},
	}, nil
}
