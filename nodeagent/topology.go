package nodeagent

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// NUMANode is a part of a machine: cores, and the memory that is near them.
type NUMANode struct {
	// ID is the kernel's number of it.
	ID int
	// Cores are those that are on line, sorted.
	Cores []int
	// Memory is in bytes; 0 for a node that has none, all of whose memory is far.
	Memory int64
}

// Topology is how the cores of a machine hang together. The zero Topology is that of a
// machine of which nothing is known: all cores are of one node, and each is a processor core.
// A core is a hardware thread here, as in all that is said of cores of their own.
type Topology struct {
	// Nodes are those that have cores, by ID. No core is in two of them.
	Nodes []NUMANode
	// Siblings are the threads of each processor core that has several on line, each
	// list sorted.
	Siblings [][]int
}

// Of returns the IDs of the nodes to which the given cores belong, sorted; nil if they
// are of one of which nothing is known, or if the machine has not several.
func (t *Topology) Of(cores []int) []int {
	if len(t.Nodes) < 2 {
		return nil
	}
	var of []int
	for i := range t.Nodes {
		n := &t.Nodes[i]
		if slices.ContainsFunc(cores, func(core int) bool { return slices.Contains(n.Cores, core) }) {
			of = append(of, n.ID)
		}
	}
	return of
}

// part is a node as far as tasks may use it.
type part struct {
	NUMANode
	free []int // of Cores, those that nobody has for himself
	room int64 // thousandths of a core of free that no task bound to the node asks for
	near int   // tasks bound to it
	// waits is how many tasks had to wait there, and are not bound for now.
	waits int
}

// parts returns the nodes that have some of the given cores, which are sorted, with
// these alone. Cores of which the topology does not know are those of one more.
func (t *Topology) parts(cores []int) []part {
	var out []part
	rest := slices.Clone(cores)
	for i := range t.Nodes {
		n := t.Nodes[i]
		in := func(core int) bool { return slices.Contains(n.Cores, core) }
		own := slices.DeleteFunc(slices.Clone(rest), func(core int) bool { return !in(core) })
		rest = slices.DeleteFunc(rest, in)
		if n.Cores = own; len(own) > 0 {
			out = append(out, part{NUMANode: n})
		}
	}
	if len(rest) > 0 {
		out = append(out, part{NUMANode: NUMANode{ID: -1, Cores: rest}})
	}
	return out
}

// physical returns the processor cores of the given threads, each with those of its
// threads that are among them, the highest first.
func (t *Topology) physical(cores []int) [][]int {
	in := func(core int) bool { return slices.Contains(cores, core) }
	rest := slices.Clone(cores)
	var out [][]int
	for _, s := range t.Siblings {
		if own := slices.DeleteFunc(slices.Clone(s), func(core int) bool { return !in(core) }); len(own) > 0 {
			out = append(out, own)
			rest = slices.DeleteFunc(rest, func(core int) bool { return slices.Contains(own, core) })
		}
	}
	for _, core := range rest {
		out = append(out, []int{core})
	}
	slices.SortFunc(out, func(a, b []int) int { return cmp.Compare(b[0], a[0]) })
	return out
}

// ParseCores reads a list of cores as the kernel writes it, such as 0-2,5; sorted, each once.
// It errs for what is no such list, also for an empty one.
func ParseCores(text string) ([]int, error) {
	var list []int
	for part := range strings.SplitSeq(text, ",") {
		from, to, isRange := strings.Cut(part, "-")
		if !isRange {
			to = from
		}
		a, errA := strconv.Atoi(from)
		b, errB := strconv.Atoi(to)
		if errA != nil || errB != nil || a < 0 || b < a || b-a > 1<<16 {
			return nil, fmt.Errorf("list of cores %q", text)
		}
		for core := a; core <= b; core++ {
			list = append(list, core)
		}
	}
	slices.Sort(list)
	return slices.Compact(list), nil
}

// FormatCores writes a list of cores as the kernel reads it; "" for none.
func FormatCores(list []int) string {
	words := make([]string, len(list))
	for i, core := range list {
		words[i] = strconv.Itoa(core)
	}
	return strings.Join(words, ",")
}
