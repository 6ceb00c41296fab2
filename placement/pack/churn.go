package pack

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/musterhq/muster/placement"
)

const (
	churnPass   = 10 * time.Second
	churnWarm   = 2 * time.Hour // not measured
	churnArrive = 6 * time.Hour // what arrives until then is measured
	churnEnd    = 8 * time.Hour // until then it is seen whether it gets a place
	// largeShare is how many of all tasks count as large: those that want most of a
	// machine.
	largeShare = 0.05
)

// amounts are what a task asks for, or a machine has: CPU, RAM, GPU.
type amounts [3]float64

func (t *Task) amounts(gpus GPUs) amounts {
	out := amounts{float64(t.CPUMilli), float64(t.RAMMiB)}
	if gpus != GPUIgnored {
		out[2] = float64(t.gpuMilli())
	}
	return out
}

func (n *Node) amounts(gpus GPUs) amounts {
	out := amounts{float64(n.CPUMilli), float64(n.RAMMiB)}
	if gpus != GPUIgnored {
		out[2] = float64(n.GPUs * placement.DeviceMilli)
	}
	return out
}

// Churn is what else was measured of a cell in which tasks come and go: means over
// the seeds.
type Churn struct {
	Load float64 `json:"load"` // as requested
	// Large is how many of the tasks that arrived are large, and OverHour the percentage
	// of these that waited for more than an hour.
	Large    float64 `json:"large"`
	OverHour float64 `json:"overHour"`
	Wait     float64 `json:"wait"` // of all tasks, in seconds
	// Allocated is the percentage of the cell that was allocated, of the dimension
	// that is asked for most.
	Allocated float64 `json:"allocated"`
}

// errNothingFits is what churn says of a trace whose tasks are all larger than all
// machines.
var errNothingFits = errors.New("no task of the trace fits on any of its machines")

// cell is a cell in which tasks come and go.
type cell struct {
	snapshot *placement.Snapshot
	random   *rand.Rand
	config   *Config
	tasks    []Task // that come, any of them at any time
	asks     []placement.Ask
	// dim is the dimension that is asked for most, of which the cell has so much.
	dim      int
	capacity float64
	every    time.Duration // mean time between two arrivals
	life     Life
	failing  *failing
	large    float64 // the least share of a machine, see share
	perNode  amounts // mean of the machines

	pending []guest
	leaving map[int][]guest // by pass
	next    int             // number of tasks that came
	used    float64         // of dim
}

// guest is a task in the cell.
type guest struct {
	ask     placement.Ask
	of      int // of the tasks of the trace
	machine string
	amount  float64 // of the dimension that is asked for most
	large   bool
	came    time.Duration
	stays   time.Duration
}

// churn measures for each seed how long large tasks wait in a cell in which tasks come
// and go.
func churn(c Config) (Result, error) {
	r := Result{Churn: &Churn{Load: c.Load}}
	for seed := range c.Seeds {
		random := rand.New(rand.NewPCG(c.FirstSeed+uint64(seed), 82))
		x, err := newCell(&c, random)
		if err != nil {
			return Result{}, err
		}
		one := x.run()
		r.Tasks = one.tasks
		r.PerSeed = append(r.PerSeed, one.largeWait)
		n := float64(c.Seeds)
		r.Churn.Large += float64(one.large) / n
		r.Churn.OverHour += one.overHour / n
		r.Churn.Wait += one.wait / n
		r.Churn.Allocated += one.allocated / n
	}
	return r, nil
}

// newCell returns an empty cell, with the tasks of the trace that it can hold.
func newCell(c *Config, random *rand.Rand) (*cell, error) {
	x := &cell{config: c, random: random, leaving: map[int][]guest{}, life: c.Life.orUsual()}
	all := machines(c.Nodes, c.GPUs)
	x.failing = newFailing(all, x.life, c.FirstSeed)
	x.snapshot = placement.NewSnapshot(all, nil)
	x.snapshot.Configure(c.Options)
	for i, a := range asks(c.Tasks, c.GPUs) {
		if x.snapshot.Fits(a, false) {
			x.tasks, x.asks = append(x.tasks, c.Tasks[i]), append(x.asks, a)
		}
	}
	if len(x.tasks) == 0 {
		return nil, errNothingFits
	}
	var has, asked amounts
	for i := range c.Nodes {
		for d, v := range c.Nodes[i].amounts(c.GPUs) {
			has[d] += v
		}
	}
	for i := range x.tasks {
		for d, v := range x.tasks[i].amounts(c.GPUs) {
			asked[d] += v
		}
	}
	for d := range has {
		x.perNode[d] = has[d] / float64(len(c.Nodes))
		if has[d] > 0 && (has[x.dim] == 0 || asked[d]/has[d] > asked[x.dim]/has[x.dim]) {
			x.dim = d
		}
	}
	x.capacity = has[x.dim]
	if asked[x.dim] == 0 {
		return nil, errNothingFits
	}
	there := c.Load * x.capacity / (asked[x.dim] / float64(len(x.tasks))) // tasks in the mean
	x.every = time.Duration(float64(x.life.Mean) * float64(x.life.Burst) / there)
	if x.every <= 0 || there > mostInflated {
		return nil, fmt.Errorf("a load of %g takes %.0f tasks like these at a time: want at most %d", c.Load, there, mostInflated)
	}
	x.setLarge()
	x.fill(int(there))
	return x, nil
}

