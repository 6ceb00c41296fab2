package nodeagent

import (
	"maps"
	"reflect"
	"slices"
	"time"

	"github.com/musterhq/muster/schema"
)

// Agent is a machine's agent as a state machine: it takes what happened, and hands
// out what is to be done about it as data. It does no I/O and reads no clock, so
// that production, the hollow machine and the simulation run the same one.
//
// Whoever drives it calls an input (Assign, Exited, Probed, ...), and Decide when
// there is news or Wake has come. After each of these it takes Ready until there is
// nothing more, carries each out in the order that Ready says, and says how that
// went: Stored of each write, Done of an action, StickyDone of a sticky directory.
// Starts and what else takes long may be carried out beside it; their outcome
// (Started, Cleared, Limited, ...) is an input.
//
// What must not be forgotten is in Ready.Writes before it is acted on: the view, a
// stop's cause before the signal, an end before the report that has it. A driver that
// ends between any two steps is replaced by one that reads the disk, and makes a
// new Agent of what it Found.
//
// An Agent belongs to one goroutine. Its shape is that of RawNode in
// go.etcd.io/raft.
type Agent struct {
	cfg  AgentConfig
	info schema.MachineInfo

	epoch    uint64 // the highest that it was welcomed with
	view     *schema.View
	versions Versions // of what view has
	life     Life
	orders
	tasks  []*generation                 // by task and generation
	sticky map[schema.TaskName]time.Time // since when each directory is idle
	images map[string]ImageState         // of those that are needed, and of packages

	unsaved    unsaved
	conditions Conditions
	look       look
	ports      portScan
	lines      lineScan
	throttling throttling
	pressure   MachinePressure
	usage      *schema.MachineUsage // the newest sample; nil before the first
	removals   removals

	phase    phase
	pending  Ready // to be handed out
	plan     Plan  // the newest, without what of it has been handed out
	acted    bool  // something was done since the plan was made
	wake     time.Time
	withheld map[schema.TaskRef]bool // as of the newest plan
	report   *schema.Report          // the newest
}

// orders are what whoever drives the agent has said once, and for all its life.
type orders struct {
	shutdown bool // see Shutdown
	listing  bool // see Listing
	// linked is when a master has welcomed this agent; zero while there is no link.
	linked time.Time
}

// removals are what was removed from the disk.
type removals struct {
	unmeasured bool // something was, since the disk was measured
	going      bool // and may be there still
}

// AgentConfig is what an Agent is made with.
type AgentConfig struct {
	Cell    string
	Machine schema.MachineInfo
	Limits  Limits
	// LookEvery is the time between two looks at how the machine is; 0: it is not
	// looked at.
	LookEvery time.Duration
	// NoLines says that tasks say nothing of themselves, and are not read.
	NoLines bool
	// UnlistWithin is how long the stop of a task with ports waits at most until no machine of
	// the cell sends anything new to it, from when Listing was called; 0: it does not wait.
	// UnlistUnlinked is how long it waits in all where the link to the master was away, since
	// the next master has to find all machines before it can say so; at least UnlistWithin.
	UnlistWithin, UnlistUnlinked time.Duration
	// Listing says that masters did so before this agent was started, as they will soon: it is as
	// if Listing had been called.
	Listing bool
	// DiskEvery is the least time between two walks through the same directories.
	DiskEvery time.Duration
}

// Found is what a new agent finds on its machine's disk.
type Found struct {
	Memory
	// Refused says that a master has another agent for this machine, see Life.
	Refused bool
	// Sticky says since when each sticky directory is idle, zero for one that is not.
	Sticky map[schema.TaskName]time.Time
	Tasks  []FoundTask // in any order
}

// FoundTask is what was found of a generation of a task.
type FoundTask struct {
	Held
	// Written says that its assignment is on disk.
	Written bool
	// Guessed says that its assignment was damaged: what there is of it is what the
	// directory's name says, until a view has it.
	Guessed bool
	// Unreadable says why nothing is known of it, "" if something is: then it is left
	// alone, for it may run, and is read again later.
	Unreadable string
}

// Memory is what the agent must remember of its master.
type Memory struct {
	Epoch uint64       // the highest that it was welcomed with
	View  *schema.View // nil before the first
}

