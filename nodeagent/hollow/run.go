package hollow

import (
	"math"
	"slices"
	"time"

	"github.com/musterhq/muster/nodeagent"
	"github.com/musterhq/muster/schema"
)

// run is the process of an incarnation that is alive.
type run struct {
	nodeagent.Running
	assignment schema.Assignment
	step       int // of the task's Before, from 1; 0 is the task itself
	pid        int // 0 while it starts, and of an alloc
	started    time.Time
	stopping   bool // it has got a signal

	starts time.Time // zero once it has started
	ends   time.Time // zero: never by itself
	exit   schema.Exit
	asks   time.Time // when its health is checked next; zero: it need not be
	health schema.Health
	probe  nodeagent.Probe
	due    time.Time // the first of these
}

// find returns what runs of a generation, nil if nothing.
func (m *machine) find(r schema.TaskRef) *run {
	for _, x := range m.runs {
		if x.TaskRef == r {
			return x
		}
	}
	return nil
}

// act does what the agent has decided, or begins it.
func (m *machine) act(a *nodeagent.Act, now time.Time) {
	ref := schema.TaskRef{Task: a.Task, Generation: a.Generation}
	r := m.find(ref)
	switch {
	case a.Kind == nodeagent.Start:
		r = &run{Running: nodeagent.Running{TaskRef: ref, Incarnation: a.Incarnation}, assignment: *a.Assignment, step: a.Step}
		r.starts = now.Add(m.about(m.group.fleet.cfg.Pattern.Start))
		r.due = r.starts
		m.runs = append(m.runs, r)
	case r == nil: // for what has ended there is nothing to do
	case a.Kind == nodeagent.StopCommand:
		m.agent.Load().core.StopCommandRan(r.Running, "")
	case a.Kind == nodeagent.Term:
		r.stopping = true
		r.end(now.Add(m.about(m.group.fleet.cfg.Pattern.Stop)), schema.Exit{Code: -1, Signal: "SIGTERM"})
	case a.Kind == nodeagent.Kill:
		r.stopping = true
		r.end(now, schema.Exit{Code: -1, Signal: "SIGKILL"})
	}
}

// end plans an end, unless an earlier one is.
func (r *run) end(at time.Time, exit schema.Exit) {
	if r.ends.IsZero() || at.Before(r.ends) {
		r.ends, r.exit = at, exit
		r.due = earliest(r.starts, r.ends, r.asks)
	}
}

// advance lets what runs do what is due.
func (m *machine) advance(now time.Time) {
	for _, r := range slices.Clone(m.runs) {
		for !r.due.IsZero() && !r.due.After(now) {
			m.proceed(r, now)
			r.due = earliest(r.starts, r.ends, r.asks)
		}
	}
}

// proceed does the next thing of a process that is due, and reports it to the agent.
func (m *machine) proceed(r *run, now time.Time) {
	switch r.due {
	case r.starts:
		m.started(r, now)
	case r.ends:
		m.exited(r, now)
		r.ends = time.Time{}
	default:
		m.ask(r, now)
	}
}

// started has a start come to its end, and plans how the task will end by itself.
func (m *machine) started(r *run, now time.Time) {
	r.starts, r.started = time.Time{}, now
	job, p := r.assignment.Job, &m.group.fleet.cfg.Pattern
	if job.Kind != schema.Allocs { // which has no process
		m.pids++
		r.pid = m.pids
		m.group.fleet.counts.running.Add(1)
		m.group.fleet.counts.started.Add(1)
		m.observe(Event{At: now, Assignment: &r.assignment})
		if at := m.after(now, p.CrashEvery); !at.IsZero() {
			r.end(at, schema.Exit{Code: 1})
		}
	}
	switch {
	case r.step > 0:
		r.end(now.Add(m.about(p.Start)), schema.Exit{Code: 0})
	case job.Kind == schema.Batch:
		r.end(now.Add(m.about(p.Batch)), schema.Exit{Code: 0})
	}
	a := m.agent.Load()
	a.core.Started(r.Running, &nodeagent.StartOutcome{
		Written: true, Tried: true, Process: nodeagent.Process{Boot: m.info.Boot, PID: r.pid, StartedAt: now, Given: nodeagent.GivenOf(&job.Task)},
	}, now)
	a.news = true
}

func (m *machine) observe(e Event) {
	e.Machine = m.name
	m.group.fleet.cfg.Observe(e)
}

