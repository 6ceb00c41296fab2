package nodeagent

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/musterhq/muster/schema"
)

// CoreUse is a task's use of the machine's cores.
type CoreUse struct {
	// Whole is how many cores it has, or shall have, for itself; 0 for a task
	// that shares.
	Whole int
	// Require says that cores of its own must be of one NUMA node.
	Require bool
	// Near says of a task that shares that it shall run on the cores of one NUMA node,
	// as long as these are enough for all that are bound to them.
	Near bool
	// Loose says that it shall not for now, since it had to wait there.
	Loose bool
	// Milli is what a task that shares asks for, in thousandths of a core.
	Milli int64
	// Nodes are the NUMA nodes of its devices, which come first; nil: it has none.
	Nodes []int
	// Left, if not nil, is the NUMA node where it had to wait: any other comes first, and
	// for others, too, as long as it is Loose.
	Left *int
	// Set are the cores that it may run on now, sorted; nil for a task that is
	// not there yet.
	Set []int
}

// bound reports whether it shall share the cores of one node.
func (u *CoreUse) bound() bool { return u.Whole == 0 && u.Near && !u.Loose }

// DivideCores returns the cores that each of uses shall have: those that want whole cores
// get them for themselves, and all others share the rest, on one NUMA node or on all of
// them. A task keeps the cores that it has, as far as nobody before it in the list has
// them, and the node, as long as that has room. It errs, with the index of the first task
// that cannot be served, when there are not enough cores, or none would be left for those
// that share.
//
// Cores of its own are of one node if one has so many, else of few. First come the nodes
// where the task has cores already, then those of its devices, those with memory, and the
// one where the least is left over. In a node the threads of a processor core are kept
// together, and the first one comes last: it takes most of the machine's interrupts. Tasks
// that are bound to a node and share its cores are spread: each gets a node where nobody had
// to wait, and of these the one with the most room, and what they ask for is never more than the node's cores that are shared.
//
// cores are those of the machine, sorted.
func DivideCores(t *Topology, cores []int, uses []CoreUse) (sets [][]int, short int, err error) {
	d := division{topology: t, parts: t.parts(cores), taken: map[int]bool{}}
	sets = make([][]int, len(uses))
	sharing := -1
	for i, u := range uses { // first what is there already
		if u.Whole == 0 {
			sharing = i
			continue
		}
		for _, core := range u.Set {
			if len(u.Set) <= len(cores) && len(sets[i]) < u.Whole && slices.Contains(cores, core) && !d.taken[core] {
				sets[i] = append(sets[i], core)
				d.taken[core] = true
			}
		}
	}
	for i, u := range uses {
		sets[i] = d.whole(&u, sets[i])
		if len(sets[i]) < u.Whole {
			return nil, i, d.lacks(&u, sets[i], len(cores))
		}
		slices.Sort(sets[i])
	}
	shared := d.free(cores)
	if sharing >= 0 && len(shared) == 0 {
		return nil, sharing, fmt.Errorf("no core is left for tasks without cores of their own: all %d are taken", len(cores))
	}
	d.share(uses, sets, shared)
	return sets, -1, nil
}

// division is the state of DivideCores.
type division struct {
	topology *Topology
	parts    []part
	taken    map[int]bool // cores that somebody has for himself
}

// free returns those of the cores that nobody has for himself.
func (d *division) free(cores []int) []int {
	return slices.DeleteFunc(slices.Clone(cores), func(core int) bool { return d.taken[core] })
}

// lacks says what is missing for u, which has got only some cores.
func (d *division) lacks(u *CoreUse, got []int, all int) error {
	left := len(got)
	for i := range d.parts {
		left += len(d.parts[i].free)
	}
	if left >= u.Whole {
		most := slices.MaxFunc(d.parts, func(a, b part) int { return cmp.Compare(len(a.free), len(b.free)) })
		return fmt.Errorf("%d cores of its own, all of one NUMA node (numa: require): %d of the machine's %d are left, at most %d of one node", u.Whole, left, all, len(most.free))
	}
	return fmt.Errorf("%d cores of its own: %d of the machine's %d are left", u.Whole, left, all)
}

