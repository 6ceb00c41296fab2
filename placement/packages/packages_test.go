package packages

import (
	"fmt"
	"slices"
	"testing"
)

// fleet is machines and what they hold.
type fleet struct {
	held  Held
	holds [][]int32
}

func (f *fleet) all(yield func(slot int32, holds []int32) bool) {
	for slot, h := range f.holds {
		if !yield(int32(slot), h) {
			return
		}
	}
}

func (f *fleet) set(slot int, names ...string) {
	f.holds[slot] = f.held.Set(int32(slot), f.holds[slot], names, f.all)
}

// What few machines hold is listed, whatever many held before and after.
func TestRare(t *testing.T) {
	t.Parallel()
	f := fleet{held: NewHeld(), holds: make([][]int32, 2*mostHolders)}
	rare := func(name string) []int32 { return f.held.Rare(f.held.NumbersOf([]string{name})[0], nil) }
	f.set(3, "few", "many")
	for slot := range f.holds[10:] {
		f.set(10+slot, "many", fmt.Sprint("own-", slot))
	}
	if got := rare("few"); !slices.Equal(got, []int32{3}) {
		t.Errorf("%v hold what machine 3 does alone", got)
	}
	if got := rare("many"); got != nil {
		t.Errorf("%d machines are listed of what many hold", len(got))
	}
	for slot := range f.holds[20:] {
		f.set(20 + slot)
	}
	if got, want := rare("many"), []int32{3, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19}; !slices.Equal(slices.Sorted(slices.Values(got)), want) {
		t.Errorf("%v hold what is rare again, want %v", got, want)
	}
	for _, slot := range []int{3, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19} {
		f.set(slot, "other")
	}
	if got := rare("many"); got != nil {
		t.Errorf("%v hold what nobody does", got)
	}
}

// A fork does not see what changes, nor the other way round.
func TestFork(t *testing.T) {
	t.Parallel()
	f := fleet{held: NewHeld(), holds: make([][]int32, 3)}
	f.set(0, "a", "b")
	g := fleet{held: f.held.Fork(), holds: slices.Clone(f.holds)}
	g.set(1, "a", "c")
	f.set(2, "a")
	a := f.held.NumbersOf([]string{"a"})[0]
	if x, y := f.held.Rare(a, nil), g.held.Rare(a, nil); !slices.Equal(x, []int32{0, 2}) || !slices.Equal(y, []int32{0, 1}) {
		t.Errorf("%v and %v hold a, want 0 and 2, and 0 and 1", x, y)
	}
	if len(f.held.Parts()) != 2 {
		t.Error("a part is not shared")
	}
}

func TestLacking(t *testing.T) {
	t.Parallel()
	k := NewHeld()
	holds := k.NumbersOf([]string{"c", "a", "a"})
	if !slices.IsSorted(holds) || len(holds) != 2 {
		t.Fatalf("numbers %v of two packages", holds)
	}
	if got := Lacking(holds, k.NumbersOf([]string{"a", "b", "c", "d"})); got != 0.5 {
		t.Errorf("%v of four packages are to be fetched, want half", got)
	}
}
