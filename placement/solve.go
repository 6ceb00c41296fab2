package placement

import (
	"cmp"
	"math"
	"slices"

	"github.com/musterhq/muster/placement/device"
)

// searchSteps bounds the search for the least eviction on one machine. Cells
// of any size stay below it but where one machine holds dozens of tasks that
// could go; there the best found so far is taken, less what does not help.
const searchSteps = 20_000

// search looks for the least set of victims on one machine: all sets of one
// task, then of two, and so on, until some make room; of these the cheapest.
type search struct {
	s       *Snapshot
	c       *class
	slot    int32
	list    []int32  // what may go, lowest priority first
	gains   []vector // what each gives
	chosen  []int32
	best    []int32
	cost    evictionCost
	steps   int
	devices []device.Device
	most    int16 // disruptions beyond budgets
	parties parties
	unmet   float32 // see candidate.unmet
}

// solve returns the least eviction on a machine by evictionCost, sparing of those
// that keep the budgets of all jobs; false when none makes room.
func (s *Snapshot) solve(c *class, slot int32, sparing bool) (eviction, bool) {
	level := s.level(c, slot)
	if level == impossible {
		return eviction{}, false
	}
	list := s.evictable(c, slot, nil)
	g := parties{}
	if sparing {
		list = slices.DeleteFunc(list, func(id int32) bool { return s.overruns([]int32{id}, g) > 0 })
	}
	best, unmet := &search{}, s.unmet(c, slot, nil)
	found := func(most int16) bool {
		f := &search{s: s, c: c, slot: slot, most: most, parties: g, unmet: unmet}
		ok := f.solve(list, level)
		if ok {
			best = f
		}
		return ok
	}
	// Budgets come before priorities: a set that violates fewer is looked for first.
	for _, most := range []int16{0, 1, 2, math.MaxInt16} {
		if found(most) {
			for low := int16(3); most == math.MaxInt16 && low < best.cost.overruns; { // a gang violates many at once
				if most := low + (best.cost.overruns-low)/2; !found(most) {
					low = most + 1
				}
			}
			return eviction{slot: slot, victims: best.best, cost: best.cost}, true
		}
		if sparing || s.budgetOf == nil || !s.bounded {
			break
		}
	}
	return eviction{}, false
}

// solve looks for the least set of victims, priority by priority from a level up.
func (f *search) solve(list []int32, level int16) bool {
	for n, id := range list { // each is the last of those up to its priority, or is not
		p := f.s.tasks.At(id).priority
		if p < level || n+1 < len(list) && f.s.tasks.At(list[n+1]).priority == p {
			continue
		}
		if f.find(list[:n+1]) {
			return true
		}
	}
	return f.find(nil)
}

// find looks for the least set of victims among those of a list.
func (f *search) find(list []int32) bool {
	if f.list = list; !f.enough(list) {
		return false
	}
	f.gains = f.gains[:0]
	for _, id := range list {
		f.gains = append(f.gains, f.s.gain(f.c, f.s.tasks.At(id)))
	}
	lack, ports := f.s.deficit(f.c, f.slot)
	// Of a set with a gang more may go than of a larger one.
	for size := 0; size <= len(list) && (f.best == nil || size <= int(f.cost.victims)); size++ {
		if f.canReach(size, lack, ports) {
			f.try(0, size, lack, ports)
		}
	}
	if f.best == nil {
		if f.best = f.greedy(); !f.s.near(f.c, f.slot, f.best) {
			f.best = nil
		}
		if f.cost = f.costOf(f.best); f.cost.overruns > f.most {
			f.best = nil
		}
	}
	return f.best != nil
}

// canReach reports whether any set of so many could give what is lacking, each
// dimension taken alone.
func (f *search) canReach(size int, lack vector, ports int) bool {
	values := make([]int64, len(f.list))
	reach := func(lack int64, of func(i int) int64) bool {
		if lack <= 0 {
			return true
		}
		for i := range f.list {
			values[i] = of(i)
		}
		slices.Sort(values)
		for i := len(values) - 1; i >= len(values)-size; i-- {
			lack -= values[i]
		}
		return lack <= 0
	}
	for d := range dims {
		if !reach(lack[d], func(i int) int64 { return f.gains[i][d] }) {
			return false
		}
	}
	return reach(int64(ports), func(i int) int64 { return int64(f.s.portGain(f.s.tasks.At(f.list[i]))) })
}

