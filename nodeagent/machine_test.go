package nodeagent_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/musterhq/muster/nodeagent"
	"github.com/musterhq/muster/schema"
)

var t0 = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// machine is a model of a machine: what a disk and a process table would say
// after the actions of a plan. It fails the test when an action breaks a rule.
type machine struct {
	t    fataler
	boot string
	now  time.Time
	life nodeagent.Life
	view *schema.View
	held []nodeagent.Held
	pids int
	// refuse makes starts of a task fail with a cause.
	refuse   map[schema.TaskName]schema.CauseKind
	shutdown bool
	starts   map[schema.TaskName]int
	dead     map[uint64]bool // generations that were reported dead
}

// fataler is what *testing.T and *rapid.T share.
type fataler interface {
	Helper()
	Fatalf(string, ...any)
}

func newMachine(t fataler) *machine {
	return &machine{
		t: t, boot: "boot-1", now: t0, life: nodeagent.Life{Confirmed: t0},
		refuse: map[schema.TaskName]schema.CauseKind{}, starts: map[schema.TaskName]int{}, dead: map[uint64]bool{},
	}
}

func (m *machine) input() nodeagent.Input {
	return nodeagent.Input{Machine: "m1", Boot: m.boot, Now: m.now, Life: m.life, View: m.view, Held: slices.Clone(m.held), Shutdown: m.shutdown}
}

// settle decides and acts until there is nothing to do at this time.
func (m *machine) settle() nodeagent.Plan {
	m.t.Helper()
	for range 20 {
		plan := nodeagent.Decide(m.input())
		m.checkDead(plan)
		if len(plan.Actions) == 0 {
			return plan
		}
		for _, a := range plan.Actions {
			m.do(a)
		}
	}
	m.t.Fatalf("no rest after 20 decisions: %v", nodeagent.Decide(m.input()).Actions)
	return nodeagent.Plan{}
}

// checkDead notes what the report says is dead: for ever.
func (m *machine) checkDead(plan nodeagent.Plan) {
	for _, s := range plan.Tasks {
		if m.dead[s.Generation] && s.State != schema.Dead {
			m.t.Fatalf("%s generation %d was dead and is %s", s.Task, s.Generation, s.State)
		}
		if s.State == schema.Dead {
			m.dead[s.Generation] = true
		}
	}
}

// advance moves the clock to the plan's wake time, or by step without one.
func (m *machine) advance(step time.Duration) nodeagent.Plan {
	plan := m.settle()
	if plan.Wake.After(m.now) && plan.Wake.Before(m.now.Add(step)) {
		m.now = plan.Wake
	} else {
		m.now = m.now.Add(step)
	}
	return m.settle()
}

func (m *machine) find(task schema.TaskName, generation uint64) *nodeagent.Held {
	for i := range m.held {
		h := &m.held[i]
		if h.Assignment.Task == task && h.Assignment.Generation == generation {
			return h
		}
	}
	return nil
}

func last(h *nodeagent.Held) *nodeagent.Incarnation { return &h.Incarnations[len(h.Incarnations)-1] }

// do does what an Action says, as an agent would.
func (m *machine) do(a nodeagent.Action) {
	m.t.Helper()
	if a.Kind == nodeagent.Start {
		m.start(a)
		return
	}
	h := m.find(a.Task, a.Generation)
	if h == nil {
		m.t.Fatalf("%s: %s generation %d is not held", a.Kind, a.Task, a.Generation)
	}
	if inside := m.inside(h); len(inside) > 0 && (a.Kind == nodeagent.Term || a.Kind == nodeagent.Kill) {
		m.t.Fatalf("%s of alloc %s generation %d, in which %v run", a.Kind, a.Task, a.Generation, inside)
	}
	switch a.Kind {
	case nodeagent.StopCommand, nodeagent.Delay:
		if c := last(h); c.Stop == nil {
			c.Stop = a.Cause
		}
		last(h).StoppingAt = m.now
	case nodeagent.Term:
		if c := last(h); c.Stop == nil {
			c.Stop = a.Cause
		}
		last(h).TermAt = m.now
		if h.Assignment.Job.Kind == schema.Allocs {
			m.exit(a.Task, schema.Exit{})
		}
	case nodeagent.Kill:
		last(h).KilledAt = m.now
		m.exit(a.Task, schema.Exit{Code: -1, Signal: "SIGKILL"})
	case nodeagent.Limit:
		c := last(h)
		c.Limits, c.LimitsTried, c.LimitsAt = a.Limits, a.Limits, m.now
	case nodeagent.Reap:
		last(h).Exit = a.Exit
	case nodeagent.End:
		if h.Alive() {
			m.t.Fatalf("end of %s generation %d, which is alive", a.Task, a.Generation)
		}
		h.End = a.Cause
	case nodeagent.Prune:
		h.Incarnations = slices.DeleteFunc(h.Incarnations, func(c nodeagent.Incarnation) bool { return c.Number == a.Incarnation })
	case nodeagent.Remove:
		if h.End == nil {
			m.t.Fatalf("removal of %s generation %d, which has not ended", a.Task, a.Generation)
		}
		m.held = slices.DeleteFunc(m.held, func(o nodeagent.Held) bool { return o.Assignment.Generation == a.Generation })
	}
}

