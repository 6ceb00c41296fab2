package compile

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/musterhq/muster/schema"
)

// A commit may hold the work of many teams. So that none keeps another waiting, and none
// fills the memory of the master, packages are evaluated in turns over those whose they
// are, small ones first, and what is too much is counted for each of these apart. Of a
// commit the outcome is the same whatever the order in which packages were finished, and
// whatever the cache holds: a package is refused for what those before it have used.

// owners says whose a directory is.
type owners struct {
	tenants []schema.Tenant
}

// first reports whether a directory may declare who owns what: it is evaluated before the
// others.
func first(dir string) bool { return dir == "." || below(dir, "cells") }

// ownersOf returns the owners that the packages of units declare, as far as they are in
// the cache.
func ownersOf(cache map[string]*entry, units []*unit) owners {
	var o owners
	for _, u := range units {
		if e := cache[u.key]; first(u.dir) && u.node != nil && e != nil {
			o.tenants = append(o.tenants, e.tenants...)
		}
	}
	return o
}

// of returns the name of who owns a directory: a tenant, nobody, or, where there are no
// tenants, what lies together.
func (o owners) of(dir string) string {
	if first(dir) {
		return dir
	}
	if len(o.tenants) == 0 {
		parts := strings.SplitN(dir, "/", 3)
		return path.Join(parts[:min(2, len(parts))]...)
	}
	owner, longest := "the directories of no tenant", ""
	for i := range o.tenants {
		for _, p := range o.tenants[i].Paths {
			if below(dir, p) && len(p) >= len(longest) {
				owner, longest = fmt.Sprintf("tenant %q", o.tenants[i].Name), p
			}
		}
	}
	return owner
}

// turns sorts units by owner: each owner's small ones first, in an order that depends on
// nothing but the tree.
func (o owners) turns(units []*unit) map[string][]*unit {
	out := map[string][]*unit{}
	for _, u := range units {
		if u.owner = o.of(u.dir); u.node != nil {
			out[u.owner] = append(out[u.owner], u)
		}
	}
	for _, all := range out {
		slices.SortStableFunc(all, func(a, b *unit) int { return cmp.Or(cmp.Compare(a.bytes, b.bytes), strings.Compare(a.dir, b.dir)) })
	}
	return out
}

// interleave returns the units in turns over their owners.
func interleave(turns map[string][]*unit, wanted []*unit) []*unit {
	type turn struct {
		u *unit
		n int
	}
	want := map[*unit]bool{}
	for _, u := range wanted {
		want[u] = true
	}
	var all []turn
	for _, mine := range turns {
		n := 0
		for _, u := range mine {
			if want[u] {
				all = append(all, turn{u, n})
				n++
			}
		}
	}
	slices.SortFunc(all, func(a, b turn) int { return cmp.Or(cmp.Compare(a.n, b.n), strings.Compare(a.u.dir, b.u.dir)) })
	out := make([]*unit, len(all))
	for i := range all {
		out[i] = all[i].u
	}
	return out
}

// cost is what the evaluation of a package took. It is remembered with the outcome, so that what is
// refused for it does not change with the load of the machine, nor with what the cache holds. What is
// allocated is nearly the same on each machine, and grows with nearly all work; the processor time is for
// the rest, and is measured again when the package is evaluated again.
type cost struct {
	CPU    time.Duration `json:"cpu"`
	Allocs int           `json:"allocs"` // bytes
}

// measured is what a child, or a store, says that an evaluation took: neither is trusted.
func measured(cpu time.Duration, allocs int) cost { return cost{max(cpu, 0), max(allocs, 0)} }

// plus returns the sum.
func (c cost) plus(o cost) cost { return cost{c.CPU + o.CPU, c.Allocs + o.Allocs} }

// inMinutes spells a time, in minutes where it is some.
func inMinutes(d time.Duration) string {
	if d >= time.Minute {
		return fmt.Sprintf("%g minutes", d.Minutes())
	}
	return d.String()
}

