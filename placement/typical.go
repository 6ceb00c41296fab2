package placement

import (
	"cmp"
	"math"
	"math/bits"
	"slices"
	"strconv"
	"strings"
)

// typicalAsks is how many kinds of ask stand for all: on real traces more of
// them pack no better (docs/performance-placement.md).
const typicalAsks = 8

// shape is what an ask wants, as far as it matters to what is stranded.
type shape struct {
	limit  vector
	kind   string // of its first device ask, or ""
	milli  int16
	count  int16
	models string // separated by "|", "" for any
}

// typical is what the cell's asks are like: those held and those waiting.
type typical struct {
	asks []typicalAsk
	// scale is the inverse of the mean ask, by dimension, devices last. The
	// capacity of machines is no part of it, so that machines nobody can use
	// change nothing.
	scale [dims + 1]float32
	// tight weighs what is left of a machine, by dimension, devices last: the inverse of
	// the mean machine, times the square of how much of it all asks want, relative to
	// the dimension of which they want most. What is not scarce may lie about.
	tight  [dims + 1]float32
	counts int // number of asks it was made of
	stale  int // number of changes since
	// steady says that the cell is filled by half at least, see Snapshot.sense.
	steady bool
}

type typicalAsk struct {
	shape
	share float32
	need  need
	// inverse is one over the limit, 0 where nothing is asked.
	inverse [dims]float32
	// worth is what room for one more of it is worth.
	worth float32
}

func itoa(n int) string { return strconv.Itoa(n) }

// shapeOf returns the shape of a held task.
func (s *Snapshot) shapeOf(t *task) shape {
	if t.ask != nil {
		sh := shapeOfAsk(t.ask)
		if t.placed {
			sh.limit = t.limit
		}
		return sh
	}
	sh := shape{limit: t.limit}
	for _, u := range s.nodes.At(t.slot).uses(t.devices) {
		sh.kind, sh.milli, sh.count = u.Kind, int16(u.Milli), sh.count+1
	}
	return sh
}

func shapeOfAsk(a *Ask) shape {
	sh := shape{limit: vectorOf(a.Limit)}
	if len(a.Devices) == 0 {
		return sh
	}
	d := &a.Devices[0]
	sh.kind, sh.milli, sh.count = d.Kind, d.milli(), int16(min(max(d.Count, 1), math.MaxInt16))
	if len(d.Models) > 0 {
		sorted := slices.Sorted(slices.Values(d.Models))
		sh.models = strings.Join(slices.Compact(sorted), "|")
	}
	return sh
}

func compareShapes(a, b shape) int {
	return cmp.Or(slices.Compare(a.limit[:], b.limit[:]), cmp.Compare(a.kind, b.kind),
		cmp.Compare(a.milli, b.milli), cmp.Compare(a.count, b.count), cmp.Compare(a.models, b.models))
}

// learn finds out again what is typical, once a quarter of all asks is new.
func (s *Snapshot) learn(asks map[shape]int, n int) {
	t := &s.typical
	if t.asks != nil && 4*(t.stale+n) < t.counts {
		return
	}
	counts, total := asks, n
	for id := range s.tasks.Len() {
		if h := s.tasks.At(id); h.job >= 0 && !h.claim {
			counts[s.shapeOf(h)]++
			total++
		}
	}
	if total == 0 {
		return
	}
	t.counts, t.stale = total, 0
	next := typical{scale: meanOf(counts, total)}
	next.tight = s.tightness(&next.scale, total)
	most, sum := mostOf(counts, &next.scale)
	for _, sh := range most {
		a := typicalAsk{shape: sh.shape, share: float32(float64(sh.n) / float64(sum))}
		if sh.kind != "" {
			d := DeviceAsk{Kind: sh.kind, Count: int(sh.count), Milli: int(sh.milli)}
			if sh.models != "" {
				d.Models = strings.Split(sh.models, "|")
			}
			a.need = s.needs([]DeviceAsk{d})[0]
		}
		for d, v := range sh.limit {
			if v > 0 {
				a.inverse[d] = 1 / float32(v)
			}
		}
		a.worth = a.share * float32(sh.weight(&next.scale)) / 100
		next.asks = append(next.asks, a)
	}
	if t.resembles(&next) {
		return
	}
	t.asks, t.scale, t.tight = next.asks, next.scale, next.tight
	s.deriveAll()
}

// tightness returns typical.tight of so many asks with the inverse of their mean.
func (s *Snapshot) tightness(scale *[dims + 1]float32, total int) (tight [dims + 1]float32) {
	has := [dims + 1]float32{float32(s.capacity[0]), float32(s.capacity[1]), float32(s.capacity[2]), float32(s.devices)}
	var wanted [dims + 1]float32 // share of the cell
	for d := range tight {
		if has[d] > 0 && scale[d] > 0 {
			wanted[d] = float32(total) / scale[d] / has[d]
		}
	}
	most := slices.Max(wanted[:])
	for d, share := range wanted {
		if share > 0 {
			tight[d] = share / most * share / most * float32(s.machines) / has[d]
		}
	}
	return tight
}

