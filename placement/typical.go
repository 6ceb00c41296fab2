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
// them pack no better (docs/performance.md).
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
	scale  [dims + 1]float32
	counts int // number of asks it was made of
	stale  int // number of changes since
}

type typicalAsk struct {
	shape
	share float32
	need  need
}

func itoa(n int) string { return strconv.Itoa(n) }

// shapeOf returns the shape of a held task.
func (s *Snapshot) shapeOf(t *task) shape {
	if t.ask != nil {
		return s.shapeOfAsk(t.ask)
	}
	sh := shape{limit: t.limit}
	for _, u := range s.nodes[t.slot].uses(t.devices) {
		sh.kind, sh.milli, sh.count = u.Kind, int16(u.Milli), sh.count+1
	}
	return sh
}

func (s *Snapshot) shapeOfAsk(a *Ask) shape {
	sh := shape{limit: vectorOf(a.Limit)}
	if len(a.Devices) == 0 {
		return sh
	}
	n := s.needs(a.Devices[:1])[0]
	sh.kind, sh.milli, sh.count = a.Devices[0].Kind, n.milli, int16(n.count)
	if models := a.Devices[0].Models; len(models) > 0 {
		sorted := slices.Sorted(slices.Values(models))
		sh.models = strings.Join(slices.Compact(sorted), "|")
	}
	return sh
}

func compareShapes(a, b shape) int {
	return cmp.Or(slices.Compare(a.limit[:], b.limit[:]), cmp.Compare(a.kind, b.kind),
		cmp.Compare(a.milli, b.milli), cmp.Compare(a.count, b.count), cmp.Compare(a.models, b.models))
}

// shapeID numbers a shape.
func (s *Snapshot) shapeID(sh shape) int32 {
	id, ok := s.shapeIDs[sh]
	if !ok {
		id = int32(len(s.shapes))
		s.shapeIDs[sh] = id
		s.shapes = append(s.shapes, shapeCount{shape: sh})
	}
	return id
}

// count notes a shape that is held (by 1) or no longer (by -1).
func (s *Snapshot) count(id int32, by int) {
	s.shapes[id].n += by
	s.typical.stale++
}

// learn finds out again what is typical, once a quarter of all asks is new.
func (s *Snapshot) learn(asks map[shape]int, n int) {
	t := &s.typical
	if t.asks != nil && 4*(t.stale+n) < t.counts {
		return
	}
	counts := make(map[shape]int, len(s.shapes)+len(asks))
	total := 0
	for _, sh := range s.shapes {
		if sh.n > 0 {
			counts[sh.shape] += sh.n
			total += sh.n
		}
	}
	for sh, n := range asks {
		counts[sh] += n
		total += n
	}
	if total == 0 {
		return
	}
	t.counts, t.stale = total, 0
	t.scale = meanOf(counts, total)
	t.asks = t.asks[:0]
	for _, sh := range mostOf(counts, total) {
		a := typicalAsk{shape: sh.shape, share: float32(sh.n) / float32(total)}
		if sh.kind != "" {
			d := DeviceAsk{Kind: sh.kind, Count: int(sh.count), Milli: int(sh.milli)}
			if sh.models != "" {
				d.Models = strings.Split(sh.models, "|")
			}
			a.need = s.needs([]DeviceAsk{d})[0]
		}
		t.asks = append(t.asks, a)
	}
	for slot := range s.nodes {
		t.derive(s, int32(slot))
	}
	s.forget()
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
	n int
}

// mostOf returns the most frequent shapes. Where these are too few of all, the
// shapes are rounded up to powers of two first, so that they stand for more.
func mostOf(counts map[shape]int, total int) []shapeCount {
	most := sortShapes(counts)
	covered := 0
	for _, sh := range most {
		covered += sh.n
	}
	if 4*covered >= total {
		return most
	}
	rounded := make(map[shape]int, len(counts))
	for sh, n := range counts {
		for d, v := range sh.limit {
			if v > 0 {
				sh.limit[d] = 1 << bits.Len64(uint64(v-1))
			}
		}
		rounded[sh] += n
	}
	return sortShapes(rounded)
}

func sortShapes(counts map[shape]int) []shapeCount {
	all := make([]shapeCount, 0, len(counts))
	for sh, n := range counts {
		all = append(all, shapeCount{sh, n})
	}
	slices.SortFunc(all, func(a, b shapeCount) int {
		return cmp.Or(cmp.Compare(b.n, a.n), compareShapes(a.shape, b.shape))
	})
	return all[:min(len(all), typicalAsks)]
}

// derive brings up to date what the score reads of a machine.
func (t *typical) derive(s *Snapshot, slot int32) {
	var free vector
	for d := range dims {
		free[d] = max(s.byReserv[d][slot], 0)
	}
	n := &s.nodes[slot]
	var whole int32
	for _, d := range n.devices {
		whole += int32(max(d.free, 0))
	}
	s.devices[slot] = whole
	u := &s.unit[slot]
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
	s.stranded[slot], s.fits[slot] = t.strand(&free, n.devices, whole, 1<<len(t.asks)-1)
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

// crumbs returns what is free on devices that the ask cannot use for want of
// room or because of their model, and whether it fits on the others.
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
