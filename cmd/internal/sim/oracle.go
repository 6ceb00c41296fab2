package sim

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/musterhq/muster/nodeagent"
	"github.com/musterhq/muster/placement"
	"github.com/musterhq/muster/reconciler/model"
	"github.com/musterhq/muster/schema"
)

// oracle is what the world knows and no master has to remember.
type oracle struct {
	durable  *model.State               // what the newest master knows to be stored
	good     map[string]*schema.Package // last good version of each directory
	next     map[string]*schema.Package // what good becomes when nextID is stored
	nextID   string
	held     map[string]bool            // directories of good that a commit has removed, and whose removal is held
	nextHeld map[string]bool            // what held becomes when nextID is stored
	reported map[string]time.Time       // when each machine last reported to a master
	finished map[schema.TaskName]uint64 // generation of the run that exited 0
	took     map[schema.TaskName]uint64 // generation that a restored cell has adopted as it ran
	failed   map[schema.TaskName]failure
	counter  uint64
	indexOn  map[jobMachine]int // index of a system job on a machine
	indices  map[schema.JobName][]int
	rollouts map[schema.JobName]*rollout
	proven   map[schema.JobName]map[string]bool // commands that need no canary
	returned map[schema.JobName]*returned
	gone     map[string]time.Time           // machine → when it was first seen to be declared gone
	restarts map[string]*restarted          // that were asked for and are not known to be over
	written  map[uint64]time.Time           // generations that must never run twice, and went with a machine that is gone: when
	joined   map[string]time.Time           // machine → when the leader's store last took a join of it
	halfway  snap                           // what was stored when a step began whose writes are not all known to be stored
	cordoned map[string]uint64              // machine → counter when the cordon was first seen in force
	stops    map[schema.JobName][]time.Time // that were chosen, of tasks that worked
	moves    []time.Time                    // of running tasks, see checkMoves
	parts    map[company]torn               // gangs that a crash has left in part
	ran      map[company]*ran               // what of gangs had places together
	jumped   time.Time                      // when the clock of the master's host was last set
	unseen   unseen
	losses   losses
	epochs   map[string]uint64        // the last that each machine was given
	closed   map[uint64]*agent        // generations of which their machine has said that they ended, and which agent knows so only; nil: it is on disk
	ended    map[uint64]bool          // generations of batch tasks whose run has exited with 0
	again    map[schema.TaskName]bool // finished after the snapshot that the store was put back to
	unknown  map[uint64]bool          // generations that ran then, which the store may know nothing of
	later    map[string][]byte        // documents with what a later release wrote, as they were stored last
	packages map[schema.Digest]bool
	data     map[schema.Digest]*schema.Job     // of jobs, as they were ever committed
	waits    map[schema.TaskName]placement.Why // what the last step has said of tasks that wait
	claimed  map[schema.TaskName]string        // and for which machines some of them do
	inVain   map[schema.TaskName]inVain        // those that wait though they could have a place
}

// failure is the newest failed generation of a task.
type failure struct {
	data schema.Digest
	at   time.Time
}

func newOracle() oracle {
	return oracle{
		durable: &model.State{}, good: map[string]*schema.Package{}, reported: map[string]time.Time{}, finished: map[schema.TaskName]uint64{}, took: map[schema.TaskName]uint64{}, failed: map[schema.TaskName]failure{},
		parts: map[company]torn{}, ran: map[company]*ran{}, rollouts: map[schema.JobName]*rollout{}, proven: map[schema.JobName]map[string]bool{}, returned: map[schema.JobName]*returned{}, restarts: map[string]*restarted{}, written: map[uint64]time.Time{}, closed: map[uint64]*agent{}, ended: map[uint64]bool{}, again: map[schema.TaskName]bool{}, unknown: map[uint64]bool{}, later: map[string][]byte{}, losses: losses{since: map[string]time.Time{}, held: map[string]time.Time{}}, joined: map[string]time.Time{}, cordoned: map[string]uint64{}, stops: map[schema.JobName][]time.Time{}, epochs: map[string]uint64{}, packages: map[schema.Digest]bool{}, data: map[schema.Digest]*schema.Job{},
	}
}

