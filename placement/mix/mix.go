package mix

import (
	"cmp"
	"math"
	"math/bits"
	"slices"

	"github.com/musterhq/muster/placement/device"
)

// Dims is the number of scalar dimensions: CPU, RAM and disk, in the order of
// schema.Dimensions.
const Dims = 3

// typicalAsks is how many kinds of ask stand for all: on real traces more of
// them pack no better (docs/performance-placement.md).
const typicalAsks = 8

// Shape is what an ask wants, as far as it matters to what is stranded.
type Shape struct {
	Limit  [Dims]int64
	Kind   string // of its first device ask, or ""
	Milli  int16
	Count  int16
	Models string // separated by "|", "" for any
}

// Typical is what the cell's asks are like: those held and those waiting.
type Typical struct {
	asks []typicalAsk
	// Scale is the inverse of the mean ask, by dimension, devices last. The
	// capacity of machines is no part of it, so that machines nobody can use
	// change nothing.
	Scale [Dims + 1]float32
	// Tight weighs what is left of a machine, by dimension, devices last: the inverse of
	// the mean machine, times the square of how much of it all asks want, relative to
	// the dimension of which they want most. What is not scarce may lie about.
	Tight  [Dims + 1]float32
	counts int // number of asks it was made of; 0 makes it due to learn
	stale  int // number of changes since
	// Steady says that the cell is filled by half at least.
	Steady bool
}

type typicalAsk struct {
	Shape
	share float32
	need  device.Need
	// inverse is one over the limit, 0 where nothing is asked.
	inverse [Dims]float32
	// worth is what room for one more of it is worth.
	worth float32
	// strand is what counts of what is useless to it.
	strand float32
}

func compareShapes(a, b Shape) int {
	return cmp.Or(slices.Compare(a.Limit[:], b.Limit[:]), cmp.Compare(a.Kind, b.Kind),
		cmp.Compare(a.Milli, b.Milli), cmp.Compare(a.Count, b.Count), cmp.Compare(a.Models, b.Models))
}

// Stock is what a cell has of machines, in all.
type Stock struct {
	Machines int64
	Having   [Dims]int64 // machines that have any of a dimension
	Capacity [Dims]int64
	Devices  int64 // thousandths
}

// amounts are what there is by dimension, devices last.
func (k *Stock) amounts() [Dims + 1]float32 {
	return [Dims + 1]float32{float32(k.Capacity[0]), float32(k.Capacity[1]), float32(k.Capacity[2]), float32(k.Devices)}
}

// IsPlain reports whether an ask that wants no devices wants nothing that more than one of
// ten machines lack.
func (k *Stock) IsPlain(limit *[Dims]int64) bool {
	for d, v := range limit {
		if v > 0 && 10*k.Having[d] < 9*k.Machines {
			return false
		}
	}
	return true
}

// IsDue reports whether it is worth to learn again when there are so many new asks: a quarter
// of all is new.
func (t *Typical) IsDue(asks int) bool { return t.asks == nil || 4*(t.stale+asks) >= t.counts }

// Changed notes that a task has come, gone or become another one.
func (t *Typical) Changed() { t.stale++ }

// Learn takes over what asks there are, of so many in all. It reports whether that is so much
// otherwise that what was derived of machines is void. The order of a map is no matter.
func (t *Typical) Learn(counts map[Shape]int, total int, has Stock, needOf func(kind, models string, count, milli int) device.Need) bool {
	if total == 0 {
		return false
	}
	t.counts, t.stale = total, 0
	next := Typical{Scale: meanOf(counts, total)}
	scarce := scarcity(&next.Scale, total, &has)
	next.Tight = tightness(&scarce, &has)
	weights, c := next.Scale, whileFilling
	if t.Steady { // room is of use for what is scarce: what is not is free in any case
		c = whenSteady
		for d, share := range scarce {
			weights[d] *= share * share
		}
	}
	next.asks = typicalOf(counts, &weights, &has, c, needOf)
	if t.resembles(&next) {
		return false
	}
	t.asks, t.Scale, t.Tight = next.asks, next.Scale, next.Tight
	return true
}

