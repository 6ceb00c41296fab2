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
	held   *nodeagent.Held
	number int
	starts time.Time // zero once it has started
	ends   time.Time // zero: never by itself
	exit   schema.Exit
	asks   time.Time // when its health is checked next; zero: it need not be
	health schema.Health
	due    time.Time // the first of these
}

// incarnation returns what the agent knows of it: one that is alive is the last.
func (r *run) incarnation() *nodeagent.Incarnation {
	return &r.held.Incarnations[len(r.held.Incarnations)-1]
}

// find returns what the machine has of a generation, nil if nothing.
func (m *machine) find(task schema.TaskName, generation uint64) *nodeagent.Held {
	for _, h := range m.held {
		if h.Assignment.Generation == generation && h.Assignment.Task == task {
			return h
		}
	}
	return nil
}

// process returns what runs of h, nil if nothing.
func (m *machine) process(h *nodeagent.Held) *run {
	for _, r := range m.runs {
		if r.held == h {
			return r
		}
	}
	return nil
}

// act does what the agent has decided, as nodeagent/loop does with a disk and keepers.
func (m *machine) act(a nodeagent.Action, now time.Time) {
	h := m.find(a.Task, a.Generation)
	if h == nil { // one that was never started, and starts or ends now
		h = &nodeagent.Held{Assignment: schema.Assignment{Task: a.Task, Generation: a.Generation}}
		if assigned := m.memory.view.Find(a.Task, a.Generation); assigned != nil {
			h.Assignment = *assigned
		}
		m.held = append(m.held, h)
	}
	switch a.Kind {
	case nodeagent.Start:
		h.Incarnations = append(h.Incarnations, nodeagent.Incarnation{Number: a.Incarnation, Boot: m.info.Boot, Busy: true, Unconfirmed: a.Unconfirmed})
		r := &run{held: h, number: a.Incarnation, starts: now.Add(m.about(m.group.fleet.cfg.Pattern.Start))}
		r.due = r.starts
		m.runs = append(m.runs, r)
		m.proceed(r, now)
	case nodeagent.Term:
		c := &h.Incarnations[len(h.Incarnations)-1]
		if c.Stop == nil {
			c.Stop = a.Cause
		}
		c.TermAt = now
		if r := m.process(h); r != nil {
			r.end(now.Add(m.about(m.group.fleet.cfg.Pattern.Stop)), schema.Exit{Code: -1, Signal: "SIGTERM"})
			m.proceed(r, now)
		}
	case nodeagent.Kill:
		h.Incarnations[len(h.Incarnations)-1].KilledAt = now
		if r := m.process(h); r != nil {
			r.end(now, schema.Exit{Code: -1, Signal: "SIGKILL"})
			m.proceed(r, now)
		}
	case nodeagent.Limit:
		c := &h.Incarnations[len(h.Incarnations)-1]
		c.Limits, c.LimitsTried, c.LimitsAt = a.Limits, a.Limits, now
	case nodeagent.Reap:
		h.Incarnations[len(h.Incarnations)-1].Exit = a.Exit
	case nodeagent.End:
		h.End = a.Cause
	case nodeagent.Prune:
		h.Incarnations = slices.DeleteFunc(h.Incarnations, func(c nodeagent.Incarnation) bool { return c.Number == a.Incarnation })
	case nodeagent.Remove:
		m.held = slices.DeleteFunc(m.held, func(x *nodeagent.Held) bool { return x == h })
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
		m.proceed(r, now)
	}
}

// proceed lets a process do what is due.
func (m *machine) proceed(r *run, now time.Time) {
	for !r.due.IsZero() && !r.due.After(now) {
		switch r.due {
		case r.starts:
			m.started(r, now)
		case r.ends:
			m.exited(r, now)
			return
		default:
			m.ask(r, now)
		}
		r.due = earliest(r.starts, r.ends, r.asks)
	}
}