// committed takes down what a commit declares.
func (o *oracle) committed(c schema.Compiled) {
	for _, p := range c.Packages {
		if p.Package == nil || o.packages[p.Digest] {
			continue
		}
		o.packages[p.Digest] = true
		for i := range p.Package.Objects.Jobs {
			j := p.Package.Objects.Jobs[i]
			for _, set := range p.Package.Objects.AllocSets {
				if j.AllocSet == set.Name {
					j.Priority = set.Priority
				}
			}
			o.data[schema.DigestOf(&j)] = &j
		}
		for i := range p.Package.Objects.AllocSets {
			j := p.Package.Objects.AllocSets[i].Job()
			o.data[schema.DigestOf(j)] = j
		}
	}
}

// finish takes down that a batch task's run has exited with 0. One that the
// store has given up already does not count.
func (o *oracle) finish(task schema.TaskName, generation uint64) {
	o.ended[generation] = true
	if r := o.record(task); r != nil && r.Generation == generation && r.Machine != "" {
		o.finished[task] = generation
	}
}

// adopting notes what the good data will be once the commit is stored.
func (o *oracle) adopting(c schema.Compiled) {
	o.next, o.nextID, o.nextHeld = map[string]*schema.Package{}, c.Commit, map[string]bool{}
	for _, p := range c.Packages {
		was := o.good[p.Dir]
		switch {
		case p.Package != nil && lawful(p.Package):
			o.next[p.Dir] = p.Package
		case was != nil && o.held[p.Dir] && p.Package != nil: // of which it is known what it declares
			o.next[p.Dir], o.nextHeld[p.Dir] = stillNamed(was, p.Package), true
		case was != nil:
			o.next[p.Dir], o.nextHeld[p.Dir] = was, o.held[p.Dir]
		}
	}
	if o.guarded(c) {
		for dir, was := range o.good {
			if o.next[dir] == nil {
				o.next[dir], o.nextHeld[dir] = was, true
			}
		}
	}
}

// stillNamed returns what of a package is named by another one too.
func stillNamed(was, by *schema.Package) *schema.Package {
	named := map[schema.JobName]bool{}
	for i := range by.Objects.Jobs {
		named[by.Objects.Jobs[i].ID()] = true
	}
	for i := range by.Objects.AllocSets {
		named[by.Objects.AllocSets[i].ID()] = true
	}
	left := *was
	left.Objects.Jobs = slices.DeleteFunc(slices.Clone(was.Objects.Jobs), func(j schema.Job) bool { return !named[j.ID()] })
	left.Objects.AllocSets = slices.DeleteFunc(slices.Clone(was.Objects.AllocSets), func(a schema.AllocSet) bool { return !named[a.ID()] })
	return &left
}

func (o *oracle) adopted(commit string) {
	if commit == o.nextID {
		o.good, o.held = o.next, o.nextHeld
		o.forgetReturned()
	}
}

// restarted takes what a new master has loaded.
func (o *oracle) restarted(s *model.State) {
	o.durable = s
	o.adopted(s.Head.Commit)
}

// declared returns the job as the good data has it, nil if it has not.
func (o *oracle) declared(name schema.JobName) *schema.Job {
	for _, p := range o.good {
		for i := range p.Objects.Jobs {
			if p.Objects.Jobs[i].ID() == name {
				return &p.Objects.Jobs[i]
			}
		}
		for i := range p.Objects.AllocSets {
			if p.Objects.AllocSets[i].ID() == name {
				return p.Objects.AllocSets[i].Job()
			}
		}
	}
	return nil
}

// record returns the task's record in the state that is known to be stored.
func (o *oracle) record(task schema.TaskName) *schema.TaskRecord {
	return snap(o.durable.Chunks).record(task)
}

