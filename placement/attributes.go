package placement

import (
	"slices"
	"strconv"
	"strings"

	"github.com/musterhq/muster/placement/layout"
)

// column returns the column of an attribute, made when first asked for.
func (s *Snapshot) column(name string) *layout.Column {
	c := s.attributes[name]
	if c == nil {
		c = layout.NewColumn(s.nodes.Len())
		s.attributes[name] = c
		for slot := range s.nodes.Len() {
			if s.rows.At(slot).state != stateGone {
				c.Set(slot, attributeOf(&s.nodes.At(slot).Machine, name))
			}
		}
	}
	return c
}

// setAttribute takes over the value that a machine has of an attribute for which
// there is a column.
func (s *Snapshot) setAttribute(name string, slot int32, value string) {
	c := s.attributes[name]
	if int(slot) < len(c.At) && c.Values[c.At[slot]] == value {
		return
	}
	if c.IsShared() { // layouts and classes were made of it
		c = c.Copied()
		s.attributes[name] = c
		s.kindred.columns = nil
		clear(s.layouts)
		s.forget()
		s.reshapes++
	}
	c.Set(slot, value)
}

func attributeOf(m *Machine, name string) string {
	if name == MachineAttribute {
		return m.Name
	}
	return m.Attributes[name]
}

// rule is a constraint made ready to be asked of many machines.
type rule struct {
	Constraint
	column *layout.Column
	ok     []bool // by value
}

func (s *Snapshot) rule(c Constraint) rule { return rule{Constraint: c, column: s.column(c.Attribute)} }

func (s *Snapshot) rulesOf(list []Constraint) (out []rule) {
	for _, c := range list {
		out = append(out, s.rule(c))
	}
	return out
}

// failed returns the first constraint that does not hold of the machine; nil for none.
func failed(all []rule, slot int32) *rule {
	for i := range all {
		if !all[i].holds(slot) {
			return &all[i]
		}
	}
	return nil
}

// anyHolds reports whether all constraints of one of several lists hold of the machine, or
// there are no lists.
func anyHolds(lists [][]rule, slot int32) bool {
	for _, all := range lists {
		if failed(all, slot) == nil {
			return true
		}
	}
	return len(lists) == 0
}

// holds reports whether the constraint holds of the machine.
func (r *rule) holds(slot int32) bool {
	v := r.column.At[slot]
	if v == 0 {
		return r.Op == OpNotIn || r.Op == OpAbsent
	}
	for int(v) >= len(r.ok) {
		r.ok = append(r.ok, r.Constraint.holds(r.column.Values[len(r.ok)]))
	}
	return r.ok[v]
}

// holds reports whether the constraint holds of a value that is there.
func (c Constraint) holds(value string) bool {
	switch c.Op {
	case OpIn:
		return slices.Contains(c.Values, value)
	case OpNotIn:
		return !slices.Contains(c.Values, value)
	case OpExists:
		return true
	case OpAtLeast:
		return len(c.Values) == 1 && compareVersions(value, c.Values[0]) >= 0
	case OpBelow:
		return len(c.Values) == 1 && compareVersions(value, c.Values[0]) < 0
	}
	return false
}

// String returns the constraint in words: "rack=a", "rack in a,b".
func (c Constraint) String() string {
	if len(c.Values) == 1 && c.Op == OpIn {
		return c.Attribute + "=" + c.Values[0]
	}
	return strings.TrimSpace(c.Attribute + " " + string(c.Op) + " " + strings.Join(c.Values, ","))
}

// compareVersions compares dot-separated versions: numbers as numbers, all
// else as text, and a number comes before text. A leading v is no part of it.
func compareVersions(a, b string) int {
	as, bs := strings.Split(strings.TrimPrefix(a, "v"), "."), strings.Split(strings.TrimPrefix(b, "v"), ".")
	for i := range max(len(as), len(bs)) {
		x, y := "0", "0"
		if i < len(as) {
			x = as[i]
		}
		if i < len(bs) {
			y = bs[i]
		}
		n, errN := strconv.Atoi(x)
		m, errM := strconv.Atoi(y)
		switch {
		case errN == nil && errM == nil && n != m:
			return n - m
		case errN == nil && errM != nil:
			return -1
		case errN != nil && errM == nil:
			return 1
		case errN != nil && x != y:
			return strings.Compare(x, y)
		}
	}
	return 0
}

