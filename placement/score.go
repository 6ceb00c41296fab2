package placement

import (
	"math"
	"slices"

	"github.com/musterhq/muster/placement/device"
	"github.com/musterhq/muster/placement/layout"
	"github.com/musterhq/muster/placement/packages"
)

// worth returns the score of a machine that has room for the class.
func (s *Snapshot) worth(c *class, slot int32) float32 { return s.rate(c, slot, nil) }

// rate returns the score of a machine that has room, and reports its parts if it is asked
// for them.
func (s *Snapshot) rate(c *class, slot int32, t *Terms) (total float32) {
	if s.options.Policy != "" && s.options.Policy != Hybrid {
		total = s.fit(c, slot)
		if t != nil {
			t.Fit = total
		}
		return total
	}
	w := &s.weights
	total = s.packing(c, slot, t)
	if c.job >= 0 && s.jobs.At(c.job).held > 0 {
		if n := s.staysOnMachine(c.job, slot); n > 0 {
			company := -w.Machine * float32(n) / float32(n+1)
			if total += company; t != nil {
				t.Machine = company
			}
		}
	}
	return s.lessUnmet(c, slot, nil, total, t)
}

// lessUnmet takes from a score what the class wishes of a machine and would not have there when
// some of its tasks have gone, and reports the parts if it is asked for them.
func (s *Snapshot) lessUnmet(c *class, slot int32, gone []int32, total float32, t *Terms) float32 {
	w := &s.weights
	if len(c.packages) > 0 {
		packages := -w.Packages * packages.Lacking(s.nodes.At(slot).holds, c.packages)
		if total += packages; t != nil {
			t.Packages = packages
		}
	}
	if s.noisy(c, slot, gone) {
		if total -= w.Noise; t != nil {
			t.Noise = -w.Noise
		}
	}
	if len(c.wishes) > 0 {
		wish := -w.Wish * c.missed(slot)
		if total += wish; t != nil {
			t.Wish = wish
		}
	}
	if len(c.needs) > 1 {
		devices := -w.Wish * s.passedOver(c, slot, gone)
		if total += devices; t != nil {
			t.Devices = devices
		}
	}
	if c.kin.hasPreferred() {
		affinity := -w.Wish * s.kindred.estranged(c.kin, slot, s.profilesOf(gone))
		if total += affinity; t != nil {
			t.Affinity = affinity
		}
	}
	return total
}

// passedOver returns how many alternatives of devices come before the first for which a machine
// has enough when some of its tasks have gone: each is as bad as a broken wish of 100. Where there are
// not enough for any, others would have to go first, and those count that it does not have at all.
func (s *Snapshot) passedOver(c *class, slot int32, gone []int32) float32 {
	devices := s.nodes.At(slot).devices
	if len(gone) > 0 {
		devices = slices.Clone(devices)
		for _, id := range gone {
			device.Give(devices, s.tasks.At(id).devices)
		}
	}
	which := c.needs.Free(devices)
	if which < 0 {
		which = c.needs.Exist(devices)
	}
	if which < 0 {
		which = len(c.needs)
	}
	return float32(which)
}

// milliOn returns how much of devices a class would get on a machine, in thousandths of one.
func (s *Snapshot) milliOn(c *class, slot int32) int {
	if len(c.needs) < 2 {
		return c.needs.Milli(0)
	}
	return c.needs.Milli(max(c.needs.Free(s.nodes.At(slot).devices), 0))
}

// noisy reports whether tasks wait for processors of a machine, or a job holds some of it beside
// which those of the class should not be, when some of its tasks have gone.
func (s *Snapshot) noisy(c *class, slot int32, gone []int32) bool {
	if s.rows.At(slot).overloaded {
		return true
	}
	for _, job := range c.apart {
		stay := s.staysOnMachine(job, slot)
		for _, id := range gone {
			if s.tasks.At(id).job == job {
				stay--
			}
		}
		if stay > 0 {
			return true
		}
	}
	return false
}