// checkTerm: no task is stopped without a cause, nor while the store says
// that it shall run where it is, unless it is unhealthy, or its machine has no view yet
// since the store was restored.
func (w *World) checkTerm(m *machine, a nodeagent.Action) {
	if a.Cause == nil || a.Cause.Kind == "" {
		w.violate("task %s is stopped without a cause", a.Task)
		return
	}
	if x, view := w.oracle.durable.Restored, m.agent.core.Memory().View; x != nil && view != nil && view.Epoch <= x.Floor {
		return
	}
	r := w.oracle.record(a.Task)
	if r != nil && a.Cause.Kind == schema.CauseAllocGone && !w.stands(a.Task.JobName, r) {
		return // what the store says of the task is still on its way
	}
	if r != nil && r.Generation == a.Generation && r.Machine == m.name && r.Stop == nil && a.Cause.Kind != schema.CauseUnhealthy {
		w.violate("task %s generation %d is stopped on %s (%s), where the store says it shall run", a.Task, a.Generation, m.name, a.Cause)
	}
}

// stands reports whether the store says that the alloc of a task is there.
func (w *World) stands(job schema.JobName, r *schema.TaskRecord) bool {
	if r.Alloc == nil {
		return true
	}
	a := w.oracle.record(r.Alloc.Of(job))
	return a != nil && a.Generation == r.Alloc.Generation && a.Machine == r.Machine && a.Stop == nil
}

// checkKnown: a machine starts nothing that is not in the view on its disk: an
// agent that comes after would stop it.
func (w *World) checkKnown(m *machine, a nodeagent.Action) {
	if m.disk.view.Find(a.Task, a.Generation) == nil {
		w.violate("task %s generation %d is started on %s, whose disk does not have the view that asks for it", a.Task, a.Generation, m.name)
	}
}

// checkStart: what finished does not run again.
func (w *World) checkStart(a nodeagent.Action) {
	r := w.oracle.record(a.Task)
	if r != nil && r.Done != nil && a.Generation > r.Generation {
		w.violate("task %s is started after it was stored that it is done", a.Task)
	}
	g, finished := w.oracle.finished[a.Task]
	if !finished || g >= a.Generation || w.oracle.again[a.Task] {
		return
	}
	if !w.forgotEnds() {
		w.violate("task %s is started after it has finished", a.Task)
	}
}

// forgotEnds reports whether a machine may have taken an end for an old one since its
// clock was set, and the store, which was put back, knows nothing of it.
func (w *World) forgotEnds() bool { return slices.ContainsFunc(w.machines, w.forgotEnd) }

// forgotEnd is forgotEnds of one machine.
func (w *World) forgotEnd(m *machine) bool {
	if w.master == nil {
		return false
	}
	r := w.master.state.Restored
	return r != nil && m.clockSet.After(r.At.Add(-nodeagent.ReportFor))
}

// checkEvents holds what the master says it has decided against what the world
// knows; before is what was stored when it did, and now what its clock said.
func (w *World) checkEvents(events []schema.Event, before snap, now time.Time) {
	for _, e := range events {
		task, err := schema.ParseTaskName(cellName + "/" + e.Task)
		if err != nil {
			continue
		}
		switch {
		case e.Kind == schema.EventKill && e.Cause == schema.CauseRemoved && !strings.HasPrefix(e.Message, "stopped"):
			// What was removed and is declared again may find its quota gone.
			if w.oracle.declared(task.JobName) != nil && w.master.last.Admission.Rejected[task.JobName] == nil {
				w.violate("task %s is stopped as removed, and the last good version of its directory has it", e.Task)
			}
		case e.Cause == schema.CausePreempted:
			w.checkPreempted(task, strings.HasPrefix(e.Message, "stopped"), before)
		case e.Kind == schema.EventLost:
			w.oracle.givenUp(task, before.record(task))
			w.checkLost(e, task, before, updated(events, task.JobName))
			w.checkNotFailed(task, before)
		case e.Kind == schema.EventFail:
			if r := before.record(task); r != nil {
				w.oracle.failed[task] = failure{r.Data, w.now}
			}
		case e.Kind == schema.EventSchedule:
			w.oracle.scheduled(task, e.Message)
			w.checkBackoff(task, before)
		}
	}
	w.checkCauses(before)
	w.checkBudget(before, now)
	w.checkMoves(before, now)
	w.checkBroughtFirst(before)
	for _, e := range events {
		if e.Kind == schema.EventUpdate || e.Kind == schema.EventSubmit {
			maps.DeleteFunc(w.oracle.failed, func(t schema.TaskName, _ failure) bool { return t.Short() == e.Job || t.JobName.Short() == e.Job })
		}
	}
}

