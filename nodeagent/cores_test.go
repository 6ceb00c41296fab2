package nodeagent_test

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/musterhq/muster/nodeagent"
)

func TestDivideCores(t *testing.T) {
	t.Parallel()
	use := func(whole int, set ...int) nodeagent.CoreUse { return nodeagent.CoreUse{Whole: whole, Set: set} }
	for _, c := range []struct {
		name  string
		uses  []nodeagent.CoreUse
		want  [][]int // nil: there are not enough
		short int
	}{
		{"all share", []nodeagent.CoreUse{use(0), use(0)}, [][]int{{0, 1, 2, 3}, {0, 1, 2, 3}}, -1},
		{"from the end", []nodeagent.CoreUse{use(0), use(1), use(1)}, [][]int{{0, 1}, {3}, {2}}, -1},
		{"what one has it keeps", []nodeagent.CoreUse{use(1), use(1, 3), use(1, 0)}, [][]int{{2}, {3}, {0}}, -1},
		{"more", []nodeagent.CoreUse{use(2, 1), use(0)}, [][]int{{1, 3}, {0, 2}}, -1},
		{"fewer", []nodeagent.CoreUse{use(1, 1, 3), use(0)}, [][]int{{1}, {0, 2, 3}}, -1},
		{"one that shared", []nodeagent.CoreUse{use(1, 0, 1, 2, 3), use(0)}, [][]int{{0}, {1, 2, 3}}, -1},
		{"two have the same", []nodeagent.CoreUse{use(1, 2), use(1, 2)}, [][]int{{2}, {3}}, -1},
		{"a core that is gone", []nodeagent.CoreUse{use(1, 7)}, [][]int{{3}}, -1},
		{"all, where nobody shares", []nodeagent.CoreUse{use(4)}, [][]int{{0, 1, 2, 3}}, -1},
		{"all, where somebody shares", []nodeagent.CoreUse{use(0), use(4)}, nil, 0},
		{"too many", []nodeagent.CoreUse{use(3), use(2)}, nil, 1},
	} {
		got, short, err := nodeagent.DivideCores([]int{0, 1, 2, 3}, c.uses)
		if (err == nil) != (c.want != nil) || short != c.short || err == nil && !slices.EqualFunc(got, c.want, slices.Equal) {
			t.Errorf("%s: %v, %d, %v; want %v, %d", c.name, got, short, err, c.want, c.short)
		}
	}
}

// TestDivideCoresProperties: nobody gets what another has, everybody gets what
// he asks for, and a second look changes nothing.
func TestDivideCoresProperties(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		cores := make([]int, rapid.IntRange(1, 12).Draw(t, "cores"))
		for i := range cores {
			cores[i] = i
		}
		uses := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) nodeagent.CoreUse {
			set := rapid.SliceOfDistinct(rapid.IntRange(0, 13), rapid.ID[int]).Draw(t, "set")
			slices.Sort(set)
			return nodeagent.CoreUse{Whole: rapid.IntRange(0, 4).Draw(t, "whole"), Set: set}
		}), 0, 6).Draw(t, "uses")
		sets, short, err := nodeagent.DivideCores(cores, uses)
		need, share := 0, false
		for _, u := range uses {
			need += u.Whole
			share = share || u.Whole == 0
		}
		if fits := need < len(cores) || need == len(cores) && !share; fits != (err == nil) {
			t.Fatalf("%d cores wanted of %d, others share: %t; error %v", need, len(cores), share, err)
		}
		if err != nil {
			if short < 0 || short >= len(uses) {
				t.Fatalf("short is %d", short)
			}
			return
		}
		has := map[int]int{}
		for i, u := range uses {
			if !slices.IsSorted(sets[i]) || u.Whole > 0 && len(sets[i]) != u.Whole || u.Whole == 0 && len(sets[i]) != len(cores)-need {
				t.Fatalf("%+v gets %v", u, sets[i])
			}
			for _, core := range sets[i] {
				if by, taken := has[core]; taken && (u.Whole > 0 || uses[by].Whole > 0) {
					t.Fatalf("core %d is of %d and of %d", core, by, i)
				}
				has[core] = i
			}
			uses[i].Set = sets[i]
		}
		again, _, err := nodeagent.DivideCores(cores, uses)
		if err != nil || !slices.EqualFunc(again, sets, slices.Equal) {
			t.Fatalf("again: %v, %v, was %v", again, err, sets)
		}
	})
}
