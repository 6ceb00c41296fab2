package pack

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/musterhq/muster/placement"
	"github.com/musterhq/muster/schema"
)

// TestCompactIndependent: what compaction says has room is an assignment that a packer of this
// test's own finds right, which knows nothing of placement; and it takes hardly more machines than
// that one does by first fit, the best of four orders of the tasks, on the same machines in the same order.
func TestCompactIndependent(t *testing.T) {
	t.Parallel()
	ours, plain, softened := 0, 0, 0
	for seed := range uint64(6) {
		bins, items := generated(rand.New(rand.NewPCG(seed, 7)), seed%3 == 2)
		c := cellOf(bins, items)
		soft := loosen(bins, items)
		r, err := Compact(c, 3, placement.Options{})
		if err != nil {
			t.Fatal(err)
		}
		softened += len(r.Softened)
		if slices.Compare(r.Softened, soft) != 0 || r.Pending != 0 || r.Clones != 1 {
			t.Fatalf("cell %d: softened %q, want %q; %d may be pending, %d clones", seed, r.Softened, soft, r.Pending, r.Clones)
		}
		for i, n := range r.PerSeed {
			cell := c
			cell.Asks, _ = soften(&c)
			cell.Machines = shuffled(c.Machines, uint64(i))[:n]
			if err := right(bins, items, cell.Machines, Pack(cell, placement.Options{})); err != nil {
				t.Errorf("cell %d, order %d, %d machines: %v", seed, i, n, err)
			}
			least := firstFits(bins, items, shuffled(c.Machines, uint64(i)))
			ours, plain = ours+n, plain+least
			if n > least+2+least/10 {
				t.Errorf("cell %d, order %d: %d machines, and first fit takes %d", seed, i, n, least)
			}
		}
	}
	t.Logf("%d machines, by first fit %d", ours, plain)
	if 100*ours > 105*plain || softened == 0 {
		t.Errorf("%d machines, by first fit %d: want at most 5%% more; %d jobs were softened", ours, plain, softened)
	}
}

// bin is a machine: its rack, and what it has of each of two resources.
type bin struct {
	rack string
	has  [2]int64
}

// item is a task: what it takes, and where it may be.
type item struct {
	job    string
	takes  [2]int64
	racks  []string // one of them; nil is any
	either bool     // racks are alternatives of their own
	apart  bool     // no other of its job on the machine
	soft   bool     // it may be anywhere, whatever its job says
}

// generated makes a cell of two sizes of machines in three racks, and jobs with more small tasks
// than large ones. One of them may be larger than half of the cell, and wants a rack that has no
// room for it.
func generated(r *rand.Rand, large bool) (map[string]bin, map[schema.TaskName]item) {
	bins, items := map[string]bin{}, map[schema.TaskName]item{}
	for i := range 36 {
		size := int64(1 + i%2)
		bins[fmt.Sprintf("m%02d", i)] = bin{fmt.Sprintf("r%d", i%3), [2]int64{size * 16, size * (48 + 16*r.Int64N(2))}}
	}
	add := func(job string, tasks int, x item) {
		x.job = job
		for i := range tasks {
			items[schema.TaskName{JobName: schema.JobName{Cell: "c", User: "u", Job: job}, Index: i}] = x
		}
	}
	jobs := 12
	if large {
		jobs = 3
		add("large", 150, item{takes: [2]int64{3, 4}, racks: []string{"r1"}, either: r.IntN(2) == 0})
	}
	for j := range jobs {
		x := item{takes: [2]int64{1 + r.Int64N(1+r.Int64N(8)), 1 + r.Int64N(1+r.Int64N(30))}}
		switch r.IntN(4) {
		case 0:
			x.racks, x.either = []string{"r0", "r2"}, r.IntN(2) == 0
		case 1:
			x.apart = true
		}
		add(fmt.Sprintf("job%02d", j), 1+r.IntN(12), x)
	}
	return bins, items
}

// loosen lets the tasks of jobs that want more than half of all machines be anywhere, and returns
// these jobs.
func loosen(bins map[string]bin, items map[schema.TaskName]item) []string {
	var has [2]int64
	for _, b := range bins {
		has[0], has[1] = has[0]+b.has[0], has[1]+b.has[1]
	}
	wants := map[string][2]int64{}
	for _, x := range items {
		w := wants[x.job]
		wants[x.job] = [2]int64{w[0] + x.takes[0], w[1] + x.takes[1]}
	}
	jobs := map[string]bool{}
	for name, x := range items {
		if w := wants[x.job]; 2*w[0] > has[0] || 2*w[1] > has[1] {
			x.soft, jobs["u/"+x.job] = true, true
			items[name] = x
		}
	}
	return slices.Sorted(maps.Keys(jobs))
}