// generation is a Held with what else is known of it.
type generation struct {
	FoundTask
	// failed says what the disk refused of the last action, until retry; retry is also
	// when what is unreadable is read again.
	failed error
	retry  time.Time
	walk   walk
	logs   string // what is wrong with the logs of the last incarnation
}

// Ready is what an Agent wants done, in the order of its fields.
type Ready struct {
	// Log is to be logged.
	Log []LogEntry
	// Reread are generations whose directories are to be read again: Reread takes what
	// is there.
	Reread []schema.TaskRef
	// Writes are stored in this order, until Stored says to leave the others.
	Writes []Write
	// Clocks says that Clock is to be called with the difference of the clocks, if that is
	// known.
	Clocks bool
	// Look says that the machine is to be looked at: Looked takes whether the disk can
	// be written to.
	Look bool
	// Action is to be carried out when that was tried; nil: none.
	Action *Act
	// Sticky is what is to be done to a sticky directory; nil: nothing.
	Sticky *StickyAction
	// Room says that what is left of the disk is to be measured: Room takes it.
	Room bool
	// Turn is set when there is nothing more to do now.
	Turn *Turn
}

// Turn is what an Agent says when there is nothing more to do now.
type Turn struct {
	// Checks are the health checks that shall go on; all others end.
	Checks []Check
	// Report is the newest, and never written to afterwards; News says that it is
	// another than the one before.
	Report *schema.Report
	News   bool
	// Stopped says that nothing runs any more that Shutdown was to stop.
	Stopped bool
	// Ports says that it is time to see which ports are in use: Scanned takes that.
	Ports bool
	// Lines says that it is time to read what running tasks say of themselves: Lines
	// takes that.
	Lines []Running
	// Images are the images and packages that must stay on this machine, sorted by name (as
	// TaskSpec.Brings has them), and Bring those of them that are to be brought here: Brought
	// takes what has come of it.
	Images, Bring []string
	// From says of each of Bring where it may come from: see Sources. Of what the master
	// says nothing there is nothing.
	From map[string]Sources
	// CPU are the incarnations whose use of processors is to be measured: Measured
	// takes that.
	CPU []CPUUse
}

// Running names an incarnation that runs.
type Running struct {
	schema.TaskRef
	Incarnation int
}

// Act is an action that is to be carried out now.
type Act struct {
	Action
	// Written says, for Start, that the assignment is on disk.
	Written bool
	// InUse says, for Start, that another generation has one of its ports, nil if
	// none has: then it is refused before it is tried.
	InUse error
	// Unkept says, for Start, that the disk has refused the view which asks for it, nil if
	// it has that: then it is refused before it is tried, since an agent that comes after
	// would take the task for one that nobody has assigned.
	Unkept error
}

// LogKind is what a LogEntry is about.
type LogKind string

// The kinds of log entries.
const (
	LogConfirmed  LogKind = "confirmed"  // a master has confirmed the assignments, After the agent's start
	LogWithheld   LogKind = "withheld"   // a task is not started before a master has confirmed it
	LogConditions LogKind = "conditions" // a condition of the machine has begun, or is over
	LogHealth     LogKind = "health"     // an incarnation's health is another: Probe
	LogOOM        LogKind = "oom"        // the kernel has killed N processes of an incarnation
	LogCPUBound   LogKind = "cpu bound"  // batch tasks are bounded to N, or not any more
	LogIOBound    LogKind = "disk bound" // tasks that give way at the disk are
)

// LogEntry is an entry of the agent's log.
type LogEntry struct {
	Kind LogKind
	Running
	Probe Probe
	N     int64
	After time.Duration
}

// phase is what comes next in a turn.
type phase int

const (
	idle phase = iota
	beginning
	deciding
	acting
	reporting
)

// retryAfter is the time between two attempts at what the disk refused.
const retryAfter = time.Second

// longSleep is the longest time between two decisions.
const longSleep = time.Hour

// NewAgent returns an agent that begins at now with what was found.
func NewAgent(cfg AgentConfig, found Found, now time.Time) *Agent {
	a := &Agent{
		cfg: cfg, info: cfg.Machine, epoch: found.Epoch, view: found.View, unsaved: unsaved{view: found.View}, life: Life{Began: now, Refused: found.Refused},
		sticky: maps.Clone(found.Sticky), images: map[string]ImageState{},
	}
	if a.sticky == nil {
		a.sticky = map[schema.TaskName]time.Time{}
	}
	a.listing = cfg.Listing
	a.info.Seen.Epoch = found.Epoch
	for _, t := range found.Tasks {
		a.put(&generation{FoundTask: a.taken(t)})
	}
	a.plan = Decide(a.input(now))
	a.report = a.describe()
	a.plan = Plan{}
	return a
}

