package nodeagent_test

import (
	"fmt"
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
		got, short, err := nodeagent.DivideCores(&nodeagent.Topology{}, []int{0, 1, 2, 3}, c.uses)
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
			return nodeagent.CoreUse{
				Whole: rapid.IntRange(0, 4).Draw(t, "whole"), Set: set, Near: rapid.Bool().Draw(t, "near"), Loose: rapid.Bool().Draw(t, "loose"),
				Milli: rapid.Int64Range(0, 3000).Draw(t, "milli"), Nodes: rapid.SliceOfN(rapid.IntRange(0, 9), 0, 2).Draw(t, "nodes"),
			}
		}), 0, 6).Draw(t, "uses")
		topology := drawTopology(t)
		sets, short, err := nodeagent.DivideCores(topology, cores, uses)
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
			if !slices.IsSorted(sets[i]) || u.Whole > 0 && len(sets[i]) != u.Whole || u.Whole == 0 && len(sets[i]) != len(cores)-need && (!u.Near || u.Loose || len(sets[i]) == 0 || len(topology.Of(sets[i])) > 1) {
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
		again, _, err := nodeagent.DivideCores(topology, cores, uses)
		if err != nil || !slices.EqualFunc(again, sets, slices.Equal) {
			t.Fatalf("again: %v, %v, was %v", again, err, sets)
		}
	})
}

// drawTopology draws a machine whose cores are of nodes, or of none, in any order.
func drawTopology(t *rapid.T) *nodeagent.Topology {
	topology := &nodeagent.Topology{}
	nodes, of := rapid.SampledFrom([]int{0, 1, 2, 4, 8}).Draw(t, "nodes"), map[int][]int{}
	for core := range 14 {
		if node := rapid.IntRange(0, nodes).Draw(t, "node"); node > 0 {
			of[node] = append(of[node], core)
		}
	}
	for node := range nodes {
		if cores := of[node+1]; len(cores) > 0 {
			topology.Nodes = append(topology.Nodes, nodeagent.NUMANode{ID: node, Cores: cores, Memory: int64(node % 3)})
		}
	}
	if rapid.Bool().Draw(t, "siblings") {
		for core := range 7 {
			topology.Siblings = append(topology.Siblings, []int{core, core + 7})
		}
	}
	return topology
}

// machineOf is a machine of so many nodes with so many cores each, numbered one after the other.
// With siblings each core has two threads, the second ones numbered after all first ones.
func machineOf(nodes, cores int, siblings bool) (*nodeagent.Topology, []int) {
	t, all := &nodeagent.Topology{}, []int(nil)
	for n := range nodes {
		node := nodeagent.NUMANode{ID: n, Memory: 1 << 30}
		for c := range cores {
			node.Cores = append(node.Cores, n*cores+c)
			if siblings {
				node.Cores = append(node.Cores, (nodes+n)*cores+c)
				t.Siblings = append(t.Siblings, []int{n*cores + c, (nodes+n)*cores + c})
			}
		}
		slices.Sort(node.Cores)
		all = append(all, node.Cores...)
		t.Nodes = append(t.Nodes, node)
	}
	slices.Sort(all)
	return t, all
}

