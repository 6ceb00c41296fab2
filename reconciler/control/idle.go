package control

import (
	"maps"
	"slices"
	"time"

	"github.com/musterhq/muster/reconciler/control/facts"
	"github.com/musterhq/muster/reconciler/control/snapshot"
	"github.com/musterhq/muster/reconciler/model"
	"github.com/musterhq/muster/schema"
)

// idleJobs are the jobs of which nothing has to be done, as a step leaves them to the
// next one: for some of them tasks wait for room. The zero value has none.
type idleJobs struct {
	machines  map[string]machineMemo
	jobs      map[schema.JobName]*idleJob
	on        map[string]map[schema.JobName]bool // of them, by machine
	active    map[schema.JobName]bool            // all others; some may be gone
	sorted    []schema.JobName                   // active in order; nil when others have come or gone
	waiting   []*idleJob                         // those whose tasks ask for machines, by name; some may be over
	fresh     []*idleJob                         // those of them that are not in waiting yet
	due       dueJobs
	suspended map[string]*schema.Suspension
	several   bool // machines were up, so that tasks could be spread
	written   int  // see model.State.WrittenSince
	now       time.Time
	changes   int // see facts.MachinesChangedSince
	// even are the jobs whose spread needs no repair while the same machines are up: those of
	// places, see facts.Places.
	even   map[schema.JobName]bool
	places uint64
}

// machineMemo is how a machine was when a step last looked at it.
type machineMemo struct {
	report *model.LastReport
	up     bool
}

// idleJob is a job of which nothing has to be done before one of these changes or
// until has come, but to ask for machines.
type idleJob struct {
	name     schema.JobName
	machines []string
	until    facts.Until
	asks     []snapshot.Ask
	over     bool // it is idle no more
}

// activity says which jobs have to be looked at.
type activity struct {
	pass
	kept *idleJobs
	busy map[schema.JobName]bool // jobs that are not idle, whatever their records say
}

func newActivity(p pass, kept *idleJobs) *activity {
	return &activity{p, kept, map[schema.JobName]bool{}}
}

// keep has a job looked at in the next step, too.
func (s *activity) keep(job schema.JobName) {
	s.kept.wakeUp(job)
	s.busy[job] = true
}

// keepEven has a job looked at again once other machines are up, when it is its turn.
func (s *activity) keepEven(job schema.JobName) { s.kept.even[job] = true }

// invalidate finds the jobs that are not idle any more since a machine that holds
// tasks of theirs has changed, or says other things of them.
func (s *activity) invalidate(released map[schema.TaskName]string) {
	m := s.kept
	s.begin()
	for task := range released {
		m.wakeUp(task.JobName)
	}
	if !maps.Equal(m.suspended, s.Base.Suspensions) {
		m.suspended = maps.Clone(s.Base.Suspensions)
		m.wakeAll() // what had no leave may have it now
	}
	if several := len(s.Up()) > 1; several != m.several {
		m.several = several
		m.wakeAll() // when a job is to be looked at for repair depends on it
	}
	for _, name := range s.changedMachines() {
		s.look(name)
	}
	if places := s.Places(); places != m.places {
		m.places = places
		for job := range m.even {
			m.looksAgain(job, s.Clock)
		}
		clear(m.even)
	}
}

// looksAgain has an idle job looked at for its spread when it is its turn.
func (m *idleJobs) looksAgain(job schema.JobName, clock facts.Clock) {
	r, began := m.jobs[job], lookedAt(job, clock.Now)
	switch {
	case r == nil: // it is looked at anyway
	case clock.Now.Before(began.Add(repairLooks)):
		m.wakeUp(job)
	default:
		r.until = r.until.Or(clock.At(began.Add(repairEvery)))
		m.due.add(job, r, m.jobs)
	}
}

// changedMachines returns those that may be other than when the step before looked at them.
func (s *activity) changedMachines() []string {
	names, next, ok := s.MachinesChangedSince(s.kept.changes)
	if s.kept.changes = next; !ok {
		return s.Machines()
	}
	return names
}