// beyond says what is as much as all packages of an owner may take, "" if nothing is.
func (c cost) beyond(l Limits) string {
	switch {
	case c.Allocs >= l.OwnerAllocs:
		return fmt.Sprintf("allocate more than %d GiB", l.OwnerAllocs>>30)
	case c.CPU >= l.OwnerCPU:
		return "take more than " + inMinutes(l.OwnerCPU) + " of processor time"
	}
	return ""
}

// usage is what the packages of an owner have used together, as far as is known.
type usage struct {
	tooMuch int // packages that exceed a limit
	bytes   int // of data
	cost    cost
}

// use counts the outcome of a package for its owner. The caller holds b.mu.
func (b *batch) use(u *unit, e *entry) {
	used := b.used[u.owner]
	used.bytes += e.bytes
	used.cost = used.cost.plus(e.cost)
	if e.tooMuch {
		used.tooMuch++
	}
	b.used[u.owner] = used
}

// count begins the usage of a commit with what the cache holds of it.
func (b *batch) count(units []*unit) {
	b.used = map[string]usage{}
	for _, u := range units {
		if e := b.c.cache[u.key]; u.node != nil && e != nil {
			b.use(u, e)
		}
	}
}

// spent says why a package is not to be evaluated, by what those of the same owner before
// it have used as far as is known; nil if it is. The caller holds b.mu.
func (b *batch) spent(u *unit) *schema.Diagnostic {
	if used := b.used[u.owner]; used.tooMuch < maxTooMuch && used.bytes <= b.c.cfg.Limits.OwnerBytes && used.cost.beyond(b.c.cfg.Limits) == "" {
		return nil // however they are ordered
	}
	var t tally
	for _, before := range b.turns[u.owner] {
		if before == u {
			break
		}
		t.add(before, b.c.cache[before.key])
	}
	return b.refuse(t, u)
}

// tally is what the packages of an owner before one have used.
type tally struct {
	over  []*unit // those that exceed a limit
	bytes int     // of data
	cost  cost
	full  string // first file of the first that is refused
	work  string // what its owner's packages before it took too much of, if that is why
}

func (t *tally) add(u *unit, e *entry) {
	if e == nil {
		return
	}
	t.bytes += e.bytes
	t.cost = t.cost.plus(e.cost)
	if e.tooMuch {
		t.over = append(t.over, u)
	}
}

// refuse says why a package is not taken after those of t; nil if it is.
func (b *batch) refuse(t tally, u *unit) *schema.Diagnostic {
	if over := t.over; len(over) >= maxTooMuch {
		d := firstOf(over[maxTooMuch-1].first, schema.RuleLimit, fmt.Sprintf("%d packages of %s exceed the limits of a package, so its larger ones are not compiled", maxTooMuch, u.owner))
		d.Hint = "correct or remove these packages: " + strings.Join([]string{over[0].dir, over[1].dir, over[2].dir}, ", ")
		return &d
	}
	if what := cmp.Or(t.work, t.cost.beyond(b.c.cfg.Limits)); what != "" {
		d := firstOf(cmp.Or(t.full, u.first), schema.RuleLimit, fmt.Sprintf("the packages of %s together %s when they are evaluated, so its larger ones, from this one on, are not compiled", u.owner, what))
		d.Hint = "look for nested comprehensions and large disjunctions, and for a large library: it is evaluated again for each package that imports it"
		return &d
	}
	limit, bytes := b.c.cfg.Limits.OwnerBytes, t.bytes
	if e := b.c.cache[u.key]; e != nil {
		bytes += e.bytes
	}
	if bytes <= limit {
		return nil
	}
	d := firstOf(cmp.Or(t.full, u.first), schema.RuleLimit, fmt.Sprintf("the packages of %s have more than %d MiB of data together, so its larger ones, from this one on, are not compiled", u.owner, limit>>20))
	d.Hint = "declare fewer objects, or shorter ones"
	return &d
}

// refusals returns the packages of the commit that are not to be taken, and why, as far as
// is known.
func (b *batch) refusals() map[*unit]schema.Diagnostic {
	refused := map[*unit]schema.Diagnostic{}
	for _, mine := range b.turns {
		var t tally
		for _, u := range mine {
			if d := b.refuse(t, u); d != nil {
				refused[u], t.full, t.work = *d, cmp.Or(t.full, u.first), cmp.Or(t.work, t.cost.beyond(b.c.cfg.Limits))
			}
			t.add(u, b.c.cache[u.key])
		}
	}
	b.weigh(refused)
	return refused
}

