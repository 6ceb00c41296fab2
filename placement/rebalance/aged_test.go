package rebalance_test

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/musterhq/muster/placement"
	"github.com/musterhq/muster/placement/rebalance"
	"github.com/musterhq/muster/schema"
)

// How tasks come and go in an aged cell: as in placement/pack, but for longer.
const (
	agedPass   = 30 * time.Second
	agedMean   = 82 * time.Minute // that a task runs
	agedWarm   = 1                // days before anything is counted
	agedMoves  = 60               // an hour, schema.DefaultMovesPerHour
	agedSearch = 10               // passes between two searches
)

// guest is a task in an aged cell.
type guest struct {
	ask     placement.Ask
	machine string
	came    time.Duration
	ends    time.Duration
	moved   time.Duration
}

// aged is a cell in which tasks have come and gone for days.
type aged struct {
	r        *rand.Rand
	snapshot *placement.Snapshot
	machines []placement.Machine
	running  map[schema.TaskName]*guest
	ending   map[int][]*guest // by pass
	pending  []*guest
	names    int
	moves    int // in all
	hour     []time.Duration
	waited   time.Duration // of the tasks of large size that were placed
	large    int
}

func newAged(seed uint64, machines int) *aged {
	x := &aged{r: rand.New(rand.NewPCG(seed, 18)), running: map[schema.TaskName]*guest{}, ending: map[int][]*guest{}}
	for i := range machines {
		size := int64(1 + i%3)
		x.machines = append(x.machines, placement.Machine{
			Name: fmt.Sprintf("m%03d", i), Up: true, Capacity: schema.Resources{CPUMilli: 32_000 * size, RAMBytes: size << 37, DiskBytes: 1 << 40}, Attributes: map[string]string{"rack": fmt.Sprint(i % 8)},
		})
	}
	x.snapshot = placement.NewSnapshot(x.machines, nil)
	return x
}

func (x *aged) logNormal(median, sigma, least, most float64) int64 {
	return int64(min(max(median*math.Exp(sigma*x.r.NormFloat64()), least), most))
}

// guest draws a task: one of twenty wants most of a machine.
func (x *aged) guest(now time.Duration) *guest {
	limit := schema.Resources{CPUMilli: x.logNormal(3000, 0.8, 100, 16_000), RAMBytes: x.logNormal(8192, 0.8, 256, 65_536) << 20}
	if x.r.IntN(20) == 0 {
		limit = schema.Resources{CPUMilli: 24_000 + x.r.Int64N(64)*1000, RAMBytes: (65_536 + x.r.Int64N(200_000)) << 20}
	}
	x.names++
	stays := time.Duration(float64(agedMean) * math.Exp(x.r.NormFloat64()-0.5))
	return &guest{ask: placement.Ask{Name: schema.JobName{Cell: "c", User: "u", Job: fmt.Sprint("t", x.names)}.Task(0), Priority: 200, Limit: limit}, came: now, ends: stays}
}

func isLarge(a *placement.Ask) bool { return a.Limit.CPUMilli >= 24_000 }

// pass has tasks end, come, and be placed; and with rebalancing some be moved for those that wait.
func (x *aged) pass(n int, arrivals float64, rebalancing bool) {
	now := time.Duration(n) * agedPass
	for _, g := range x.ending[n] {
		x.snapshot.RemoveTask(g.ask.Name, g.machine, 0)
		delete(x.running, g.ask.Name)
	}
	delete(x.ending, n)
	for k := arrivals; k > 0; k-- {
		if k >= 1 || x.r.Float64() < k {
			x.pending = append(x.pending, x.guest(now))
		}
	}
	x.place(n, now)
	if !rebalancing || n%agedSearch != 0 {
		return
	}
	for len(x.hour) > 0 && now-x.hour[0] >= time.Hour {
		x.hour = x.hour[1:]
	}
	for _, g := range x.pending {
		if now-g.came >= placement.DefaultReserveAfter {
			x.open(g, now)
		}
	}
}

func (x *aged) place(n int, now time.Duration) {
	asks := make([]placement.Ask, len(x.pending))
	by := map[schema.TaskName]*guest{}
	for i, g := range x.pending {
		g.ask.Waited = now - g.came
		asks[i], by[g.ask.Name] = g.ask, g
	}
	for _, d := range placement.Place(x.snapshot, asks, uint64(n)) {
		if d.Machine == "" {
			continue
		}
		g := by[d.Name]
		g.machine = d.Machine
		x.running[d.Name] = g
		if n > agedWarm*perDay && isLarge(&g.ask) {
			x.large++
			x.waited += now - g.came
		}
		end := n + 1 + int(g.ends/agedPass)
		x.ending[end] = append(x.ending[end], g)
	}
	left := x.pending[:0]
	for _, g := range x.pending {
		if g.machine == "" {
			left = append(left, g)
		}
	}
	x.pending = left
}