// cellOf returns it as a cell.
func cellOf(bins map[string]bin, items map[schema.TaskName]item) Cell {
	var c Cell
	for name, b := range bins {
		c.Machines = append(c.Machines, placement.Machine{
			Name: name, Up: true, Attributes: map[string]string{"rack": b.rack}, Capacity: schema.Resources{CPUMilli: b.has[0] * 1000, RAMBytes: b.has[1] << 30},
		})
	}
	for name, x := range items {
		a := placement.Ask{Name: name, Limit: schema.Resources{CPUMilli: x.takes[0] * 1000, RAMBytes: x.takes[1] << 30}}
		in := func(racks ...string) []placement.Constraint {
			return []placement.Constraint{{Attribute: "rack", Op: placement.OpIn, Values: racks}}
		}
		switch {
		case x.racks != nil && !x.either:
			a.Constraints = in(x.racks...)
		case x.racks != nil:
			for _, rack := range x.racks {
				a.AnyOf = append(a.AnyOf, in(rack))
			}
		}
		if x.apart {
			a.PerDomain = []placement.DomainLimit{{Attribute: placement.MachineAttribute, Max: 1}}
		}
		c.Asks = append(c.Asks, a)
	}
	slices.SortFunc(c.Machines, func(a, b placement.Machine) int { return cmp.Compare(a.Name, b.Name) })
	slices.SortFunc(c.Asks, func(a, b placement.Ask) int { return a.Name.Compare(b.Name) })
	return c
}

// box is a bin that is being filled.
type box struct {
	bin
	jobs map[string]bool
}

// put puts an item into the box; it errs if that may not be there.
func (b *box) put(x *item) error {
	switch {
	case x.takes[0] > b.has[0] || x.takes[1] > b.has[1]:
		return fmt.Errorf("%v are left, and %v wanted", b.has, x.takes)
	case !x.soft && x.racks != nil && !slices.Contains(x.racks, b.rack):
		return fmt.Errorf("its rack is %s, and one of %v is wanted", b.rack, x.racks)
	case !x.soft && x.apart && b.jobs[x.job]:
		return fmt.Errorf("it has a task of %s, whose tasks are to be apart", x.job)
	}
	b.has[0], b.has[1] = b.has[0]-x.takes[0], b.has[1]-x.takes[1]
	b.jobs[x.job] = true
	return nil
}

// right errs if an assignment does not have each item on one of some machines, where it may be.
func right(bins map[string]bin, items map[schema.TaskName]item, machines []placement.Machine, on map[schema.TaskName]string) error {
	boxes := map[string]*box{}
	for i := range machines {
		boxes[machines[i].Name] = &box{bins[machines[i].Name], map[string]bool{}}
	}
	for name, x := range items {
		b := boxes[on[name]]
		if b == nil {
			return fmt.Errorf("%s is on %q", name.Short(), on[name])
		}
		if err := b.put(&x); err != nil {
			return fmt.Errorf("%s is on %s: %w", name.Short(), on[name], err)
		}
	}
	if len(on) != len(items) {
		return fmt.Errorf("%d tasks are placed, of %d", len(on), len(items))
	}
	return nil
}

// firstFits returns how many machines, in order, hold all items by first fit: those first that may
// not be anywhere, and the largest of them first, by one resource, the other or both.
func firstFits(bins map[string]bin, items map[schema.TaskName]item, machines []placement.Machine) int {
	bound := func(x *item) int {
		if x.soft || x.racks == nil && !x.apart {
			return 1
		}
		return 0
	}
	least := len(machines) + 1
	for _, size := range []func(x *item) int64{
		func(x *item) int64 { return x.takes[0] },
		func(x *item) int64 { return x.takes[1] },
		func(x *item) int64 { return max(4*x.takes[0], x.takes[1]) }, // a machine has some 4 times as much of the second
		func(x *item) int64 { return 4*x.takes[0] + x.takes[1] },
	} {
		sorted := slices.Collect(maps.Values(items))
		slices.SortFunc(sorted, func(a, b item) int {
			return cmp.Or(cmp.Compare(bound(&a), bound(&b)), cmp.Compare(size(&b), size(&a)), cmp.Compare(a.job, b.job))
		})
		least = min(least, firstFit(bins, sorted, machines))
	}
	return least
}

// firstFit puts each item into the first machine where it may be, and returns how many have one.
func firstFit(bins map[string]bin, items []item, machines []placement.Machine) (most int) {
	boxes := make([]*box, len(machines))
	for i := range machines {
		boxes[i] = &box{bins[machines[i].Name], map[string]bool{}}
	}
	for i := range items {
		at := slices.IndexFunc(boxes, func(b *box) bool { return b.put(&items[i]) == nil })
		if at < 0 {
			return len(machines) + 1
		}
		most = max(most, at+1)
	}
	return most
}