// share is a package and what it and its owner's smaller ones are together, in bytes.
type share struct {
	u           *unit
	bytes, upTo int
}

// weigh refuses further packages when the data of those that are not refused is more than a
// commit may have: again and again the largest one of the owner with the most.
func (b *batch) weigh(refused map[*unit]schema.Diagnostic) {
	var shares []share
	total := 0
	for _, mine := range b.turns {
		var kept []share
		for _, u := range mine {
			if e := b.c.cache[u.key]; e != nil && e.bytes > 0 {
				if _, no := refused[u]; !no {
					kept = append(kept, share{u: u, bytes: e.bytes})
				}
			}
		}
		slices.SortStableFunc(kept, func(x, y share) int { return cmp.Compare(x.bytes, y.bytes) })
		sum := 0
		for i := range kept {
			sum += kept[i].bytes
			kept[i].upTo = sum
		}
		total += sum
		shares = append(shares, kept...)
	}
	slices.SortFunc(shares, func(x, y share) int { return cmp.Or(cmp.Compare(y.upTo, x.upTo), cmp.Compare(x.u.dir, y.u.dir)) })
	limit := b.c.cfg.Limits.CommitBytes
	for _, s := range shares {
		if total <= limit {
			return
		}
		total -= s.bytes
		d := firstOf(s.u.first, schema.RuleLimit, fmt.Sprintf("the commit declares more than %d MiB of data, %s has the most of it, and this package is among its largest, with %d bytes",
			limit>>20, s.u.owner, s.bytes))
		refused[s.u] = withHint(d, "declare fewer objects, or shorter ones")
	}
}

// ended reports whether those that were left have used what a part of a commit has for them. The caller holds b.mu, or
// nobody evaluates.
func (b *batch) ended() bool { return b.pace.parts > 0 && b.wasted >= b.pace.parts }

// expected says how long a package of a directory will take: 0 for little, since the one before did, 1 for nobody
// knows, 2 for long.
func (b *batch) expected(dir string) int {
	switch used, ok := b.c.took[dir]; {
	case !ok:
		return 1
	case used < shortest(b.c.cfg.Limits):
		return 0
	}
	return 2
}

// hurried reports whether a unit has no more time than the pace gives it. What says who owns
// what, everything else depends on.
func (b *batch) hurried(u *unit) bool { return b.pace.slice > 0 && !first(u.dir) }

// tooSlow reports whether a unit is known to take longer than the batch waits.
func (b *batch) tooSlow(u *unit) bool {
	used, ok := b.c.slow[u.key]
	return ok && b.pace.slice > 0 && used >= b.pace.slice && !b.c.flights.landed(u.key)
}

// countSlow counts for their owners the units that are left since they are known to take long.
func (b *batch) countSlow() {
	if b.pace.parts == 0 {
		return
	}
	for u := range b.later {
		if b.tooSlow(u) {
			b.put[u.owner]++
		}
	}
}

// exhausted leaves a unit for later, untried, if the part ends, if so many of its owner are left that the others of it
// are, too, or if its packages, small as each may be, have taken their time. It reports whether it has. The caller
// holds b.mu.
func (b *batch) exhausted(u *unit) bool {
	if !b.hurried(u) || b.c.flights.landed(u.key) {
		return false
	}
	many := b.put[u.owner] >= b.pace.apiece
	if !many && !b.ended() && (!b.others || b.took[u.owner] < b.pace.share) {
		return false
	}
	b.later[u] = true
	if many && b.pace.parts == 0 {
		b.c.slow[u.key] = max(b.c.slow[u.key], b.pace.slice) // until Compile
	}
	return true
}

// putOff leaves a unit for later that has used its time.
func (b *batch) putOff(u *unit) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.later[u], b.c.slow[u.key] = true, max(b.c.slow[u.key], b.pace.slice)
	b.put[u.owner]++
	b.wasted += b.pace.slice
}

// charge counts the processor time of a package for its owner.
func (b *batch) charge(u *unit, used time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.took[u.owner] += used
}
