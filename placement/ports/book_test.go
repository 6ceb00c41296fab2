package ports

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func TestBookCountsHolders(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var b Book
		holders := map[int]int{}
		for range rapid.IntRange(0, 40).Draw(t, "steps") {
			p := rapid.IntRange(10, 19).Draw(t, "port")
			if rapid.Bool().Draw(t, "take") {
				b.Take(p)
				holders[p]++
			} else {
				b.Give(p) // of a port that nobody has it is nothing
				holders[p] = max(0, holders[p]-1)
			}
		}
		free := int32(0)
		for p := 12; p <= 17; p++ {
			if b.Has(uint16(p)) != (holders[p] > 0) || b.HasAny([]uint16{9, uint16(p)}) != (holders[p] > 0) {
				t.Fatalf("port %d has %d holders, and the book says %t", p, holders[p], b.Has(uint16(p)))
			}
			if holders[p] == 0 {
				free++
			}
		}
		if got := b.Free(12, 17); got != free {
			t.Fatalf("%d ports are free, want %d", got, free)
		}
		if b.Reset(); b.Free(10, 19) != 10 || b.Free(0, 0) != 0 {
			t.Fatalf("%d ports are free after Reset", b.Free(10, 19))
		}
	})
}

func TestChoose(t *testing.T) {
	t.Parallel()
	var b Book
	b.Take(101)
	for seed := range uint64(50) {
		list := []int{0, 102, 0}
		b.Choose(list, 100, 103, "a", seed)
		if list[1] != 102 || !slices.Equal(slices.Sorted(slices.Values(list)), []int{100, 102, 103}) {
			t.Fatalf("seed %d: ports %v, want 102 in the middle beside 100 and 103", seed, list)
		}
	}
	one, other := []int{0}, []int{0}
	b.Choose(one, 1000, 30000, "a", 1)
	b.Choose(other, 1000, 30000, "b", 1)
	if one[0] == other[0] {
		t.Errorf("tasks of two names both begin at port %d", one[0])
	}
}

func TestDetach(t *testing.T) {
	t.Parallel()
	var b Book
	b.Take(5)
	b.Take(7)
	c := b
	c.Detach()
	c.Give(5)
	c.Take(6)
	if !b.Has(5) || b.Has(6) || c.Has(5) {
		t.Errorf("books %v and %v", b, c)
	}
}