// givenUp forgets that a run has finished whose machine was given up before it could say so.
func (o *oracle) givenUp(task schema.TaskName, was *schema.TaskRecord) {
	if was != nil && o.finished[task] == was.Generation {
		delete(o.finished, task)
	}
}

// scheduled takes down what a restored cell has adopted, by the message of the event.
func (o *oracle) scheduled(task schema.TaskName, message string) {
	if r := o.record(task); r != nil && strings.HasPrefix(message, "adopted as it runs") {
		o.took[task] = r.Generation
	}
}

// updated reports whether a step has given a job other data.
func updated(events []schema.Event, job schema.JobName) bool {
	return slices.ContainsFunc(events, func(e schema.Event) bool { return e.Kind == schema.EventUpdate && e.Job == job.Short() })
}

// checkCauses: a generation that is over has left its cause in the task's record,
// for as long as there is one.
func (w *World) checkCauses(before snap) {
	for name, c := range w.master.state.Chunks {
		if before[name] == c {
			continue
		}
		for i := range c.Tasks {
			r := &c.Tasks[i]
			was := before.record(name.Job.Task(r.Index))
			if was == nil || was.Machine == "" || was.Generation == r.Generation && r.Machine != "" || w.restoredBefore(was.Generation) {
				continue
			}
			if n := len(r.Causes); n == 0 || r.Causes[n-1].Generation != was.Generation || r.Causes[n-1].Kind == "" {
				w.violate("task %s generation %d is over, and its record does not say why: %v", name.Job.Task(r.Index), was.Generation, r.Causes)
			}
		}
	}
}

// checkPreempted: a task is preempted for one of higher priority only, and within
// production and monitoring never, but where it came behind that one, and has come to be of the same priority since;
// once it has stopped it wants a machine again at once.
func (w *World) checkPreempted(task schema.TaskName, stopped bool, before snap) {
	r, s := w.oracle.record(task), w.master.state
	j := s.Jobs[task.JobName]
	switch {
	case stopped && j != nil && j.Admitted != "" && w.wants(s.Data[j.Admitted], task):
		_, claims := w.master.last.Claims[task]
		_, pending := w.master.last.Why[task]
		if r == nil || r.Done != nil || r.Machine == "" && !claims && !pending {
			w.violate("task %s was preempted and does not want a machine again", task)
		}
	case !stopped && (r == nil || r.Stop == nil):
		w.violate("task %s is said to be preempted, and its record does not say so", task)
	case !stopped:
		by, err := schema.ParseTaskName(cellName + "/" + r.Stop.By)
		if err != nil || s.Jobs[by.JobName] == nil {
			w.violate("task %s is preempted for %q, which there is not", task, r.Stop.By)
			return
		}
		high, low := s.Data[s.Jobs[by.JobName].Admitted].Priority, s.Data[r.Data].Priority
		if !mayTake(high, low) && (mayTake(low, high) || low > high || !w.cameBehind(task, by, before)) {
			w.violate("task %s of priority %d is preempted for %s of priority %d", task, low, by, high)
		}
		w.checkProtected(task, by, before)
		w.checkMadeRoom(task, by, before)
		w.checkVictims(task, by, before)
	}
}

