package control

import (
	"hash/fnv"
	"time"

	"github.com/musterhq/muster/placement"
	"github.com/musterhq/muster/reconciler/control/draft"
	"github.com/musterhq/muster/reconciler/control/facts"
	"github.com/musterhq/muster/reconciler/control/snapshot"
	"github.com/musterhq/muster/reconciler/intent"
	"github.com/musterhq/muster/reconciler/model"
	"github.com/musterhq/muster/reconciler/quota"
	"github.com/musterhq/muster/schema"
)

// Input is all that a step depends on.
type Input struct {
	State *model.State
	// Desired is what intent.Of returns of State; nil to have it found out.
	Desired  *intent.Desired
	Observed *model.Observed
	Now      time.Time
	Seed     uint64
	// Memo is what the step before has found out; nil for none.
	Memo *Memo
	// NoPreempt has no task make room for another one, as for a question of what has room.
	NoPreempt bool
	// NoMoves has no task be moved by choice, to make room for others or to stand better: where
	// no job lets its tasks be moved, the search for moves is for nothing.
	NoMoves bool
	// Policy chooses between machines in the place of the default, as for a question of what it
	// is worth; "" is the default, see placement.Policy.
	Policy string
	// Reserved is what is held back for tasks by what they use; nil has all be their limits.
	Reserved snapshot.Reservations
	// Parallel is what placement does some of its work with, see
	// placement.Snapshot.SetParallel; nil for none. Nothing that is decided depends on it.
	Parallel func(n int, do func(i int))
}

// Output is what a step decided. Nothing of it has happened yet.
type Output struct {
	// Writes are to be stored in order; the views of machines follow from the
	// state that then is.
	Writes []model.Write
	Events []schema.Event
	// Wake is when a step would decide something new without any news; zero
	// if never.
	Wake time.Time
	// Admission is the verdict on the desired jobs.
	Admission quota.Admission
	// Why says, for each task that asked for a machine and got none, why.
	Why map[schema.TaskName]placement.Why
	// Claims says, for each task that wants a machine, which one it waits for:
	// tasks that it preempts are stopping there.
	Claims map[schema.TaskName]Claim
	// Misplaced are the tasks that run in another alloc than they belong in.
	Misplaced map[schema.TaskName]Misplaced
	// Holds says, for each rollout that could go on and does not stop a task that
	// works, why.
	Holds map[schema.JobName]string
	// Holding says where the tasks of silent machines are not rescheduled,
	// and why: of the cell first, then of failure domains by name.
	Holding []LossHold
	// Recovering says why nothing is decided after a restore, "" once it is.
	Recovering string
	// Joining says what tasks wait for while the first machines of a cell join, ""
	// if nothing is held for that.
	Joining string
	// Left says of tasks on silent machines, that would have been rescheduled
	// by now, what they wait for.
	Left map[schema.TaskName]string
	// Draining are the machines that are draining, by name.
	Draining map[string]*Draining
	// EmptyEvery is the time between two looks for machines to empty from now on: less while one
	// is being emptied. 0 if the step has not got to them.
	EmptyEvery time.Duration
}

// desired is what is wanted of the cell.
func (in *Input) desired() *intent.Desired {
	if in.Desired != nil {
		return in.Desired
	}
	return intent.Of(in.State)
}

// Seed returns the seed of a cell at a commit: nothing that counts or ticks is
// in it, so the same decision is made again after a crash.
func Seed(cell, commit string) uint64 {
	h := fnv.New64a()
	h.Write([]byte(cell + "\x00" + commit)) // never fails
	return h.Sum64()
}

// Step compares what is desired with what is assigned and observed, and
// decides what to do next: admit, stop, give up, update, place. It changes
// neither State nor Observed. A cell that is as desired gets no writes.
func Step(in Input) Output {
	if in.Memo == nil {
		in.Memo = &Memo{}
	}
	p := newPass(&in)
	admission := &admission{pass: p, kept: &in.Memo.admission}
	if why, until := recovering(p.Facts); why != "" {
		p.bookCell(until)
		admission.decide()
		return Output{Wake: p.wake, Admission: admission.verdict, Recovering: why}
	}
	p.bookCell(p.Surveyed())
	s := newStep(p, &in)
	s.admission = admission
	serve(p, &in.Memo.served) // depends on nothing else
	number(p, &in.Memo.numbered)
	s.run()
	s.cell.Leave()
	p.bookCell(s.cell.Until())
	return s.output()
}

