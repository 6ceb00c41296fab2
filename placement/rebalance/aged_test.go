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

// form is what an aged cell is like.
type form struct {
	name string
	pass time.Duration
	days int // of which the second half counts
	// services is the share of the CPU of what stays for weeks; the rest stays for an hour or two,
	// and is never moved, as batch tasks are not.
	services float64
	large    int // how many of the tasks want most of a machine, in percent
}

const (
	agedMean    = 82 * time.Minute    // that a batch task runs
	agedService = 20 * 24 * time.Hour // that a task of a service does
	agedDay     = 24 * time.Hour
	agedSearch  = 3 * time.Hour // between two searches for room that no task needs yet
	agedChecks  = 1 << 15       // for each hole, fewer than a cell makes: they are most of the work
	agedLeast   = 0.5           // and the others: as reconciler/control has them
	agedShare   = 2
)

var forms = []form{
	{name: "batch", pass: 30 * time.Second, days: 4, large: 5},
	{name: "services", pass: time.Hour, days: 160, services: 1, large: 5},
	{name: "both", pass: 5 * time.Minute, days: 40, services: 0.7, large: 5},
	{name: "many-large", pass: time.Hour, days: 160, services: 1, large: 15},
}

// Weights and bounds were chosen with the seeds from 1 on, and are judged with others.
const agedSeed, agedSeeds = 11, 4

// guest is a task in an aged cell.
type guest struct {
	ask     placement.Ask
	machine string
	came    time.Duration
	ends    time.Duration
	since   time.Duration // it is where it is
	moved   time.Duration // when it was last, 0 for never
	looked  time.Duration // for a hole for it, 0 for not yet
	service bool
}

// aged is a cell in which tasks have come and gone for days.
type aged struct {
	form
	r        *rand.Rand
	snapshot *placement.Snapshot
	machines []placement.Machine
	running  map[schema.TaskName]*guest
	ending   map[int][]*guest // by pass
	pending  []*guest
	names    int
	moves    int             // in all
	below    float64         // machines of which less is used are emptied
	today    []time.Duration // when tasks were moved
	waited   time.Duration   // of the tasks of large size that were placed
	larges   int
}