// look wakes up the jobs that have to be looked at for what has become of a machine.
func (s *activity) look(name string) {
	m := s.kept
	was, known := m.machines[name]
	is := machineMemo{s.Observed.Last(name), s.IsUp(name)}
	switch {
	case !known || is.up != was.up:
		for job := range m.on[name] {
			m.wakeUp(job)
		}
	case is.report != was.report:
		m.compare(was.report, is.report)
	}
	if m.machines[name] = is; s.Base.Machines[name] == nil {
		delete(m.machines, name)
	}
}

// compare wakes up the jobs of which two reports say different things.
func (m *idleJobs) compare(was, is *model.LastReport) {
	if was == nil || is == nil {
		return // then its health has changed, too
	}
	a, b := was.Report.Tasks, is.Report.Tasks
	if len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0]) {
		return
	}
	for i := range b {
		before := was.Task(b[i].Generation)
		if before.TaskStatus == nil || !before.Since.Equal(is.Task(b[i].Generation).Since) || !sameStanding(before.TaskStatus, &b[i]) {
			m.wakeUp(b[i].Task.JobName)
		}
	}
	for i := range a {
		if is.Task(a[i].Generation).TaskStatus == nil {
			m.wakeUp(a[i].Task.JobName)
		}
	}
}

// sameStanding reports whether two statuses of a generation are the same to a
// step.
func sameStanding(a, b *schema.TaskStatus) bool {
	return a.Task == b.Task && a.State == b.State && a.Incarnation == b.Incarnation && a.Health == b.Health &&
		(a.End == nil) == (b.End == nil) && len(a.Exits) == len(b.Exits)
}

// wakeUp says that a job has to be looked at, if there is one of that name.
func (m *idleJobs) wakeUp(job schema.JobName) {
	if !m.active[job] {
		m.active[job], m.sorted = true, nil
	}
	delete(m.even, job)
	r := m.jobs[job]
	if r == nil {
		return
	}
	r.over = true
	delete(m.jobs, job)
	for _, name := range r.machines {
		delete(m.on[name], job)
	}
}

// wakeAll says that each job has to be looked at.
func (m *idleJobs) wakeAll() {
	for name := range m.jobs {
		m.wakeUp(name)
	}
}

// begin has the jobs looked at of which something was stored since the last step, and
// those whose time has come.
func (s *activity) begin() {
	m := s.kept
	names, next, ok := s.Base.WrittenSince(m.written)
	if !ok || m.jobs == nil {
		*m = idleJobs{machines: map[string]machineMemo{}, jobs: map[schema.JobName]*idleJob{}, on: map[string]map[schema.JobName]bool{}, active: map[schema.JobName]bool{}, even: map[schema.JobName]bool{}}
		for name := range s.Base.Jobs {
			m.active[name] = true
		}
		names = nil
	}
	m.written = next
	for _, name := range names {
		m.wakeUp(name)
	}
	// What was to come at a time of day may be over when the clock was set back.
	if s.Now.Round(0).Before(m.now) {
		m.wakeAll()
	}
	m.now = s.Now.Round(0)
	for _, name := range m.due.pop(s.Now, m.jobs) {
		m.wakeUp(name)
	}
}

// notIdle returns the jobs that have to be looked at now, sorted: those that this step has
// changed among them.
func (s *activity) notIdle() []schema.JobName {
	for _, name := range s.ChangedJobs() {
		s.kept.wakeUp(name)
	}
	for _, name := range s.ChangedChunks() {
		s.kept.wakeUp(name.Job) // an idle job may have got tasks: those of a restored cell
	}
	names := make([]schema.JobName, 0, len(s.kept.active))
	for _, name := range s.kept.inOrder() {
		switch {
		case s.Job(name) != nil:
			names = append(names, name)
		case s.Base.Jobs[name] == nil:
			delete(s.kept.active, name)
			s.kept.sorted = nil
		}
	}
	s.bookCell(s.kept.due.first(s.kept.jobs))
	return names
}

// waiters returns the idle jobs whose tasks ask for machines, by name. The slice is not written
// to before the next call.
func (m *idleJobs) waiters() []*idleJob {
	over := func(r *idleJob) bool { return r.over }
	m.waiting, m.fresh = slices.DeleteFunc(m.waiting, over), slices.DeleteFunc(m.fresh, over)
	if len(m.fresh) > 0 { // sorting what is nearly sorted would compare more names
		slices.SortFunc(m.fresh, func(a, b *idleJob) int { return a.name.Compare(b.name) })
		m.waiting, m.fresh = merged(m.waiting, m.fresh), nil
	}
	return m.waiting
}