// checkLost: a task is given up only after as much silence as its job tolerates,
// of a machine that is declared gone after a little, and never while the machine,
// its agent and its link are in order: a master that could not listen has no right
// to.
func (w *World) checkLost(e schema.Event, task schema.TaskName, before snap, updated bool) {
	last := w.oracle.reported[e.Machine]
	if _, lost := w.oracle.losses.since[e.Machine]; !lost && w.master.since.After(last) { // else it was lost to the one before
		last = w.master.since
	}
	least, ever := w.tolerated(task, e.Machine, before)
	if r := before.record(task); updated && r != nil { // by the step that gave the task up before that
		was := w.oracle.data[r.Data]
		least, ever = min(least, was.After(time.Minute)), ever || !was.NeverTwice()
	}
	if silence := w.now.Sub(last); silence < least || !ever {
		w.violate("machine %s is given up after %s, with task %s", e.Machine, silence, task)
	}
	w.checkShare(task, e.Machine)
	if fit := w.now.Sub(w.named(e.Machine).fit); fit > time.Minute && !w.isForgotten(e.Machine) {
		w.violate("machine %s is given up, and nothing has been wrong with it for %s", e.Machine, fit)
	}
}

// checkNotFailed: a task that was lost with its machine has not failed, and may
// have another at once.
func (w *World) checkNotFailed(task schema.TaskName, before snap) {
	was, is := before.record(task), w.oracle.record(task)
	if was != nil && is != nil && is.Machine == "" && (is.Failures > was.Failures || is.NotBefore.After(was.NotBefore)) {
		w.violate("task %s was lost and waits as if it had failed", task)
	}
}

// checkBackoff: what failed is tried again after ten seconds, not before, unless
// its record went meanwhile, with the index.
func (w *World) checkBackoff(task schema.TaskName, before snap) {
	f, failed := w.oracle.failed[task]
	was, is := before.record(task), w.oracle.record(task)
	if !w.oracle.jumped.Before(f.at) {
		return // the time of day, by which a master must go that has just started, says nothing
	}
	if failed && was != nil && was.Data == f.data && is != nil && !w.survived(is.Generation) && is.Data == f.data && w.now.Sub(f.at) < 10*time.Second {
		w.violate("task %s failed %s ago and is scheduled again", task, w.now.Sub(f.at))
	}
}

// snap is what was stored at a moment.
type snap map[model.ChunkName]*schema.Chunk

func (w *World) snap() snap { return maps.Clone(w.master.state.Chunks) }

// record returns the task's record, nil if it has none.
func (s snap) record(task schema.TaskName) *schema.TaskRecord {
	c := s[model.ChunkName{Job: task.JobName, Number: task.Index / schema.ChunkSize}]
	if c == nil {
		return nil
	}
	for i := range c.Tasks {
		if c.Tasks[i].Index == task.Index {
			return &c.Tasks[i]
		}
	}
	return nil
}

// silentAfter is when a machine that says nothing counts as silent: its tasks
// may be down.
const silentAfter = 10 * time.Second

// works reports whether a task does, as far as its machine has said.
func (w *World) works(r *schema.TaskRecord) bool {
	report := w.master.reported[r.Machine]
	if r.Machine == "" || r.Stop != nil || report == nil || w.now.Sub(w.master.reportedAt[r.Machine]) >= silentAfter {
		return false
	}
	for _, t := range report.Tasks {
		if t.Generation == r.Generation {
			return t.State == schema.Running && (t.Health == "" || t.Health == schema.Healthy)
		}
	}
	return false
}

// wants reports whether a job's data has a place for a task.
func (w *World) wants(want *schema.Job, task schema.TaskName) bool {
	if want.Kind != schema.System {
		return task.Index < want.Tasks
	}
	r := w.oracle.record(task)
	if r == nil {
		return false
	}
	m := w.oracle.durable.Machines[r.On]
	_, cordoned := w.oracle.cordoned[r.On]
	return m != nil && m.LostSince.IsZero() && (r.Machine != "" || !cordoned)
}
