package placement

import (
	"slices"

	"github.com/musterhq/muster/placement/layout"
)

// kin is what the relations of tasks mean to a class, made ready to be asked of many
// machines.
type kin struct {
	must    []tie
	prefers []tie
	shy     []tie // anti-affinity of others, that keeps the class away
}

// kinOf returns what relations mean to a class of tasks of a profile; nil for nothing.
func (k *kindred) kinOf(id int32) *kin {
	if id == 0 {
		return nil
	}
	p := k.profiles.At(id)
	var x kin
	for _, t := range p.ties {
		if t.column = k.columnOf(t.term); t.weight == 0 {
			x.must = append(x.must, t)
		} else {
			x.prefers = append(x.prefers, t)
		}
	}
	for _, t := range k.shyOf(p) {
		x.shy = append(x.shy, tie{term: t, apart: true, wish: -1, column: k.columnOf(t)})
	}
	for _, w := range k.wishesFor(p) {
		m := k.wishes.At(w)
		x.prefers = append(x.prefers, tie{term: m.term, weight: float32(m.weight) / 100, apart: m.apart, wish: w, column: k.columnOf(m.term)})
	}
	if len(x.must)+len(x.prefers)+len(x.shy) == 0 {
		return nil
	}
	return &x
}

// pickedIn returns how many tasks a term picks in a domain when some have gone, whose
// profiles are given.
func (k *kindred) pickedIn(t *tie, value int32, gone []int32) int32 {
	n, _ := k.picked.Get(together(t.term, value))
	for _, p := range gone {
		if slices.Contains(k.profiles.At(p).matches, t.term) {
			n--
		}
	}
	return n
}

// isIn reports whether tasks are in a domain that a preferred tie is about, when some have gone.
func (k *kindred) isIn(t *tie, value int32, gone []int32) bool {
	if value == 0 || t.wish < 0 {
		return value != 0 && k.pickedIn(t, value, gone) > 0
	}
	n, _ := k.wishing.Get(together(t.wish, value))
	for _, p := range gone {
		if slices.Contains(k.profiles.At(p).wishes, t.wish) {
			n--
		}
	}
	return n > 0
}

// repelledIn returns how many tasks that have a term are in a domain when some have gone.
func (k *kindred) repelledIn(t *tie, value int32, gone []int32) int32 {
	n, _ := k.repelling.Get(together(t.term, value))
	for _, p := range gone {
		if slices.Contains(k.profiles.At(p).repels, t.term) {
			n--
		}
	}
	return n
}

// isNear reports whether affinity that must hold does on a machine when some of its tasks
// have gone.
func (k *kindred) isNear(t *tie, slot int32, gone []int32) bool {
	v := t.column.At[slot]
	if v == 0 || k.pickedIn(t, v, gone) > 0 {
		return v != 0
	}
	all, _ := k.picked.Get(together(t.term, v)) // of those here nobody is left
	return t.self && k.terms.At(t.term).total == all
}

// farFrom returns which affinity that must hold does not on a machine when some of its
// tasks have gone; nil for none.
func (k *kindred) farFrom(x *kin, slot int32, gone []int32) *tie {
	for i := range x.must {
		if t := &x.must[i]; !t.apart && !k.isNear(t, slot, gone) {
			return t
		}
	}
	return nil
}

// repelledBy returns which anti-affinity keeps a class from a machine when some of its
// tasks have gone, and how.
func (k *kindred) repelledBy(x *kin, slot int32, gone []int32) (*tie, answer) {
	for i := range x.must {
		if t := &x.must[i]; t.apart {
			if v := t.column.At[slot]; v != 0 && k.pickedIn(t, v, gone) > 0 {
				return t, isApart
			}
		}
	}
	for i := range x.shy {
		t := &x.shy[i]
		if v := t.column.At[slot]; v != 0 && k.repelledIn(t, v, gone) > 0 {
			return t, isShunned
		}
	}
	return nil, fine
}

