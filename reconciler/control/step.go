package control

import (
	"hash/fnv"
	"time"

	"github.com/musterhq/muster/placement"
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
	// Why tells, for each task that asked for a machine and got none, why.
	Why map[schema.TaskName]placement.Why
	// Claims tells, for each task that wants a machine, which one it waits for:
	// tasks that it preempts are stopping there.
	Claims map[schema.TaskName]Claim
	// Misplaced tells of the tasks that run in another alloc than they belong in.
	Misplaced map[schema.TaskName]Misplaced
	// Holds says, for each rollout that could go on and does not stop a task that
	// works, why.
	Holds map[schema.JobName]string
	// Holding says where the tasks of silent machines are left where they are,
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
	// Draining tells of the machines that are draining, by name.
	Draining map[string]*Draining
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
	s := newStep(in)
	if s.recovering() {
		return s.out
	}
	s.surveyMachines()
	s.recover()
	s.invalidate()
	s.endSuspensions()
	s.followAll()
	s.followRestarts()
	s.admit()
	s.dropKept()
	s.stepJobs()
	s.place(false)
	s.relieve()
	s.drain()
	s.rollOutAll(false) // last, since what was just placed counts against its budget
	s.followAllocs()    // now that it is settled what becomes of allocs, the tasks inside
	s.place(true)
	s.rollOutAll(true)
	s.rebalanceAll() // what else moves tasks goes first
	s.repairAll()
	s.lookAgain()
	s.lookAtRestarts()
	for _, name := range s.active {
		if s.waking = name; s.job(name) != nil {
			s.markIdle(name)
		}
	}
	s.forgetMachines()
	s.remember()
	s.out.Writes = s.writes()
	s.out.Events = s.events
	return s.out
}

// newStep returns a step that has decided nothing.
func newStep(in Input) *step {
	s := &step{
		draft: newDraft(in.State, in.Now), in: in, memo: in.Memo,
		preempted: map[string][]victim{}, claimed: map[schema.TaskName]bool{}, asking: map[schema.JobName]bool{}, wakes: map[schema.JobName]deadline{},
		askOf: map[schema.TaskName]ask{},
	}
	if s.memo == nil {
		s.memo = &Memo{}
	}
	if s.desired = in.Desired; s.desired == nil {
		s.desired = intent.Of(in.State)
	}
	s.names = s.memo.machineNames(in.State)
	s.suspended, s.asked = in.State.SuspendedJobs(), in.State.RestartsByJob()
	return s
}

// step is one Step at work.
type step struct {
	*draft
	in      Input
	out     Output
	memo    *Memo
	desired *intent.Desired

	names  []string         // of machines, sorted
	active []schema.JobName // jobs that are not idle
	asking map[schema.JobName]bool
	waking schema.JobName // the job that is being looked at
	wakes  map[schema.JobName]deadline

	up     []string           // machines that may get tasks, sorted
	silent map[string]*silent // those that are not up
	// released are the tasks of silent machines that are rescheduled, and why.
	released map[schema.TaskName]string
	// kept are the tasks of system jobs that would be, but for that they have no
	// other machine: see dropKept.
	kept map[schema.TaskName]string
	// suspended are the jobs that commits leave as they are.
	suspended model.SuspendedJobs
	// asked are the restarts that are stored, by job, and sorted by name.
	asked map[schema.JobName][]model.Restart
	asks  []ask
	// retained are the alloc sets that stay though they are not desired.
	retained    map[schema.JobName][]string
	askOf       map[schema.TaskName]ask
	users       map[schema.JobName][]schema.JobName // see insideOf
	inUse       map[schema.TaskName]bool            // see occupied
	mayRun      map[*schema.Job][]string            // see eligible
	budgets     map[schema.JobName]*disruptions
	moving      int                        // tasks of the cell that are stopping for a new version, or a restart
	domainsUp   map[string]map[string]bool // see domains
	rebalancing int                        // tasks of the cell that are stopping to be placed better
	// preempted are the tasks that were told to stop when the step began, by
	// the short name of the task that they were preempted for.
	preempted map[string][]victim
	// claimed are those for which the last of them have gone now.
	claimed map[schema.TaskName]bool
}