// Info is what the machine says of itself.
func (a *Agent) Info() schema.MachineInfo { return a.info }

// Report is the newest report, another value if it says anything else. It must not be
// written to.
func (a *Agent) Report() *schema.Report { return a.report }

// Memory is what the agent remembers of its master. The View must not be written to.
func (a *Agent) Memory() Memory { return Memory{a.epoch, a.view} }

// Usage is what machine and tasks use by the newest sample, nil before the first. It
// must not be written to.
func (a *Agent) Usage() *schema.MachineUsage { return a.usage }

// Conditions are what is wrong with the machine.
func (a *Agent) Conditions() []schema.Condition { return a.conditions.List() }

// Wake is when Decide is to be called though there is no news.
func (a *Agent) Wake() time.Time { return a.wake }

// Held returns what there is of a generation, nil if that is nothing or cannot be
// read. It must not be written to, and holds until the next input.
func (a *Agent) Held(r schema.TaskRef) *Held {
	if g := a.find(r); g != nil && g.Unreadable == "" {
		return &g.Held
	}
	return nil
}

// All returns all that is held and can be read, by task and generation; as Held does.
func (a *Agent) All() []*Held {
	all := make([]*Held, 0, len(a.tasks))
	for _, g := range a.tasks {
		if g.Unreadable == "" {
			all = append(all, &g.Held)
		}
	}
	return all
}

// Unreadable reports whether there is something that cannot be read.
func (a *Agent) Unreadable() bool {
	return slices.ContainsFunc(a.tasks, func(g *generation) bool { return g.Unreadable != "" })
}

// Decide begins a turn.
func (a *Agent) Decide() { a.phase = beginning }

// Ready hands out what is to be done next, or false if there is nothing.
func (a *Agent) Ready(now time.Time) (Ready, bool) {
	for a.pending.empty() && a.phase != idle {
		a.next(now)
	}
	r := a.pending
	a.pending = Ready{}
	return r, !r.empty()
}

// empty reports whether there is nothing to do.
func (r *Ready) empty() bool {
	return len(r.Log) == 0 && len(r.Reread) == 0 && !r.Clocks && !r.Look && len(r.Writes) == 0 && r.Action == nil && r.Sticky == nil && !r.Room && r.Turn == nil
}

// log adds an entry to the Ready.
func (a *Agent) log(e LogEntry) { a.pending.Log = append(a.pending.Log, e) }

// next goes one step on in a turn: it decides, hands one action out after the other,
// decides again when that has changed something, and at last says how all is.
func (a *Agent) next(now time.Time) {
	switch a.phase {
	case beginning:
		a.phase, a.unsaved.insisted = deciding, false
		a.reread(now)
		a.writeAgain(now)
		a.lookAround(now)
	case deciding:
		if a.removals.unmeasured && !a.pressure.Room.At.IsZero() {
			a.removals.unmeasured, a.pending.Room = false, true
			return
		}
		a.plan, a.acted, a.phase = Decide(a.input(now)), false, acting
	case acting:
		switch {
		case len(a.plan.Actions) > 0:
			x := a.plan.Actions[0]
			if x.Kind == Start && a.insist(x) {
				return
			}
			a.plan.Actions = a.plan.Actions[1:]
			a.act(x, now)
		case len(a.plan.Sticky) > 0:
			a.pending.Sticky = &a.plan.Sticky[0]
			a.plan.Sticky = a.plan.Sticky[1:]
		case a.acted:
			a.phase = deciding
		default:
			a.phase = reporting
		}
	case reporting:
		a.phase = idle
		a.pending.Turn = a.turn(now)
	case idle:
	}
}

