package experiment

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"

	"github.com/musterhq/muster/placement"
	"github.com/musterhq/muster/placement/pack"
	"github.com/musterhq/muster/schema"
)

// Question is what can be asked.
type Question struct {
	Name  string
	Asks  string // in words
	Paper string // what Borg's evaluation answers
	Draws bool   // the answer is drawn at random, by Cell.Seed, of a trace as well
}

// Questions returns all there are, in the order of the paper.
func Questions() []Question {
	var out []Question
	for i := range questions {
		out = append(out, questions[i].Question)
	}
	return out
}

func names() []string {
	var out []string
	for i := range questions {
		out = append(out, questions[i].Name)
	}
	return out
}

// question is a question with the ways that answer it. One without is about time.
type question struct {
	Question
	needs    need
	reclaims bool // it says how much is reclaimed, too
	ways     func(c *Cell, as placement.Options) []way
}

// need is what cells must have for a question.
type need int

const (
	nothing need = iota
	classes
	users
	usage
	needs // how many there are
)

var questions = []question{
	{Question{"segregation", "What if production and other work had cells of their own?", "20-30% more machines in the median cell (5.2)", false}, classes, false, segregated},
	{Question{"large-users", "What if large users had cells of their own?", "2-16 times as many cells, 20-150% more machines (5.2)", false}, users, false, userCells},
	{Question{"smaller-cells", "What if the work were in several smaller cells?", "significantly more machines (5.3)", true}, nothing, false, smaller},
	{Question{"buckets", "What if requests were rounded up to powers of two?", "30-50% more machines in the median cell (5.4)", false}, classes, false, bucketed},
	{Question{"reclamation", "What if nothing was reclaimed of what tasks do not use?", "many more machines; about 20% of the work runs in what is reclaimed (5.5)", true}, usage, true, unreclaimed},
	{Question{"policies", "What if tasks were placed by another policy?", "the hybrid needs 3-5% fewer machines than best fit (3.2)", false}, nothing, false, policies},
	{Question{"techniques", "What if what makes placement fast were switched off?", "a few hundred seconds become more than 3 days with all switched off (3.4)", false}, nothing, false, nil},
}

// part returns the cell with the asks only that are picked, by their indexes.
func part(c *Cell, picked func(i int) bool) pack.Cell {
	out := c.Cell
	out.Asks, out.Reserved = nil, nil
	for i := range c.Asks {
		if !picked(i) {
			continue
		}
		out.Asks = append(out.Asks, c.Asks[i])
		if c.Reserved != nil {
			out.Reserved = append(out.Reserved, c.Reserved[i])
		}
	}
	return out
}

// worked returns the cells that have work.
func worked(cells ...pack.Cell) []pack.Cell {
	return slices.DeleteFunc(cells, func(c pack.Cell) bool { return len(c.Asks) == 0 })
}

// segregated has production work in one cell and the rest in another one.
func segregated(c *Cell, as placement.Options) []way {
	prod := func(i int) bool { return c.Asks[i].Priority.Prod() }
	return []way{{"own cells", as, worked(part(c, prod), part(c, func(i int) bool { return !prod(i) }))}}
}

// largeUsers are from which part of a cell's RAM on users have a cell of their own.
var largeUsers = []float64{0.10, 0.02}

// userCells has large users in cells of their own.
func userCells(c *Cell, as placement.Options) []way {
	var has int64
	asked := map[string]int64{}
	for i := range c.Machines {
		has += c.Machines[i].Capacity.RAMBytes
	}
	for i := range c.Asks {
		asked[c.Asks[i].Name.User] += c.Asks[i].Limit.RAMBytes
	}
	var out []way
	for _, share := range largeUsers {
		large := func(user string) bool { return float64(asked[user]) >= share*float64(has) }
		cells := []pack.Cell{part(c, func(i int) bool { return !large(c.Asks[i].Name.User) })}
		for _, user := range slices.Sorted(maps.Keys(asked)) {
			if large(user) {
				cells = append(cells, part(c, func(i int) bool { return c.Asks[i].Name.User == user }))
			}
		}
		out = append(out, way{fmt.Sprintf("users of %.0f%% RAM", 100*share), as, worked(cells...)})
	}
	return out
}

// smallerCells are how many cells a cell is divided into.
var smallerCells = []int{2, 5, 10}

// smaller deals the jobs out, in random order, to several cells.
func smaller(c *Cell, as placement.Options) []way {
	var jobs []schema.JobName
	seen := map[schema.JobName]bool{}
	for i := range c.Asks {
		if name := c.Asks[i].Name.JobName; !seen[name] {
			seen[name] = true
			jobs = append(jobs, name)
		}
	}
	random := rand.New(rand.NewPCG(c.Seed, 53))
	random.Shuffle(len(jobs), func(i, j int) { jobs[i], jobs[j] = jobs[j], jobs[i] })
	at := map[schema.JobName]int{}
	for i, name := range jobs {
		at[name] = i
	}
	var out []way
	for _, n := range smallerCells {
		var cells []pack.Cell
		for k := range n {
			cells = append(cells, part(c, func(i int) bool { return at[c.Asks[i].Name.JobName]%n == k }))
		}
		out = append(out, way{fmt.Sprintf("%d cells", n), as, worked(cells...)})
	}
	return out
}

