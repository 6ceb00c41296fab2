package placement

import (
	"cmp"
	"encoding/binary"
	"maps"
	"math"
	"slices"

	"github.com/musterhq/muster/placement/layers"
	"github.com/musterhq/muster/placement/layout"
	"github.com/musterhq/muster/schema"
)

// Relations say how a task relates to other tasks, which are picked by labels.
type Relations struct {
	// Labels are those by which the selectors of others pick the task.
	Labels       map[string]string
	Affinity     []Affinity
	AntiAffinity []Affinity
}

// Affinity is about the tasks that a selector picks: that some of them are, or that
// none is, where a task is placed. Tasks that are stopping count until they are gone.
type Affinity struct {
	Selector schema.Selector
	// User, when not "", leaves out the tasks of other users.
	User string
	// By is the attribute of machines whose values are the domains: a task is where
	// another is when their machines have the same value. A machine without the
	// attribute is in no domain: with affinity it is refused, with anti-affinity it is
	// not.
	By string
	// Weight is 0 for what must hold, and 1 to 100 for what is preferred. What must hold
	// of affinity, and nothing in the cell is picked but the task itself would be, is
	// taken to hold in any domain: else the first task of a job could never start. What
	// must hold of anti-affinity also keeps the tasks that it picks away from the task,
	// whatever these say.
	Weight int
}

// Text says which tasks an affinity is about, and where: "tier=front by rack".
func (a *Affinity) Text() string {
	if a.By == MachineAttribute {
		return a.Selector.String()
	}
	return a.Selector.String() + " by " + a.By
}

// term is an affinity as the snapshot counts tasks for it, whoever has it.
type term struct {
	Affinity
	hash   uint64
	repels bool  // some must not be where it picks a task
	total  int32 // tasks that it picks, in any domain
	wishes []int32
}

// mutual is a term that tasks of a user prefer to hold, and how much so: what it picks of theirs prefers that, too.
type mutual struct {
	term, weight int32 // 1 to 100
	apart        bool
	user         string
}

// profile is what tasks of one job have in common that have the same relations.
type profile struct {
	job       int32
	user      string // of it
	relations *Relations
	ties      []tie
	matches   []int32 // terms that pick the tasks
	repels    []int32 // terms that must not pick a task where these are, each once
	wishes    []int32 // what they prefer, each once
}

// tie is a term that a profile has.
type tie struct {
	term   int32
	weight float32        // 0 if it must hold, else up to 1
	apart  bool           // it is anti-affinity
	self   bool           // it picks the profile's own tasks
	wish   int32          // of others: where these are, and not what it picks; less than 0 if it is none
	column *layout.Column // of a class only
}

// kindred counts tasks for the relations that any have. It knows tasks by their profiles
// only.
type kindred struct {
	terms      layers.Table[term]
	termIDs    layers.Index[string, int32]
	profiles   layers.Table[profile]
	profileIDs layers.Index[string, int32]
	wishes     layers.Table[mutual]
	// picked and repelling are how many tasks terms pick and have, by term and domain; wishing how many have wishes.
	picked    layers.Index[uint64, int32]
	repelling layers.Index[uint64, int32]
	wishing   layers.Index[uint64, int32]
	// flips are the domains that became others, oldest first; entry i has the absolute
	// position trimmed+i.
	flips   []flip
	trimmed int
	columns []*layout.Column // of terms, as far as they were asked for
	column  func(attribute string) *layout.Column
}

func newKindred() kindred {
	return kindred{
		termIDs: layers.NewIndex[string, int32](0), profileIDs: layers.NewIndex[string, int32](0),
		picked: layers.NewIndex[uint64, int32](0), repelling: layers.NewIndex[uint64, int32](0), wishing: layers.NewIndex[uint64, int32](0),
	}
}

// fork returns the same of a fork, whose columns are its own.
func (k *kindred) fork(column func(string) *layout.Column) kindred {
	return kindred{
		terms: k.terms.Fork(), termIDs: k.termIDs.Fork(), profiles: k.profiles.Fork(), profileIDs: k.profileIDs.Fork(),
		wishes: k.wishes.Fork(), picked: k.picked.Fork(), repelling: k.repelling.Fork(), wishing: k.wishing.Fork(), trimmed: k.flipNow(), column: column,
	}
}