// followAll takes what is known of the jobs that are not idle into their
// records, and settles what has become of their rollouts: one that has failed
// may ask for admission of other data.
func (s *step) followAll() {
	var active []schema.JobName
	for _, name := range s.allJobs() {
		if s.atRest(name) {
			continue
		}
		s.waking = name
		active = append(active, name)
		s.setJobRight(name)
		for _, t := range s.tasks(name) {
			if t.Stop != nil && t.Stop.By != "" {
				s.preempted[t.Stop.By] = append(s.preempted[t.Stop.By], victim{name.Task(t.Index), t.Machine})
			}
			s.follow(name, t)
		}
		for _, t := range s.tasks(name) {
			if t.Stop != nil && (t.Stop.Kind == schema.CauseUpdate || t.Stop.Kind == schema.CauseRestart) {
				s.moving++
			}
			if t.Stop != nil && t.Stop.Kind == schema.CauseRebalance {
				s.rebalancing++
			}
		}
	}
	s.settleRollouts(active)
}

// settleRollouts changes in place what can be, and says what the tasks of jobs
// then tell of their rollouts.
func (s *step) settleRollouts(names []schema.JobName) {
	for _, name := range names {
		s.waking = name
		s.changeInPlace(name)
		s.judge(name)
	}
	s.waking = schema.JobName{}
}

// stepJobs brings the jobs forward that are not idle.
func (s *step) stepJobs() {
	var last []schema.JobName
	for _, name := range s.allJobs() {
		if s.atRest(name) {
			continue
		}
		s.active = append(s.active, name)
		if s.last(name) {
			last = append(last, name)
			continue
		}
		s.waking = name
		s.stepJob(name)
	}
	for _, name := range last {
		s.waking = name
		s.stepJob(name)
	}
	s.waking = schema.JobName{}
}

// rollOutAll rolls out the jobs whose tasks run in allocs, or the others.
func (s *step) rollOutAll(inside bool) {
	for _, name := range s.active {
		if _, in := s.inside(name); in == inside && s.job(name) != nil {
			s.waking = name
			s.rollOut(name)
		}
	}
	s.waking = schema.JobName{}
}

// wake asks for a step at t at the latest.
func (s *step) wake(t time.Time) {
	if !t.After(s.now) {
		return
	}
	if s.waking != (schema.JobName{}) {
		s.wakes[s.waking] = s.wakes[s.waking].with(t)
	}
	t = s.now.Add(t.Sub(s.now)) // comparable, see due
	if s.out.Wake.IsZero() || t.Before(s.out.Wake) {
		s.out.Wake = t
	}
}

// wakeAtOnce has another step follow this one, for what it has changed too late to
// act on.
func (s *step) wakeAtOnce() { s.wake(s.now.Add(time.Millisecond)) }

// admit makes the desired jobs that the cell takes on its job records.
func (s *step) admit() {
	desired := s.desired
	verdict, settled := s.verdict()
	s.out.Admission = verdict
	s.wake(verdict.Next)
	if settled {
		return
	}
	for _, name := range s.base.JobNames() {
		if _, ok := desired.Jobs[name]; !ok && s.base.Jobs[name].Admitted != "" && !s.keeps(name) {
			r := *s.job(name)
			r.Admitted, r.Since = "", s.now
			s.setJob(name, &r)
			s.event(schema.Event{Kind: schema.EventRemove, Job: name.Short(), Commit: s.base.Head.Commit, Message: intent.Sentence("gone from the repository", s.base.Head.Whose())})
		}
	}
	var changed []schema.JobName
	for _, name := range s.out.Admission.Order {
		d := desired.Jobs[name]
		if base, ok := s.records().InsteadOf(name, d.Digest); ok {
			d = base
		}
		if s.admitJob(name, d, desired.Jobs[name].Digest) {
			changed = append(changed, name)
		}
	}
	s.settleRollouts(changed)
	s.rememberVerdict()
}

// keeps reports whether a job that is not desired stays, as an alloc set does
// that is in use.
func (s *step) keeps(name schema.JobName) bool {
	_, ok := s.retained[name]
	return ok
}

// admitJob makes data the one that a job runs: what is desired, whose digest is
// given, or what is run in its place. It reports whether that is news.
func (s *step) admitJob(name schema.JobName, d intent.DesiredJob, desired schema.Digest) bool {
	was := s.job(name)
	over := was != nil && was.Rollout != nil && was.Rollout.Returned != "" && was.Rollout.Returned != desired && d.By != intent.Held && d.By != intent.Suspended && !s.frozen(name)
	if was != nil && was.Admitted == d.Digest && was.Origin == d.Origin && !over {
		return false
	}
	r := &schema.JobRecord{Name: name, Admitted: d.Digest, Origin: d.Origin, Since: s.now}
	if d.Digest == desired {
		r.Commit = s.base.Head.Commit
	}
	if was != nil {
		r.Disrupted, r.Good, r.Proven, r.Rollout = was.Disrupted, was.Good, was.Proven, was.Rollout
	}
	if over {
		r.Rollout = nil // another commit has changed the job: what failed may be tried again
	}
	if was == nil || was.Admitted != d.Digest {
		s.beginRollout(r, d.Job, d.Digest != desired)
	}
	s.setJob(name, r)
	if was != nil && was.Admitted == d.Digest {
		r.Since, r.Commit = was.Since, was.Commit // only its place in the repository changed
		return true
	}
	if s.base.Data[d.Digest] == nil {
		s.data[d.Digest] = d.Job
	}
	s.sayAdmitted(was, r, d)
	return true
}