// merged returns two lists of jobs, each sorted by name, as one.
func merged(a, b []*idleJob) []*idleJob {
	out := make([]*idleJob, 0, len(a)+len(b))
	for _, r := range b {
		for len(a) > 0 && a[0].name.Compare(r.name) < 0 {
			out, a = append(out, a[0]), a[1:]
		}
		out = append(out, r)
	}
	return append(out, a...)
}

// joined returns active with the jobs that were waiting and that this step has changed since.
func (s *activity) joined(active []schema.JobName) []schema.JobName {
	var more []schema.JobName
	join := func(name schema.JobName) {
		if r := s.kept.jobs[name]; r != nil && len(r.asks) > 0 {
			s.kept.wakeUp(name)
			more = append(more, name)
		}
	}
	for _, name := range s.ChangedJobs() {
		join(name)
	}
	for _, name := range s.ChangedChunks() {
		join(name.Job)
	}
	if len(more) == 0 {
		return active
	}
	more = append(more, active...)
	slices.SortFunc(more, schema.JobName.Compare)
	return more
}

// inOrder returns the active jobs, sorted. The slice is not written to.
func (m *idleJobs) inOrder() []schema.JobName {
	if m.sorted == nil {
		m.sorted = slices.SortedFunc(maps.Keys(m.active), schema.JobName.Compare)
	}
	return m.sorted
}

// markIdle remembers that a job is idle, if the step has changed nothing of it
// and nothing of it is in progress. asks are those of its tasks: if there are any, it only waits.
func (s *activity) markIdle(name schema.JobName, asks []snapshot.Ask) {
	record := s.Base.Jobs[name]
	if s.JobChanged(name) || record == nil || record.Admitted == "" || s.busy[name] || len(s.Asked[name]) > 0 || s.Base.Data[record.Admitted].Kind == schema.System || lastOf(record).After(s.Now) {
		return
	}
	if len(asks) > 0 && !s.mayWait(record) {
		return
	}
	r := &idleJob{name: name, until: s.timers.jobs[name], asks: slices.Clone(asks)}
	for n := range s.Span(name) {
		key := model.ChunkName{Job: name, Number: n}
		if s.ChunkChanged(key) {
			return
		}
		c := s.Base.Chunks[key]
		if c != nil {
			r.machines = slices.Grow(r.machines, len(c.Tasks))
		}
		for i := 0; c != nil && i < len(c.Tasks); i++ {
			t := &c.Tasks[i]
			if t.Stop != nil || t.Machine != "" && t.Data != record.Admitted || len(asks) > 0 && movesTo(t) != "" {
				return
			}
			if t.Machine != "" {
				r.machines = append(r.machines, t.Machine)
			}
		}
	}
	slices.Sort(r.machines)
	r.machines = slices.Compact(r.machines)
	s.addIdle(r)
}

// mayWait reports whether a job of which nothing has to be done but to ask for machines is to
// be so as long as nothing of it changes: what it asks for is a function of it alone, and not of
// others with which it goes together, of allocs, or of how far its rollout has come.
func (s *activity) mayWait(record *schema.JobRecord) bool {
	want := s.Base.Data[record.Admitted]
	return record.Rollout == nil && (!facts.Rolls(want) || record.Good == record.Admitted) &&
		(want.Kind == schema.Batch || want.Kind == schema.Service) && want.AllocSet == "" && !want.Gathers()
}

// addIdle adds a job that is active no more.
func (s *activity) addIdle(r *idleJob) {
	name := r.name
	s.kept.jobs[name] = r
	delete(s.kept.active, name)
	s.kept.sorted = nil
	s.kept.due.add(name, r, s.kept.jobs)
	if len(r.asks) > 0 {
		s.kept.fresh = append(s.kept.fresh, r)
	}
	for _, machine := range r.machines {
		if s.kept.on[machine] == nil {
			s.kept.on[machine] = map[schema.JobName]bool{}
		}
		s.kept.on[machine][name] = true
	}
}