// newPass returns what a step begins with.
func newPass(in *Input) pass {
	d := draft.New(in.State, in.Now)
	desired := in.desired()
	in.Memo.known.Update(facts.Roster{State: in.State, Desired: desired, Observed: in.Observed, Now: in.Now})
	setMachinesRight(d, in.State, in.Memo.known.Returning(), in.Now)
	return pass{facts.New(d.View(), desired, in.Observed, in.Now, &in.Memo.known), d, newTimers(in.Now)}
}

// step is one Step at work: the controllers, put together. What one of them needs of
// another it is given here.
type step struct {
	pass
	cell      *snapshot.Cell
	activity  *activity
	lost      *rescheduler
	restore   *restore
	follower  *follower
	noMoves   bool // no task is moved by choice
	restarts  *restarts
	judge     *judge
	admission *admission
	scaling   *scaling
	systems   *systems
	scheduler *scheduler
	overload  *overload
	drains    *drains
	rollouts  *rollouts
	rebalance *rebalancer
	moves     *moves
	holes     *holes
	repair    *repair
	packing   *packing
	emptying  *emptying
	active    []schema.JobName // jobs that are not idle
}

func newStep(p pass, in *Input) *step {
	memo := in.Memo
	cell := snapshot.New(p.Facts, &memo.cell)
	cell.Reserve(in.Reserved)
	p.Watch(cell.Changed)
	if memo.combed == nil {
		memo.combed = map[string]bool{}
	}
	activity, budget := newActivity(p, &memo.idle), disruption{p}
	s := &step{
		pass: p, cell: cell, activity: activity,
		lost:     newRescheduler(p),
		restarts: &restarts{p},
		judge:    &judge{p, cell, map[schema.JobName]judged{}},
		overload: &overload{pass: p, cell: cell, budget: budget},
		drains:   &drains{pass: p, cell: cell, budget: budget},
	}
	s.noMoves = in.NoMoves
	s.restore = &restore{p, s.lost, memo.combed}
	s.follower = &follower{pass: p, released: s.lost.released, stops: stops{preempted: map[string][]snapshot.On{}}}
	wanted := &asks{pass: p, cell: cell, of: map[schema.JobName]span{}}
	s.scaling = &scaling{pass: p, asks: wanted}
	s.systems = &systems{p, cell, s.judge, wanted}
	s.scheduler = &scheduler{
		pass: p, cell: cell, asks: wanted, budget: budget, seed: in.Seed, noPreempt: in.NoPreempt, policy: placement.Policy(in.Policy), parallel: in.Parallel,
		preempted: s.follower.stops.preempted, stops: &s.follower.stops, claimed: map[schema.TaskName]bool{},
	}
	s.overload.holds, s.drains.waiting = s.scheduler.holdsFrom, s.scheduler
	s.rollouts = &rollouts{pass: p, cell: cell, budget: budget, away: s.scheduler.away, held: s.scheduler.holdsFrom}
	s.rebalance = &rebalancer{pass: p, cell: cell, activity: activity, budget: budget, away: s.scheduler.away}
	s.moves = &moves{p, budget, newMoveBounds(p.Facts), s.scheduler.keepPlace}
	s.holes = &holes{p, holeSearch{Facts: p.Facts, cell: cell}, s.moves, s.scheduler}
	all := looking{p, s.holes.search, s.moves, s.scheduler}
	s.packing, s.emptying = &packing{all, &memo.packed}, &emptying{all, &memo.emptied, emptyChecks}
	s.repair = &repair{p, activity, s.moves, uneven{p.Facts, cell, s.moves.bounds}}
	return s
}

