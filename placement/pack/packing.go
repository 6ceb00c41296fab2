package pack

import (
	"cmp"
	"slices"

	"github.com/musterhq/muster/placement"
	"github.com/musterhq/muster/schema"
)

// packing is work that is packed, and how.
type packing struct {
	options    placement.Options
	schedulers int
	asks       []placement.Ask
	// reserved is what the cell holds back for asks once they run, see Cell.Reserved; nil
	// if that is their limits.
	reserved map[schema.TaskName]schema.Resources
	held     map[string][]placement.Task // by machine, whatever else is there
	pending  int                         // tasks that may stay so
}

// waves is how many passes decide the tasks below production where usage is estimated: the
// tasks of a pass find what those of the passes before are estimated to use.
const waves = 8

// place decides the work on some machines.
func (p *packing) place(machines []placement.Machine) placed {
	var has []placement.Task
	for i := range machines {
		has = append(has, p.held[machines[i].Name]...)
	}
	s := placement.NewSnapshot(machines, has)
	s.Configure(p.options)
	if p.reserved == nil {
		return place(s, p.asks, p.schedulers, 0)
	}
	return p.reclaim(s)
}

// reclaim decides production work by its limits, and then the rest, in waves, in the room
// that what runs is estimated to leave.
func (p *packing) reclaim(s *placement.Snapshot) placed {
	out := placed{on: make(map[schema.TaskName]string, len(p.asks))}
	asks := slices.Clone(p.asks)
	slices.SortStableFunc(asks, func(a, b placement.Ask) int { return cmp.Compare(b.Priority, a.Priority) })
	prod := 0
	for prod < len(asks) && asks[prod].Priority.Prod() {
		prod++
	}
	size := (len(asks) - prod + waves - 1) / waves
	for from, to := 0, prod; from < len(asks); from, to = to, min(to+size, len(asks)) {
		wave := asks[from:to]
		if len(wave) == 0 { // there is no production work
			continue
		}
		decided := map[schema.TaskName]*placement.Ask{}
		for i := range wave {
			decided[wave[i].Name] = &wave[i]
		}
		for _, d := range placement.Place(s, wave, 0) {
			if d.Machine == "" {
				continue
			}
			a := decided[d.Name]
			out.on[d.Name] = d.Machine
			s.SetTask(placement.Task{
				Name: d.Name, Generation: a.Generation, Machine: d.Machine, Priority: a.Priority, Limit: a.Limit, Reservation: p.reserved[d.Name],
				Ports: d.Ports, Devices: d.Devices, Ask: a,
			})
		}
	}
	return out
}

// least returns the least number of machines, taken from the front of the list, that hold the
// work, and how many decisions conflicted on all of them. It halves the interval, since one
// more machine hardly ever does harm.
func (p *packing) least(order []placement.Machine) (least, conflicts int) {
	fits := func(n int) bool {
		done := p.place(order[:n])
		if n == len(order) {
			conflicts = done.conflicts
		}
		return len(p.asks)-len(done.on) <= p.pending
	}
	if !fits(len(order)) {
		return len(order) + 1, conflicts
	}
	lo, hi := 0, len(order) // lo does not fit, hi does
	for hi-lo > 1 {
		if mid := (lo + hi) / 2; fits(mid) {
			hi = mid
		} else {
			lo = mid
		}
	}
	return hi, conflicts
}
