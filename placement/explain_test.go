package placement_test

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/musterhq/muster/placement"
	"github.com/musterhq/muster/schema"
)

// relationsOf returns the relations of an ask, which may have none.
func relationsOf(a placement.Ask) *placement.Relations {
	if a.Relations == nil {
		return &placement.Relations{}
	}
	return a.Relations
}

// shortfall returns what a machine is short of for an ask, as a share of the
// ask, if less of the ask's limit is all it takes.
func (o *oracle) shortfall(m placement.Machine, a placement.Ask) (less schema.Resources, weight float64, ok bool) {
	if !o.admits(m, a) {
		return less, 0, false
	}
	free := m.Capacity
	for _, h := range o.on(m.Name) {
		use := h.Limit
		if !a.Priority.Prod() && h.Reservation != (schema.Resources{}) {
			use = h.Reservation
		}
		free = free.Sub(use)
	}
	short := func(limit, free int64) int64 {
		if limit <= free {
			return 0
		}
		if free <= 0 {
			ok = false // to ask for nothing is no change of an ask
		}
		weight += float64(limit-free) / float64(limit)
		return limit - free
	}
	ok = true
	less.CPUMilli = short(a.Limit.CPUMilli, free.CPUMilli)
	less.RAMBytes = short(a.Limit.RAMBytes, free.RAMBytes)
	less.DiskBytes = short(a.Limit.DiskBytes, free.DiskBytes)
	a.Limit = a.Limit.Sub(less)
	return less, weight, ok && weight > 0 && o.fits(m, o.on(m.Name), a)
}

// relaxed is an ask without one of its requirements, or without some of those of others.
type relaxed struct {
	placement.Ask
	tolerant bool
	forgives func(*placement.Affinity) bool // anti-affinity of others; nil for none
}

// feasibleTo lists the machines that have room for a relaxed ask.
func (o *oracle) feasibleTo(r relaxed) []string {
	with := *o
	with.forgives, with.tolerant = r.forgives, r.tolerant
	return with.feasible(r.Ask)
}

// without lists the ask less one requirement each, by what it is called.
func without(a placement.Ask) map[string]relaxed {
	out := map[string]relaxed{"taints": {Ask: a, tolerant: true}, "the anti-affinity of other tasks": {Ask: a, forgives: func(*placement.Affinity) bool { return true }}}
	for i, c := range a.Constraints {
		b := a
		b.Constraints = slices.Delete(slices.Clone(a.Constraints), i, i+1)
		out[c.String()] = relaxed{Ask: b}
	}
	for i, all := range a.AnyOf {
		for k := range all {
			b := a
			b.AnyOf = slices.Clone(a.AnyOf)
			if b.AnyOf[i] = slices.Delete(slices.Clone(all), k, k+1); len(all) > 1 {
				out[fmt.Sprintf("%v in anyOf[%d]", all[k], i)] = relaxed{Ask: b}
			}
		}
	}
	if len(a.AnyOf) > 0 {
		b := a
		b.AnyOf = nil
		out["anyOf"] = relaxed{Ask: b}
	}
	for i, l := range a.PerDomain {
		b := a
		b.PerDomain = slices.Delete(slices.Clone(a.PerDomain), i, i+1)
		out[fmt.Sprintf("at most %d per %s", l.Max, l.Attribute)] = relaxed{Ask: b}
	}
	for i, d := range a.Devices {
		b := a
		b.Devices = slices.Delete(slices.Clone(a.Devices), i, i+1)
		out[d.String()] = relaxed{Ask: b}
	}
	if len(a.PortNumbers) > 0 {
		b := a
		b.PortNumbers = nil
		out["the numbers of ports"] = relaxed{Ask: b}
	}
	if len(a.Ports) > 0 {
		b := a
		b.Ports, b.PortNumbers = nil, nil
		out["ports"] = relaxed{Ask: b}
	}
	for i := range a.MaxSkew {
		b := a
		b.MaxSkew = slices.Delete(slices.Clone(a.MaxSkew), i, i+1)
		out[a.MaxSkew[i].String()] = relaxed{Ask: b}
	}
	for i := range relationsOf(a).Affinity {
		if f := &a.Relations.Affinity[i]; f.Weight == 0 {
			b, r := a, *a.Relations
			r.Affinity = slices.Delete(slices.Clone(r.Affinity), i, i+1)
			b.Relations = &r
			out["affinity to "+f.Text()] = relaxed{Ask: b}
		}
	}
	for i := range relationsOf(a).AntiAffinity {
		f := &a.Relations.AntiAffinity[i]
		if f.Weight != 0 {
			continue
		}
		b, r := a, *a.Relations
		r.AntiAffinity = slices.Delete(slices.Clone(r.AntiAffinity), i, i+1)
		b.Relations = &r
		w := relaxed{Ask: b}
		if picks(f, a.Name.User, &a) { // nor do its own tasks mind then
			w.forgives = func(o *placement.Affinity) bool { return o.Text() == f.Text() && o.User == f.User }
		}
		out["anti-affinity to "+f.Text()] = w
	}
	if len(a.Avoid) > 0 {
		b := a
		b.Avoid = nil
		out["avoiding machines on which it crashed"] = relaxed{Ask: b}
	}
	if a.FirstOf != nil {
		b := a
		b.FirstOf = nil
		out["firstOf"] = relaxed{Ask: b}
	}
	return out
}

