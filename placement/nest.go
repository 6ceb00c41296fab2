package placement

import (
	"github.com/musterhq/muster/placement/layout"
	"github.com/musterhq/muster/placement/tournament"
	"github.com/musterhq/muster/schema"
)

// nest is the outer domains over which a class spreads before it does so over others in each:
// with what is wanted in them, or nested.
type nest struct {
	outer, inner *layout.Column // the same if nothing is nested
	targets      []Target
	of           []int32 // outer domain, by inner one
	wanted       []int32 // see tournament.Outer
}

// isFlat reports whether nothing is nested: tasks are spread over the outer domains only.
func (n *nest) isFlat() bool { return n != nil && n.inner == n.outer }

// update takes over the domains that there are by now.
func (n *nest) update() {
	for v := len(n.of); v < len(n.inner.Values); v++ {
		outer, _, _ := schema.Unnest(n.inner.Values[v])
		id, _ := n.outer.ID(outer)
		n.of = append(n.of, id)
	}
	if len(n.targets) == 0 {
		return
	}
	for v := len(n.wanted); v < len(n.outer.Values); v++ {
		n.wanted = append(n.wanted, tournament.NoTarget)
		for _, t := range n.targets {
			if t.Value == n.outer.Values[v] {
				n.wanted[v] = int32(t.Tasks)
			}
		}
	}
}

// over returns what domains are ranked by, of a job whose tasks are counted by outer domain.
func (n *nest) over(tally *tournament.Tally) *tournament.Outer {
	n.update()
	return &tournament.Outer{Of: n.of, Tally: tally, Wanted: n.wanted}
}

// load returns the load of the outer domain that a machine is in, if that has so many tasks.
func (n *nest) load(slot, tasks int32) int32 {
	n.update()
	o := tournament.Outer{Wanted: n.wanted}
	return o.Load(n.outer.At[slot], tasks)
}

// wantedIn returns how many tasks are wanted in an outer domain, -1 if nothing is said of it.
func (n *nest) wantedIn(value int32) int {
	if n == nil || len(n.targets) == 0 {
		return -1
	}
	n.update()
	return int(n.wanted[value])
}

// domain says of which domain a value of a nested attribute is.
func domain(value, outer string) string {
	of, inner, isNested := schema.Unnest(value)
	if !isNested {
		return value
	}
	if inner == "" {
		inner = "none"
	}
	return inner + " of " + outer + " " + of
}

// quota is how many candidates a sample needs in each outer domain: of others there may be
// any number, and none of these.
type quota struct {
	of     *nest
	left   []int32 // by outer domain
	total  int
	passed bool // some machine has room that was not taken
}

// spare is how many candidates more than tasks a sample has of each outer domain, since not
// all need stay good.
const spare = 8

// quotaOf returns the quota for so many tasks, of the outer domains that have machines.
func (n *nest) quotaOf(o *tournament.Outer, l *layout.Layout, tasks int) *quota {
	q := &quota{of: n, left: make([]int32, len(o.Tally.Stay))}
	domains := 0
	for i := range l.Blocks {
		if v := n.of[l.Blocks[i].Domain]; q.left[v] == 0 {
			q.left[v] = 1
			domains++
		}
	}
	for v := range q.left {
		need := 0
		switch {
		case q.left[v] == 0:
		case o.Wanted == nil:
			need = tasks/domains + spare
		case o.Behind(int32(v)):
			need = min(int(o.Wanted[v]-o.Tally.Stay[v]), tasks) + spare
		}
		q.left[v] = int32(need)
		q.total += need
	}
	return q
}

// take takes a machine that has room for a candidate, and reports whether it is one: it is if
// any is, or if its domain is short of some.
func (q *quota) take(slot int32, anywhere bool) bool {
	if q == nil {
		return anywhere
	}
	v := q.of.outer.At[slot]
	if short := q.left[v] > 0; short {
		q.left[v]--
		q.total--
	} else if !anywhere {
		q.passed = true
		return false
	}
	return true
}

// short reports whether some outer domain has too few candidates.
func (q *quota) short() bool { return q != nil && q.total > 0 }

// behind reports whether an outer domain lacks tasks that it wants, and a candidate is in one
// that does not: of those there may be others, if not all machines were asked.
func (n *nest) behind(o *tournament.Outer, slot int32) bool {
	if o.Wanted == nil || o.Behind(n.outer.At[slot]) {
		return false
	}
	for v := range o.Wanted {
		if o.Behind(int32(v)) {
			return true
		}
	}
	return false
}