// turn says how all is, and when there is something to do again.
func (a *Agent) turn(now time.Time) *Turn {
	t := &Turn{Checks: a.plan.Checks, Report: a.describe(), Stopped: a.shutdown && a.plan.Alive == 0}
	if t.News = !reflect.DeepEqual(a.report, t.Report); t.News {
		a.report = t.Report
	} else {
		t.Report = a.report
	}
	a.withhold()
	a.wake = a.look.next
	if !a.plan.Wake.IsZero() {
		a.wakeBy(a.plan.Wake)
	}
	a.measure(t, now)
	a.needImages(t, now)
	if a.unsaved.any() {
		a.wakeBy(a.unsaved.retry)
	}
	for _, g := range a.tasks {
		if (g.failed != nil || g.Unreadable != "") && g.retry.After(now) { // else it is not to be tried any more
			a.wakeBy(g.retry)
		}
	}
	return t
}

// wakeBy makes sure that the next turn is not later than at.
func (a *Agent) wakeBy(at time.Time) {
	if at.Before(a.wake) {
		a.wake = at
	}
}

// withhold logs at once which tasks are not started because no master has confirmed them.
func (a *Agent) withhold() {
	now := make(map[schema.TaskRef]bool, len(a.plan.Withheld))
	for _, t := range a.plan.Withheld {
		if now[t] = true; !a.withheld[t] {
			a.log(LogEntry{Kind: LogWithheld, Running: Running{TaskRef: t}})
		}
	}
	a.withheld = now
}

// input gathers what a decision depends on.
func (a *Agent) input(now time.Time) Input {
	held := make([]Held, len(a.tasks))
	for i, g := range a.tasks {
		held[i] = g.Held
	}
	var sticky []Sticky
	for task, idle := range a.sticky {
		sticky = append(sticky, Sticky{Task: task, Idle: idle})
	}
	slices.SortFunc(sticky, func(x, y Sticky) int { return x.Task.Compare(y.Task) })
	unlist := UnlistLimits{Within: a.cfg.UnlistWithin, Unlinked: a.cfg.UnlistUnlinked, Linked: a.linked}
	if !a.listing {
		unlist = UnlistLimits{}
	}
	return Input{
		Machine: a.info.Name, Boot: a.info.Boot, Now: now, Life: a.life,
		View: a.view, Held: held, Sticky: sticky, Shutdown: a.shutdown, Capacity: a.cfg.Machine.Capacity,
		Images: maps.Clone(a.images), Pressure: a.pressure, Limits: a.cfg.Limits, Removing: a.removals.going, Versions: &a.versions,
		Unlist: unlist,
	}
}

// describe makes the report of the newest plan.
func (a *Agent) describe() *schema.Report {
	r := &schema.Report{
		Machine: a.info, BusyPorts: a.busyPorts(), Conditions: a.conditions.List(), Tasks: a.plan.Tasks, Overload: a.plan.Overload,
	}
	if a.view != nil {
		r.View = a.view.Version
	}
	for i := range r.Tasks {
		s := &r.Tasks[i]
		g := a.find(schema.TaskRef{Task: s.Task, Generation: s.Generation})
		if g == nil {
			continue
		}
		switch err := a.unsaved.of(g.ref()); {
		case g.failed != nil:
			s.Note = g.failed.Error()
		case err != nil:
			s.Note = "not written to disk yet: " + err.Error()
		default:
			s.Note = joined(s.Note, g.logs)
		}
	}
	return r
}

// at returns where a generation is in tasks, or would be.
func (a *Agent) at(r schema.TaskRef) (int, bool) {
	return slices.BinarySearchFunc(a.tasks, r, func(g *generation, r schema.TaskRef) int { return g.ref().Compare(r) })
}

// find returns a generation, nil if it is not held.
func (a *Agent) find(r schema.TaskRef) *generation {
	if i, ok := a.at(r); ok {
		return a.tasks[i]
	}
	return nil
}

// put makes g what there is of its generation.
func (a *Agent) put(g *generation) {
	i, ok := a.at(g.ref())
	if ok {
		a.tasks[i] = g
		return
	}
	a.tasks = slices.Insert(a.tasks, i, g)
}

// drop gives a generation up.
func (a *Agent) drop(r schema.TaskRef) {
	if i, ok := a.at(r); ok {
		a.tasks = slices.Delete(a.tasks, i, i+1)
	}
}

// incarnation returns incarnation n of g, nil if there is none: it was pruned.
func (g *generation) incarnation(n int) *Incarnation {
	for i := range g.Incarnations {
		if g.Incarnations[i].Number == n {
			return &g.Incarnations[i]
		}
	}
	return nil
}