func (m *machine) start(a nodeagent.Action) {
	m.t.Helper()
	for i := range m.held {
		if h := &m.held[i]; h.Assignment.Task == a.Task && h.Alive() {
			m.t.Fatalf("start of %s generation %d while generation %d is alive", a.Task, a.Generation, h.Assignment.Generation)
		}
	}
	if m.shutdown || m.dead[a.Generation] {
		m.t.Fatalf("start of %s generation %d: shutdown %t, reported dead %t", a.Task, a.Generation, m.shutdown, m.dead[a.Generation])
	}
	h := m.find(a.Task, a.Generation)
	if h == nil {
		m.held = append(m.held, nodeagent.Held{Assignment: *a.Assignment})
		h = &m.held[len(m.held)-1]
	}
	if kind, ok := m.refuse[a.Task]; ok {
		h.Refused = &schema.Cause{Kind: kind, Message: "refused"}
		return
	}
	if n := len(h.Incarnations); n > 0 && a.Incarnation != h.Incarnations[n-1].Number+1 || n == 0 && a.Incarnation != 1 {
		m.t.Fatalf("start of %s generation %d: incarnation %d after %d", a.Task, a.Generation, a.Incarnation, n)
	}
	if u := h.Assignment.Alloc; u != nil {
		alloc := m.find(u.Of(a.Task.JobName), u.Generation)
		if alloc == nil || !alloc.Alive() || last(alloc).Boot != m.boot || last(alloc).Stop != nil {
			m.t.Fatalf("start of %s generation %d in alloc %s, which is not there: %+v", a.Task, a.Generation, u, alloc)
		}
	}
	if m.life.Confirmed.IsZero() && a.Assignment.Job.NeverTwice() || a.Unconfirmed != m.life.Confirmed.IsZero() {
		m.t.Fatalf("start of %s generation %d, unconfirmed %t, in a life confirmed at %v", a.Task, a.Generation, a.Unconfirmed, m.life.Confirmed)
	}
	m.starts[a.Task]++
	c := nodeagent.Incarnation{Number: a.Incarnation, Process: nodeagent.Process{Boot: m.boot, StartedAt: m.now}, Unconfirmed: a.Unconfirmed}
	if h.Assignment.Job.Kind != schema.Allocs {
		m.pids++
		c.PID = 1000 + m.pids
	}
	h.Incarnations = append(h.Incarnations, c)
}

// inside returns the tasks that are alive in this boot in an alloc, if it is one.
func (m *machine) inside(alloc *nodeagent.Held) (tasks []string) {
	for i := range m.held {
		h := &m.held[i]
		if u := h.Assignment.Alloc; u != nil && h.Alive() && u.Generation == alloc.Assignment.Generation && u.Of(h.Assignment.Task.JobName) == alloc.Assignment.Task {
			tasks = append(tasks, h.Assignment.Task.Short())
		}
	}
	return tasks
}

// exit ends the live process of a task.
func (m *machine) exit(task schema.TaskName, e schema.Exit) {
	for i := range m.held {
		if h := &m.held[i]; h.Assignment.Task == task && h.Alive() {
			e.Incarnation, e.At = last(h).Number, m.now
			last(h).Exit = &e
		}
	}
}

// checked gives all checks that shall go on one result.
func (m *machine) checked(r nodeagent.Result) {
	for _, c := range nodeagent.Decide(m.input()).Checks {
		i := last(m.find(c.Task, c.Generation))
		if i.Number != c.Incarnation || i.Exit != nil {
			m.t.Fatalf("check of %s generation %d incarnation %d, which does not run", c.Task, c.Generation, c.Incarnation)
		}
		i.Probe = c.Probe.Next(&c.Health, c.StartedAt, r)
	}
}

func (m *machine) alive(task schema.TaskName) (generations []uint64) {
	for i := range m.held {
		if h := &m.held[i]; h.Assignment.Task == task && h.Alive() {
			generations = append(generations, h.Assignment.Generation)
		}
	}
	return generations
}

// status returns the report's entry of a generation.
func (m *machine) status(generation uint64) schema.TaskStatus {
	m.t.Helper()
	for _, s := range nodeagent.Decide(m.input()).Tasks {
		if s.Generation == generation {
			return s
		}
	}
	m.t.Fatalf("no entry for generation %d", generation)
	return schema.TaskStatus{}
}

func (m *machine) assign(assignments ...schema.Assignment) {
	version := uint64(1)
	if m.view != nil {
		version = m.view.Version + 1
	}
	m.view = &schema.View{Epoch: 1, Version: version, Assignments: assignments}
}

func task(name string, index int) schema.TaskName {
	return schema.JobName{Cell: "local", User: "u", Job: name}.Task(index)
}

func assignment(name string, index int, generation uint64, kind schema.JobKind) schema.Assignment {
	job := &schema.Job{
		Name: name, User: "u", Cell: "local", Kind: kind,
		Task: schema.TaskSpec{
			Process: schema.Process{Command: []string{"/bin/x"}}, GraceSeconds: 5,
			Health: &schema.Health{HTTP: &schema.HTTPCheck{Port: "http", Path: "/"}},
		},
	}
	return schema.Assignment{
		Task: task(name, index), Generation: generation, Data: schema.DigestOf(job), Job: job,
		Ports: schema.PortsOf(map[string]int{"http": 20000 + int(generation)%10000}),
	}
}

func stopping(a schema.Assignment, kind schema.CauseKind) schema.Assignment {
	a.Stop = &schema.Cause{Kind: kind, Message: "because", At: t0}
	return a
}

func describe(actions []nodeagent.Action) []string {
	var list []string
	for _, a := range actions {
		s := fmt.Sprintf("%s %s %d", a.Kind, a.Task.Short(), a.Generation)
		if a.Incarnation != 0 {
			s += fmt.Sprintf("#%d", a.Incarnation)
		}
		if a.Cause != nil {
			s += " " + string(a.Cause.Kind)
		}
		list = append(list, s)
	}
	return list
}

var _ fataler = (*testing.T)(nil)
