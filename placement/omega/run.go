package omega

import (
	"cmp"
	"container/heap"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/musterhq/muster/placement"
	"github.com/musterhq/muster/schema"
)

// What the machines of an experiment have: as many tasks fit in the CPU as in the RAM.
const (
	machineCPU = 64_000
	machineRAM = 256 << 30
)

// mostAttempts is how often a job is tried before it is given up, as in the paper.
const mostAttempts = 1000

// job is a job on its way.
type job struct {
	service  bool
	came     time.Duration
	asks     []placement.Ask // that have no place yet
	stays    time.Duration
	attempts int
}

// scheduler decides one job after the other.
type scheduler struct {
	queue []*job
	// at is the job that it decides, nil for none, and plan what it will commit: decided on the
	// cell as it was at since.
	at    *job
	plan  placement.Plan
	since time.Duration
	busy  time.Duration
	// offered is what nobody else sees, by machine, while it decides; of TwoLevel.
	offered []schema.Resources
}

// event is something that happens at a time.
type event struct {
	at  time.Duration
	seq int // of those at the same time the first comes first
	do  func()
}

type events []event

func (e *events) Len() int { return len(*e) }
func (e *events) Less(i, k int) bool {
	a, b := &(*e)[i], &(*e)[k]
	return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.seq, b.seq)) < 0
}
func (e *events) Swap(i, k int) { (*e)[i], (*e)[k] = (*e)[k], (*e)[i] }
func (e *events) Push(x any)    { *e = append(*e, x.(event)) }
func (e *events) Pop() any {
	last := (*e)[len(*e)-1]
	*e = (*e)[:len(*e)-1]
	return last
}

// cell is an experiment at work.
type cell struct {
	cfg        Config
	snapshot   *placement.Snapshot
	random     *rand.Rand
	now        time.Duration
	next       events
	seq        int
	jobs       int
	machines   map[string]int
	free       []schema.Resources // by machine
	changed    []time.Duration    // when a machine was last another
	schedulers []*scheduler
	waits      [2][]time.Duration // of batch jobs and services
	out        Result
}

// Run does an experiment. It errs when the configuration makes no sense.
func Run(cfg Config) (Result, error) {
	if err := cfg.check(); err != nil {
		return Result{}, err
	}
	c := newCell(cfg)
	c.arrive(&c.cfg.Batch, false)
	c.arrive(&c.cfg.Service, true)
	for len(c.next) > 0 && c.next[0].at < cfg.Length {
		e := heap.Pop(&c.next).(event)
		c.now = e.at
		e.do()
	}
	c.now = cfg.Length
	return c.result(), nil
}

func newCell(cfg Config) *cell {
	c := &cell{cfg: cfg, random: rand.New(rand.NewPCG(cfg.Seed, 2013)), machines: map[string]int{}}
	var machines []placement.Machine
	var tasks []placement.Task
	for i := range cfg.Machines {
		m := placement.Machine{
			Name: fmt.Sprintf("m%06d", i), Up: true, Capacity: schema.Resources{CPUMilli: machineCPU, RAMBytes: machineRAM},
			Attributes: map[string]string{placement.DefaultSpread: fmt.Sprintf("r%05d", i/40)},
		}
		used := min(max(cfg.Used+0.2*(c.random.Float64()-0.5), 0), 1) * min(1, 10*cfg.Used)
		limit := schema.Resources{CPUMilli: int64(used * machineCPU), RAMBytes: int64(used * machineRAM)}
		c.machines[m.Name] = i
		c.free = append(c.free, minus(m.Capacity, limit))
		machines = append(machines, m)
		tasks = append(tasks, placement.Task{
			Name: schema.JobName{Cell: "c", User: "u", Job: "resident"}.Task(i), Machine: m.Name, Priority: 200, Limit: limit,
		})
	}
	c.changed = make([]time.Duration, cfg.Machines)
	for i := range c.changed {
		c.changed[i] = -1
	}
	c.snapshot = placement.NewSnapshot(machines, tasks)
	c.snapshot.Configure(placement.Options{Policy: cfg.Policy})
	for range cfg.Schedulers {
		c.schedulers = append(c.schedulers, &scheduler{})
	}
	return c
}