// run is the order of a pass. What a controller does depends on what those before it have
// done, as is said beside it; none of them calls one that comes later.
func (s *step) run() {
	s.lost.decide()     // whether a task can be stopped, and what is known of it, depends on its machine
	s.restore.recover() // what machines hold is known before any of it is missed
	s.activity.invalidate(s.lost.released)
	endSuspensions(s.pass) // what they kept back is done by the next step
	s.follow()
	s.restarts.follow()
	s.judge.settle(s.admission.admit()) // a rollout that has failed asks for admission of other data
	s.cell.Admitted()
	s.systems.dropKept(s.lost.kept) // what goes on where it is follows from what is admitted
	s.scale()
	s.scheduler.place(false) // what runs nowhere gets its place before others are moved to it
	s.overload.relieve()
	s.drains.drain()
	s.rollOut(false) // what was just placed, or stopped, counts against its budget
	// The tasks inside allocs, now that it is settled what becomes of these.
	followAllocs(s.pass, s.active)
	s.scheduler.place(true)
	s.rollOut(true)
	// What makes nothing work that does not goes last, with what is left of the budgets.
	s.rebalance.all(s.active)
	s.active = s.activity.joined(s.active)
	s.move()
	s.scheduler.hold() // by what goes, and what has come
	// What was decided may be news to those that were asked before it.
	s.lost.lookAgain()
	s.restarts.lookAgain()
	s.judge.lookAgain()
	s.markIdle()
	machines{s.pass}.forgetMachines() // nothing is on them any more
}

// follow takes what is known of the jobs that are not idle into their records, and
// settles what has become of their rollouts.
func (s *step) follow() {
	active := s.activity.notIdle()
	for _, name := range active {
		s.follower.followJob(name)
	}
	s.rollouts.moving, s.moves.bounds.moving = s.follower.stops.moving, s.follower.stops.rebalancing
	s.judge.settle(active)
}

// scale brings the jobs that are not idle to as many tasks as they are to have: alloc sets
// that are going last, since their allocs go when nothing runs inside any more. Idle jobs that wait
// ask for machines in their turn.
func (s *step) scale() {
	var last []schema.JobName
	s.active = s.activity.notIdle()
	waiting := s.activity.kept.waiters()
	for _, name := range s.active {
		for len(waiting) > 0 && waiting[0].name.Compare(name) < 0 {
			s.scaling.asks.add(waiting[0])
			waiting = waiting[1:]
		}
		if s.Goes(name) {
			last = append(last, name)
			continue
		}
		if want := s.Admitted(name); want != nil && want.Kind == schema.System {
			s.systems.scale(name, want)
		} else {
			s.scaling.scale(name)
		}
	}
	for _, r := range waiting {
		s.scaling.asks.add(r)
	}
	for _, name := range last {
		s.scaling.scale(name)
	}
}

// rollOut rolls out the jobs whose tasks run in allocs, or the others.
func (s *step) rollOut(inside bool) {
	for _, name := range s.active {
		if _, in := s.Inside(name); in == inside && s.Job(name) != nil {
			s.rollouts.rollOut(name)
		}
	}
}

// move moves tasks to make the cell better, unless something else moves: for those that
// wait first, then for the spread of jobs, for those that may come, and at last for power.
func (s *step) move() {
	s.moves.bounds.holding, s.moves.bounds.draining = s.lost.holding, s.drains.drained
	s.moves.setRight()
	if s.noMoves {
		return
	}
	s.holes.open()
	s.repair.all(s.active)
	s.packing.improve()
	s.emptying.empty()
}

// markIdle notes which jobs are idle.
func (s *step) markIdle() {
	for _, name := range s.active {
		if s.Job(name) != nil {
			s.activity.markIdle(name, s.scaling.asks.ofJob(name))
		}
	}
}

// output returns what the controllers have decided.
func (s *step) output() Output {
	return Output{
		Writes: s.Writes(), Events: s.Events(), Wake: s.wake, Admission: s.admission.verdict,
		Why: s.scheduler.why, Claims: s.scheduler.claims, Joining: s.scheduler.joining,
		Misplaced: s.rebalance.misplaced, Holds: s.rollouts.holds, Draining: s.drains.drained,
		Holding: s.lost.holding, Left: s.lost.left, EmptyEvery: s.emptying.kept.every(),
	}
}