// size is how much an ask wants of what machines have, most of what is scarce.
func (t *typical) size(a *Ask) (sum float32) {
	for d, v := range vectorOf(a.Limit) {
		sum += float32(v) * t.tight[d]
	}
	for i := range a.Devices {
		sum += float32(int(a.Devices[i].milli())*max(a.Devices[i].Count, 1)) * t.tight[dims]
	}
	return sum
}

// deriveAll derives all machines afresh.
func (s *Snapshot) deriveAll() {
	s.flatten() // each machine changes
	for slot := range s.nodes.Len() {
		s.typical.derive(s.nodes.At(slot), s.rows.Edit(slot))
	}
	s.forget()
}

// sense finds out whether the cell is filled by half at least, in any dimension: what
// is placed then comes for room that others left, and what counts is that what is left
// stays of use. Below, it counts how evenly the dimensions are used up.
func (s *Snapshot) sense() {
	steady := 2*s.devicesFree <= s.devices && s.devices > 0
	for d := range dims {
		steady = steady || 2*s.used[d] >= s.capacity[d] && s.capacity[d] > 0
	}
	if steady != s.typical.steady {
		s.typical.steady = steady
		s.deriveAll()
	}
}

// resembles reports whether what was learnt now is so much like what is known
// that the scores made with it may stand.
func (t *typical) resembles(o *typical) bool {
	near := func(a, b float32) bool { return 8*abs(a-b) <= max(a, b) }
	if len(t.asks) != len(o.asks) {
		return false
	}
	for d := range t.scale {
		if !near(t.scale[d], o.scale[d]) || !near(t.tight[d], o.tight[d]) {
			return false
		}
	}
	for i := range o.asks {
		a := &o.asks[i]
		k := slices.IndexFunc(t.asks, func(b typicalAsk) bool { return a.shape == b.shape })
		if k < 0 || !near(a.share, t.asks[k].share) {
			return false
		}
	}
	return true
}

// meanOf returns the inverse of the mean ask. It sums integers, so that the
// order of a map is no matter, of 128 bits, so that no cell is too large.
func meanOf(counts map[shape]int, total int) (scale [dims + 1]float32) {
	var high, low [dims + 1]uint64
	add := func(d int, v int64, n int) {
		h, l := bits.Mul64(uint64(max(v, 0)), uint64(n))
		var carry uint64
		low[d], carry = bits.Add64(low[d], l, 0)
		high[d] += h + carry
	}
	for sh, n := range counts {
		for d, v := range sh.limit {
			add(d, v, n)
		}
		add(dims, int64(sh.milli)*int64(sh.count), n)
	}
	for d := range scale {
		if sum := float64(high[d])*(1<<64) + float64(low[d]); sum > 0 {
			scale[d] = float32(float64(total) / sum)
		}
	}
	return scale
}

type shapeCount struct {
	shape
	n int64
}

// weight is what an ask counts among all: its amount, in multiples of the mean
// ask and summed over the dimensions. So large asks, which are few and for
// which room in one piece is hard to find, stand for as much as the many small
// ones that need as much together.
func (sh *shape) weight(scale *[dims + 1]float32) int64 {
	amount := float64(sh.milli) * float64(sh.count) * float64(scale[dims])
	for d, v := range sh.limit {
		amount += float64(v) * float64(scale[d])
	}
	return 1 + int64(100*amount)
}

// mostOf returns the shapes that weigh most, and the weight of all. Where
// these are too few of all, like shapes are taken together first, so that they
// stand for more.
func mostOf(counts map[shape]int, scale *[dims + 1]float32) (most []shapeCount, sum int64) {
	all := make([]shapeCount, 0, len(counts))
	for sh, n := range counts {
		w := int64(n) * sh.weight(scale)
		all = append(all, shapeCount{sh, w})
		sum += w
	}
	most = heaviest(all)
	var covered int64
	for _, sh := range most {
		covered += sh.n
	}
	if 4*covered >= sum {
		return most, sum
	}
	return heaviest(joined(all)), sum
}

// joined joins shapes whose amounts round up to the same powers of two; the
// amounts of each group are their means. Integers are summed, so that the
// order of the shapes is no matter.
func joined(all []shapeCount) []shapeCount {
	type group struct {
		n     int64
		share [dims]int64 // of the power of two, in 65536ths
	}
	groups := make(map[shape]*group)
	for _, sh := range all {
		key := sh.shape
		var share vector
		for d, v := range key.limit {
			if v > 0 {
				k := bits.Len64(uint64(v - 1))
				key.limit[d] = 1 << k
				share[d] = int64(float64(v) / float64(key.limit[d]) * 65536)
			}
		}
		g := groups[key]
		if g == nil {
			g = &group{}
			groups[key] = g
		}
		g.n += sh.n
		for d := range dims {
			g.share[d] += share[d] * sh.n
		}
	}
	out := make([]shapeCount, 0, len(groups))
	for sh, g := range groups {
		for d := range dims {
			sh.limit[d] = int64(float64(sh.limit[d]) * (float64(g.share[d]) / float64(g.n) / 65536))
		}
		out = append(out, shapeCount{sh, g.n})
	}
	return out
}

