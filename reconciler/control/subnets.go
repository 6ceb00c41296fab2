package control

import (
	"net/netip"
	"slices"

	"github.com/musterhq/muster/reconciler/intent"
	"github.com/musterhq/muster/schema"
)

// numbered says for what machines have their subnets already.
type numbered struct {
	desired *intent.Desired
	changes int      // see facts.MachinesChangedSince
	short   []string // machines for which no subnet is left
}

// number gives each machine that can give tasks networks a subnet of each of the cell's ranges. It
// has that until it is forgotten. A subnet that is not of the ranges any more is kept as one that
// leaves while tasks may have addresses of it.
func number(p pass, done *numbered) {
	names, next, known := p.MachinesChangedSince(done.changes)
	if done.changes = next; !known || done.desired != p.Desired {
		names = p.Machines()
	}
	done.desired = p.Desired
	if slices.ContainsFunc(names, func(name string) bool { return p.Machine(name) == nil }) { // its subnets are free
		names = slices.Concat(names, done.short)
	}
	names = slices.Compact(slices.Sorted(slices.Values(names)))
	done.short = slices.DeleteFunc(done.short, func(name string) bool { _, again := slices.BinarySearch(names, name); return again })
	a := allotment{pass: p, ranges: subnetRanges(p.Desired.Policy.Network)}
	freed, given := false, false
	for _, name := range names {
		r := p.Machine(name)
		if r == nil {
			continue
		}
		subnets, all := a.subnets(r)
		if !all {
			done.short = append(done.short, name)
		}
		leaving := a.leaving(r, subnets)
		if slices.Equal(subnets, r.Subnets) && slices.Equal(leaving, r.Leaving) {
			continue
		}
		freed = freed || len(subnets)+len(leaving) < len(r.Subnets)+len(r.Leaving)
		given = true
		is := *r
		is.Subnets, is.Leaving = subnets, leaving
		p.SetMachine(name, &is)
	}
	if freed && len(done.short) > 0 { // what is given up in this step is given to another in the next
		done.desired = nil
	}
	if given { // tasks have networks there once that is stored
		p.another()
	}
}

// subnetRange is a range of a cell, and how many leading bits its subnets have.
type subnetRange struct {
	of   netip.Prefix
	bits int
}

// subnetRanges are those that a network, which may be nil, has for tasks, IPv4 first.
func subnetRanges(n *schema.CellNetwork) []subnetRange {
	if n == nil {
		return nil
	}
	v4, v6 := n.Bits()
	return slices.DeleteFunc([]subnetRange{{n.Range, v4}, {n.Range6, v6}}, func(r subnetRange) bool { return !r.of.IsValid() })
}

// has reports whether a subnet is one that machines get of the range.
func (r subnetRange) has(s netip.Prefix) bool {
	return s.Bits() == r.bits && r.of.Contains(s.Addr())
}

// maxTries bounds how long a free subnet is looked for. No cell has so many machines.
const maxTries = 1 << 20

// subnet returns the subnet with a number, which is less than count.
func (r subnetRange) subnet(number uint64) netip.Prefix {
	raw := r.of.Addr().AsSlice()
	for bit := r.bits - 1; number > 0; bit-- {
		raw[bit/8] |= byte(number&1) << (7 - bit%8)
		number >>= 1
	}
	a, _ := netip.AddrFromSlice(raw)
	return netip.PrefixFrom(a, r.bits)
}

// count is how many subnets the range has, 2^32 if they are more.
func (r subnetRange) count() uint64 { return 1 << min(r.bits-r.of.Bits(), 32) }

// allotment gives out subnets.
type allotment struct {
	pass
	ranges []subnetRange
	free   map[subnetRange]*freeSubnets // of each range; nil: not found out yet
}

// subnets returns those of a machine: what it has already, of what the cell's ranges are, and
// new ones; not all if there is not one of each range for a machine that is to have them. What
// leaves is taken back if it is of a range again.
func (a *allotment) subnets(r *schema.MachineRecord) (is []netip.Prefix, all bool) {
	all = true
	can := r.Attributes[schema.HasOwnNetwork] == "true" && r.Forgotten == nil
	for _, of := range a.ranges {
		had := slices.Concat(r.Subnets, r.Leaving)
		if i := slices.IndexFunc(had, of.has); i >= 0 {
			is = append(is, had[i])
			continue
		}
		if !can {
			continue
		}
		if s, ok := a.unused(of, r.Name); ok {
			is = append(is, s)
		} else {
			all = false
		}
	}
	return is, all
}

// unused returns a subnet of a range that nobody has; false if there is none.
func (a *allotment) unused(of subnetRange, name string) (netip.Prefix, bool) {
	if a.free == nil {
		a.free = map[subnetRange]*freeSubnets{}
		had := map[netip.Prefix]bool{}
		for other := range a.Base.Machines {
			for _, r := range []*schema.MachineRecord{a.Base.Machines[other], a.Machine(other)} { // as stored, and as about to be
				if r == nil {
					continue
				}
				for _, s := range slices.Concat(r.Subnets, r.Leaving) {
					had[s] = true
				}
			}
		}
		for _, of := range a.ranges {
			a.free[of] = newFreeSubnets(of, had)
		}
	}
	return a.free[of].take(name)
}

// leaving returns what a machine had that is none of its subnets any more, as far as tasks may
// have addresses of it.
func (a *allotment) leaving(r *schema.MachineRecord, subnets []netip.Prefix) []netip.Prefix {
	var out []netip.Prefix
	for _, s := range slices.Concat(r.Subnets, r.Leaving) {
		if !slices.Contains(subnets, s) && !slices.Contains(out, s) && a.used(r, s) {
			out = append(out, s)
		}
	}
	return out
}

// used reports whether a task on a machine may have an address of a subnet: it has said so, or its
// agent has not said so yet.
func (a *allotment) used(r *schema.MachineRecord, subnet netip.Prefix) bool {
	last := a.Observed.Last(r.Name)
	if last == nil || !a.IsUp(r.Name) {
		return true
	}
	for i := range last.Report.Tasks {
		t := &last.Report.Tasks[i]
		if t.State != schema.Dead && slices.ContainsFunc(t.Own.At(), subnet.Contains) {
			return true
		}
	}
	for _, key := range a.Base.ChunksOn(r.Name) {
		for i := range a.Base.Chunks[key].Tasks {
			t := &a.Base.Chunks[key].Tasks[i]
			if t.Machine != r.Name || !t.OwnNetwork {
				continue
			}
			if s := a.Observed.Status(r.Name, key.Job.Task(t.Index), t.Generation); s == nil || s.State != schema.Dead && len(s.Own.At()) == 0 {
				return true
			}
		}
	}
	return false
}