func (k *kindred) tables() []layers.Part {
	return []layers.Part{&k.terms, &k.termIDs, &k.profiles, &k.profileIDs, &k.wishes, &k.picked, &k.repelling, &k.wishing}
}

// flip is a domain in which the first task has come, or from which the last has gone,
// that a term picks or that has it; of value 0, all domains together. Where the domains
// are machines it is none: such a machine is touched.
type flip struct{ term, value int32 }

// mostFlips is how many flips are remembered.
const mostFlips = 4096

// flipNow returns the position in flips up to which everything has happened.
func (k *kindred) flipNow() int { return k.trimmed + len(k.flips) }

func (k *kindred) flip(term, value int32) {
	if k.flips = append(k.flips, flip{term, value}); len(k.flips) > 2*mostFlips {
		k.trimmed += mostFlips
		k.flips = append(k.flips[:0], k.flips[mostFlips:]...)
	}
}

// append appends all that makes relations differ.
func (r *Relations) append(b []byte) []byte {
	for _, key := range slices.Sorted(maps.Keys(r.Labels)) {
		b = appendStrings(b, key, r.Labels[key])
	}
	for i, list := range [][]Affinity{r.Affinity, r.AntiAffinity} {
		for n := range list {
			a := &list[n]
			b = binary.AppendVarint(append(appendStrings(b, a.Selector.String(), a.User, a.By), byte(i)), int64(a.Weight))
		}
	}
	return b
}

// newProfile adds the profile of tasks of a job of a user, and returns which terms are new:
// nothing is counted for these yet.
func (k *kindred) newProfile(key string, p profile) (id int32, fresh []int32) {
	if k.profiles.Len() == 0 {
		k.profiles.Add(profile{job: -1}) // that of tasks without relations
	}
	for t := range k.terms.Len() {
		if p.isPicked(k.terms.At(t)) {
			p.matches = append(p.matches, t)
		}
	}
	id = k.profiles.Add(p)
	k.profileIDs.Set(key, id)
	var ties []tie
	for i, list := range [][]Affinity{p.relations.Affinity, p.relations.AntiAffinity} {
		for n := range list {
			t, known := k.termOf(&list[n])
			if !known {
				fresh = append(fresh, t)
			}
			ties = append(ties, tie{term: t, weight: float32(min(max(list[n].Weight, 0), 100)) / 100, apart: i == 1, wish: -1})
		}
	}
	edited := k.profiles.Edit(id)
	for i := range ties {
		x := &ties[i]
		x.self = slices.Contains(edited.matches, x.term)
		if x.apart && x.weight == 0 && !slices.Contains(edited.repels, x.term) {
			edited.repels = append(edited.repels, x.term)
			k.terms.Edit(x.term).repels = true
		}
		if w := k.wishOf(x, edited.user); x.weight > 0 && !slices.Contains(edited.wishes, w) {
			edited.wishes = append(edited.wishes, w)
		}
	}
	edited.ties = ties
	return id, fresh
}

// isPicked reports whether a term picks the tasks of a profile.
func (p *profile) isPicked(t *term) bool {
	return p.job >= 0 && (t.User == "" || t.User == p.user) && t.Selector.Matches(p.relations.Labels)
}

// termOf returns the term of an affinity, and whether it was known.
func (k *kindred) termOf(a *Affinity) (id int32, known bool) {
	by := a.By
	if by == "" {
		by = MachineAttribute
	}
	key := string(appendStrings(nil, a.Selector.String(), a.User, by))
	if id, known = k.termIDs.Get(key); known {
		return id, true
	}
	id = k.terms.Add(term{Affinity: Affinity{Selector: a.Selector, User: a.User, By: by}, hash: layout.Hash(key)})
	k.termIDs.Set(key, id)
	for p := range k.profiles.Len() {
		if x := k.profiles.At(p); x.isPicked(k.terms.At(id)) {
			edited := k.profiles.Edit(p)
			edited.matches = append(slices.Clip(edited.matches), id)
		}
	}
	return id, false
}

// wishOf returns the wish that a tie of a user's tasks is.
func (k *kindred) wishOf(x *tie, user string) int32 {
	w := mutual{x.term, int32(math.Round(float64(x.weight * 100))), x.apart, user}
	for _, id := range k.terms.At(x.term).wishes {
		if *k.wishes.At(id) == w {
			return id
		}
	}
	id := k.wishes.Add(w)
	t := k.terms.Edit(x.term)
	t.wishes = append(slices.Clip(t.wishes), id)
	return id
}