// whole returns the cores that u has for itself: those that it has, and what it lacks.
func (d *division) whole(u *CoreUse, has []int) []int {
	for need := u.Whole - len(has); need > 0 && len(d.parts) > 0; need = u.Whole - len(has) {
		for i := range d.parts {
			d.parts[i].free = d.free(d.parts[i].Cores)
		}
		p := slices.MinFunc(d.parts, func(a, b part) int { return d.better(u, has, need, &a, &b) })
		if len(p.free) == 0 || u.Require && len(p.free) < need {
			break
		}
		for range min(need, len(p.free)) {
			core := d.next(&p, has, u.Whole-len(has))
			d.taken[core] = true
			has = append(has, core)
			p.free = d.free(p.free)
		}
	}
	return has
}

// better orders the nodes for a task that has some cores and lacks so many more.
func (d *division) better(u *CoreUse, has []int, need int, a, b *part) int {
	fits := func(p *part) int { return bit(len(p.free) >= need) }
	own := func(p *part) int {
		return bit(slices.ContainsFunc(has, func(core int) bool { return slices.Contains(p.Cores, core) }))
	}
	of := func(p *part) int { return bit(slices.Contains(u.Nodes, p.ID)) }
	left := cmp.Compare(len(a.free), len(b.free)) // the least that is enough, else the most
	if fits(a) == 0 {
		left = -left
	}
	some := cmp.Compare(bit(len(b.free) > 0), bit(len(a.free) > 0))
	if len(has) > 0 && own(a) != own(b) && some == 0 {
		return own(b) - own(a)
	}
	return cmp.Or(some, fits(b)-fits(a), of(b)-of(a), bit(b.Memory > 0)-bit(a.Memory > 0), left, cmp.Compare(b.ID, a.ID))
}

// next returns the core of p that a task gets which has some and lacks so many: one of a
// processor core in which it has others, of one that it can have whole, or of one that is
// divided already.
func (d *division) next(p *part, has []int, need int) int {
	const (
		own = iota
		all
		part
		divide
	)
	best, rank := -1, divide+1
	for _, threads := range d.topology.physical(p.Cores) {
		free := d.free(threads)
		if len(free) == 0 {
			continue
		}
		r := divide
		switch {
		case len(free) < len(threads) && slices.ContainsFunc(threads, func(core int) bool { return slices.Contains(has, core) }):
			r = own
		case len(free) == len(threads) && len(free) <= need:
			r = all
		case len(free) < len(threads):
			r = part
		}
		if r < rank {
			best, rank = free[len(free)-1], r
		}
	}
	return best
}

// share gives those that have no cores of their own the shared ones: of one node, or all.
func (d *division) share(uses []CoreUse, sets [][]int, shared []int) {
	for i := range d.parts {
		p := &d.parts[i]
		p.free = d.free(p.Cores)
		p.room = int64(len(p.free)) * schema.CoreMilli
		for _, u := range uses {
			if u.Loose && u.Left != nil && *u.Left == p.ID {
				p.waits++
			}
		}
	}
	for i := range uses { // first what is there already
		if u := &uses[i]; u.bound() && len(u.Set) > 0 && len(d.parts) > 1 {
			sets[i] = d.bind(u, func(p *part) bool {
				return !slices.ContainsFunc(u.Set, func(core int) bool { return !slices.Contains(p.Cores, core) })
			})
		}
	}
	for i := range uses {
		u := &uses[i]
		if u.bound() && sets[i] == nil && len(d.parts) > 1 {
			sets[i] = d.bind(u, func(*part) bool { return true })
		}
		if u.Whole == 0 && sets[i] == nil {
			sets[i] = shared
		}
	}
}

// bind returns the shared cores of the best node with room for u among those that may
// be; nil if there is none.
func (d *division) bind(u *CoreUse, may func(*part) bool) []int {
	var best *part
	for i := range d.parts {
		p := &d.parts[i]
		if len(p.free) > 0 && p.room >= u.Milli && may(p) && (best == nil || nearer(u, p, best)) {
			best = p
		}
	}
	if best == nil {
		return nil
	}
	best.room -= u.Milli
	best.near++
	return best.free
}

// nearer reports whether a task that shares cores is better off on a than on b.
func nearer(u *CoreUse, a, b *part) bool {
	of := func(p *part) int { return bit(slices.Contains(u.Nodes, p.ID)) }
	left := func(p *part) int { return bit(u.Left != nil && *u.Left == p.ID) }
	return cmp.Or(left(a)-left(b), of(b)-of(a), bit(b.Memory > 0)-bit(a.Memory > 0), cmp.Compare(a.waits, b.waits), cmp.Compare(b.room, a.room), cmp.Compare(a.near, b.near), cmp.Compare(b.ID, a.ID)) < 0
}

// bit is 1 for true.
func bit(b bool) int {
	if b {
		return 1
	}
	return 0
}