// related returns which relation keeps a class from a machine, and how.
func (k *kindred) related(x *kin, slot int32) (*tie, answer) {
	if t := k.farFrom(x, slot, nil); t != nil {
		return t, lacksKin
	}
	return k.repelledBy(x, slot, nil)
}

// needers returns which profiles must be near what a task of some profile is, and where no
// other is that does as well once it has left a machine for another, and some have gone.
func (k *kindred) needers(profile, from, to int32, gone []int32) (out []needer) {
	for _, term := range k.profiles.At(profile).matches {
		t := tie{term: term, wish: -1, column: k.columnOf(term)}
		v := t.column.At[from]
		if v == 0 || t.column.At[to] == v || k.pickedIn(&t, v, gone) > 0 {
			continue
		}
		for p := range k.profiles.Len() {
			if slices.ContainsFunc(k.profiles.At(p).ties, func(o tie) bool { return o.term == term && o.weight == 0 && !o.apart }) {
				out = append(out, needer{p, t.column, v})
			}
		}
	}
	return out
}

// needer is a profile whose tasks in a domain need something there.
type needer struct {
	profile int32
	column  *layout.Column
	value   int32
}

// estranged returns the weights of the preferred relations that do not hold on a machine when
// some of its tasks have gone, whose profiles are given.
func (k *kindred) estranged(x *kin, slot int32, gone []int32) (sum float32) {
	for i := range x.prefers {
		t := &x.prefers[i]
		if k.isIn(t, t.column.At[slot], gone) == t.apart {
			sum += t.weight
		}
	}
	return sum
}

// hasPreferred reports whether any relation is preferred.
func (x *kin) hasPreferred() bool { return x != nil && len(x.prefers) > 0 }

// byMachine reports whether any relation that is preferred is about single machines: their flips
// are not remembered.
func (k *kindred) byMachine(x *kin) bool {
	return slices.ContainsFunc(x.prefers, func(t tie) bool { return k.terms.At(t.term).By == MachineAttribute })
}

// concern is what a flip means to a class.
type concern struct {
	column *layout.Column // of the domain that it is about
	value  int32
	all    bool // any machine may answer otherwise
	more   bool // machines may have become better that are no candidates
}

// concerns returns what the flips from a position on mean to a class; false if they are
// not remembered.
func (k *kindred) concerns(x *kin, from int) (out []concern, known bool) {
	if from < k.trimmed {
		return nil, false
	}
	for _, f := range k.flips[from-k.trimmed:] {
		w := concern{value: f.value}
		for _, list := range [][]tie{x.must, x.prefers, x.shy} {
			for i := range list {
				t := &list[i]
				switch {
				case t.term != f.term:
				case f.value == 0:
					w.all = w.all || t.self && !t.apart
				default:
					w.column, w.more = t.column, w.more || !t.apart
				}
			}
		}
		if w.all || w.column != nil {
			out = append(out, w)
		}
	}
	return out, true
}

// withoutTie returns what relations mean without one that must hold. Without anti-affinity
// that picks the class's own tasks, these do not mind either.
func (x *kin) withoutTie(i int) *kin {
	t, w := x.must[i], *x
	w.must = slices.Delete(slices.Clone(x.must), i, i+1)
	if t.apart && t.self {
		w.shy = slices.DeleteFunc(slices.Clone(x.shy), func(o tie) bool { return o.term == t.term })
	}
	return &w
}

// reason says which relation keeps a class away, and how. others is a job that has a task
// there.
func (k *kindred) reason(t *tie, a answer, others func(term int32) string) Reason {
	text := k.terms.At(t.term).Text()
	switch a {
	case lacksKin:
		return Reason("lack a task of " + text + ", which affinity requires")
	case isApart:
		return Reason("have a task of " + text + ", which anti-affinity excludes")
	}
	return Reason("have a task of " + others(t.term) + ", whose anti-affinity excludes " + text)
}

// related reports whether an answer is about relations.
func (a answer) related() bool { return a == lacksKin || a == isApart || a == isShunned }