// heaviest returns the few that weigh most, heaviest first.
func heaviest(all []shapeCount) []shapeCount {
	var out []shapeCount
	for _, sh := range all {
		at := len(out)
		for at > 0 && cmp.Or(cmp.Compare(out[at-1].n, sh.n), compareShapes(sh.shape, out[at-1].shape)) < 0 {
			at--
		}
		if at < typicalAsks {
			out = slices.Insert(out, at, sh)
			out = out[:min(len(out), typicalAsks)]
		}
	}
	return out
}

// derive brings up to date what the score reads of a machine.
func (t *typical) derive(n *node, r *row) {
	var free vector
	for d := range dims {
		free[d] = max(r.byReserv[d], 0)
	}
	var whole int32
	for _, d := range n.devices {
		whole += int32(max(d.free, 0))
	}
	r.devices = whole
	r.idle = n.isIdle(&free, whole)
	u := &r.unit
	var square float32
	for d := range dims {
		u[d] = float32(free[d]) * t.scale[d]
		square += u[d] * u[d]
	}
	u[dims] = float32(whole) * t.scale[dims]
	square += u[dims] * u[dims]
	if square > 0 {
		inv := float32(1 / math.Sqrt(float64(square)))
		for d := range u {
			u[d] *= inv
		}
	}
	all := uint32(1<<len(t.asks) - 1)
	if t.steady {
		r.worth, r.fits = t.room(&free, n.devices, all)
	} else {
		r.worth, r.fits = t.strand(&free, n.devices, whole, all)
	}
}

const (
	// slack makes up for rounding where an amount is a multiple of another.
	slack = 1.0 / 1024
	// mostTimes is how often a typical ask counts at most.
	mostTimes = 1 << 10
)

// room returns what the typical asks that still fit are worth, each as often as it
// fits, and which of them fit. Only those in the set can fit.
func (t *typical) room(free *vector, devices []device, set uint32) (worth float32, fits uint32) {
	for i := range t.asks {
		a := &t.asks[i]
		if set&(1<<i) == 0 {
			continue
		}
		times := float32(mostTimes)
		for d, inverse := range a.inverse {
			if inverse > 0 {
				times = min(times, float32(free[d])*inverse+slack)
			}
		}
		n := int(times)
		if a.kind != "" && n > 0 {
			n = min(n, a.times(devices))
		}
		if n > 0 {
			worth += float32(n) * a.worth
			fits |= 1 << i
		}
	}
	return worth, fits
}

// times returns how often what the ask wants of devices is free.
func (a *typicalAsk) times(devices []device) (n int) {
	for _, d := range devices {
		if d.free >= a.need.milli && a.need.matches(d) {
			n += int(d.free / a.need.milli)
		}
	}
	return n / a.need.count
}

// idleShare is how much of a machine, as a part of it, may be used of one that
// counts as idle: what a cell runs on each of its machines.
const idleShare = 16

func (n *node) isIdle(free *vector, devices int32) bool {
	for d, v := range vectorOf(n.Capacity) {
		if v-free[d] > v/idleShare {
			return false
		}
	}
	return int(devices) == DeviceMilli*len(n.devices)
}

// strand returns how much of what is free is useless to the typical asks, and
// which of them fit. Only those in the set can fit.
func (t *typical) strand(free *vector, devices []device, whole int32, set uint32) (float32, uint32) {
	left := float32(free[0])*t.scale[0] + float32(free[1])*t.scale[1] + float32(free[2])*t.scale[2] +
		float32(whole)*t.scale[dims]
	var useless float32
	var fits uint32
	for i := range t.asks {
		a := &t.asks[i]
		if set&(1<<i) == 0 || a.limit[0] > free[0] || a.limit[1] > free[1] || a.limit[2] > free[2] {
			useless += a.share * left
			continue
		}
		if a.kind != "" {
			small, enough := a.crumbs(devices)
			if !enough {
				useless += a.share * left
				continue
			}
			useless += a.share * float32(small) * t.scale[dims]
		}
		fits |= 1 << i
	}
	return useless, fits
}

// crumbs returns what is free on devices that the ask cannot use, since too
// little of them is free or they are of another model, and whether it fits on the others.
func (a *typicalAsk) crumbs(devices []device) (small int32, enough bool) {
	n := 0
	for _, d := range devices {
		switch {
		case d.free >= a.need.milli && a.need.matches(d):
			n++
		case d.free > 0:
			small += int32(d.free)
		}
	}
	return small, n >= a.need.count
}