// typicalOf returns the asks that stand for all, if amounts have weights by dimension, devices
// last.
func typicalOf(counts map[Shape]int, weights *[Dims + 1]float32, has *Stock, c cover, needOf func(kind, models string, count, milli int) device.Need) []typicalAsk {
	most, sum := mostOf(counts, weights, c)
	asks := make([]typicalAsk, 0, len(most))
	for _, sh := range most {
		a := typicalAsk{Shape: sh.Shape, share: float32(float64(sh.n) / float64(sum))}
		if sh.Kind != "" {
			a.need = needOf(sh.Kind, sh.Models, int(sh.Count), int(sh.Milli))
		}
		for d, v := range sh.Limit {
			if v > 0 {
				a.inverse[d] = 1 / float32(v)
			}
		}
		a.strand = a.share * bulk(&sh.Shape, has)
		a.worth = a.share * float32(sh.weight(weights)) / 100
		asks = append(asks, a)
	}
	return asks
}

// scarcity returns how much of what a cell has so many asks want, with the inverse of their mean,
// by dimension, devices last, relative to the dimension of which they want most.
func scarcity(scale *[Dims + 1]float32, total int, cell *Stock) (scarce [Dims + 1]float32) {
	has := cell.amounts()
	for d := range scarce {
		if has[d] > 0 && scale[d] > 0 {
			scarce[d] = float32(total) / scale[d] / has[d]
		}
	}
	if most := slices.Max(scarce[:]); most > 0 {
		for d := range scarce {
			scarce[d] /= most
		}
	}
	return scarce
}

// tightness returns Typical.Tight.
func tightness(scarce *[Dims + 1]float32, cell *Stock) (tight [Dims + 1]float32) {
	has := cell.amounts()
	for d, share := range scarce {
		if share > 0 {
			tight[d] = share * share * float32(cell.Machines) / has[d]
		}
	}
	return tight
}

// scarceBulk is what counts of what is useless to asks for devices, or for what some machines
// lack: however small they are, what others leave there is of no use to them. With 0.175 and
// 0.25 openb takes 1,111 and 1,107 machines with GPUs as devices, with this 1,100.
const scarceBulk = 0.35

// scatteredBulk is the part of bulk that grows with an ask's share of a machine, not with its
// cube: without it up to 4% more machines are needed where the largest come first and some want
// CPU, others RAM (drift in docs/performance-placement.md).
const scatteredBulk = 0.03

// bulk is what counts of what is useless to a typical ask, up to about 1. One that is small
// beside a machine finds room in many places: of it little more than the cube of its share of
// the mean machine counts, of the dimension of which it wants most. With the square 1 to 2% more
// machines are needed where asks come sorted whose CPU and RAM do not go together.
func bulk(sh *Shape, has *Stock) float32 {
	if sh.Kind != "" || !has.IsPlain(&sh.Limit) {
		return scarceBulk
	}
	var share float64
	for d, v := range sh.Limit {
		if has.Capacity[d] > 0 {
			share = max(share, float64(v)/float64(has.Capacity[d])*float64(has.Machines))
		}
	}
	share = min(share, 1)
	return float32(share*share*share + scatteredBulk*share)
}

// Size is how much is wanted of what machines have, and of thousandths of devices, most of what is
// scarce.
func (t *Typical) Size(limit *[Dims]int64, milli int64) (sum float32) {
	for d, v := range limit {
		sum += float32(v) * t.Tight[d]
	}
	return sum + float32(milli)*t.Tight[Dims]
}

// SetSteady says whether the cell is filled by half at least, and reports whether that is new. Then
// it is due to learn.
func (t *Typical) SetSteady(steady bool) bool {
	if t.Steady == steady {
		return false
	}
	t.Steady, t.counts = steady, 0
	return true
}

