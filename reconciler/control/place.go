package control

import (
	"fmt"
	"slices"
	"time"

	"github.com/musterhq/muster/placement"
	"github.com/musterhq/muster/reconciler/control/facts"
	"github.com/musterhq/muster/reconciler/control/snapshot"
	"github.com/musterhq/muster/schema"
)

// scheduler gives tasks that want a machine one, or has others make room for them.
type scheduler struct {
	pass
	cell      *snapshot.Cell
	asks      *asks
	budget    disruption
	seed      uint64
	noPreempt bool
	policy    placement.Policy // in the place of the default, if not ""
	parallel  func(n int, do func(i int))
	joining   string                   // what tasks wait for while the first machines join
	preempted map[string][]snapshot.On // see stops
	stops     *stops
	claimed   map[schema.TaskName]bool // those for which the last of them have gone now
	why       map[schema.TaskName]placement.Why
	claims    map[schema.TaskName]Claim
	holding   holding
}

// place gives the asks of tasks that run in allocs, or those of the others, machines, as
// far as there are any, and each that gets one a new generation.
func (s *scheduler) place(inside bool) {
	asks := s.open(inside)
	if len(asks) == 0 {
		if !inside {
			s.keepPlaces() // others may be moved, too
		}
		return
	}
	if s.why == nil {
		s.why, s.claims = make(map[schema.TaskName]placement.Why, s.asks.again), map[schema.TaskName]Claim{}
	}
	if inside {
		s.placeInside(asks)
		return
	}
	list := make([]placement.Ask, 0, len(asks))
	for _, a := range asks {
		p, until := s.cell.Placement(a)
		if p.Gang != nil && !p.Returns {
			if waits := s.cell.Gang(a.Task.JobName).Waits; waits != "" {
				s.why[a.Task] = placement.Why{Waits: waits}
				continue
			}
		}
		s.bookCell(until)
		list = append(list, p)
	}
	if len(list) == 0 {
		s.keepPlaces()
		return
	}
	s.keepInside()
	s.decide(list)
	s.takeBack(list)
}

// open returns the asks of tasks that run in allocs, or those of the others: none while
// machines are joining, but of system jobs that no task which is held may preempt then.
func (s *scheduler) open(inside bool) (asks []snapshot.Ask) {
	if len(s.asks.list) == 0 {
		return nil
	}
	why, until := joining(s.Facts)
	s.joining = why
	s.bookCell(until)
	var held schema.Priority // the highest of those that wait
	if why != "" {
		held = s.asks.highest()
	}
	is := func(a snapshot.Ask) bool {
		return (a.Job.AllocSet != "") == inside && (why == "" || a.Job.Kind == schema.System && a.Job.Priority >= held)
	}
	if !slices.ContainsFunc(s.asks.list, func(a snapshot.Ask) bool { return !is(a) }) {
		return s.asks.list // which are many where tasks wait
	}
	for _, a := range s.asks.list {
		if is(a) {
			asks = append(asks, a)
		}
	}
	return asks
}

// placement returns what placement is asked for a task that is decided upon now: another
// answer is looked for when the ask is another.
func (s *scheduler) placement(a snapshot.Ask) placement.Ask {
	p, until := s.cell.Placement(a)
	s.bookCell(until)
	return p
}

// spare returns to placement how many more tasks of a job may be preempted.
func (s *scheduler) spare(job schema.JobName) (left int, bound bool) {
	left, bound, until := s.Spare(job)
	s.bookCell(until)
	return left, bound
}

// decide has placement decide asks, and returns those that got no place.
func (s *scheduler) decide(asks []placement.Ask) (refused []*placement.Ask) {
	if len(asks) == 0 {
		return nil
	}
	open := s.prepare(asks)
	places := s.asks.places(open)
	var gaveUp bool       // a task did not go back to where room was kept for it
	var tied, placed bool // one got no place that may get one where another has, and another one got one
	for _, d := range placement.Place(s.cell.Snapshot(), open, s.seed) {
		if _, claims := s.claims[d.Name]; claims && d.Machine == "" && !d.Evicted {
			continue // it waits on for those that make room for it
		}
		a, at := s.asks.ofTask(d.Name)
		tied, placed = tied || d.Machine == "" && (bound(a.Job) || s.awaits(a.Job)), placed || d.Machine != ""
		if from := s.cameFrom(d.Name); from != "" && d.Machine != "" && d.Machine != from {
			gaveUp = true
		}
		delete(s.claims, d.Name) // one that was claimed from, and asked again
		switch {
		case d.Machine == "":
			var ask *placement.Ask
			if at >= 0 && at < len(places) && places[at] > 0 {
				ask = &open[places[at]-1]
				refused = append(refused, ask)
			}
			s.stays(a, &d, ask)
			continue
		case d.Later:
			s.preempt(a, d)
		default:
			s.evict(a.Task, a.Job.Priority, d) // claims, if any
			s.assign(a, d)
		}
		delete(s.why, d.Name)
	}
	if s.cell.Snapshot().PutsOff() {
		s.bookCell(s.In(searchAgain))
	}
	if gaveUp && len(refused) > 0 {
		s.another() // one may have been refused the room that was kept
	}
	if tied && placed {
		s.another() // it may have been placed after one that has to be where it is
	}
	return refused
}