// after has something happen later.
func (c *cell) after(d time.Duration, do func()) {
	c.seq++
	heap.Push(&c.next, event{c.now + max(d, 0), c.seq, do})
}

// arrive has the next job of a kind come.
func (c *cell) arrive(of *Jobs, service bool) {
	c.after(time.Duration(c.random.ExpFloat64()*float64(of.Every)), func() {
		j := c.draw(of, service)
		c.count(service).Jobs++
		s := c.schedulerFor(service)
		s.queue = append(s.queue, j)
		c.begin(s)
		c.arrive(of, service)
	})
}

// draw makes a job up.
func (c *cell) draw(of *Jobs, service bool) *job {
	j := &job{service: service, came: c.now, stays: of.Stays}
	name := schema.JobName{Cell: "c", User: "batch", Job: fmt.Sprintf("j%08d", c.jobs)}
	a := placement.Ask{Priority: 110}
	if service {
		name.User, a.Priority = "service", 200
	}
	share := func() float64 { return of.Share * 2 * (1 - c.random.Float64()) }
	a.Limit = schema.Resources{CPUMilli: int64(math.Ceil(share() * machineCPU)), RAMBytes: int64(math.Ceil(share() * machineRAM))}
	tasks := 1
	if of.Tasks > 1 {
		tasks += int(c.random.ExpFloat64() * float64(of.Tasks-1))
	}
	for i := range tasks {
		a.Name = name.Task(i)
		j.asks = append(j.asks, a)
	}
	return j
}

// schedulerFor returns the scheduler that decides the next job.
func (c *cell) schedulerFor(service bool) *scheduler {
	at := c.jobs % len(c.schedulers)
	if c.cfg.Apart {
		if at = 0; !service {
			at = 1 + c.jobs%(len(c.schedulers)-1)
		}
	}
	c.jobs++
	return c.schedulers[at]
}

func (c *cell) count(service bool) *Kind {
	if service {
		return &c.out.Service
	}
	return &c.out.Batch
}

// begin has a scheduler decide its next job, if it is idle.
func (c *cell) begin(s *scheduler) {
	if s.at != nil || len(s.queue) == 0 {
		return
	}
	j := s.queue[0]
	s.queue = s.queue[1:]
	if j.attempts == 0 {
		c.waits[kindOf(j)] = append(c.waits[kindOf(j)], c.now-j.came)
	}
	j.attempts++
	s.at, s.since = j, c.now
	s.plan = c.planned(s, j)
	takes := c.takes(j)
	s.busy += min(takes, c.cfg.Length-c.now)
	c.after(takes, func() { c.decided(s) })
}

func kindOf(j *job) int {
	if j.service {
		return 1
	}
	return 0
}

// takes returns how long it takes to decide what a job still asks for.
func (c *cell) takes(j *job) time.Duration {
	of := &c.cfg.Batch
	if j.service || c.cfg.Architecture == SinglePath {
		of = &c.cfg.Service
	}
	return of.PerJob + time.Duration(len(j.asks))*of.PerTask
}

// planned returns what a scheduler decides on the cell as it sees it now.
func (c *cell) planned(s *scheduler, j *job) placement.Plan {
	groups := map[schema.TaskName]string{}
	for i := range j.asks {
		if c.cfg.Gangs {
			groups[j.asks[i].Name] = j.asks[i].Name.Job
		}
	}
	view := c.snapshot
	if c.cfg.Architecture == TwoLevel {
		view = c.offer(s)
		defer view.Release()
	}
	return placement.NewPlan(view, j.asks, groups, c.cfg.Seed)
}

// offer offers a scheduler all that is free and that no other one has on offer, and returns
// the cell as it sees it.
func (c *cell) offer(s *scheduler) *placement.Snapshot {
	view := c.snapshot.Fork()
	s.offered = slices.Clone(c.free)
	for _, other := range c.schedulers {
		if other == s || other.at == nil {
			continue
		}
		for i, r := range other.offered {
			s.offered[i] = minus(s.offered[i], r)
		}
	}
	for name, i := range c.machines {
		taken := minus(c.free[i], s.offered[i])
		if taken == (schema.Resources{}) {
			continue
		}
		view.SetTask(placement.Task{
			Name: schema.JobName{Cell: "c", User: "u", Job: "offered"}.Task(i), Machine: name, Priority: 200, Limit: taken,
		})
	}
	return view
}

