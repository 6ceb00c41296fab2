package placement

import "slices"

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
	devices []device
	sparing bool // only sets that keep the budgets of all jobs will do
}

// solve returns the least eviction on a machine by evictionCost, sparing of those
// that keep the budgets of all jobs; false when none makes room.
func (s *Snapshot) solve(c *class, slot int32, sparing bool) (eviction, bool) {
	level := s.level(c, slot)
	if level == impossible {
		return eviction{}, false
	}
	f := &search{s: s, c: c, slot: slot, sparing: sparing}
	list := s.evictable(c, slot, nil)
	if sparing {
		list = slices.DeleteFunc(list, func(id int32) bool { return s.overruns([]int32{id}) > 0 })
	}
	for n, id := range list { // each is the last of those up to its priority, or is not
		p := s.tasks.at(id).priority
		if p < level || n+1 < len(list) && s.tasks.at(list[n+1]).priority == p {
			continue
		}
		if f.find(list[:n+1]) {
			break
		}
	}
	if f.best == nil && !f.find(nil) {
		return eviction{}, false
	}
	return eviction{slot: slot, victims: f.best, cost: f.cost}, true
}

// find looks for the least set of victims among those of a list.
func (f *search) find(list []int32) bool {
	if f.list = list; !f.enough(list) {
		return false
	}
	f.gains = f.gains[:0]
	for _, id := range list {
		f.gains = append(f.gains, f.s.gain(f.c, f.s.tasks.at(id)))
	}
	lack, ports := f.s.deficit(f.c, f.slot)
	for size := 0; size <= len(list) && f.best == nil; size++ {
		if f.canReach(size, lack, ports) {
			f.try(0, size, lack, ports)
		}
	}
	if f.best == nil {
		f.best = f.greedy()
		f.cost = f.s.costOf(f.best)
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
	return reach(int64(ports), func(i int) int64 { return int64(f.s.portGain(f.s.tasks.at(f.list[i]))) })
}

// try extends the chosen victims by size more from the list, from an index on.
func (f *search) try(from, size int, lack vector, ports int) {
	f.steps++
	if f.steps > searchSteps {
		return
	}
	if size == 0 {
		if lack[0] > 0 || lack[1] > 0 || lack[2] > 0 || ports > 0 || !f.devicesFit(f.chosen) || !f.s.numbersWithout(f.c, f.slot, f.chosen) {
			return
		}
		if cost := f.s.costOf(f.chosen); f.sparing && cost.overruns > 0 {
			return
		} else if f.best == nil || cost.compare(f.cost) < 0 {
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
		f.try(i+1, size-1, less, ports-f.s.portGain(f.s.tasks.at(f.list[i])))
		f.chosen = f.chosen[:len(f.chosen)-1]
	}
}

// alike reports whether it is no matter which of two tasks goes.
func (f *search) alike(i, k int) bool {
	t, u := f.s.tasks.at(f.list[i]), f.s.tasks.at(f.list[k])
	return t.priority == u.priority && f.gains[i] == f.gains[k] && len(t.ports)+len(u.ports) == 0 &&
		len(t.devices)+len(u.devices) == 0 && (t.job == u.job || !f.s.bounded)
}

func (f *search) devicesFit(without []int32) bool {
	if f.c.needs == nil {
		return true
	}
	f.devices = append(f.devices[:0], f.s.nodes.at(f.slot).devices...)
	for _, id := range without {
		giveDevices(f.devices, f.s.tasks.at(id).devices)
	}
	_, ok := pick(f.devices, f.c.needs, nil)
	return ok
}

// greedy takes all that may go, sparing as far as budgets allow, and then puts
// back, from the highest priority and the smallest on, whatever is not needed: no
// victim is left that does not help. It returns nil where that is not enough.
func (f *search) greedy() []int32 {
	var victims []int32
	for _, id := range f.list {
		if victims = append(victims, id); f.sparing && f.s.overruns(victims) > 0 {
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
		gain := f.s.gain(f.c, f.s.tasks.at(id))
		for d := range dims {
			lack[d] -= gain[d]
		}
		ports -= f.s.portGain(f.s.tasks.at(id))
	}
	return lack[0] <= 0 && lack[1] <= 0 && lack[2] <= 0 && ports <= 0 && f.devicesFit(victims) && f.s.numbersWithout(f.c, f.slot, victims)
}

// costOf returns the cost of a set of victims.
func (s *Snapshot) costOf(victims []int32) evictionCost {
	cost := evictionCost{victims: int16(len(victims)), overruns: s.overruns(victims)}
	for _, id := range victims {
		p := s.tasks.at(id).priority
		cost.highest = max(cost.highest, p)
		cost.sum += int32(p)
	}
	return cost
}