// fit returns the score of the policies that hybrid is compared with.
func (s *Snapshot) fit(c *class, slot int32) float32 {
	switch s.options.Policy {
	case Random:
		return float32(layout.Mix(s.nodes.At(slot).hash^c.id)>>40) / (1 << 24)
	case BestFit:
		return -s.leftover(c, slot)
	case WorstFit:
		return -s.marginalCost(c, slot)
	}
	return s.alignment(c, slot)
}

// missed returns the weights of the preferences that do not hold of a machine.
func (c *class) missed(slot int32) (sum float32) {
	for i := range c.wishes {
		if v := &c.wishes[i]; v.holds(slot) != (v.weight > 0) {
			sum += abs(v.weight)
		}
	}
	return sum
}

func abs(x float32) float32 { return max(x, -x) }

// packing returns what the terms are worth together that are about what is left. That is
// less than what stands above packing: their sum, brought between -Packing/2 and
// Packing/2, and what it is to begin the machine.
func (s *Snapshot) packing(c *class, slot int32, t *Terms) float32 {
	w, r, n := &s.weights, s.rows.At(slot), s.nodes.At(slot)
	less := s.lessWorth(c, n, r)
	var room, stranded, shape, open, headroom, mix float32
	var tight float32
	if s.typical.Steady {
		room, tight = -w.Room*less, -w.SteadyTight*max(s.left(c, r, &s.typical.Tight), 0)
	} else {
		tight = -w.Tight * s.left(c, r, &s.typical.Scale)
		u := &r.unit
		stranded = w.Stranded * less
		even := w.Shape
		if 2*s.devices >= DeviceMilli*s.machines && s.devices > 0 { // some without do not make it another cell
			even = w.ShapeDevices
		}
		shape = even * (u[0]*c.shape[0] + u[1]*c.shape[1] + u[2]*c.shape[2] + u[3]*c.shape[3])
		if r.idle {
			if open = -(w.Open + w.OpenLarge*c.beyond); c.plain {
				open -= (w.OpenSize + w.OpenSizeLarge*c.beyond) * max(s.leftPlain(c, r, &s.typical.Tight), 0)
			}
		}
	}
	if cpu := n.Capacity.CPUMilli; cpu > 0 && c.limit[0] > 0 {
		share := float32(r.prodCPU) / float32(cpu)
		mix = w.Mix * share
		if c.prod {
			after := share + float32(c.limit[0])/float32(cpu)
			mix, headroom = -mix, -w.Headroom*max(0, 10*(after-0.9))
		}
	}
	sum := room + stranded + shape + tight + open + headroom + mix
	by := w.Packing / 2 / (packingScale + abs(sum))
	var begin float32
	if r.empty {
		begin = -w.Begin
	}
	if t != nil {
		t.Room, t.Stranded, t.Shape, t.Tight = by*room, by*stranded, by*shape, by*tight
		t.Open, t.Headroom, t.Mix = by*open+begin, by*headroom, by*mix
	}
	return by*sum + begin
}

// packingScale is the sum of the terms of packing at which they are worth half of what
// they may be: some typical asks.
const packingScale = 8

// lessWorth returns how much less worth what is free on a machine is after a placement:
// of what is stranded, how much more it is, with the sign turned.
func (s *Snapshot) lessWorth(c *class, n *node, r *row) float32 {
	free := [dims]int64{max(r.byReserv[0]-c.limit[0], 0), max(r.byReserv[1]-c.limit[1], 0), max(r.byReserv[2]-c.limit[2], 0)}
	devices, whole := n.devices, r.devices
	var after [16]device.Device
	if c.needs != nil && len(devices) <= len(after) {
		var room [16]device.Use
		chosen, _ := c.needs.Pick(devices, room[:0])
		devices = after[:copy(after[:], devices)]
		for _, u := range chosen {
			devices[u.Index].Free -= u.Milli
			whole -= int32(u.Milli)
		}
	}
	worth, _ := s.typical.Value(&free, devices, whole, r.fits)
	return r.worth - worth
}

