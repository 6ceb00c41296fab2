package layers

import (
	"maps"
	"slices"
)

// Table is a list that a snapshot shares with its forks until one of them changes
// it. Of a snapshot that shares with none it is flat. While it is shared, nobody
// writes to what is: what a snapshot changes goes to a layer of its own on top.
type Table[T any] struct {
	flat []T
	top  *layer[T] // nil if the table is not shared
	n    int32     // length, layers included
	// Detach gives a copy what it must not share with its original; nil if
	// there is no such thing.
	Detach func(*T)
}

// layer is what changed of a table since it was shared, over what lies below.
type layer[T any] struct {
	rows  map[int32]*T
	bits  []uint64 // a filter of the keys of rows, see has
	below *layer[T]
}

// Len returns the number of elements.
func (t *Table[T]) Len() int32 { return t.n }

// At returns an element to be read. What it returns is out of date when the
// element has been edited since.
func (t *Table[T]) At(i int32) *T {
	if t.top != nil {
		return t.find(i)
	}
	return &t.flat[i]
}

// find looks for an element of a table that is shared. It is kept out of At, which
// could not be inlined with it.
//
//go:noinline
func (t *Table[T]) find(i int32) *T {
	for l := t.top; l != nil; l = l.below {
		if l.has(i) {
			if row := l.rows[i]; row != nil {
				return row
			}
		}
	}
	return &t.flat[i]
}

// Edit returns an element to be read and written.
func (t *Table[T]) Edit(i int32) *T {
	if t.top != nil {
		return t.own(i)
	}
	return &t.flat[i]
}

func (t *Table[T]) own(i int32) *T {
	if row := t.top.rows[i]; row != nil {
		return row
	}
	row := new(T)
	*row = *t.find(i)
	if t.Detach != nil {
		t.Detach(row)
	}
	t.top.put(i, row)
	return row
}

// Add appends an element and returns its index.
func (t *Table[T]) Add(v T) int32 {
	i := t.n
	t.n++
	if t.top == nil {
		t.flat = append(t.flat, v)
	} else {
		t.top.put(i, &v)
	}
	return i
}

// Reserve makes room for n more, which come soon.
func (t *Table[T]) Reserve(n int) {
	if t.top == nil {
		t.flat = slices.Grow(t.flat, max(n, 0))
	}
}

// Fork returns a table of the same content; from then on they share it.
func (t *Table[T]) Fork() Table[T] {
	f := *t
	t.top, f.top = &layer[T]{below: t.top}, &layer[T]{below: t.top}
	return f
}

// Merge moves the top layer, since nobody else shares what is below, into that.
func (t *Table[T]) Merge() {
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

// Flatten makes a copy of all, which is shared with nobody.
func (t *Table[T]) Flatten() {
	flat := make([]T, t.n)
	for i := range flat {
		flat[i] = *t.find(int32(i))
		if t.Detach != nil {
			t.Detach(&flat[i])
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

// Index is a map that a snapshot shares with its forks in the same way.
type Index[K comparable, V any] struct {
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

// NewIndex returns an empty index with room for so many keys.
func NewIndex[K comparable, V any](size int) Index[K, V] {
	return Index[K, V]{flat: make(map[K]V, size)}
}

// Reserve makes room for n keys in an empty index.
func (x *Index[K, V]) Reserve(n int) {
	if x.top == nil && len(x.flat) == 0 {
		x.flat = make(map[K]V, n)
	}
}

// Len returns the number of keys.
func (x *Index[K, V]) Len() int {
	if x.top == nil {
		return len(x.flat)
	}
	return x.n
}

// Get returns the value of a key, the zero value and false if there is none.
func (x *Index[K, V]) Get(k K) (V, bool) {
	if x.top != nil {
		return x.find(k)
	}
	v, ok := x.flat[k]
	return v, ok
}

func (x *Index[K, V]) find(k K) (V, bool) {
	for p := x.top; p != nil; p = p.below {
		if e, ok := p.at[k]; ok {
			return e.value, e.there
		}
	}
	v, ok := x.flat[k]
	return v, ok
}

// Set gives a key a value, in place of the one that it has.
func (x *Index[K, V]) Set(k K, v V) {
	if x.top == nil {
		x.flat[k] = v
		return
	}
	if _, ok := x.Get(k); !ok {
		x.n++
	}
	x.top.put(k, patched[V]{v, true})
}

// Remove forgets a key, if it is there.
func (x *Index[K, V]) Remove(k K) {
	if x.top == nil {
		delete(x.flat, k)
		return
	}
	if _, ok := x.Get(k); ok {
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

// Count adds to the number that a key has; one that has none left is no more.
func Count[K comparable](x *Index[K, int32], k K, by int32) {
	was, _ := x.Get(k)
	if n := was + by; n > 0 {
		x.Set(k, n)
	} else if was != 0 {
		x.Remove(k)
	}
}

// All returns the index as a map, which is not to be written to.
func (x *Index[K, V]) All() map[K]V {
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

// Fork returns an index of the same content; from then on they share it.
func (x *Index[K, V]) Fork() Index[K, V] {
	x.n = x.Len()
	f := *x
	x.top, f.top = &patch[K, V]{below: x.top}, &patch[K, V]{below: x.top}
	return f
}

// Merge moves what changed, since nobody else shares what is below, into that.
func (x *Index[K, V]) Merge() {
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

// Flatten makes a copy of all, which is shared with nobody.
func (x *Index[K, V]) Flatten() { x.flat, x.top, x.n = x.All(), nil, 0 }

// Part is what a snapshot may share with its forks.
type Part interface {
	Merge()
	Flatten()
}
