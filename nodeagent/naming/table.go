package naming

import (
	"iter"
	"slices"
)

// The width of a table's two levels. With 100,000 entries a bucket has 25 of them, and a
// change copies 3 KB.
const tableWidth = 64

// edit is one period between two snapshots: what was copied in it is in no snapshot yet, and
// is written in place.
type edit struct {
	_ byte // so that two of them have two addresses
}

// table is a map of which snapshots are kept by copying the value: a change copies only the way to
// its bucket. The zero table is empty.
type table[K comparable, V any] struct {
	root *root[K, V]
	size int
}

type root[K comparable, V any] struct {
	edit   *edit
	middle [tableWidth]*middle[K, V]
}

type middle[K comparable, V any] struct {
	edit    *edit
	buckets [tableWidth]bucket[K, V]
}

type bucket[K comparable, V any] struct {
	edit  *edit
	slots []slot[K, V]
}

type slot[K comparable, V any] struct {
	key   K
	value V
}

// place returns the places of a hash on the two levels.
func place(hash uint64) (first, second uint64) {
	return hash >> 58, hash >> 52 & (tableWidth - 1)
}

// get returns the value of a key.
func (t *table[K, V]) get(hash uint64, key K) (V, bool) {
	var none V
	first, second := place(hash)
	if t.root == nil || t.root.middle[first] == nil {
		return none, false
	}
	for i := range t.root.middle[first].buckets[second].slots {
		if s := &t.root.middle[first].buckets[second].slots[i]; s.key == key {
			return s.value, true
		}
	}
	return none, false
}

// writable returns the bucket of a hash, which it copies with the way to it unless that was done
// in this edit.
func (t *table[K, V]) writable(e *edit, hash uint64) *bucket[K, V] {
	first, second := place(hash)
	switch {
	case t.root == nil:
		t.root = &root[K, V]{edit: e}
	case t.root.edit != e:
		is := *t.root
		is.edit = e
		t.root = &is
	}
	m := t.root.middle[first]
	switch {
	case m == nil:
		m = &middle[K, V]{edit: e}
	case m.edit != e:
		is := *m
		is.edit = e
		m = &is
	}
	t.root.middle[first] = m
	b := &m.buckets[second]
	if b.edit != e {
		b.edit, b.slots = e, slices.Clone(b.slots)
	}
	return b
}

// set gives a key its value.
func (t *table[K, V]) set(e *edit, hash uint64, key K, value V) {
	b := t.writable(e, hash)
	for i := range b.slots {
		if b.slots[i].key == key {
			b.slots[i].value = value
			return
		}
	}
	b.slots = append(b.slots, slot[K, V]{key, value})
	t.size++
}

// remove takes a key out, if it is there.
func (t *table[K, V]) remove(e *edit, hash uint64, key K) {
	if _, ok := t.get(hash, key); !ok {
		return
	}
	b := t.writable(e, hash)
	b.slots = slices.DeleteFunc(b.slots, func(s slot[K, V]) bool { return s.key == key })
	t.size--
}

// all returns the entries in no particular order.
func (t *table[K, V]) all() iter.Seq2[K, V] {
	return func(yield func(K, V) bool) {
		if t.root == nil {
			return
		}
		for _, m := range &t.root.middle {
			if m == nil {
				continue
			}
			for i := range m.buckets {
				for _, s := range m.buckets[i].slots {
					if !yield(s.key, s.value) {
						return
					}
				}
			}
		}
	}
}

// changed returns the values that differ between two tables, as they were and as they are; the zero value stands for
// none. What is in both as it was written once is not looked at.
func changed[K, V comparable](was, is *table[K, V]) iter.Seq2[V, V] {
	var empty root[K, V]
	return func(yield func(was, is V) bool) {
		before, after := was.root, is.root
		if before == after {
			return
		}
		if before == nil {
			before = &empty
		}
		if after == nil {
			after = &empty
		}
		for i := range after.middle {
			if before.middle[i] != after.middle[i] && !changedIn(before.middle[i], after.middle[i], yield) {
				return
			}
		}
	}
}

// changedIn is changed for a part of two tables; false if yield wants no more.
func changedIn[K, V comparable](before, after *middle[K, V], yield func(was, is V) bool) bool {
	var empty middle[K, V]
	if before == nil {
		before = &empty
	}
	if after == nil {
		after = &empty
	}
	for i := range after.buckets {
		old, now := &before.buckets[i], &after.buckets[i]
		if old.edit == now.edit {
			continue
		}
		for _, o := range old.slots {
			if n, _ := now.get(o.key); n != o.value && !yield(o.value, n) {
				return false
			}
		}
		for _, n := range now.slots {
			if _, there := old.get(n.key); !there {
				var none V
				if !yield(none, n.value) {
					return false
				}
			}
		}
	}
	return true
}

// get returns the value of a key.
func (b *bucket[K, V]) get(key K) (V, bool) {
	for i := range b.slots {
		if b.slots[i].key == key {
			return b.slots[i].value, true
		}
	}
	var none V
	return none, false
}

// hashText returns a hash of texts: FNV-1a, whose upper bits are mixed, since a table uses them.
func hashText(texts ...string) uint64 {
	h := uint64(14695981039346656037)
	for _, t := range texts {
		for i := range len(t) {
			h = (h ^ uint64(t[i])) * 1099511628211
		}
		h = (h ^ '/') * 1099511628211
	}
	return mix(h)
}

// mix spreads a hash over all bits (the end of MurmurHash3).
func mix(h uint64) uint64 {
	h = (h ^ h>>33) * 0xff51afd7ed558ccd
	h = (h ^ h>>33) * 0xc4ceb9fe1a85ec53
	return h ^ h>>33
}