// prepare keeps the room that some asks have claims on, and returns those that are to be decided now.
func (s *scheduler) prepare(asks []placement.Ask) (open []placement.Ask) {
	s.configure()
	open = s.claim(asks)
	s.keepPlaces()
	// One that waits for room on a machine, and may not preempt a task there, does not get it because
	// that task gets a new version or process. Those that have to be near each other come back together.
	if slices.ContainsFunc(open, func(a placement.Ask) bool { return s.cameFrom(a.Name) == "" || bound(s.Admitted(a.Name.JobName)) }) {
		s.cell.Snapshot().ClaimBack(open, s.cameFrom)
	}
	s.cell.Expect(open)
	s.holding.begin(s.cell.Changes())
	return open
}

// stays notes why a task stays pending; ask is what was asked for it, nil for one that was evicted in the pass.
func (s *scheduler) stays(a snapshot.Ask, d *placement.Decision, ask *placement.Ask) {
	if ask != nil {
		if ask.On != "" && a.Job.Kind != schema.System {
			d.Why.Waits = s.cell.NoRoomAtHome(ask, s.cell.Snapshot())
		}
		s.holding.refused(d, ask)
	}
	s.why[d.Name] = d.Why
	if s.claimed[d.Name] {
		s.another() // others could not have the room that it could not take
	}
}

// searchAgain is after how long another pass is made, if nothing happens, where the search for places for tasks that go
// together was put off: at most half of the time goes into searches then.
const searchAgain = time.Second

// bound reports whether the tasks of a job have to be where certain others are.
func bound(job *schema.Job) bool {
	return job != nil && slices.ContainsFunc(job.Affinity, func(a schema.Affinity) bool { return a.Weight == 0 })
}

// awaits reports whether tasks of a job may get places that they do not get now, once others of
// the job are where they move to: until then spread.maxSkew holds without these, too.
func (s *scheduler) awaits(job *schema.Job) bool {
	return job != nil && job.Spread != nil && len(job.Spread.MaxSkew) > 0 &&
		slices.ContainsFunc(s.stops.moves, func(to snapshot.On) bool { return to.Task.JobName == job.ID() })
}

// configure has the snapshot decide as the step does.
func (s *scheduler) configure() {
	if s.noPreempt {
		s.cell.PreemptNone()
	}
	if s.policy != "" {
		s.cell.Snapshot().SetPolicy(s.policy)
	}
	s.cell.Snapshot().SetBudgets(s.spare)
	s.cell.Snapshot().SetHit(s.Hit)
	s.cell.Snapshot().SetParallel(s.parallel)
}

// keepPlaces keeps room on the machines that tasks move to, as far as there is any, from
// when they are stopped until they are placed.
func (s *scheduler) keepPlaces() {
	s.keepKin(s.stops.moves)
}

// keepKin keeps room on the machines that tasks move to, as keepPlace does, where those that they have to be
// near move, too: what leaves a machine that is drained is near nothing there any more, and a task is near
// those that have room kept.
func (s *scheduler) keepKin(moves []snapshot.On) {
	rounds := 1
	if slices.ContainsFunc(moves, func(to snapshot.On) bool { return bound(s.Admitted(to.Task.JobName)) }) {
		rounds = mostKinRounds
	}
	keep := func() {
		for range rounds {
			for _, to := range moves {
				s.keepPlace(to)
			}
		}
	}
	if rounds == 1 { // none has to be near what leaves
		keep()
		return
	}
	var leaving []snapshot.On
	for _, to := range moves {
		if t := s.Task(to.Task); t != nil && t.Machine != "" && t.Stop != nil && t.Stop.Kind == schema.CauseMaintenance {
			leaving = append(leaving, s.cell.GoesWith(to.Task.JobName, t)...)
		}
	}
	s.cell.WhileLeft(leaving, keep)
}

