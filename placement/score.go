package placement

import "math"

// infeasible is the score of a machine that has no room.
var infeasible = float32(math.Inf(-1))

// worth returns the score of a machine that has room for the class. It is the
// sum of terms, computed in the same order, so that the two never differ.
func (s *Snapshot) worth(c *class, slot int32) float32 {
	t := s.terms(c, slot)
	return t.total()
}

// terms returns the parts of the score of a machine that has room.
func (s *Snapshot) terms(c *class, slot int32) (t Terms) {
	switch s.options.Policy {
	case Random:
		t.Fit = float32(mix(s.nodes.at(slot).hash^c.id)>>40) / (1 << 24)
		return t
	case BestFit:
		t.Fit = -s.leftover(c, slot)
		return t
	case WorstFit:
		t.Fit = -s.marginalCost(c, slot)
		return t
	case DotProduct, Cosine:
		t.Fit = s.alignment(c, slot)
		return t
	}
	w, r := &s.weights, s.rows.at(slot)
	t.Stranded = -w.Stranded * s.strands(c, s.nodes.at(slot), r)
	u := &r.unit
	t.Shape = w.Shape * (u[0]*c.shape[0] + u[1]*c.shape[1] + u[2]*c.shape[2] + u[3]*c.shape[3])
	t.Tight = -w.Tight * s.left(c, r)
	if r.idle {
		t.Open = -w.Open
	}
	if cpu := s.nodes.at(slot).Capacity.CPUMilli; cpu > 0 && c.limit[0] > 0 {
		share := float32(r.prodCPU) / float32(cpu)
		if c.prod {
			after := share + float32(c.limit[0])/float32(cpu)
			t.Mix = -w.Mix * share
			t.Headroom = -w.Headroom * max(0, 10*(after-0.9))
		} else {
			t.Mix = w.Mix * share
		}
	}
	if c.job >= 0 && s.jobs.at(c.job).held > 0 {
		if n := s.staysOnMachine(c.job, slot); n > 0 {
			t.Machine = -w.Machine * float32(n) / float32(n+1)
		}
	}
	if len(c.packages) > 0 {
		t.Packages = -w.Packages * s.nodes.at(slot).lacking(c.packages)
	}
	for i := range c.wishes {
		if v := &c.wishes[i]; v.holds(slot) != (v.weight > 0) {
			t.Wish -= w.Wish * abs(v.weight)
		}
	}
	return t
}

func abs(x float32) float32 { return max(x, -x) }

// strands returns what a placement adds to what is stranded on the machine.
func (s *Snapshot) strands(c *class, n *node, r *row) float32 {
	free := vector{max(r.byReserv[0]-c.limit[0], 0), max(r.byReserv[1]-c.limit[1], 0), max(r.byReserv[2]-c.limit[2], 0)}
	devices, whole := n.devices, r.devices
	var after [16]device
	if c.needs != nil && len(devices) <= len(after) {
		var room [16]deviceUse
		chosen, _ := pick(devices, c.needs, room[:0])
		devices = after[:copy(after[:], devices)]
		for _, u := range chosen {
			devices[u.index].free -= u.milli
			whole -= int32(u.milli)
		}
	}
	useless, _ := s.typical.strand(&free, devices, whole, r.fits)
	return useless - r.stranded
}

// left returns what is left after the placement, in multiples of the typical
// ask, summed over the dimensions.
func (s *Snapshot) left(c *class, r *row) float32 {
	scale := &s.typical.scale
	return float32(r.byReserv[0]-c.limit[0])*scale[0] + float32(r.byReserv[1]-c.limit[1])*scale[1] +
		float32(r.byReserv[2]-c.limit[2])*scale[2] + float32(r.devices)*scale[dims]
}

// leftover returns what is left of the machine after the placement: the sum
// over the dimensions, as shares of the largest machine's. In a cell with
// devices RAM is left out, as in the best fit of the FGD paper, with which it
// is compared.
func (s *Snapshot) leftover(c *class, slot int32) float32 {
	var left float32
	for d := range dims {
		if s.largest[d] > 0 && (d != 1 || s.largest[dims] == 0) {
			left += float32(s.rows.at(slot).byReserv[d]-c.limit[d]) / float32(s.largest[d])
		}
	}
	if s.largest[dims] > 0 {
		whole := s.rows.at(slot).devices
		for _, n := range c.needs {
			whole -= int32(n.milli) * int32(n.count)
		}
		left += float32(whole) / float32(s.largest[dims])
	}
	return left
}

// alignment returns how much what is asked and what is free point into the same
// direction: their cosine, or, of DotProduct, their product with the sign turned.
func (s *Snapshot) alignment(c *class, slot int32) float32 {
	r := s.rows.at(slot)
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
	var devices int
	for _, n := range c.needs {
		devices += int(n.milli) * n.count
	}
	add(dims, float64(devices), float64(r.devices))
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
	capacity := vectorOf(s.nodes.at(slot).Capacity)
	var cost float64
	add := func(free, ask, capacity float64) {
		if capacity > 0 && ask > 0 {
			used := 1 - free/capacity
			cost += math.Pow(10, used+ask/capacity) - math.Pow(10, used)
		}
	}
	for d := range dims {
		add(float64(s.rows.at(slot).byReserv[d]), float64(c.limit[d]), float64(capacity[d]))
	}
	var ask int
	for _, n := range c.needs {
		ask += int(n.milli) * n.count
	}
	add(float64(s.rows.at(slot).devices), float64(ask), float64(DeviceMilli*len(s.nodes.at(slot).devices)))
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
	t := s.terms(c, slot)
	*out = Score{Machine: s.nodes.at(slot).Name, Total: t.total(), Terms: t}
	return out
}