// exited has a process end, which the agent sees at once.
func (m *machine) exited(r *run, now time.Time) {
	m.runs = slices.DeleteFunc(m.runs, func(x *run) bool { return x == r })
	r.exit.Incarnation, r.exit.At = r.Incarnation, now
	a := m.agent.Load()
	a.core.Exited(r.Running, nodeagent.Process{Boot: m.info.Boot, PID: r.pid, StartedAt: r.started, Exit: &r.exit, EndedItself: !r.stopping}, now)
	a.news = true
	m.observeEnd(r, r.exit)
}

// observeEnd counts the end of what has started.
func (m *machine) observeEnd(r *run, exit schema.Exit) {
	if r.pid == 0 {
		return
	}
	c := &m.group.fleet.counts
	c.running.Add(-1)
	switch {
	case exit.Code == 0:
		c.finished.Add(1)
	case exit.Code > 0:
		c.crashed.Add(1)
	default:
		c.stopped.Add(1)
	}
	m.observe(Event{At: exit.At, Assignment: &r.assignment, Exit: &exit})
}

// check plans the health checks that the agent wants to go on. All pass, so that a task
// which is known to be healthy need not be asked again.
func (m *machine) check(checks []nodeagent.Check) {
	for i := range checks {
		c := &checks[i]
		r := m.find(schema.TaskRef{Task: c.Task, Generation: c.Generation})
		if r == nil || r.Incarnation != c.Incarnation || c.Probe.State == schema.Healthy || !r.asks.IsZero() {
			continue
		}
		r.health, r.probe, r.asks = c.Health, c.Probe, c.StartedAt.Add(c.Probe.Wait(&c.Health))
		r.due = earliest(r.starts, r.ends, r.asks)
	}
}

// ask checks a task's health.
func (m *machine) ask(r *run, now time.Time) {
	was := r.probe.State
	r.probe = r.probe.Next(&r.health, r.started, nodeagent.Result{At: now, OK: true})
	if r.asks = (time.Time{}); r.probe.State != schema.Healthy {
		r.asks = now.Add(r.probe.Wait(&r.health))
	}
	if r.probe.State != was {
		a := m.agent.Load()
		a.core.Probed(r.Running, r.probe)
		a.news = true
	}
}

// consumer is a task that runs, for what it uses.
type consumer struct {
	nodeagent.Running
	since time.Time
	limit schema.Resources
	phase float64 // where in its wave the task is, from 0 to 1
}

// consumers returns the tasks that run, sorted.
func (m *machine) consumers() []consumer {
	list := make([]consumer, 0, len(m.runs))
	for _, r := range m.runs {
		if r.pid != 0 {
			list = append(list, consumer{r.Running, r.started, r.assignment.Job.Task.Resources.Resources, float64(r.pid%97) / 97})
		}
	}
	slices.SortFunc(list, func(a, b consumer) int { return a.TaskRef.Compare(b.TaskRef) })
	return list
}

const (
	wave = 10 * time.Minute // in which the use of processors rises and falls
	grow = 30 * time.Minute // in which a task's memory comes to its most
	// baseline is what a machine uses without tasks, in thousandths of a core.
	baseline = 150
)

// usage returns what machine and tasks use now: of a task's limits between a fifth and
// three fifths of the CPU, up and down, and of the memory three tenths, and up to seven.
func (a *agent) usage() *schema.MachineUsage {
	now, info := time.Now(), a.info.Load()
	u := &schema.MachineUsage{
		Machine: info.Name, At: now, CPUMilli: baseline,
		RAMTotal: info.Capacity.RAMBytes + info.Reserved.RAMBytes, RAMAvailable: info.Capacity.RAMBytes,
		DiskTotal: info.Capacity.DiskBytes + info.Reserved.DiskBytes, DiskFree: info.Capacity.DiskBytes,
	}
	for _, c := range *a.tasks.Load() {
		age := max(now.Sub(c.since), 0)
		cpu := 0.4 + 0.2*math.Sin(2*math.Pi*(c.phase+age.Seconds()/wave.Seconds()))
		ram := 0.3 + 0.4*min(age.Seconds()/grow.Seconds(), 1)
		t := schema.TaskUsage{Task: c.Task, Generation: c.Generation, Incarnation: c.Incarnation, Usage: schema.Usage{
			At: now, DiskAt: now, Processes: 3,
			CPUMilli: int64(cpu * float64(c.limit.CPUMilli)), RAMBytes: int64(ram * float64(c.limit.RAMBytes)), DiskBytes: c.limit.DiskBytes / 4,
		}}
		u.CPUMilli += t.CPUMilli
		u.RAMAvailable -= t.RAMBytes
		u.DiskFree -= t.DiskBytes
		u.Tasks = append(u.Tasks, t)
	}
	return u
}