// left returns what is left after the placement, on a scale, summed over the dimensions.
func (s *Snapshot) left(c *class, r *row, scale *[dims + 1]float32) float32 {
	return s.leftPlain(c, r, scale) + float32(r.devices)*scale[dims]
}

// leftPlain is left without devices.
func (s *Snapshot) leftPlain(c *class, r *row, scale *[dims + 1]float32) float32 {
	return float32(r.byReserv[0]-c.limit[0])*scale[0] + float32(r.byReserv[1]-c.limit[1])*scale[1] +
		float32(r.byReserv[2]-c.limit[2])*scale[2]
}

// leftover returns what is left of the machine after the placement: the sum
// over the dimensions, as shares of the largest machine's. In a cell with
// devices RAM is left out, as in the best fit of the FGD paper, with which it
// is compared.
func (s *Snapshot) leftover(c *class, slot int32) float32 {
	var left float32
	for d := range dims {
		if s.largest[d] > 0 && (d != 1 || s.largest[dims] == 0) {
			left += float32(s.rows.At(slot).byReserv[d]-c.limit[d]) / float32(s.largest[d])
		}
	}
	if s.largest[dims] > 0 {
		whole := s.rows.At(slot).devices - int32(s.milliOn(c, slot))
		left += float32(whole) / float32(s.largest[dims])
	}
	return left
}

// alignment returns how much what is asked and what is free point into the same
// direction: their cosine, or, of DotProduct, their product with the sign turned.
func (s *Snapshot) alignment(c *class, slot int32) float32 {
	r := s.rows.At(slot)
	var product, asked, free float64
	add := func(d int, ask, has float64) {
		if most := float64(s.largest[d]); most > 0 {
			ask, has = ask/most, max(has, 0)/most
			product, asked, free = product+ask*has, asked+ask*ask, free+has*has
		}
	}
	for d := range dims {
		add(d, float64(c.limit[d]), float64(r.byReserv[d]))
	}
	add(dims, float64(s.milliOn(c, slot)), float64(r.devices))
	if s.options.Policy == DotProduct {
		return -float32(product)
	}
	if asked == 0 || free == 0 {
		return 0
	}
	return float32(product / math.Sqrt(asked*free))
}

// marginalCost returns what a placement adds to the machine's cost, where the
// cost of a dimension grows tenfold from empty to full (E-PVM, Amir et al.).
func (s *Snapshot) marginalCost(c *class, slot int32) float32 {
	capacity := vectorOf(s.nodes.At(slot).Capacity)
	var cost float64
	add := func(free, ask, capacity float64) {
		if capacity > 0 && ask > 0 {
			used := 1 - free/capacity
			cost += math.Pow(10, used+ask/capacity) - math.Pow(10, used)
		}
	}
	for d := range dims {
		add(float64(s.rows.At(slot).byReserv[d]), float64(c.limit[d]), float64(capacity[d]))
	}
	add(float64(s.rows.At(slot).devices), float64(s.milliOn(c, slot)), float64(DeviceMilli*len(s.nodes.At(slot).devices)))
	return float32(cost)
}

func normalise(v *[dims + 1]float32) {
	var square float32
	for _, x := range v {
		square += x * x
	}
	if square > 0 {
		inv := float32(1 / math.Sqrt(float64(square)))
		for d := range v {
			v[d] *= inv
		}
	}
}

// scoreOf returns the score of a machine in words, from a slab, since every
// decision carries two.
func (s *Snapshot) scoreOf(c *class, slot int32) *Score {
	if len(s.scored) == 0 { // twice as many as before: a fork asks for few
		s.slab = min(max(2*s.slab, 2), 256)
		s.scored = make([]Score, s.slab)
	}
	out := &s.scored[0]
	s.scored = s.scored[1:]
	*out = Score{Machine: s.nodes.At(slot).Name}
	out.Total = s.rate(c, slot, &out.Terms)
	return out
}
