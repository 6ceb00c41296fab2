package placement

import (
	"reflect"
	"slices"
	"strings"

	"github.com/google/go-cmp/cmp"
	"github.com/musterhq/muster/placement/layout"
	"github.com/musterhq/muster/placement/tournament"
)

// Difference compares all that two snapshots are made of, what they have remembered
// included. Functions, and which columns were shared once, are left out.
func Difference(a, b *Snapshot) string {
	a.merge()
	b.merge()
	return cmp.Diff(a, b,
		cmp.Exporter(func(reflect.Type) bool { return true }),
		cmp.FilterPath(func(p cmp.Path) bool {
			_, isField := p.Last().(cmp.StructField)
			return p.Last().Type().Kind() == reflect.Func || isField && (p.Last().String() == ".shared" || p.Last().String() == ".borrowed")
		}, cmp.Ignore()),
		cmp.Comparer(func(x, y []uint16) bool {
			return slices.Equal(slices.Sorted(slices.Values(x)), slices.Sorted(slices.Values(y)))
		}),
		cmp.Transformer("byValues", func(m map[*layout.Column]*tournament.Tally) map[string]*tournament.Tally {
			out := map[string]*tournament.Tally{}
			for c, t := range m {
				out[strings.Join(c.Values, ",")] = t
			}
			return out
		}),
	)
}

// Depth returns how deep a snapshot shares its content.
func (s *Snapshot) Depth() (n int) {
	for b := s.sharing; b != nil; b = b.below {
		n++
	}
	return n
}

// CountsFill reports whether what is kept of how full the cell is, and of what its tasks want,
// is what its machines and tasks say.
func (s *Snapshot) CountsFill() bool {
	var want fill
	for slot := range s.nodes.Len() {
		n, r := s.nodes.At(slot), s.rows.At(slot)
		if r.state != stateUp {
			continue
		}
		want.machines++
		want.devices += int64(DeviceMilli * len(n.devices))
		want.devicesFree += int64(r.devices)
		for d, v := range vectorOf(n.Capacity) {
			want.capacity[d] += v
			if v > 0 {
				want.having[d]++
			}
			want.used[d] += v - r.byReserv[d]
		}
	}
	wants := burden{mean: s.burden.mean}
	for id := range s.tasks.Len() {
		if t := s.tasks.At(id); t.job >= 0 {
			wants.count(t, 1)
		}
	}
	return s.fill == want && s.burden == wants
}

// KeyOf returns the key of the class of an ask.
func (s *Snapshot) KeyOf(a Ask) string {
	profile := s.profileOf(s.jobID(a.Name.JobName), a.Relations)
	return string(s.kindred.appendTies(s.appendKey(nil, &a), profile))
}

// SearchesAll has a snapshot look at full machines, too, and Skips reports whether one does
// not, as far as it knows them.
func (s *Snapshot) SearchesAll() { s.forked = true }

// Skips is said above.
func (s *Snapshot) Skips() bool { return len(s.peaks) > 0 }

// LookedAhead returns how many machines were looked at ahead of the turn of an ask, and how
// many of these again, since they had changed.
func (s *Snapshot) LookedAhead() (looked, again int) { return s.looked, s.lookedAgain }

// Worth returns what is free on all machines is worth, see Gain.
func (s *Snapshot) Worth() (sum float32) {
	for slot := range s.rows.Len() {
		sum += s.rows.At(slot).worth
	}
	return sum
}

// CompanyOf returns how many of the job of an ask stay where a machine is, and on it.
func (s *Snapshot) CompanyOf(a Ask, machine string) [2]int32 {
	slot, _ := s.slots.Get(machine)
	c := s.companyOf(s.single(&a), slot)
	return [2]int32{c.inDomain, c.onMachine}
}

// Searches returns how often places were searched for that asks get together.
func (s *Snapshot) Searches() int { return s.searches }

// Weighed returns of how many machines it was asked what would have to be evicted there, and how
// often the least eviction on one was searched for.
func (s *Snapshot) Weighed() (weighed, solved int) { return s.weighed, s.solved }
