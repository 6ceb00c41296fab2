package placement

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"slices"
	"strings"

	"github.com/musterhq/muster/schema"
)

// Machine is what the cell knows of a machine when it decides.
type Machine struct {
	Name       string
	Capacity   schema.Resources
	Ports      schema.PortRange
	BusyPorts  []int // of Ports, in use by others than tasks
	Attributes map[string]string
	// Up is false while the machine is silent or lost: it keeps what it
	// holds and gets nothing new.
	Up bool
}

// Task is a task that a machine holds, running or on its way out.
type Task struct {
	Name     schema.TaskName
	Machine  string
	Priority schema.Priority
	Limit    schema.Resources
	Ports    map[string]int
}

// Ask is a task that wants a machine.
type Ask struct {
	Name     schema.TaskName
	Priority schema.Priority
	Limit    schema.Resources
	Ports    []string // names; each gets a number
	// Prefer is the machine that held the task before, or "": taken if it
	// is feasible.
	Prefer string
	// Avoid lists machines on which the task crashed of late: not taken.
	Avoid []string
}

// Reason says why a machine cannot take an ask.
type Reason string

// The reasons. A machine has one: the first that holds, in this order.
const (
	ReasonDown    Reason = "machine is down"
	ReasonAvoided Reason = "task crashed there recently"
	ReasonCPU     Reason = "not enough cpuMilli"
	ReasonRAM     Reason = "not enough ramBytes"
	ReasonDisk    Reason = "not enough diskBytes"
	ReasonPorts   Reason = "no free port"
)

// Decision is the answer to one ask. Machine is "" when the task stays pending;
// Why then says the reason for each machine.
type Decision struct {
	Name    schema.TaskName
	Machine string
	Ports   map[string]int
	Why     Why
}

// Why explains a decision by counts of machines that sum to Machines.
type Why struct {
	Machines int           `json:"machines"`
	Feasible int           `json:"feasible"`
	Refused  []ReasonCount `json:"refused,omitempty"` // most first
}

// String says it in words, such as "0 of 3 machines fit: 2 not enough
// ramBytes, 1 machine is down".
func (w Why) String() string {
	parts := make([]string, 0, len(w.Refused))
	for _, r := range w.Refused {
		parts = append(parts, fmt.Sprintf("%d %s", r.Machines, r.Reason))
	}
	s := fmt.Sprintf("%d of %d machines fit", w.Feasible, w.Machines)
	if len(parts) > 0 {
		s += ": " + strings.Join(parts, ", ")
	}
	return s
}

// ReasonCount is the number of machines that refused for a reason.
type ReasonCount struct {
	Reason   Reason `json:"reason"`
	Machines int    `json:"machines"`
}

// Snapshot is the cell as placement sees it: machines and what they hold.
type Snapshot struct {
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