// started has a start come to its end, and plans how the task will end by itself.
func (m *machine) started(r *run, now time.Time) {
	job, p := r.held.Assignment.Job, &m.group.fleet.cfg.Pattern
	r.starts = time.Time{}
	c := r.incarnation()
	c.Busy, c.StartedAt, c.Limited, c.Limits = false, now, true, nodeagent.LimitsOf(job)
	m.agent.Load().news = true
	if job.Kind == schema.Allocs {
		return // it has no process
	}
	m.pids++
	c.PID = m.pids
	if job.Kind == schema.Batch {
		r.end(now.Add(m.about(p.Batch)), schema.Exit{Code: 0})
	}
	if at := m.after(now, p.CrashEvery); !at.IsZero() {
		r.end(at, schema.Exit{Code: 1})
	}
	m.group.fleet.counts.running.Add(1)
	m.group.fleet.counts.started.Add(1)
	m.observe(Event{At: now, Assignment: &r.held.Assignment})
}

func (m *machine) observe(e Event) {
	e.Machine = m.name
	m.group.fleet.cfg.Observe(e)
}

// exited has a process end, which the agent sees at once.
func (m *machine) exited(r *run, now time.Time) {
	m.runs = slices.DeleteFunc(m.runs, func(x *run) bool { return x == r })
	r.exit.Incarnation, r.exit.At = r.number, now
	c := r.incarnation()
	c.Busy, c.Exit, c.EndedItself, c.GoneAt = false, &r.exit, c.TermAt.IsZero(), now
	m.agent.Load().news = true
	m.observeEnd(r, r.exit)
}

// observeEnd counts the end of what has started.
func (m *machine) observeEnd(r *run, exit schema.Exit) {
	if r.incarnation().PID == 0 {
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
	m.observe(Event{At: exit.At, Assignment: &r.held.Assignment, Exit: &exit})
}

// check plans the health checks that the agent wants to go on. All pass, so that a task
// which is known to be healthy need not be asked again.
func (m *machine) check(checks []nodeagent.Check) {
	for i := range checks {
		c := &checks[i]
		r := m.process(m.find(c.Task, c.Generation))
		if r == nil || r.number != c.Incarnation || c.Probe.State == schema.Healthy || !r.asks.IsZero() {
			continue
		}
		r.health, r.asks = c.Health, c.StartedAt.Add(c.Probe.Wait(&c.Health))
		r.due = earliest(r.starts, r.ends, r.asks)
	}
}

// ask checks a task's health.
func (m *machine) ask(r *run, now time.Time) {
	c := r.incarnation()
	was := c.Probe.State
	c.Probe = c.Probe.Next(&r.health, c.StartedAt, nodeagent.Result{At: now, OK: true})
	r.asks = time.Time{}
	if c.Probe.State != schema.Healthy {
		r.asks = now.Add(c.Probe.Wait(&r.health))
	}
	if c.Probe.State != was {
		m.agent.Load().news = true
	}
}

// consumer is a task that runs, for what it uses.
type consumer struct {
	ref         schema.TaskRef
	incarnation int
	since       time.Time
	limit       schema.Resources
	phase       float64 // where in its wave the task is, from 0 to 1
}

// consumers returns the tasks that run, sorted.
func (m *machine) consumers() []consumer {
	list := make([]consumer, 0, len(m.runs))
	for _, r := range m.runs {
		if c := r.incarnation(); c.PID != 0 {
			ref := schema.TaskRef{Task: r.held.Assignment.Task, Generation: r.held.Assignment.Generation}
			list = append(list, consumer{ref, c.Number, c.StartedAt, r.held.Assignment.Job.Task.Resources.Resources, float64(c.PID%97) / 97})
		}
	}
	slices.SortFunc(list, func(a, b consumer) int { return a.ref.Compare(b.ref) })
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
		t := schema.TaskUsage{Task: c.ref.Task, Generation: c.ref.Generation, Incarnation: c.incarnation, Usage: schema.Usage{
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