// share is what a task asks of a mean machine, in the dimension that it asks for most.
func (x *cell) share(t *Task) float64 {
	var most float64
	for d, v := range t.amounts(x.config.GPUs) {
		if x.perNode[d] > 0 {
			most = max(most, v/x.perNode[d])
		}
	}
	return most
}

// setLarge finds out which tasks are large.
func (x *cell) setLarge() {
	shares := make([]float64, len(x.tasks))
	for i := range x.tasks {
		shares[i] = x.share(&x.tasks[i])
	}
	slices.Sort(shares)
	x.large = shares[int(float64(len(shares))*(1-largeShare))]
}

// fill has so many tasks be in the cell from before, each somewhere in its time. A task
// that stays long is there more often than it comes.
func (x *cell) fill(n int) {
	for range n {
		g := x.guest(0, x.life.Sigma*x.life.Sigma)
		g.stays = time.Duration(x.random.Float64() * float64(g.stays))
		x.pending = append(x.pending, g)
	}
}

// guest draws a task that comes at a time. Its duration is log-normal, longer by a
// factor of e to the power of more.
func (x *cell) guest(now time.Duration, more float64) guest {
	return x.guestLike(x.random.IntN(len(x.tasks)), now, more)
}

// guestLike is guest of a task of the trace.
func (x *cell) guestLike(i int, now time.Duration, more float64) guest {
	t := &x.tasks[i]
	g := guest{ask: x.asks[i], of: i, came: now, amount: t.amounts(x.config.GPUs)[x.dim], large: x.share(t) >= x.large}
	g.ask.Name.Job = fmt.Sprintf("t%09d", x.next)
	x.next++
	sigma := x.life.Sigma
	median := float64(x.life.Mean) * math.Exp(-sigma*sigma/2)
	g.stays = time.Duration(median * math.Exp(sigma*x.random.NormFloat64()+more))
	return g
}

// counts are what was measured in one cell.
type counts struct {
	tasks, large int
	wait         float64
	largeWait    float64
	overHour     float64
	allocated    float64
}

// count counts a task that has waited so long.
func (o *counts) count(g *guest, waited time.Duration) {
	if g.came < churnWarm || g.came >= churnArrive {
		return
	}
	o.tasks++
	o.wait += waited.Seconds()
	if g.large {
		o.large++
		o.largeWait += waited.Seconds()
		if waited > time.Hour {
			o.overHour++
		}
	}
}

// run has tasks come and go.
func (x *cell) run() counts {
	var out counts
	arrival := time.Duration(0)
	passes := 0
	for pass := 0; ; pass++ {
		now := time.Duration(pass) * churnPass
		if now >= churnEnd {
			break
		}
		for _, g := range x.leaving[pass] {
			x.snapshot.RemoveTask(g.ask.Name, g.machine, 0)
			x.used -= g.amount
		}
		delete(x.leaving, pass)
		x.fail(pass, now)
		for ; arrival < now; arrival += time.Duration(x.random.ExpFloat64() * float64(x.every)) {
			x.arrive(arrival)
		}
		if pass == 0 && (x.config.Fill != "" || x.config.FillOneByOne) {
			x.fillFirst(&out)
		} else {
			x.place(pass, now, &out)
		}
		if now >= churnWarm && now < churnArrive {
			passes++
			out.allocated += 100 * x.used / x.capacity
		}
	}
	for i := range x.pending {
		out.count(&x.pending[i], churnEnd-x.pending[i].came)
	}
	out.wait /= float64(max(out.tasks, 1))
	out.largeWait /= float64(max(out.large, 1))
	out.overHour *= 100 / float64(max(out.large, 1))
	out.allocated /= float64(passes)
	return out
}

// fillFirst makes the first pass as Config.Fill says.
func (x *cell) fillFirst(out *counts) {
	o := x.config.Options
	if x.config.Fill != "" {
		o.Policy = x.config.Fill
	}
	o.OneByOne = o.OneByOne || x.config.FillOneByOne
	x.snapshot.Configure(o)
	x.place(0, 0, out)
	x.snapshot.Configure(x.config.Options)
}

// place makes one pass over what is pending.
func (x *cell) place(pass int, now time.Duration, out *counts) {
	work := make([]placement.Ask, len(x.pending))
	at := make(map[string]int, len(x.pending))
	for i := range x.pending {
		g := &x.pending[i]
		g.ask.Waited = now - g.came
		work[i], at[g.ask.Name.Job] = g.ask, i
	}
	for _, d := range placement.Place(x.snapshot, work, uint64(pass)) {
		if d.Machine == "" {
			continue
		}
		g := &x.pending[at[d.Name.Job]]
		g.machine = d.Machine
		out.count(g, now-g.came)
		x.used += g.amount
		end := pass + 1 + int(g.stays/churnPass)
		x.leaving[end] = append(x.leaving[end], *g)
	}
	x.pending = slices.DeleteFunc(x.pending, func(g guest) bool { return g.machine != "" })
}