// Buckets begin with half a core and a gibibyte, as those of the paper.
const (
	leastCPUMilli = 500
	leastRAMBytes = 1 << 30
)

// bucketed rounds the requests of production tasks up to the next power of two. A task that is
// then larger than all machines has to have a whole one, or keeps its request.
func bucketed(c *Cell, as placement.Options) []way {
	largest := func(i int) *placement.Machine {
		var out *placement.Machine
		for j := range c.Machines {
			if m := &c.Machines[j]; c.Asks[i].Limit.Fits(m.Capacity) && (out == nil || larger(m, out)) {
				out = m
			}
		}
		return out
	}
	fits := func(l schema.Resources) bool {
		return slices.ContainsFunc(c.Machines, func(m placement.Machine) bool { return l.Fits(m.Capacity) })
	}
	least, most := c.Cell, c.Cell
	least.Asks, most.Asks = slices.Clone(c.Asks), slices.Clone(c.Asks)
	for i := range c.Asks {
		if !c.Asks[i].Priority.Prod() {
			continue
		}
		rounded := c.Asks[i].Limit
		rounded.CPUMilli, rounded.RAMBytes = powerOfTwo(rounded.CPUMilli, leastCPUMilli), powerOfTwo(rounded.RAMBytes, leastRAMBytes)
		if fits(rounded) {
			least.Asks[i].Limit, most.Asks[i].Limit = rounded, rounded
		} else if m := largest(i); m != nil {
			most.Asks[i].Limit = m.Capacity
		}
	}
	return []way{
		{"rounded, if it fits", as, []pack.Cell{least}},
		{"rounded, or a machine", as, []pack.Cell{most}},
	}
}

func larger(a, b *placement.Machine) bool {
	return a.Capacity.CPUMilli > b.Capacity.CPUMilli || a.Capacity.CPUMilli == b.Capacity.CPUMilli && a.Capacity.RAMBytes > b.Capacity.RAMBytes
}

// powerOfTwo returns the least of least, twice that, four times that and so on that is not less
// than n; nothing stays nothing.
func powerOfTwo(n, least int64) int64 {
	if n == 0 {
		return 0
	}
	for least < n {
		least *= 2
	}
	return least
}

// unreclaimed has all tasks keep all that they ask for.
func unreclaimed(c *Cell, as placement.Options) []way {
	all := c.Cell
	all.Reserved = make([]schema.Resources, len(c.Asks))
	for i := range c.Asks {
		all.Reserved[i] = c.Asks[i].Limit
	}
	return []way{{"no reclamation", as, []pack.Cell{all}}}
}

// reclaimed is how much of what is asked for tasks' machines do not have, on so many machines
// of a cell, drawn at random.
func reclaimed(c *Cell, machines int, as placement.Options) *Reclaimed {
	few := c.Cell
	random := rand.New(rand.NewPCG(c.Seed, 55))
	few.Machines = nil
	for _, i := range random.Perm(len(c.Machines))[:min(machines, len(c.Machines))] {
		few.Machines = append(few.Machines, c.Machines[i])
	}
	on := pack.Pack(few, as)
	limits := map[string]schema.Resources{}
	var asked, over schema.Resources
	for i := range c.Asks {
		if m := on[c.Asks[i].Name]; m != "" {
			limits[m] = limits[m].Add(c.Asks[i].Limit)
			asked = asked.Add(c.Asks[i].Limit)
		}
	}
	for i := range few.Machines {
		m := &few.Machines[i]
		over.CPUMilli += max(0, limits[m.Name].CPUMilli-m.Capacity.CPUMilli)
		over.RAMBytes += max(0, limits[m.Name].RAMBytes-m.Capacity.RAMBytes)
	}
	percent := func(part, of int64) float64 { return 100 * float64(part) / float64(max(of, 1)) }
	return &Reclaimed{CPU: percent(over.CPUMilli, asked.CPUMilli), RAM: percent(over.RAMBytes, asked.RAMBytes)}
}

// policies places tasks by other policies than the cell does, and by the hybrid without what it
// does beside choosing machines, which the others do not: it decides large tasks first.
func policies(c *Cell, as placement.Options) []way {
	var out []way
	if as.Policy == placement.Hybrid {
		out = append(out, way{"hybrid, as they come", placement.Options{Policy: placement.Hybrid, OneByOne: true}, []pack.Cell{c.Cell}})
	}
	for _, p := range []placement.Policy{placement.Hybrid, placement.BestFit, placement.WorstFit, placement.Random} {
		if p != as.Policy {
			out = append(out, way{string(p), placement.Options{Policy: p}, []pack.Cell{c.Cell}})
		}
	}
	return out
}
