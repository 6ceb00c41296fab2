package placement

import (
	"math"
	"slices"
	"strings"

	"github.com/musterhq/muster/placement/device"
	"github.com/musterhq/muster/placement/mix"
)

// sense finds out whether the cell is filled by half at least, in any dimension: what
// is placed then comes for room that others left, and what counts is that what is left
// stays of use. Below, it counts how evenly the dimensions are used up.
func (s *Snapshot) sense() {
	steady := s.options.steady || 2*s.devicesFree <= s.devices && s.devices > 0
	for d := range dims {
		steady = steady || 2*s.used[d] >= s.capacity[d] && s.capacity[d] > 0
	}
	if s.typical.SetSteady(steady) {
		s.deriveAll()
	}
}

// IsSteady reports whether the cell is, see Weights: then BestMove can find moves. What is
// typical of the cell is known after that, also before the first pass.
func (s *Snapshot) IsSteady() bool {
	s.merge()
	s.sense()
	s.learn(map[mix.Shape]int{}, 0)
	return s.typical.Steady
}

// gauge finds out how large what the cell holds is in the mean.
func (s *Snapshot) gauge() {
	b := &s.burden
	if b.mean = 0; b.tasks > 0 {
		b.mean = s.typical.Size((*[dims]int64)(&b.limit), b.milli) / float32(b.tasks)
	}
}

// beyondSteps is how many sizes of large asks are distinguished: what is remembered of a class
// is void when it gets another.
const beyondSteps = 8

// beyond returns how far the asks of a class are larger than what the cell holds in the mean:
// 0 up to that, 1/2 at twice that, up to 1. Those that want what some machines lack are never:
// which machines have that counts more than which are idle.
func (s *Snapshot) beyond(c *class) float32 {
	size := s.typical.Size((*[dims]int64)(&c.limit), 0)
	if !c.plain || s.burden.mean <= 0 || size <= s.burden.mean {
		return 0
	}
	return float32(int((1-s.burden.mean/size)*beyondSteps+0.5)) / beyondSteps
}

// weighOpening takes over how large the asks of a class are by what the cell holds now. In a
// steady cell that is no matter.
func (s *Snapshot) weighOpening(c *class) {
	if s.typical.Steady {
		return
	}
	beyond, plain := c.beyond, c.plain
	c.plain = s.isPlain(c)
	if c.beyond = s.beyond(c); c.beyond != beyond || c.plain != plain {
		c.epoch = -1
	}
}

// isPlain reports whether the asks of a class want nothing that some machines lack.
func (s *Snapshot) isPlain(c *class) bool {
	stock := s.stock()
	return c.needs == nil && stock.IsPlain((*[dims]int64)(&c.limit))
}

// stock returns what the machines have that are up.
func (s *Snapshot) stock() mix.Stock {
	return mix.Stock{Machines: s.machines, Having: s.having, Capacity: s.capacity, Devices: s.devices}
}

// learn finds out again what is typical, once a quarter of all asks is new.
func (s *Snapshot) learn(asks map[mix.Shape]int, n int) {
	if !s.typical.IsDue(n) {
		return
	}
	counts, total := asks, n
	for id := range s.tasks.Len() {
		if h := s.tasks.At(id); h.job >= 0 && !h.claim {
			counts[s.shapeOf(h)]++
			total++
		}
	}
	if s.typical.Learn(counts, total, s.stock(), s.kinds.typicalNeed) {
		s.deriveAll()
	}
}

// shapeOf returns the shape of a held task.
func (s *Snapshot) shapeOf(t *task) mix.Shape {
	if t.ask != nil && len(t.ask.FirstOf) == 0 { // else by what it got
		sh := shapeOfAsk(t.ask)
		if t.placed {
			sh.Limit = t.limit
		}
		return sh
	}
	sh := mix.Shape{Limit: t.limit}
	for _, u := range usesOf(s.nodes.At(t.slot).Devices, t.devices) {
		sh.Kind, sh.Milli, sh.Count = u.Kind, int16(u.Milli), sh.Count+1
	}
	return sh
}

func shapeOfAsk(a *Ask) mix.Shape {
	sh := mix.Shape{Limit: vectorOf(a.Limit)}
	d := a.firstDevice()
	if d == nil {
		return sh
	}
	sh.Kind, sh.Milli, sh.Count = d.Kind, d.milli(), int16(min(max(d.Count, 1), math.MaxInt16))
	if len(d.Models) > 0 {
		sorted := slices.Sorted(slices.Values(d.Models))
		sh.Models = strings.Join(slices.Compact(sorted), "|")
	}
	return sh
}

// sizeOf is how much an ask wants of what machines have, most of what is scarce.
func (s *Snapshot) sizeOf(a *Ask) float32 {
	limit := [dims]int64(vectorOf(a.Limit))
	return s.typical.Size(&limit, a.devices())
}

// deriveAll derives all machines afresh.
func (s *Snapshot) deriveAll() {
	s.flatten() // each machine changes
	for slot := range s.nodes.Len() {
		s.derive(s.nodes.At(slot), s.rows.Edit(slot))
	}
	s.forget()
}

// derive brings up to date what the score reads of a machine.
func (s *Snapshot) derive(n *node, r *row) {
	var free [dims]int64
	for d := range dims {
		free[d] = max(r.byReserv[d], 0)
	}
	var whole int32
	for _, d := range n.devices {
		whole += int32(max(d.Free, 0))
	}
	r.devices = whole
	r.idle, r.empty = n.isIdle(&free, whole), s.isEmpty(n)
	r.unit = s.typical.Unit(&free, whole)
	r.worth, r.fits = s.typical.Value(&free, n.devices, whole, s.typical.All())
}

// typicalNeed makes a typical ask for devices ready to be asked of many machines.
func (k *deviceKinds) typicalNeed(kind, models string, count, milli int) device.Need {
	d := DeviceAsk{Kind: kind, Count: count, Milli: milli}
	if models != "" {
		d.Models = strings.Split(models, "|")
	}
	return k.needs([]DeviceAsk{d})[0]
}

// isEmpty reports whether a machine holds no task but of jobs that are everywhere.
func (s *Snapshot) isEmpty(n *node) bool {
	for id := n.first; id >= 0; {
		t := s.tasks.At(id)
		if t.ask == nil || !t.ask.Everywhere {
			return false
		}
		id = t.nextHere
	}
	return true
}

// idleShare is how much of a machine, as a part of it, may be used of one that
// counts as idle: what a cell runs on each of its machines.
const idleShare = 16

func (n *node) isIdle(free *[dims]int64, devices int32) bool {
	for d, v := range vectorOf(n.Capacity) {
		if v-free[d] > v/idleShare {
			return false
		}
	}
	return int(devices) == DeviceMilli*len(n.devices)
}
