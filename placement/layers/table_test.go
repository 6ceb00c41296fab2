package layers

import (
	"maps"
	"testing"

	"pgregory.net/rapid"
)

// side is a table and an index with plain copies of what they should hold.
type side struct {
	table Table[[]int]
	list  [][]int
	index Index[int, int]
	plain map[int]int
}

func newSide() *side {
	x := &side{index: NewIndex[int, int](0), plain: map[int]int{}}
	x.table.Detach = func(v *[]int) { *v = append([]int(nil), *v...) }
	return x
}

func (x *side) fork() *side {
	f := &side{table: x.table.Fork(), index: x.index.Fork(), plain: maps.Clone(x.plain)}
	for _, v := range x.list {
		f.list = append(f.list, append([]int(nil), v...))
	}
	return f
}

// change does one thing to a side, and the same to its copies.
func (x *side) change(t *rapid.T) {
	n := rapid.IntRange(0, 9).Draw(t, "n")
	switch at := rapid.IntRange(0, 19).Draw(t, "at"); {
	case at >= len(x.list):
		if i := x.table.Add([]int{n}); int(i) != len(x.list) {
			t.Fatalf("Add returned %d, want %d", i, len(x.list))
		}
		x.list = append(x.list, []int{n})
	default:
		(*x.table.Edit(int32(at)))[0] = n // in place: a fork must have a list of its own
		x.list[at][0] = n
	}
	switch k := rapid.IntRange(0, 9).Draw(t, "key"); rapid.IntRange(0, 2).Draw(t, "what") {
	case 0:
		x.index.Set(k, n)
		x.plain[k] = n
	case 1:
		x.index.Remove(k)
		delete(x.plain, k)
	case 2:
		x.index.Reserve(n)
		x.table.Reserve(n)
	}
}

func (x *side) check(t *rapid.T) {
	if int(x.table.Len()) != len(x.list) {
		t.Fatalf("a table of %d elements, want %d", x.table.Len(), len(x.list))
	}
	for i, v := range x.list {
		if got := (*x.table.At(int32(i)))[0]; got != v[0] {
			t.Fatalf("element %d is %d, want %d", i, got, v[0])
		}
	}
	if x.index.Len() != len(x.plain) || !maps.Equal(x.index.All(), x.plain) {
		t.Fatalf("an index of %d keys: %v, want %v", x.index.Len(), x.index.All(), x.plain)
	}
	for k := range 10 {
		got, ok := x.index.Get(k)
		if want, has := x.plain[k]; got != want || ok != has {
			t.Fatalf("key %d has %d, %t, want %d, %t", k, got, ok, want, has)
		}
	}
}

func TestSidesDoNotSeeEachOther(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		sides := []*side{newSide()}
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			last := sides[len(sides)-1]
			switch rapid.IntRange(0, 5).Draw(t, "step") {
			case 0:
				if len(sides) < 5 {
					sides = append(sides, last.fork())
				}
			case 1: // the last fork is gone: what it was made of is alone with the layer
				if len(sides) > 1 {
					sides = sides[:len(sides)-1]
					of := sides[len(sides)-1]
					for _, p := range []Part{&of.table, &of.index} {
						p.Merge()
					}
				}
			case 2:
				for _, p := range []Part{&last.table, &last.index} {
					if len(sides) == 1 {
						p.Flatten()
					}
				}
			default:
				sides[rapid.IntRange(0, len(sides)-1).Draw(t, "side")].change(t)
			}
			for _, x := range sides {
				x.check(t)
			}
		}
	})
}

func TestCount(t *testing.T) {
	t.Parallel()
	x := NewIndex[string, int32](0)
	for _, by := range []int32{2, -1, 3} {
		Count(&x, "a", by)
	}
	Count(&x, "b", 1)
	Count(&x, "b", -1)
	Count(&x, "c", -1) // never there
	if want := map[string]int32{"a": 4}; !maps.Equal(x.All(), want) {
		t.Errorf("counts are %v, want %v", x.All(), want)
	}
}