// relationsOf returns the relations of a profile.
func (k *kindred) relationsOf(id int32) *Relations {
	if id == 0 {
		return nil
	}
	return k.profiles.At(id).relations
}

// columnOf returns the domains of a term.
func (k *kindred) columnOf(id int32) *layout.Column {
	for int(id) >= len(k.columns) {
		k.columns = append(k.columns, nil)
	}
	if k.columns[id] == nil {
		k.columns[id] = k.column(k.terms.At(id).By)
	}
	return k.columns[id]
}

// relate counts a task that has come to a machine, or gone from it, for all terms.
func (k *kindred) relate(id, slot, by int32) {
	if id == 0 {
		return
	}
	p := k.profiles.At(id)
	for _, t := range p.matches {
		k.countPicked(t, slot, by)
	}
	for _, t := range p.repels {
		k.countIn(&k.repelling, t, t, slot, by)
	}
	for _, w := range p.wishes {
		k.countIn(&k.wishing, w, k.wishes.At(w).term, slot, by)
	}
}

func (k *kindred) countPicked(t, slot, by int32) {
	k.countIn(&k.picked, t, t, slot, by)
	if k.columnOf(t).At[slot] == 0 {
		return
	}
	x := k.terms.Edit(t)
	if x.total += by; x.total == 0 || x.total == by {
		k.flip(t, 0)
	}
}

// countIn counts tasks for an id by the domain of a machine that it has for a term.
func (k *kindred) countIn(x *layers.Index[uint64, int32], id, t, slot, by int32) {
	v := k.columnOf(t).At[slot]
	if v == 0 {
		return
	}
	layers.Count(x, together(id, v), by)
	if k.terms.At(t).By == MachineAttribute {
		return
	}
	if n, _ := x.Get(together(id, v)); n == 0 || n == by {
		k.flip(t, v)
	}
}

// appendTies appends what makes machines treat the tasks of a profile in their own way.
func (k *kindred) appendTies(b []byte, id int32) []byte {
	if id == 0 {
		return b
	}
	p := k.profiles.At(id)
	for _, t := range p.ties {
		b = binary.LittleEndian.AppendUint64(append(b, 'r', boolByte(t.apart), boolByte(t.self)), k.terms.At(t.term).hash)
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(t.weight))
	}
	for _, t := range k.shyOf(p) {
		b = binary.LittleEndian.AppendUint64(append(b, 'y'), k.terms.At(t).hash)
	}
	for _, w := range k.wishesFor(p) {
		m := k.wishes.At(w)
		b = binary.LittleEndian.AppendUint64(append(b, 'w', boolByte(m.apart), byte(m.weight)), k.terms.At(m.term).hash)
	}
	return b
}

// shyOf returns the terms that keep the tasks of a profile away from those that have them,
// in an order that is always the same.
func (k *kindred) shyOf(p *profile) (out []int32) {
	for _, t := range p.matches {
		if k.terms.At(t).repels {
			out = append(out, t)
		}
	}
	slices.SortFunc(out, func(a, b int32) int { return cmp.Compare(k.terms.At(a).hash, k.terms.At(b).hash) })
	return out
}

// wishesFor returns what others of the same user wish of the tasks of a profile, which do not wish the same
// themselves, in an order that is always the same.
func (k *kindred) wishesFor(p *profile) (out []int32) {
	for _, t := range p.matches {
		for _, w := range k.terms.At(t).wishes {
			m := k.wishes.At(w)
			if m.user == p.user && !slices.ContainsFunc(p.ties, func(o tie) bool { return o.term == t && o.apart == m.apart }) {
				out = append(out, w)
			}
		}
	}
	slices.SortFunc(out, func(a, b int32) int {
		x, y := k.wishes.At(a), k.wishes.At(b)
		return cmp.Or(cmp.Compare(k.terms.At(x.term).hash, k.terms.At(y.term).hash), cmp.Compare(x.weight, y.weight), cmp.Compare(boolByte(x.apart), boolByte(y.apart)))
	})
	return out
}

// binds reports whether relations must hold of the tasks of a profile, so that more than
// room is in the way.
func (k *kindred) binds(id int32) bool {
	if id == 0 {
		return false
	}
	p := k.profiles.At(id)
	return slices.ContainsFunc(p.ties, func(t tie) bool { return t.weight == 0 }) || len(k.shyOf(p)) > 0
}
