package sim

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/musterhq/muster/schema"
)

const (
	batchTime = 2 * time.Second // that a batch task runs
	crashTime = 1 * time.Second // until a task whose argument is "crash" does
	racks     = 4
)

// machine is one machine: its disk outlives its processes, and these outlive its
// agent.
type machine struct {
	index int
	name  string
	boot  int
	drawn int    // how often its state directory was made anew
	named string // the id that it got when it took the name of another, "" if it has not
	clock clock
	disk  disk
	alive []*run // processes, in the order in which they started
	link  link

	agent   *agent          // nil while it is down
	began   time.Time       // when it last started
	agentAt time.Time       // when it starts again
	stopped time.Time       // until then the agent is stopped (SIGSTOP)
	crashIn int             // the agent dies after this many actions; 0 never
	content map[string]bool // what was brought, and is kept
	had     map[string]bool // what was ever brought
	refused uint64          // the last session in which it was refused a secret; 0: none

	stranger   time.Time // until then another machine says that it is this one
	strange    int       // how many have
	overloaded time.Time // until then its prod tasks wait for processors

	moved    bool                               // a process began or ended since the last check
	ended    bool                               // a process ended since the agent last looked
	foreign  map[int]bool                       // ports that others than tasks use
	troubles map[schema.ConditionKind]time.Time // what is wrong with it, until when
	next     time.Time                          // when there is something to do, without news
	reached  time.Time                          // since when it and a master receive each other's messages
	fit      time.Time                          // since when nothing has been wrong with it, its link, and its agent
	clockSet time.Time                          // when its clock was last set
}

func newMachine(index int) *machine {
	return &machine{
		index: index, name: fmt.Sprintf("m%d", index), boot: 1, foreign: map[int]bool{}, content: map[string]bool{}, had: map[string]bool{}, troubles: map[schema.ConditionKind]time.Time{},
		disk: disk{fates: map[int]writeOutcome{}, unsynced: map[string]func(){}, refused: map[string]bool{}},
	}
}

func (m *machine) bootID() string { return fmt.Sprintf("%s-%d", m.name, m.boot) }

// info is what its agent says of the machine. Every fourth is large. Tasks ask for
// hundreds, or 1270, two of which fit: some CPU is left for a system job.
func (m *machine) info() schema.MachineInfo {
	size := int64(1)
	if m.index%4 == 3 {
		size = 2
	}
	return schema.MachineInfo{
		Name: m.name, ID: m.id(), Boot: m.bootID(), Capacity: schema.Resources{CPUMilli: 4000*size + 30, RAMBytes: size * 8 << 30, DiskBytes: size * 64 << 30},
		Ports:      schema.PortRange{First: 20000, Last: 20099},
		Devices:    []schema.DeviceGroup{{Kind: "gpu", Count: 2}},
		Attributes: map[string]string{"rack": m.rack(), schema.HasSecrets: "true", schema.HasPackages: "true", schema.HasOwnNetwork: "true"},
	}
}

// rack is the machine's failure domain.
func (m *machine) rack() string { return fmt.Sprintf("r%d", m.index%racks) }

// wakeBy has the machine look at t at the latest whether there is something to do.
func (m *machine) wakeBy(t time.Time) {
	if t.Before(m.next) {
		m.next = t
	}
}

// named returns a machine by its name.
func (w *World) named(name string) *machine {
	return w.byName[name]
}

// turnMachine lets processes end by themselves, and the agent decide and act.
func (w *World) turnMachine(m *machine) {
	if w.now.Before(m.next) {
		return
	}
	m.next = w.now.Add(time.Hour)
	for _, r := range slices.Clone(m.alive) {
		if !r.due.IsZero() && !w.now.Before(r.due) {
			w.exit(m, r, r.ends)
		}
	}
	for _, r := range m.alive {
		if !r.due.IsZero() {
			m.wakeBy(r.due)
		}
	}
	switch {
	case m.agent == nil && w.now.Before(m.agentAt):
		m.wakeBy(m.agentAt)
	case m.agent == nil:
		w.startAgent(m)
		w.turnAgent(m)
	case w.now.Before(m.stopped):
		m.wakeBy(m.stopped)
	default:
		w.turnAgent(m)
	}
	m.wakeBy(w.now.Add(pullEvery))
}

// KillAgent ends a machine's agent; its tasks run on. It returns false if there
// is none.
func (w *World) KillAgent(name string) bool {
	m := w.named(name)
	if m.agent == nil {
		return false
	}
	w.note("the agent of %s is killed", name)
	m.agent, m.agentAt = nil, w.now.Add(agentDown)
	m.link.out = nil // what a dead process has not sent
	m.wakeBy(w.now)
	return true
}

