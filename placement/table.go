package placement

import (
	"maps"
	"slices"
)

// table is a list that a snapshot shares with its forks until one of them changes
// it. Of a snapshot that shares with none it is flat. While it is shared, nobody
// writes to what is: what a snapshot changes goes to a layer of its own on top.
type table[T any] struct {
	flat []T
	top  *layer[T] // nil if the table is not shared
	n    int32     // length, layers included
	// detach gives a copy what it must not share with its original; nil if
	// there is no such thing.
	detach func(*T)
}

// layer is what changed of a table since it was shared, over what lies below.
type layer[T any] struct {
	rows  map[int32]*T
	bits  []uint64 // a filter of the keys of rows, see has
	below *layer[T]
}

func (t *table[T]) len() int32 { return t.n }

// at returns an element to be read. What it returns is out of date when the
// element has been edited since.
func (t *table[T]) at(i int32) *T {
	if t.top != nil {
		return t.find(i)
	}
	return &t.flat[i]
}

// find looks for an element of a table that is shared. It is kept out of at, which
// could not be inlined with it.
//
//go:noinline
func (t *table[T]) find(i int32) *T {
	for l := t.top; l != nil; l = l.below {
		if l.has(i) {
			if row := l.rows[i]; row != nil {
				return row
			}
		}
	}
	return &t.flat[i]
}

// edit returns an element to be read and written.
func (t *table[T]) edit(i int32) *T {
	if t.top != nil {
		return t.own(i)
	}
	return &t.flat[i]
}

func (t *table[T]) own(i int32) *T {
	if row := t.top.rows[i]; row != nil {
		return row
	}
	row := new(T)
	*row = *t.find(i)
	if t.detach != nil {
		t.detach(row)
	}
	t.top.put(i, row)
	return row
}

// add appends an element and returns its index.
func (t *table[T]) add(v T) int32 {
	i := t.n
	t.n++
	if t.top == nil {
		t.flat = append(t.flat, v)
	} else {
		t.top.put(i, &v)
	}
	return i
}

// reserve makes room for n more, which come soon.
func (t *table[T]) reserve(n int) {
	if t.top == nil {
		t.flat = slices.Grow(t.flat, max(n, 0))
	}
}

// fork returns a table of the same content; from then on they share it.
func (t *table[T]) fork() table[T] {
	f := *t
	t.top, f.top = &layer[T]{below: t.top}, &layer[T]{below: t.top}
	return f
}

// merge moves the top layer, since nobody else shares what is below, into that.
func (t *table[T]) merge() {
	was := t.top
	t.top = was.below
	if t.top == nil && len(was.rows) > 0 && int(t.n) > len(t.flat) {
		t.flat = append(t.flat, make([]T, int(t.n)-len(t.flat))...)
	}
	for i, row := range was.rows {
		if t.top == nil {
			t.flat[i] = *row
		} else {
			t.top.put(i, row)
		}
	}
}

// flatten makes a copy of all, which is shared with nobody.
func (t *table[T]) flatten() {
	flat := make([]T, t.n)
	for i := range flat {
		flat[i] = *t.find(int32(i))
		if t.detach != nil {
			t.detach(&flat[i])
		}
	}
	t.flat, t.top = flat, nil
}

// has reports whether the layer may have an element: false is sure. Most elements
// are not in a layer, and to look into a map for each would be slow.
func (l *layer[T]) has(i int32) bool {
	return l.bits != nil && l.bits[int(i>>6)&(len(l.bits)-1)]&(1<<(i&63)) != 0
}

func (l *layer[T]) put(i int32, row *T) {
	if l.rows == nil {
		l.rows = map[int32]*T{}
	}
	l.rows[i] = row
	if 16*len(l.rows) > 64*len(l.bits) { // a sixteenth of the bits are set at most, but when there are few
		l.bits = make([]uint64, max(4, 4*len(l.bits)))
		for k := range l.rows {
			l.mark(k)
		}
	}
	l.mark(i)
}

func (l *layer[T]) mark(i int32) { l.bits[int(i>>6)&(len(l.bits)-1)] |= 1 << (i & 63) }

// index is a map that a snapshot shares with its forks in the same way.
type index[K comparable, V any] struct {
	flat map[K]V
	top  *patch[K, V] // nil if the index is not shared
	n    int          // length, while it is shared
}

// patch is what changed of an index since it was shared.
type patch[K comparable, V any] struct {
	at    map[K]patched[V]
	below *patch[K, V]
}

type patched[V any] struct {
	value V
	there bool // false where the key is no more
}

func newIndex[K comparable, V any](size int) index[K, V] {
	return index[K, V]{flat: make(map[K]V, size)}
}

// reserve makes room for n keys in an empty index.
func (x *index[K, V]) reserve(n int) {
	if x.top == nil && len(x.flat) == 0 {
		x.flat = make(map[K]V, n)
	}
}

func (x *index[K, V]) len() int {
	if x.top == nil {
		return len(x.flat)
	}
	return x.n
}

// get returns the value of a key, the zero value and false if there is none.
func (x *index[K, V]) get(k K) (V, bool) {
	if x.top != nil {
		return x.find(k)
	}
	v, ok := x.flat[k]
	return v, ok
}

func (x *index[K, V]) find(k K) (V, bool) {
	for p := x.top; p != nil; p = p.below {
		if e, ok := p.at[k]; ok {
			return e.value, e.there
		}
	}
	v, ok := x.flat[k]
	return v, ok
}

func (x *index[K, V]) set(k K, v V) {
	if x.top == nil {
		x.flat[k] = v
		return
	}
	if _, ok := x.get(k); !ok {
		x.n++
	}
	x.top.put(k, patched[V]{v, true})
}

func (x *index[K, V]) remove(k K) {
	if x.top == nil {
		delete(x.flat, k)
		return
	}
	if _, ok := x.get(k); ok {
		x.n--
		x.top.put(k, patched[V]{})
	}
}

func (p *patch[K, V]) put(k K, e patched[V]) {
	if p.at == nil {
		p.at = map[K]patched[V]{}
	}
	p.at[k] = e
}

// count adds to the number that a key has; one that has none left is no more.
func count[K comparable](x *index[K, int32], k K, by int32) {
	was, _ := x.get(k)
	if n := was + by; n > 0 {
		x.set(k, n)
	} else if was != 0 {
		x.remove(k)
	}
}

// all returns the index as a map, which is not to be written to.
func (x *index[K, V]) all() map[K]V {
	if x.top == nil {
		return x.flat
	}
	out := maps.Clone(x.flat)
	x.top.apply(out)
	return out
}

func (p *patch[K, V]) apply(to map[K]V) {
	if p.below != nil {
		p.below.apply(to)
	}
	for k, e := range p.at {
		if e.there {
			to[k] = e.value
		} else {
			delete(to, k)
		}
	}
}

func (x *index[K, V]) fork() index[K, V] {
	x.n = x.len()
	f := *x
	x.top, f.top = &patch[K, V]{below: x.top}, &patch[K, V]{below: x.top}
	return f
}

func (x *index[K, V]) merge() {
	was := x.top
	if x.top = was.below; x.top == nil {
		was.below, x.n = nil, 0
		was.apply(x.flat)
		return
	}
	for k, e := range was.at {
		x.top.put(k, e)
	}
}

func (x *index[K, V]) flatten() { x.flat, x.top, x.n = x.all(), nil, 0 }

// shared is what a snapshot may share with its forks.
type shared interface {
	merge()
	flatten()
}