// try extends the chosen victims by size more from the list, from an index on.
func (f *search) try(from, size int, lack vector, ports int) {
	f.steps++
	if f.steps > searchSteps {
		return
	}
	if size == 0 {
		if lack[0] > 0 || lack[1] > 0 || lack[2] > 0 || ports > 0 || !f.devicesFit(f.chosen) || !f.s.numbersWithout(f.c, f.slot, f.chosen) || !f.s.unrepelled(f.c, f.slot, f.chosen) || !f.s.near(f.c, f.slot, f.chosen) {
			return
		}
		if cost := f.costOf(f.chosen); cost.overruns > f.most {
			return
		} else if f.best == nil || cost.compare(&f.cost) < 0 {
			f.best, f.cost = slices.Clone(f.chosen), cost
			if f.best == nil {
				f.best = []int32{}
			}
		}
		return
	}
	for i := from; i <= len(f.list)-size; i++ {
		if i > from && f.alike(i, i-1) {
			continue // a set with this one instead of that is no better
		}
		less := lack
		for d := range dims {
			less[d] -= f.gains[i][d]
		}
		f.chosen = append(f.chosen, f.list[i])
		f.try(i+1, size-1, less, ports-f.s.portGain(f.s.tasks.At(f.list[i])))
		f.chosen = f.chosen[:len(f.chosen)-1]
	}
}

// alike reports whether it is no matter which of two tasks goes.
func (f *search) alike(i, k int) bool {
	t, u := f.s.tasks.At(f.list[i]), f.s.tasks.At(f.list[k])
	return t.priority == u.priority && f.gains[i] == f.gains[k] && len(t.ports)+len(u.ports) == 0 &&
		len(t.devices)+len(u.devices) == 0 && t.job == u.job && t.profile == u.profile
}

func (f *search) devicesFit(without []int32) bool {
	if f.c.needs == nil {
		return true
	}
	f.devices = append(f.devices[:0], f.s.nodes.At(f.slot).devices...)
	for _, id := range without {
		device.Give(f.devices, f.s.tasks.At(id).devices)
	}
	_, ok := f.c.needs.Pick(f.devices, nil)
	return ok
}

// greedy takes all that may go, sparing as far as budgets allow, and then puts
// back, from the highest priority and the smallest on, whatever is not needed: no
// victim is left that does not help. Of a priority those are put back first that came
// first. It returns nil where that is not enough.
func (f *search) greedy() []int32 {
	var victims []int32
	list := slices.Clone(f.list)
	slices.SortStableFunc(list, func(a, b int32) int {
		t, u := f.s.tasks.At(a), f.s.tasks.At(b)
		return cmp.Or(cmp.Compare(t.priority, u.priority), cmp.Compare(u.since, t.since))
	})
	for _, id := range list {
		if victims = append(victims, id); f.s.overruns(victims, f.parties) > f.most {
			victims = victims[:len(victims)-1]
		}
	}
	if !f.enough(victims) {
		return nil
	}
	for i := len(victims) - 1; i >= 0; i-- {
		without := slices.Delete(slices.Clone(victims), i, i+1)
		if f.enough(without) {
			victims = without
		}
	}
	return victims
}

func (f *search) enough(victims []int32) bool {
	lack, ports := f.s.deficit(f.c, f.slot)
	for _, id := range victims {
		gain := f.s.gain(f.c, f.s.tasks.At(id))
		for d := range dims {
			lack[d] -= gain[d]
		}
		ports -= f.s.portGain(f.s.tasks.At(id))
	}
	return lack[0] <= 0 && lack[1] <= 0 && lack[2] <= 0 && ports <= 0 && f.devicesFit(victims) && f.s.numbersWithout(f.c, f.slot, victims) && f.s.unrepelled(f.c, f.slot, victims)
}

// among returns how many of the victims are of a party.
func (f *search) among(victims []int32, party int32) (n int) {
	for _, id := range victims {
		if f.s.tasks.At(id).party() == party {
			n++
		}
	}
	return n
}

// costOf returns the cost of a set of victims.
func (f *search) costOf(victims []int32) evictionCost {
	s := f.s
	cost := evictionCost{victims: int16(len(victims)), overruns: s.overruns(victims, f.parties), unmet: f.unmet}
	if len(f.c.apart) > 0 || f.c.kin.hasPreferred() || len(f.c.needs) > 1 { // victims are no matter to other wishes
		cost.unmet = s.unmet(f.c, f.slot, victims)
	}
	lack, _ := s.deficit(f.c, f.slot)
	var given vector
	cost.again = s.again(victims)
	for i, id := range victims {
		t := s.tasks.At(id)
		cost.since += t.since
		cost.highest = max(cost.highest, t.priority)
		cost.sum += int32(t.priority)
		if t.takesOthers() && !s.isFurther(victims, i) { // with those of them among the victims
			cost.victims = int16(min(int(cost.victims)+f.parties.size(s, t)-f.among(victims, t.party()), math.MaxInt16))
		}
		gain := s.gain(f.c, t)
		for d := range dims {
			given[d] += gain[d]
		}
	}
	cost.since /= int64(max(len(victims), 1))
	for d := range dims {
		if more := given[d] - max(lack[d], 0); more > 0 {
			cost.excess += float32(more) / float32(max(f.c.limit[d], 1))
		}
	}
	return cost
}