func newAged(f form, seed uint64, machines int) *aged {
	x := &aged{form: f, r: rand.New(rand.NewPCG(seed, 18)), running: map[schema.TaskName]*guest{}, ending: map[int][]*guest{}}
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

// guest draws a task: some want most of a machine.
func (x *aged) guest(now, stays time.Duration) *guest {
	limit := schema.Resources{CPUMilli: x.logNormal(3000, 0.8, 100, 16_000), RAMBytes: x.logNormal(8192, 0.8, 256, 65_536) << 20}
	if x.r.IntN(100) < x.large {
		limit = schema.Resources{CPUMilli: 24_000 + x.r.Int64N(64)*1000, RAMBytes: (65_536 + x.r.Int64N(200_000)) << 20}
	}
	x.names++
	ends := time.Duration(float64(stays) * math.Exp(x.r.NormFloat64()-0.5))
	return &guest{ask: placement.Ask{Name: schema.JobName{Cell: "c", User: "u", Job: fmt.Sprint("t", x.names)}.Task(0), Priority: 200, Limit: limit}, came: now, ends: ends, service: stays == agedService}
}

func isLarge(a *placement.Ask) bool { return a.Limit.CPUMilli >= 24_000 }

// pass has tasks end, come, and be placed; and with rebalancing some be moved.
func (x *aged) pass(n int, load float64, rebalancing bool) {
	now := time.Duration(n) * x.form.pass
	for _, g := range x.ending[n] {
		x.snapshot.RemoveTask(g.ask.Name, g.machine, 0)
		delete(x.running, g.ask.Name)
	}
	delete(x.ending, n)
	there := load * 64_000 * float64(len(x.machines)) / (4200 + float64(x.large)/100*(55_500-4200)) // mean CPU
	if n == 0 {
		x.begin(int(there * x.services))
	}
	x.arrive(now, there*x.services, agedService)
	x.arrive(now, there*(1-x.services), agedMean)
	x.place(n, now)
	if !rebalancing {
		return
	}
	for len(x.today) > 0 && now-x.today[0] >= agedDay {
		x.today = x.today[1:]
	}
	for _, g := range x.pending { // once for each: most searches find the same again
		if now-g.came >= placement.DefaultReserveAfter && g.looked == 0 {
			g.looked = now
			x.open(g, now)
		}
	}
	if now%agedSearch == 0 {
		x.improve(now)
	}
	if x.below > 0 {
		x.empty(now)
	}
}

// begin has services be there that have been for long.
func (x *aged) begin(services int) {
	for range services {
		g := x.guest(0, agedService)
		g.ends = time.Duration(x.r.Float64() * math.E * float64(g.ends)) // of those that are there the long ones are more
		x.pending = append(x.pending, g)
	}
}

// arrive has tasks arrive of which so many are there at a time, in the mean.
func (x *aged) arrive(now time.Duration, there float64, mean time.Duration) {
	for k := there * x.form.pass.Seconds() / mean.Seconds(); k > 0; k-- {
		if k >= 1 || x.r.Float64() < k {
			x.pending = append(x.pending, x.guest(now, mean))
		}
	}
}

// search returns where moves are looked for, of services that have stayed for so long.
func (x *aged) search(now, stays time.Duration) rebalance.Search {
	return rebalance.Search{Snapshot: x.snapshot, Moves: 3, Machines: 16, Checks: agedChecks, May: func(t *placement.Task, _ []rebalance.Move) (placement.Ask, bool) {
		g := x.running[t.Name]
		return g.ask, g.service && now-g.since >= stays
	}}
}

// improve moves tasks to make room for what may come, as the controller does.
func (x *aged) improve(now time.Duration) {
	names := make([]string, len(x.machines))
	for i, m := range x.machines {
		names[i] = m.Name
	}
	search := x.search(now, agedDay)
	search.Moves, search.Checks = 1, 0
	list, _ := search.Better(names, 0, agedLeast)
	for _, b := range list {
		if len(x.today) < len(x.running)*agedShare/100 {
			x.move(b.Move, now)
		}
	}
}

func (x *aged) move(m rebalance.Move, now time.Duration) {
	g := x.running[m.Task]
	if placement.Move(x.snapshot, g.ask, m.From, m.To) {
		g.machine, g.since, g.moved = m.To, now, now
		x.moves++
		x.today = append(x.today, now)
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
		g.machine, g.since = d.Machine, now
		x.running[d.Name] = g
		if 2*now > time.Duration(x.days)*24*time.Hour && isLarge(&g.ask) {
			x.larges++
			x.waited += now - g.came
		}
		end := n + 1 + int(g.ends/x.form.pass)
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
	if h, ok := x.search(now, time.Hour).Hole(g.ask); ok {
		for _, m := range h.Moves {
			x.move(m, now)
		}
	}
}

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
// how far that is behind, of all seeds together and of the seeds one by one, and how many tasks
// were moved a day, of all that run.
func BenchmarkAged(b *testing.B) {
	for _, f := range forms {
		for _, load := range []float64{0.8, 0.9} {
			for _, on := range []bool{false, true} {
				b.Run(fmt.Sprintf("%s/load=%v/rebalance=%t", f.name, load, on), func(b *testing.B) {
					for b.Loop() {
						measureAged(b, f, load, on)
					}
				})
			}
		}
	}
}

func measureAged(b *testing.B, f form, load float64, on bool) {
	const machines = 60
	var filled, anew, moved, behind []float64
	wait, large := 0.0, 0
	for seed := range uint64(agedSeeds) {
		x := newAged(f, agedSeed+seed, machines)
		perDay := int(agedDay / f.pass)
		var is, could, running []float64
		for n := range f.days * perDay {
			x.pass(n, load, on)
			if 2*n == f.days*perDay {
				x.moves = 0
			}
			if 2*n <= f.days*perDay || n%(f.days*perDay/40) != 0 {
				continue
			}
			used := 0.0
			for _, g := range x.running {
				used += float64(g.ask.Limit.CPUMilli)
			}
			is = append(is, (used+float64(more(x.snapshot))*55_500)/64_000/machines)
			could = append(could, (used+float64(x.anew())*55_500)/64_000/machines)
			running = append(running, float64(len(x.running)))
		}
		filled, anew = append(filled, mean(is)), append(anew, mean(could))
		behind = append(behind, 100*(1-mean(is)/mean(could)))
		moved = append(moved, 100*float64(x.moves)/(float64(f.days)/2)/mean(running))
		wait, large = wait+x.waited.Seconds(), large+x.larges
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(100*mean(filled), "filled-%")
	b.ReportMetric(100*mean(anew), "anew-%")
	b.ReportMetric(mean(behind), "behind-%")
	b.ReportMetric(slices.Min(behind), "behind-least-%")
	b.ReportMetric(slices.Max(behind), "behind-most-%")
	b.ReportMetric(mean(moved), "moved-%/day")
	b.ReportMetric(wait/float64(max(large, 1)), "large-wait-s")
}

func mean(list []float64) (sum float64) {
	for _, v := range list {
		sum += v / float64(len(list))
	}
	return sum
}