// Halt ends a machine's agent together with its tasks, for a while: in order, as
// SIGINT does, or by SIGKILL to all of them. It returns false if there is no agent.
func (w *World) Halt(name string, d time.Duration, inOrder bool) bool {
	m := w.named(name)
	if !w.KillAgent(name) {
		return false
	}
	w.note("and so are its tasks, in order: %t; it is back in %s", inOrder, d)
	m.agentAt = w.now.Add(d)
	for _, r := range slices.Backward(slices.Clone(m.alive)) {
		switch {
		case inOrder:
			if r.stop == nil {
				r.stop = &schema.Cause{Kind: schema.CauseShutdown, Machine: name, Generation: r.of.assignment.Generation, At: serialized(m.clock.read(w.now))}
			}
			w.exit(m, r, schema.Exit{Code: -1, Signal: "SIGTERM"})
			r.endedItself, r.halted = false, true
		case r.of.assignment.Job.Kind != schema.Allocs: // that has no process
			w.exit(m, r, schema.Exit{Code: -1, Message: "its keeper was killed"})
			r.unseen, r.halted = true, true
		}
	}
	return true
}

// Reboot ends everything on a machine; its disk stays, as far as it was synced.
// It returns true.
func (w *World) Reboot(name string) bool {
	m := w.named(name)
	w.note("machine %s restarts", name)
	for _, r := range m.alive {
		r.alive = false
	}
	m.disk.lose()
	m.boot++
	m.alive, m.agent, m.agentAt, m.stopped = nil, nil, w.now.Add(5*agentDown), time.Time{}
	m.link.in, m.link.out = nil, nil
	m.wakeBy(w.now)
	w.moved = true
	return true
}

// begin makes a process of an incarnation.
func (w *World) begin(m *machine, r *run) {
	w.pids++
	r.pid, r.alive, r.began, r.started = w.pids, true, w.now, serialized(m.clock.read(w.now))
	a := &r.of.assignment
	argument := strings.Join(a.Job.Task.Process.Command, " ")
	switch {
	case r.step > 0:
		r.due, r.ends = w.now.Add(tick), schema.Exit{Code: 0}
	case strings.Contains(argument, "crash"):
		r.due, r.ends = w.now.Add(crashTime), schema.Exit{Code: 3}
	case a.Job.Kind == schema.Batch:
		r.due, r.ends = w.now.Add(lastsFor(argument)), schema.Exit{Code: 0}
		if w.cfg.Mixed && r.pid%4 == 3 {
			r.due = w.now.Add(10 * batchTime)
		}
	}
	m.alive = append(m.alive, r)
	m.wakeBy(cmp.Or(r.due, m.next))
	m.moved = true
	w.checkTwice(m, r)
	w.checkTwin(m, r)
	w.checkBegin(m, r)
	w.note("%s starts %s generation %d incarnation %d as pid %d", m.name, a.Task.Short(), a.Generation, r.number, r.pid)
}

// secondsWord is what an argument of a batch task begins with that says for how many
// seconds it runs.
const secondsWord = "seconds="

// lastsFor returns for how long a batch task runs.
func lastsFor(command string) time.Duration {
	_, said, ok := strings.Cut(command, secondsWord)
	if seconds, err := strconv.Atoi(said); ok && err == nil {
		return time.Duration(seconds) * time.Second
	}
	return batchTime
}

// term is a process's SIGTERM: some take their time, some do not care, and in a mixed
// world some end with 0, as if they were done.
func (w *World) term(m *machine, r *run) {
	if !r.alive || !r.termed.IsZero() {
		return
	}
	r.termed = w.now
	takes := time.Duration(r.pid%8) * tick
	if r.pid%16 == 7 {
		takes = time.Hour
	}
	if at := w.now.Add(takes); r.due.IsZero() || at.Before(r.due) {
		r.due, r.ends = at, schema.Exit{Code: -1, Signal: "SIGTERM"}
		if w.cfg.Mixed && r.pid%4 == 3 {
			r.ends = schema.Exit{}
		}
	}
	m.wakeBy(r.due)
}

// exit ends a process, which its keeper writes down.
func (w *World) exit(m *machine, r *run, e schema.Exit) {
	if !r.alive {
		return
	}
	e.Incarnation, e.At = r.number, serialized(m.clock.read(w.now))
	r.ended = w.now
	r.exit, r.alive, r.endedItself = &e, false, r.termed.IsZero()
	m.alive = slices.DeleteFunc(m.alive, func(x *run) bool { return x == r })
	m.wakeBy(w.now)
	m.moved, m.ended = true, true
	a := &r.of.assignment
	w.note("pid %d of %s ends: %s", r.pid, a.Task.Short(), e)
	if a.Job.Kind == schema.Batch && e.Code == 0 && r.endedItself {
		w.oracle.finish(a.Task, a.Generation)
	}
}

// KillTask ends a task's process from outside; false if it has none.
func (w *World) KillTask(name schema.TaskName) bool {
	for _, m := range w.machines {
		for _, r := range m.alive {
			if r.of.assignment.Task == name {
				w.exit(m, r, schema.Exit{Code: -1, Signal: "SIGKILL"})
				return true
			}
		}
	}
	return false
}

// listens reports whether a process of a task has port p.
func (m *machine) listens(p int) bool {
	return slices.ContainsFunc(m.alive, func(r *run) bool {
		return slices.ContainsFunc(r.of.assignment.Ports, func(own schema.Port) bool { return own.Port == p })
	})
}

// run returns what a machine has of an incarnation, nil if nothing.
func (m *machine) run(of schema.TaskRef, number int) *run {
	g := m.disk.find(of.Task, of.Generation)
	if g == nil {
		return nil
	}
	for _, r := range g.runs {
		if r.number == number {
			return r
		}
	}
	return nil
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