// mostKinRounds is how often room is kept for all that move, where one has to be near another: of a chain of as
// many.
const mostKinRounds = 3

// keepPlace keeps room on the machine that a task moves to, as far as there is any, with what
// those leave that were preempted for it. One that waits for these has its claim already.
func (s *scheduler) keepPlace(to snapshot.On) {
	if _, waits := s.claims[to.Task]; waits || s.claimed[to.Task] {
		return
	}
	job, t := s.Admitted(to.Task.JobName), s.Task(to.Task)
	_, at := s.asks.ofTask(to.Task)
	if job == nil || t == nil || t.Machine == "" && at < 0 || t.Machine != "" && t.Stop == nil {
		return
	}
	if t.Machine == to.Machine || movesTo(t) != to.Machine {
		return // it came there in this step, or moves no more
	}
	a := s.placement(snapshot.Ask{Task: to.Task, Job: job, Data: s.Job(to.Task.JobName).Admitted})
	s.cell.Claim(&a, to.Machine, s.leaving(to.Task, to.Machine))
}

// cameFrom returns the machine from which a pending task was last stopped to run again, as a new
// version or as it was; "" for none, if others have made room for it, or if it would take more there than others who
// wait leave.
func (s *scheduler) cameFrom(task schema.TaskName) string {
	machine := facts.RanOn(s.Task(task))
	if _, waits := s.claims[task]; waits || machine == "" || s.claimed[task] {
		return ""
	}
	if want := s.Admitted(task.JobName); want == nil || !s.cell.LeavesHeld(want, snapshot.On{Task: task, Machine: machine}) {
		return ""
	}
	return machine
}

// assign makes a decision of placement the task's newest generation.
func (s *scheduler) assign(a snapshot.Ask, d placement.Decision) {
	t := schema.TaskRecord{Index: a.Task.Index}
	if was := s.Task(a.Task); was != nil {
		t = *was
	}
	t.Generation, t.Machine, t.Data, t.Ports, t.At = s.NextGeneration(), d.Machine, a.Data, d.Ports, s.Now
	if t.OwnNetwork = a.Job.OwnNetwork(s.Desired.Policy.Network); t.OwnNetwork {
		t.Ports = a.Job.OwnPorts(s.portsInside(d.Alloc, a.Task))
	}
	t.Devices, t.Alloc, t.Behind = s.cell.DevicesOf(d.Machine, d.Devices), s.useOf(d.Alloc), d.Behind
	t.NotBefore, t.Held, t.Had = time.Time{}, nil, nil
	if a.Job.Kind != schema.System && t.On != d.Machine {
		t.On = ""
	}
	s.Set(a.Task.JobName, t)
	message := "assigned to the only machine that fits"
	if n := d.Why.Feasible; n > 1 {
		message = fmt.Sprintf("assigned to one of %d machines that fit", n)
	}
	if t.Alloc != nil {
		message = fmt.Sprintf("assigned to alloc %s", d.Alloc.Short())
	}
	s.Event(schema.Event{
		Kind: schema.EventSchedule, Job: a.Task.JobName.Short(), Task: a.Task.Short(), Machine: d.Machine, Generation: t.Generation, Message: message,
	})
}

// portsInside returns the ports that other tasks have in the network that those of an alloc
// share; nil for the zero alloc.
func (s *scheduler) portsInside(alloc, but schema.TaskName) []int {
	if alloc == (schema.TaskName{}) {
		return nil
	}
	var taken []int
	for _, job := range s.InsideOf(alloc.JobName) {
		for _, t := range s.Tasks(job) {
			if t.Alloc == nil || t.Machine == "" || !t.OwnNetwork || t.Alloc.Of(job) != alloc || job.Task(t.Index) == but {
				continue
			}
			for _, p := range t.Ports {
				taken = append(taken, p.Port)
			}
		}
	}
	return taken
}

// useOf returns the alloc that a decision of placement has put a task into.
func (s *scheduler) useOf(alloc schema.TaskName) *schema.AllocUse {
	if alloc == (schema.TaskName{}) {
		return nil
	}
	return &schema.AllocUse{Set: alloc.Job, Index: alloc.Index, Generation: s.Task(alloc).Generation}
}