// resembles reports whether what was learnt now is so much like what is known
// that the scores made with it may stand.
func (t *Typical) resembles(o *Typical) bool {
	near := func(a, b float32) bool { return 8*max(a-b, b-a) <= max(a, b) }
	if len(t.asks) != len(o.asks) {
		return false
	}
	for d := range t.Scale {
		if !near(t.Scale[d], o.Scale[d]) || !near(t.Tight[d], o.Tight[d]) {
			return false
		}
	}
	for i := range o.asks {
		a := &o.asks[i]
		k := slices.IndexFunc(t.asks, func(b typicalAsk) bool { return a.Shape == b.Shape })
		if k < 0 || !near(a.share, t.asks[k].share) {
			return false
		}
	}
	return true
}

// meanOf returns the inverse of the mean ask. It sums integers, so that the
// order of a map is no matter, of 128 bits, so that no cell is too large.
func meanOf(counts map[Shape]int, total int) (scale [Dims + 1]float32) {
	var high, low [Dims + 1]uint64
	add := func(d int, v int64, n int) {
		h, l := bits.Mul64(uint64(max(v, 0)), uint64(n))
		var carry uint64
		low[d], carry = bits.Add64(low[d], l, 0)
		high[d] += h + carry
	}
	for sh, n := range counts {
		for d, v := range sh.Limit {
			add(d, v, n)
		}
		add(Dims, int64(sh.Milli)*int64(sh.Count), n)
	}
	for d := range scale {
		if sum := float64(high[d])*(1<<64) + float64(low[d]); sum > 0 {
			scale[d] = float32(float64(total) / sum)
		}
	}
	return scale
}

type shapeCount struct {
	Shape
	n int64
}

// weight is what an ask counts among all: its amount, with weights by dimension, and
// summed over these. So large asks, which are few and for
// which room in one piece is hard to find, stand for as much as the many small
// ones that need as much together.
func (sh *Shape) weight(weights *[Dims + 1]float32) int64 {
	amount := float64(sh.Milli) * float64(sh.Count) * float64(weights[Dims])
	for d, v := range sh.Limit {
		amount += float64(v) * float64(weights[d])
	}
	return 1 + int64(100*amount)
}

// cover says how much of all the asks that stand for them are to be, as one of so many parts. Where
// they are less, shapes are joined whose amounts round up to the same powers of two to the power of the
// first of some numbers, then of the next, until they are that much.
type cover struct {
	parts   int64
	numbers []int
}

// A cell with devices has hundreds of kinds of asks, by devices, CPU and RAM. What wants all devices of a
// machine is spread over many of them, in what else it wants: in a steady cell nothing kept room for it
// where the eight that weigh most, by single powers of two, stood for all.
var (
	whileFilling = cover{4, []int{1}}
	whenSteady   = cover{2, []int{1, 2, 4}}
)

// mostOf returns the shapes that weigh most, and the weight of all, joined as far as a cover says.
func mostOf(counts map[Shape]int, weights *[Dims + 1]float32, c cover) (most []shapeCount, sum int64) {
	all := make([]shapeCount, 0, len(counts))
	for sh, n := range counts {
		w := int64(n) * sh.weight(weights)
		all = append(all, shapeCount{sh, w})
		sum += w
	}
	most = heaviest(all)
	for _, number := range c.numbers {
		var covered int64
		for _, sh := range most {
			covered += sh.n
		}
		if c.parts*covered >= sum {
			break
		}
		all = joined(all, number)
		most = heaviest(all)
	}
	return most, sum
}

