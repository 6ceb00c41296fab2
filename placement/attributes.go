package placement

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"github.com/musterhq/muster/placement/layout"
	"github.com/musterhq/muster/schema"
)

// attributeOf returns what a machine has of an attribute, "" for nothing.
func attributeOf(m *Machine, name string) string {
	if name == MachineAttribute {
		return m.Name
	}
	if outer, inner, ok := schema.Unnest(name); ok {
		if a, b := attributeOf(m, outer), attributeOf(m, inner); a+b != "" {
			return schema.Nested(a, b)
		}
		return ""
	}
	return m.Attributes[name]
}

// rule is a constraint made ready to be asked of many machines.
type rule struct {
	Constraint
	column *layout.Column
	ok     []bool // by value
}

// rulesOf makes constraints ready, by the columns of attributes.
func rulesOf(list []Constraint, column func(attribute string) *layout.Column) (out []rule) {
	for _, c := range list {
		out = append(out, rule{Constraint: c, column: column(c.Attribute)})
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

// allFailed returns the constraints that do not hold of the machine.
func allFailed(all []rule, slot int32) (out []string) {
	for i := range all {
		if !all[i].holds(slot) {
			out = append(out, all[i].String())
		}
	}
	return out
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
		return r.holdsOf("")
	}
	for int(v) >= len(r.ok) {
		r.ok = append(r.ok, r.Constraint.holds(r.column.Values[len(r.ok)]))
	}
	return r.ok[v]
}

// holdsOf reports whether the constraint holds of a value, "" for none.
func (c Constraint) holdsOf(value string) bool {
	if value == "" {
		return c.Op == OpNotIn || c.Op == OpAbsent
	}
	return c.holds(value)
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
// else as text, and a number comes before text. A leading v is no part of it. Amounts with a
// unit, such as 40Gi, are compared as such.
func compareVersions(a, b string) int {
	n, unitN, okN := schema.ParseAmount(a)
	m, unitM, okM := schema.ParseAmount(b)
	if okN && okM && (unitN || unitM) {
		return cmp.Compare(n, m)
	}
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