// holders are the machines that hold a package.
type holders struct {
	n     int32
	slots []int32 // nil while there are more than mostHolders; never written in place
}

// mostHolders is how many machines may hold a package so that they are listed. Of what
// half as many hold, a sample of DefaultEnough has some in a cell of any usual size.
const mostHolders = 512

// setPackages numbers the packages of a machine.
func (s *Snapshot) setPackages(slot int32, packages []string) {
	n := s.nodes.Edit(slot)
	was := n.holds
	n.holds = s.packageIDs(packages)
	for _, p := range was {
		if _, stays := slices.BinarySearch(n.holds, p); !stays {
			s.unhold(p, slot)
		}
	}
	for _, p := range n.holds {
		if _, had := slices.BinarySearch(was, p); had {
			continue
		}
		h, _ := s.holders.Get(p)
		if h.n++; int(h.n) == len(h.slots)+1 && h.n <= mostHolders {
			h.slots = append(slices.Clip(h.slots), slot)
		} else {
			h.slots = nil
		}
		s.holders.Set(p, h)
	}
}

// unhold takes a machine, which does not hold a package any more, from its holders.
func (s *Snapshot) unhold(p, slot int32) {
	h, _ := s.holders.Get(p)
	h.n--
	switch {
	case h.n == 0:
		s.holders.Remove(p)
		return
	case h.slots != nil:
		h.slots = slices.DeleteFunc(slices.Clone(h.slots), func(x int32) bool { return x == slot })
	case h.n == mostHolders/2: // few again
		for i := range s.nodes.Len() {
			if _, found := slices.BinarySearch(s.nodes.At(i).holds, p); found {
				h.slots = append(h.slots, i)
			}
		}
	}
	s.holders.Set(p, h)
}

// favoured returns machines of which few others have something that a class wishes for:
// they hold a package, meet a preference, or have tasks near which it prefers to be. A sample of all machines could have none.
func (s *Snapshot) favoured(c *class) (slots []int32) {
	for _, p := range c.packages {
		if h, _ := s.holders.Get(p); h.n <= mostHolders/2 { // below which they are listed always
			slots = append(slots, h.slots...)
		}
	}
	for i := range c.wishes {
		w := &c.wishes[i]
		before := len(slots)
		for at := range w.column.At {
			slot := int32(at)
			if s.rows.At(slot).state != stateUp || w.holds(slot) != (w.weight > 0) {
				continue
			}
			if slots = append(slots, slot); (len(slots)-before)*rareShare > len(w.column.At) {
				slots = slots[:before] // a sample has enough of them
				break
			}
		}
	}
	if c.kin != nil {
		slots = s.likely(c.kin, slots)
	}
	return slots
}

// rareShare: what one in so many machines has is rare.
const rareShare = 16

func (s *Snapshot) packageIDs(names []string) []int32 {
	var ids []int32
	for _, name := range names {
		id, ok := s.packages.Get(name)
		if !ok {
			id = int32(s.packages.Len())
			s.packages.Set(name, id)
		}
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

// lacking returns the share of the packages that the machine has to fetch.
func (n *node) lacking(packages []int32) float32 {
	missing := 0
	for _, p := range packages {
		if _, found := slices.BinarySearch(n.holds, p); !found {
			missing++
		}
	}
	return float32(missing) / float32(len(packages))
}

// likely appends machines of which few others are where a class prefers to be.
func (s *Snapshot) likely(k *kin, slots []int32) []int32 {
	for i := range k.prefers {
		t := &k.prefers[i]
		if t.apart {
			continue
		}
		before := len(slots)
		for at, v := range t.column.At {
			slot := int32(at)
			if v == 0 || s.rows.At(slot).state != stateUp || s.kindred.pickedIn(t, v, nil) == 0 {
				continue
			}
			if slots = append(slots, slot); (len(slots)-before)*rareShare > len(t.column.At) {
				slots = slots[:before]
				break
			}
		}
	}
	return slots
}