// TestCoresOfNodes: which node a task gets cores of.
func TestCoresOfNodes(t *testing.T) {
	t.Parallel()
	type use = nodeagent.CoreUse
	one := 1
	for _, c := range []struct {
		name         string
		nodes, cores int
		siblings     bool
		uses         []use
		want         string // of the last
	}{
		{"one node", 1, 4, false, []use{{Whole: 2}}, "2,3"},
		{"of one node, though others come first by number", 2, 4, false, []use{{Whole: 2, Set: []int{6, 7}}, {Whole: 3}}, "1,2,3"},
		{"what is left of a node is used up", 2, 4, false, []use{{Whole: 2, Set: []int{2, 3}}, {Whole: 2}}, "0,1"},
		{"best fit among four", 4, 4, false, []use{{Whole: 1, Set: []int{0}}, {Whole: 2, Set: []int{4, 5}}, {Whole: 3, Set: []int{8, 9, 10}}, {Whole: 2}}, "6,7"},
		{"over few nodes", 4, 4, false, []use{{Whole: 1, Set: []int{0}}, {Whole: 2, Set: []int{4, 5}}, {Whole: 6}}, "6,7,12,13,14,15"},
		{"near its devices", 2, 4, false, []use{{Whole: 2, Nodes: []int{0}}}, "2,3"},
		{"near its devices, but of one node first", 2, 4, false, []use{{Whole: 2, Set: []int{0, 1}}, {Whole: 4, Nodes: []int{0}}}, "4,5,6,7"},
		{"where it has some", 2, 4, false, []use{{Whole: 3, Set: []int{0}}}, "0,2,3"},
		{"where it has some, and elsewhere", 2, 4, false, []use{{Whole: 2, Set: []int{0, 1}}, {Whole: 4, Set: []int{2}}}, "2,3,6,7"},
		{"threads of a core together", 2, 4, true, []use{{Whole: 2}}, "7,15"},
		{"not of a core that is divided", 1, 4, true, []use{{Whole: 1, Set: []int{7}}, {Whole: 2}}, "2,6"},
		{"of a core that is divided", 1, 4, true, []use{{Whole: 1, Set: []int{7}}, {Whole: 1}}, "3"},
		{"its own core first", 1, 4, true, []use{{Whole: 2, Set: []int{1}}}, "1,5"},
		{"eight nodes", 8, 2, false, []use{{Whole: 1, Set: []int{9}}, {Whole: 1}}, "8"},
		{"required", 2, 4, false, []use{{Whole: 1, Set: []int{7}}, {Whole: 4, Require: true}}, "0,1,2,3"},
		{
			"required, and not there", 2, 4, false,
			[]use{{Whole: 1, Set: []int{7}}, {Whole: 1, Set: []int{0}}, {Whole: 4, Require: true}},
			"4 cores of its own, all of one NUMA node (numa: require): 6 of the machine's 8 are left, at most 3 of one node",
		},
		{"spread", 2, 4, false, []use{{Near: true, Milli: 500, Set: []int{4, 5, 6, 7}}, {Near: true, Milli: 100}}, "0,1,2,3"},
		{"spread by what they ask for", 2, 4, false, []use{
			{Near: true, Milli: 100, Set: []int{4, 5, 6, 7}}, {Near: true, Milli: 100, Set: []int{4, 5, 6, 7}}, {Near: true, Milli: 500, Set: []int{0, 1, 2, 3}}, {Near: true, Milli: 100},
		}, "4,5,6,7"},
		{"where others have none of their own", 2, 4, false, []use{{Whole: 2, Set: []int{6, 7}}, {Near: true, Milli: 100}}, "0,1,2,3"},
		{"near devices", 2, 4, false, []use{{Near: true, Milli: 500, Set: []int{4, 5, 6, 7}}, {Near: true, Milli: 100, Nodes: []int{1}}}, "4,5,6,7"},
		{"away from where it had to wait", 2, 4, false, []use{{Near: true, Milli: 500, Set: []int{0, 1, 2, 3}}, {Near: true, Milli: 100, Left: &one}}, "0,1,2,3"},
		{"away from where another had to wait", 2, 4, false, []use{{Near: true, Milli: 500, Set: []int{0, 1, 2, 3}}, {Near: true, Loose: true, Left: &one}, {Near: true, Milli: 100}}, "0,1,2,3"},
		{"not for ever", 2, 4, false, []use{{Near: true, Milli: 500, Set: []int{0, 1, 2, 3}}, {Near: true, Left: &one, Set: []int{0, 1, 2, 3}}, {Near: true, Milli: 100}}, "4,5,6,7"},
		{"loose", 2, 4, false, []use{{Near: true, Loose: true, Milli: 500, Set: []int{0, 1, 2, 3}}}, "0,1,2,3,4,5,6,7"},
		{"where it is", 2, 4, false, []use{{Near: true, Milli: 500, Set: []int{0, 1, 2, 3}}, {Near: true, Milli: 100, Set: []int{0, 1, 2, 3}}}, "0,1,2,3"},
		{"not where it is, of what is full", 2, 4, false, []use{{Near: true, Milli: 3500, Set: []int{0, 1, 2, 3}}, {Near: true, Milli: 600, Set: []int{0, 1, 2, 3}}}, "4,5,6,7"},
		{"it fits in no node", 2, 4, false, []use{{Near: true, Milli: 4100}}, "0,1,2,3,4,5,6,7"},
		{"no node has room", 2, 4, false, []use{{Near: true, Milli: 3000}, {Near: true, Milli: 3000}, {Near: true, Milli: 2000}}, "0,1,2,3,4,5,6,7"},
		{"batch has all", 2, 4, false, []use{{Near: true, Milli: 100}, {Milli: 100}}, "0,1,2,3,4,5,6,7"},
		{"batch has all that are left", 2, 4, false, []use{{Whole: 3}, {Milli: 100}}, "0,1,2,3,4"},
		{"its node is taken", 2, 2, false, []use{{Whole: 2, Set: []int{2, 3}}, {Near: true, Milli: 100, Set: []int{2, 3}}}, "0,1"},
	} {
		topology, all := machineOf(c.nodes, c.cores, c.siblings)
		sets, _, err := nodeagent.DivideCores(topology, all, c.uses)
		got := fmt.Sprint(err)
		if err == nil {
			got = nodeagent.FormatCores(sets[len(sets)-1])
		}
		if got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}

// TestCoresWithoutMemory: a node without memory, and cores that no node has, come last.
func TestCoresWithoutMemory(t *testing.T) {
	t.Parallel()
	topology, all := machineOf(3, 2, false)
	topology.Nodes[2].Memory = 0
	all = append(all, 6, 7) // of none
	for _, c := range []struct {
		use  nodeagent.CoreUse
		want []int
	}{
		{nodeagent.CoreUse{Whole: 2}, []int{2, 3}},
		{nodeagent.CoreUse{Near: true, Milli: 100}, []int{2, 3}},
		{nodeagent.CoreUse{Whole: 2, Nodes: []int{2}}, []int{4, 5}},
	} {
		sets, _, err := nodeagent.DivideCores(topology, all, []nodeagent.CoreUse{c.use})
		if err != nil || !slices.Equal(sets[0], c.want) {
			t.Errorf("%+v: %v, %v, want %v", c.use, sets, err, c.want)
		}
	}
	if _, _, err := nodeagent.DivideCores(topology, nil, []nodeagent.CoreUse{{Whole: 1}}); err == nil {
		t.Error("a machine without cores gives some")
	}
}

func TestParseCores(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][]int{"0": {0}, "0-2,5": {0, 1, 2, 5}, "3,1-2,2": {1, 2, 3}} {
		if got, err := nodeagent.ParseCores(text); err != nil || !slices.Equal(got, want) {
			t.Errorf("%q: %v, %v, want %v", text, got, err, want)
		}
	}
	for _, text := range []string{"", "a", "1-", "-1", "2-1", "0-99999999", "1,,2"} {
		if got, err := nodeagent.ParseCores(text); err == nil {
			t.Errorf("%q: %v, want an error", text, got)
		}
	}
}

// BenchmarkDivideCores is the start of a task on a machine of 8 nodes and 256 threads with 300 tasks.
func BenchmarkDivideCores(b *testing.B) {
	topology, all := machineOf(8, 16, true)
	uses := make([]nodeagent.CoreUse, 300)
	for i := range uses {
		uses[i] = nodeagent.CoreUse{Near: i%3 > 0, Milli: 500}
		if i%30 == 0 {
			uses[i] = nodeagent.CoreUse{Whole: 4}
		}
	}
	for range 2 {
		sets, _, err := nodeagent.DivideCores(topology, all, uses)
		if err != nil {
			b.Fatal(err)
		}
		for i := range uses {
			uses[i].Set = sets[i]
		}
		uses[299].Set = nil
	}
	for b.Loop() {
		if _, _, err := nodeagent.DivideCores(topology, all, uses); err != nil {
			b.Fatal(err)
		}
	}
}