// sayAdmitted tells of a job that has got other data: whose commit that is of, and
// what it changes.
func (s *step) sayAdmitted(was, r *schema.JobRecord, d intent.DesiredJob) {
	e := schema.Event{Kind: schema.EventSubmit, Job: r.Name.Short(), Commit: s.base.Head.Commit}
	message, changes := "admitted at "+d.Origin.String(), ""
	if was != nil && was.Admitted != "" {
		e.Kind, changes = schema.EventUpdate, intent.ChangesOf(s.dataOf(was.Admitted), d.Job)
	}
	if was != nil && intent.GoesBack(r, s.dataOf(was.Admitted), d.Job) {
		message = intent.Sentence(intent.EarlierVersion, message)
	}
	if r.Rollout != nil && r.Rollout.Returned != "" {
		e.Message = intent.Sentence("returns to the last healthy version", changes)
	} else {
		e.Message = intent.Sentence(message, changes, s.base.Head.Whose())
	}
	s.event(e)
}

// stepJob brings the tasks of one job forward: what agents say of them, what
// is to be stopped, and what wants a machine.
func (s *step) stepJob(name schema.JobName) {
	r := s.job(name)
	var want *schema.Job
	count := 0
	if r.Admitted != "" {
		want = s.dataOf(r.Admitted)
		count = want.Tasks
	}
	if want != nil && want.Kind == schema.System {
		s.stepSystem(name, want)
		return
	}
	tasks := s.tasks(name)
	for i := range tasks {
		if !s.frozen(name) {
			s.stopUnwanted(name, tasks[i], count)
		}
	}
	if want != nil {
		s.askFor(name, want)
	} else if len(s.tasks(name)) == 0 {
		s.setJob(name, nil)
	}
}

// stopUnwanted stops a task whose index is not desired any more.
func (s *step) stopUnwanted(job schema.JobName, t schema.TaskRecord, count int) {
	switch {
	case t.Index < count:
	case t.Done != nil && s.keepsDone(job):
	case t.Machine == "":
		s.remove(job, t.Index)
	case t.Stop == nil && s.job(job).Admitted == "" && s.dataOf(t.Data).Kind == schema.Allocs && s.occupied(job.Task(t.Index)):
	case t.Stop == nil:
		s.stop(job, t, s.unwanted(job, t))
	}
}

// unwanted returns why a task has to go whose index is not desired any more.
func (s *step) unwanted(job schema.JobName, t schema.TaskRecord) schema.Cause {
	removed, isAlloc := s.job(job).Admitted == "", s.dataOf(t.Data).Kind == schema.Allocs
	c := schema.Cause{Kind: schema.CauseScaledDown, Message: "the job has fewer tasks now", At: s.now}
	switch {
	case removed && isAlloc:
		c.Kind, c.Message = schema.CauseRemoved, "the alloc set is gone from the repository"
	case removed:
		c.Kind, c.Message = schema.CauseRemoved, "the job is gone from the repository"
	case isAlloc:
		c.Message = "the alloc set has fewer allocs now"
	}
	return c
}

// keepsDone reports whether a job's finished tasks are remembered beyond its
// count: they are not run again when it grows back.
func (s *step) keepsDone(job schema.JobName) bool {
	admitted := s.job(job).Admitted
	return admitted != "" && s.dataOf(admitted).Kind == schema.Batch
}

// stop tells a task's machine to end its generation.
func (s *step) stop(job schema.JobName, t schema.TaskRecord, cause schema.Cause) {
	cause.Machine, cause.Generation = t.Machine, t.Generation
	t.Stop = &cause
	s.set(job, t)
	kind := schema.EventKill
	switch cause.Kind {
	case schema.CauseUpdate, schema.CausePreempted, schema.CauseMaintenance, schema.CauseOutOfResources, schema.CauseAllocGone, schema.CauseRebalance:
		kind = schema.EventEvict
	}
	s.event(schema.Event{Kind: kind, Job: job.Short(), Task: job.Task(t.Index).Short(), Machine: t.Machine, Generation: t.Generation, Cause: cause.Kind, Message: cause.Message})
}
