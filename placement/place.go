package placement

import (
	"cmp"
	"hash/fnv"
	"slices"

	"github.com/musterhq/muster/schema"
)

// Snapshot is the cell as placement sees it: machines and what they hold.
type Snapshot struct {
	options  Options
	machines map[string]*machine
	order    []*machine // by name
}

type machine struct {
	Machine
	free  schema.Resources
	ports map[int]bool // taken
	jobs  map[schema.JobName]int
}

// NewSnapshot returns the snapshot of the given machines and tasks. A task on
// a machine that is not listed is left out.
func NewSnapshot(machines []Machine, tasks []Task) *Snapshot {
	s := &Snapshot{machines: make(map[string]*machine, len(machines))}
	for _, m := range machines {
		sm := &machine{Machine: m, free: m.Capacity, ports: map[int]bool{}, jobs: map[schema.JobName]int{}}
		for _, p := range m.BusyPorts {
			sm.ports[p] = true
		}
		s.machines[m.Name] = sm
		s.order = append(s.order, sm)
	}
	slices.SortFunc(s.order, func(a, b *machine) int { return cmp.Compare(a.Name, b.Name) })
	for _, t := range tasks {
		if m := s.machines[t.Machine]; m != nil {
			m.hold(t.Name.JobName, t.Limit, t.Ports)
		}
	}
	return s
}

// Configure sets the options of the passes that follow.
func (s *Snapshot) Configure(o Options) { s.options = o }

func (m *machine) hold(job schema.JobName, limit schema.Resources, ports map[string]int) {
	m.free = m.free.Sub(limit)
	m.jobs[job]++
	for _, p := range ports {
		m.ports[p] = true
	}
}

// Place decides the asks by priority, high to low, and by name within one, and
// charges the snapshot with what it placed. The decisions are in that order.
func Place(s *Snapshot, asks []Ask, seed uint64) []Decision {
	asks = slices.Clone(asks)
	slices.SortStableFunc(asks, func(a, b Ask) int {
		return cmp.Or(cmp.Compare(b.Priority, a.Priority), a.Name.Compare(b.Name))
	})
	out := make([]Decision, 0, len(asks))
	for _, a := range asks {
		out = append(out, s.place(a, seed))
	}
	return out
}
func (s *Snapshot) place(a Ask, seed uint64) Decision {
	d := Decision{Name: a.Name, Why: Why{Machines: len(s.order)}}
	refused := map[Reason]int{}
	var best *machine
	for _, m := range s.order {
		if r := m.refuses(a); r != "" {
			refused[r]++
			continue
		}
		d.Why.Feasible++
		if best == nil || better(a, m, best) {
			best = m
		}
	}
	for r, n := range refused {
		d.Why.Refused = append(d.Why.Refused, ReasonCount{r, n})
	}
	slices.SortFunc(d.Why.Refused, func(a, b ReasonCount) int {
		return cmp.Or(cmp.Compare(b.Machines, a.Machines), cmp.Compare(a.Reason, b.Reason))
	})
	if best == nil {
		return d
	}
	d.Machine = best.Name
	d.Ports = best.choosePorts(a, seed)
	best.hold(a.Name.JobName, a.Limit, d.Ports)
	return d
}

func (m *machine) refuses(a Ask) Reason {
	switch {
	case !m.Up:
		return ReasonDown
	case m.Draining:
		return ReasonDraining
	case a.On != "" && a.On != m.Name:
		return ReasonOther
	case slices.Contains(a.Avoid, m.Name):
		return ReasonAvoided
	case a.Limit.CPUMilli > m.free.CPUMilli:
		return ReasonCPU
	case a.Limit.RAMBytes > m.free.RAMBytes:
		return ReasonRAM
	case a.Limit.DiskBytes > m.free.DiskBytes:
		return ReasonDisk
	case len(a.Ports) > m.freePorts():
		return ReasonPorts
	}
	return ""
}

func (m *machine) freePorts() int {
	if m.Ports.First == 0 {
		return 0
	}
	n := m.Ports.Last - m.Ports.First + 1
	for p := range m.ports {
		if p >= m.Ports.First && p <= m.Ports.Last {
			n--
		}
	}
	return n
}

// better is the one scoring rule so far: the machine that held the task, then
// the one with the fewest tasks of the job (a lost machine takes few of them),
// then the one with the most free memory, then the name.
func better(a Ask, m, n *machine) bool {
	if p, q := m.Name == a.Prefer, n.Name == a.Prefer; p != q {
		return p
	}
	if p, q := m.jobs[a.Name.JobName], n.jobs[a.Name.JobName]; p != q {
		return p < q
	}
	return m.free.RAMBytes > n.free.RAMBytes
}

// choosePorts gives each name a free port, searching from a start that depends
// on the task and the seed, so that a port that was just released or refused
// is rarely the next one given.
func (m *machine) choosePorts(a Ask, seed uint64) map[string]int {
	if len(a.Ports) == 0 {
		return nil
	}
	h := fnv.New64a()
	h.Write([]byte(a.Name.String()))
	n := uint64(m.Ports.Last - m.Ports.First + 1)
	at := (h.Sum64() ^ seed) % n
	out := make(map[string]int, len(a.Ports))
	taken := map[int]bool{}
	for _, name := range a.Ports {
		for {
			p := m.Ports.First + int(at)
			at = (at + 1) % n
			if !m.ports[p] && !taken[p] {
				out[name], taken[p] = p, true
				break
			}
		}
	}
	return out
}