// joined joins shapes whose amounts round up to the same powers of two to the power of a
// number; the amounts of each group are their means. Integers are summed, so that the
// order of the shapes is no matter.
func joined(all []shapeCount, number int) []shapeCount {
	type group struct {
		n     int64
		share [Dims]int64 // of the power of two, in 65536ths
	}
	groups := make(map[Shape]*group)
	for _, sh := range all {
		key := sh.Shape
		var share [Dims]int64
		for d, v := range key.Limit {
			if v > 0 {
				k := (bits.Len64(uint64(v-1)) + number - 1) / number * number
				key.Limit[d] = 1 << min(k, 62)
				share[d] = int64(float64(v) / float64(key.Limit[d]) * 65536)
			}
		}
		g := groups[key]
		if g == nil {
			g = &group{}
			groups[key] = g
		}
		g.n += sh.n
		for d := range Dims {
			g.share[d] += share[d] * sh.n
		}
	}
	out := make([]shapeCount, 0, len(groups))
	for sh, g := range groups {
		for d := range Dims {
			sh.Limit[d] = int64(float64(sh.Limit[d]) * (float64(g.share[d]) / float64(g.n) / 65536))
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
		for at > 0 && cmp.Or(cmp.Compare(out[at-1].n, sh.n), compareShapes(sh.Shape, out[at-1].Shape)) < 0 {
			at--
		}
		if at < typicalAsks {
			out = slices.Insert(out, at, sh)
			out = out[:min(len(out), typicalAsks)]
		}
	}
	return out
}

// Unit returns the direction of what is free, in multiples of the mean ask.
func (t *Typical) Unit(free *[Dims]int64, devices int32) (u [Dims + 1]float32) {
	for d := range Dims {
		u[d] = float32(free[d]) * t.Scale[d]
	}
	u[Dims] = float32(devices) * t.Scale[Dims]
	var square float32
	for _, x := range u {
		square += x * x
	}
	if square > 0 {
		inv := float32(1 / math.Sqrt(float64(square)))
		for d := range u {
			u[d] *= inv
		}
	}
	return u
}

// Value returns what is free of a machine is worth, and which typical asks fit into it, of a set
// of them: in a steady cell what the asks are worth that fit, else what is useless to them.
func (t *Typical) Value(free *[Dims]int64, devices []device.Device, whole int32, set uint32) (worth float32, fits uint32) {
	if t.Steady {
		return t.room(free, devices, set)
	}
	return t.strand(free, devices, whole, set)
}

// All is the set of all typical asks.
func (t *Typical) All() uint32 { return uint32(1<<len(t.asks) - 1) }

const (
	// slack makes up for rounding where an amount is a multiple of another.
	slack = 1.0 / 1024
	// mostTimes is how often a typical ask counts at most.
	mostTimes = 1 << 10
)

// room returns what the typical asks that still fit are worth, each as often as it
// fits, and which of them fit. Only those in the set can fit.
func (t *Typical) room(free *[Dims]int64, devices []device.Device, set uint32) (worth float32, fits uint32) {
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
		if a.Kind != "" && n > 0 {
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
func (a *typicalAsk) times(devices []device.Device) (n int) {
	for _, d := range devices {
		if d.Free >= a.need.Milli && a.need.Matches(d) {
			n += int(d.Free / a.need.Milli)
		}
	}
	return n / a.need.Count
}

// strand returns how much of what is free is useless to the typical asks, and
// which of them fit. Only those in the set can fit.
func (t *Typical) strand(free *[Dims]int64, devices []device.Device, whole int32, set uint32) (float32, uint32) {
	left := float32(free[0])*t.Scale[0] + float32(free[1])*t.Scale[1] + float32(free[2])*t.Scale[2] +
		float32(whole)*t.Scale[Dims]
	var useless float32
	var fits uint32
	for i := range t.asks {
		a := &t.asks[i]
		if set&(1<<i) == 0 || a.Limit[0] > free[0] || a.Limit[1] > free[1] || a.Limit[2] > free[2] {
			useless += a.strand * left
			continue
		}
		if a.Kind != "" {
			small, enough := a.crumbs(devices)
			if !enough {
				useless += a.strand * left
				continue
			}
			useless += a.strand * float32(small) * t.Scale[Dims]
		}
		fits |= 1 << i
	}
	return useless, fits
}

// crumbs returns what is free on devices that the ask cannot use, since too
// little of them is free or they are of another model, and whether it fits on the others.
func (a *typicalAsk) crumbs(devices []device.Device) (small int32, enough bool) {
	n := 0
	for _, d := range devices {
		switch {
		case d.Free >= a.need.Milli && a.need.Matches(d):
			n++
		case d.Free > 0:
			small += int32(d.Free)
		}
	}
	return small, n >= a.need.Count
}