// open moves tasks for one that waits, as the controller does.
func (x *aged) open(g *guest, now time.Duration) {
	s := rebalance.Search{Snapshot: x.snapshot, Moves: 3, Machines: 16, Checks: 1 << 19, May: func(t *placement.Task, _ []rebalance.Move) (placement.Ask, bool) {
		m := x.running[t.Name]
		return m.ask, m.moved == 0 || now-m.moved >= time.Hour
	}}
	h, ok := s.Hole(g.ask)
	if !ok || len(x.hour)+len(h.Moves) > agedMoves {
		return
	}
	for _, m := range h.Moves {
		t := x.running[m.Task]
		if !placement.Move(x.snapshot, t.ask, m.From, m.To) {
			return
		}
		t.machine, t.moved = m.To, now
		x.moves++
		x.hour = append(x.hour, now)
	}
}

const perDay = int(24 * time.Hour / agedPass)

// typicalLarge is the mean of the large asks.
var typicalLarge = schema.Resources{CPUMilli: 55_500, RAMBytes: 165_536 << 20}

// more returns how many large tasks there is room for.
func more(s *placement.Snapshot) (n int) {
	f := s.Fork()
	defer f.Release()
	var asks []placement.Ask
	for i := range 300 {
		asks = append(asks, placement.Ask{Name: schema.JobName{Cell: "c", User: "u", Job: "large"}.Task(i), Priority: 200, Limit: typicalLarge, Spread: placement.NoSpread})
	}
	for _, d := range placement.Place(f, asks, 1) {
		if d.Machine != "" {
			n++
		}
	}
	return n
}

// anew returns how many large tasks there would be room for if all that runs was placed anew,
// the largest first: by the default policy or by best fit, what leaves more.
func (x *aged) anew() (most int) {
	var asks []placement.Ask
	for _, m := range x.machines { // in an order that is always the same
		for _, t := range placement.TasksOn(x.snapshot, m.Name) {
			a := x.running[t.Name].ask
			a.Waited, a.Last = 0, ""
			asks = append(asks, a)
		}
	}
	slices.SortStableFunc(asks, func(a, b placement.Ask) int { return cmp.Compare(b.Limit.CPUMilli, a.Limit.CPUMilli) })
	for _, policy := range []placement.Policy{placement.Hybrid, placement.BestFit} {
		s := placement.NewSnapshot(x.machines, nil)
		s.SetPolicy(policy)
		left := 0
		for _, d := range placement.Place(s, asks, 1) {
			if d.Machine == "" {
				left++
			}
		}
		if n := more(s); left == 0 {
			most = max(most, n)
		}
	}
	return most
}

// BenchmarkAged holds a cell in which tasks have come and gone for days against the same
// tasks placed anew: how much of the CPU is allocated once it is filled up with large tasks,
// and how many tasks were moved a day, of all that run.
func BenchmarkAged(b *testing.B) {
	const machines, days = 60, 4
	for _, load := range []float64{0.8, 0.9, 0.95} {
		for _, on := range []bool{false, true} {
			b.Run(fmt.Sprintf("load=%v/rebalance=%t", load, on), func(b *testing.B) {
				for b.Loop() {
					var is, could, running, wait, moved float64
					for seed := range uint64(2) {
						x := newAged(seed, machines)
						mean := 0.95*4200 + 0.05*55_500.0 // of CPU
						there := load * 64_000 * machines / mean
						for n := range days * perDay {
							x.pass(n, there*agedPass.Seconds()/agedMean.Seconds(), on)
							if n == agedWarm*perDay {
								x.moves = 0
							}
							if n > agedWarm*perDay && n%(perDay/4) == 0 {
								var used float64
								for _, g := range x.running {
									used += float64(g.ask.Limit.CPUMilli)
								}
								is += (used + float64(more(x.snapshot))*55_500) / 64_000 / machines
								could += (used + float64(x.anew())*55_500) / 64_000 / machines
								running += float64(len(x.running))
							}
						}
						wait += x.waited.Seconds() / float64(max(x.large, 1)) / 2
						moved += float64(x.moves) / (days - agedWarm) / 2
					}
					looks := float64(2 * (4*(days-agedWarm) - 1))
					b.ReportMetric(100*is/looks, "filled-%")
					b.ReportMetric(100*could/looks, "anew-%")
					b.ReportMetric(running/looks, "tasks")
					b.ReportMetric(moved, "moves/day")
					b.ReportMetric(100*moved/(running/looks), "moved-%/day")
					b.ReportMetric(wait, "large-wait-s")
				}
			})
		}
	}
}