func minus(a, b schema.Resources) schema.Resources {
	return schema.Resources{CPUMilli: a.CPUMilli - b.CPUMilli, RAMBytes: a.RAMBytes - b.RAMBytes, DiskBytes: a.DiskBytes - b.DiskBytes}
}

// decided has a scheduler commit what it has decided, and go on with what is left.
func (c *cell) decided(s *scheduler) {
	j, p := s.at, s.plan
	s.at, s.offered = nil, nil
	conflicts := 0
	if c.cfg.Coarse {
		p, conflicts = c.unchanged(p, s.since)
	}
	done, refused := placement.Commit(c.snapshot, p)
	conflicts += len(refused)
	c.out.TaskConflicts += conflicts
	if conflicts > 0 {
		c.out.Conflicts++
	}
	if len(done.Steps) > 0 {
		c.out.Commits++
	}
	for i := range done.Steps {
		c.start(&done.Steps[i], j)
	}
	switch {
	case len(j.asks) == 0:
	case j.attempts >= mostAttempts:
		c.count(j.service).Abandoned++
	case conflicts > 0:
		s.queue = append([]*job{j}, s.queue...)
	default: // there is no room
		s.queue = append(s.queue, j)
	}
	c.begin(s)
}

// unchanged returns the steps of a plan on machines that are as they were when it began, and how
// many are not among them; of a gang all or none.
func (c *cell) unchanged(p placement.Plan, since time.Duration) (placement.Plan, int) {
	out := placement.Plan{}
	for _, step := range p.Steps {
		if c.changed[c.machines[step.Decision.Machine]] <= since {
			out.Steps = append(out.Steps, step)
		}
	}
	conflicts := len(p.Steps) - len(out.Steps)
	if c.cfg.Gangs && conflicts > 0 {
		return placement.Plan{}, len(p.Steps)
	}
	return out, conflicts
}

// start has a task run for its time.
func (c *cell) start(step *placement.Planned, j *job) {
	name, machine, limit := step.Ask.Name, step.Decision.Machine, step.Ask.Limit
	i := c.machines[machine]
	c.out.Tasks++
	c.free[i], c.changed[i] = minus(c.free[i], limit), c.now
	j.asks = slices.DeleteFunc(j.asks, func(a placement.Ask) bool { return a.Name == name })
	c.after(time.Duration(c.random.ExpFloat64()*float64(j.stays)), func() {
		c.snapshot.RemoveTask(name, machine, 0)
		c.free[i], c.changed[i] = minus(c.free[i], minus(schema.Resources{}, limit)), c.now
	})
}

// result sums up.
func (c *cell) result() Result {
	for _, s := range c.schedulers {
		share := float64(s.busy) / float64(c.cfg.Length)
		c.out.Busy += share / float64(len(c.schedulers))
		c.out.Busiest = max(c.out.Busiest, share)
		left := s.queue
		if s.at != nil {
			left = append(left, s.at)
		}
		for _, j := range left {
			c.count(j.service).Unfinished++
			if j.attempts == 0 {
				c.waits[kindOf(j)] = append(c.waits[kindOf(j)], c.now-j.came)
			}
		}
	}
	for i, k := range []*Kind{&c.out.Batch, &c.out.Service} {
		waits := c.waits[i]
		if len(waits) == 0 {
			continue
		}
		slices.Sort(waits)
		var sum time.Duration
		for _, w := range waits {
			sum += w
		}
		k.Wait, k.Wait90 = sum/time.Duration(len(waits)), waits[len(waits)*9/10]
	}
	if c.out.Commits > 0 {
		c.out.ConflictFraction = float64(c.out.Conflicts) / float64(c.out.Commits)
	}
	return c.out
}