// checkChange compares the smallest change with the best of all changes.
func (o *oracle) checkChange(t *rapid.T, a placement.Ask, change *placement.Change) {
	least := math.Inf(1)
	for _, m := range o.machines {
		if _, w, ok := o.shortfall(m, a); ok {
			least = min(least, w)
		}
	}
	if !math.IsInf(least, 1) {
		if change == nil || change.Without != "" {
			t.Fatalf("%v: the change is %v, but %v of the limit less would do", a.Name, change, least)
		}
		got := 0.0
		for _, d := range schema.Dimensions() {
			if n := change.Less.Of(d); n > 0 {
				got += float64(n) / float64(a.Limit.Of(d))
			}
		}
		if math.Abs(got-least) > 1e-6 {
			t.Fatalf("%v: %v of the limit less is said, %v would do", a.Name, got, least)
		}
		a.Limit = a.Limit.Sub(change.Less)
		if fits := o.feasible(a); len(fits) != change.Machines {
			t.Fatalf("%v: said is %v, but then it fits on %v", a.Name, change, fits)
		}
		return
	}
	most, called := 0, ""
	changed := without(a)
	for what, b := range changed {
		if n := len(o.feasibleTo(b)); n > most {
			most, called = n, what
		}
	}
	switch {
	case change == nil && most > 0:
		t.Fatalf("%v: no change is said, but without %s it fits on %d", a.Name, called, most)
	case change == nil:
	case change.Machines != most:
		t.Fatalf("%v: said is %v, but without %s it fits on %d", a.Name, change, called, most)
	case len(o.feasibleTo(changed[change.Without])) != most:
		t.Fatalf("%v: said is %v, but that fits on %v", a.Name, change, o.feasibleTo(changed[change.Without]))
	}
}

// What Explain and Verdict say of asks that nobody placed agrees with the
// oracle, machine by machine.
func TestExplainAgainstOracle(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		c := drawCell(t)
		s, o := c.snapshot(placement.Options{}), newOracle(c.machines, c.tasks)
		for _, a := range c.asks {
			feasible := o.feasible(a)
			why := s.Explain(a)
			if why.Machines != len(c.machines) || why.Feasible != len(feasible) {
				t.Fatalf("%v: %d of %d machines are said to fit, but %v of %d do", a.Name, why.Feasible, why.Machines, feasible, len(c.machines))
			}
			counts := map[placement.Reason]int{}
			for _, m := range c.machines {
				v, ok := s.Verdict(a, m.Name)
				if !ok || (v.Reason == "") != slices.Contains(feasible, m.Name) || (v.Score != nil) != (v.Reason == "") {
					t.Fatalf("%v on %s: %+v, but it fits on %v", a.Name, m.Name, v, feasible)
				}
				counts[v.Reason]++
			}
			for _, r := range why.Refused {
				if counts[r.Reason] != r.Machines {
					t.Fatalf("%v: %d machines are counted for %q, but %d say so", a.Name, r.Machines, r.Reason, counts[r.Reason])
				}
				delete(counts, r.Reason)
			}
			if delete(counts, ""); len(counts) > 0 {
				t.Fatalf("%v: reasons that are not counted: %v", a.Name, counts)
			}
			if len(feasible) == 0 {
				o.checkChange(t, a, why.Change)
			}
		}
	})
}
