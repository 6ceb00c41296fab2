package control

import (
	"cmp"
	"fmt"
	"time"

	"github.com/musterhq/muster/schema"
)

// The disruption budget of a job binds all that muster stops by its own choice:
// updates, drains, moves. Each such stop goes through disrupt, and nothing else
// does, but that a drain stops system jobs' tasks, and what is left at its deadline,
// with disruptAnyway: what the owner asks for (a job removed, or with fewer tasks), what
// happens (a failure, a lost machine) are not bound by it, but the tasks that are
// down for them count. Preemption keeps to the budgets that jobs declare as long as
// any victims do that make room: see spare.

// budgetSpan is the time that a stop counts towards a budget's PerHour.
const budgetSpan = time.Hour

// disruptions are what a job has lost, as the draft has it after so many changes.
type disruptions struct {
	changes int
	down    map[int]bool // indices that are wanted and do not serve
}

// disrupt stops a task by muster's choice, and reports whether it did: see
// disruptionBlocked.
func (s *step) disrupt(job schema.JobName, t schema.TaskRecord, cause schema.Cause) bool {
	if s.disruptionBlocked(job, &t) != "" {
		return false
	}
	s.disruptAnyway(job, t, cause)
	return true
}

// disruptAnyway stops a task whatever budgets say. It counts towards them.
func (s *step) disruptAnyway(job schema.JobName, t schema.TaskRecord, cause schema.Cause) {
	for _, l := range s.lostWith(job, &t) {
		s.spend(l)
	}
	b, was := s.budgets[job], s.changes[job]
	s.stop(job, t, cause)
	if b != nil && b.changes == was { // it need not be counted again
		b.changes = s.changes[job]
		b.down[t.Index] = true
	}
}

// disruptionBlocked says why a task that is assigned is not to be stopped by muster's
// choice now, "" if it may be: as far as the budgets of its job and, of an
// alloc, of the jobs inside go. A task that is known not to serve takes nothing
// of them. One on a silent machine is left alone, since it could not be told,
// and whether it serves is not known.
func (s *step) disruptionBlocked(job schema.JobName, t *schema.TaskRecord) string {
	switch {
	case t.Machine == "":
		return "it has no machine"
	case t.Stop != nil:
		return "it is stopping"
	case !s.isUp(t.Machine):
		return fmt.Sprintf("its machine %s is silent", t.Machine)
	case s.frozen(job):
		return "it is " + s.suspended.Of(job).String()
	}
	for _, l := range s.lostWith(job, t) {
		if why := s.refusal(l); why != "" {
			return why
		}
	}
	return ""
}

// mayDisrupt reports whether one more task that serves could be stopped now by
// muster's choice without the job's disruption budget being exceeded. None may of
// a suspended job.
func (s *step) mayDisrupt(job schema.JobName) bool {
	return !s.frozen(job) && s.refusal(disruption{job: job, serve: []int{-1}}) == ""
}

// disruption is what a job loses by one stop: the indices of tasks that serve.
type disruption struct {
	job   schema.JobName
	serve []int // sorted
}

// lostWith returns what jobs lose when a task, or an alloc with what runs
// inside, is stopped. Jobs inside count if they have a budget of their own.
func (s *step) lostWith(job schema.JobName, t *schema.TaskRecord) []disruption {
	var out []disruption
	if s.serves(job, t) {
		out = append(out, disruption{job, []int{t.Index}})
	}
	if s.dataOf(t.Data).Kind != schema.Allocs {
		return out
	}
	alloc := job.Task(t.Index)
	for _, name := range s.allJobs() {
		if set, inside := s.inside(name); !inside || set != job || s.dataOf(s.job(name).Admitted).Disruption == nil {
			continue
		}
		l := disruption{job: name}
		for _, u := range s.tasks(name) {
			if u.Alloc != nil && u.Machine != "" && u.Stop == nil && u.Alloc.Of(name) == alloc && s.serves(name, &u) {
				l.serve = append(l.serve, u.Index)
			}
		}
		if len(l.serve) > 0 {
			out = append(out, l)
		}
	}
	return out
}

// serves reports whether a task that is assigned may do its work, as far as is
// known; one that is not wanted any more is no loss.
func (s *step) serves(job schema.JobName, t *schema.TaskRecord) bool {
	r := s.job(job)
	if r == nil || r.Admitted == "" || t.Done != nil || !s.wants(s.dataOf(r.Admitted), t) {
		return false
	}
	said := s.in.Observed.Task(t.Machine, job.Task(t.Index), t.Generation)
	return !s.isUp(t.Machine) || Works(said.TaskStatus)
}

// refusal says why a job's budget does not allow a loss now, "" if it does. The
// step comes back when the hour's bound would.
func (s *step) refusal(l disruption) string {
	r := s.job(l.job)
	if r == nil || r.Admitted == "" {
		return "" // its owner has given it up
	}
	want := s.dataOf(r.Admitted)
	down := s.downOf(l.job, want)
	others := len(down)
	for _, i := range l.serve {
		if down[i] { // it works, but not for long enough to count as healthy
			others--
		}
	}
	if most := want.MayBeDown(); others+len(l.serve) > most {
		return fmt.Sprintf("%s: %d of the tasks of %s are down, %d would be stopped, and at most %d may be down", budgetSays, others, l.job.Short(), len(l.serve), most)
	}
	return s.hourly(l, want)
}

// bounded returns the data of a job that has declared a budget, nil of any other.
func (s *step) bounded(name schema.JobName) *schema.Job {
	r := s.job(name)
	if r == nil || r.Admitted == "" || s.dataOf(r.Admitted).Disruption == nil {
		return nil
	}
	return s.dataOf(r.Admitted)
}

// spare tells placement how many more tasks of a job may be preempted, and whether
// the job has said so at all.
func (s *step) spare(name schema.JobName) (left int, bound bool) {
	want := s.bounded(name)
	if want == nil {
		return 0, false
	}
	left = want.MayBeDown() - len(s.downOf(name, want))
	if want.Disruption.PerHour > 0 {
		spent, _ := s.spent(name)
		left = min(left, want.Disruption.PerHour-spent)
	}
	return max(0, left), true
}

// overspend takes the loss of a task that is preempted into the records of the
// jobs that have a budget, and says which of these it exceeds, "" if none.
func (s *step) overspend(job schema.JobName, t *schema.TaskRecord) (over string) {
	for _, l := range s.lostWith(job, t) {
		if s.bounded(l.job) != nil {
			over = cmp.Or(over, s.refusal(l))
			s.spend(l)
		}
	}
	return over
}

// budgetSays begins what is said of a stop that a budget does not allow.
const budgetSays = "disruption budget"

// hourly is refusal for what a budget says of an hour.
func (s *step) hourly(l disruption, want *schema.Job) string {
	if want.Disruption == nil || want.Disruption.PerHour == 0 {
		return ""
	}
	spent, next := s.spent(l.job)
	if most := want.Disruption.PerHour; spent+len(l.serve) > most {
		s.wake(next)
		text := fmt.Sprintf("%s: %s of %s %s stopped within the last hour, %d would be, and at most %d may be",
			budgetSays, schema.Count(spent, "task"), l.job.Short(), schema.Verb(spent, "was", "were"), len(l.serve), most)
		if !next.IsZero() {
			text += ": the first of them counts until " + next.UTC().Format(time.TimeOnly)
		}
		return text
	}
	return ""
}

// spent returns how many stops of the last hour count, and when the oldest will
// not any more.
func (s *step) spent(job schema.JobName) (n int, next time.Time) {
	for _, d := range s.job(job).Disrupted {
		until := d.At.Add(budgetSpan)
		if !s.now.Before(until) {
			continue
		}
		n += d.Tasks
		if next.IsZero() {
			next = until
		}
	}
	return n, next
}

// spend takes a loss into the record of its job, which is stored before the
// task's: a crash between the two counts a stop that was not, and never forgets
// one.
func (s *step) spend(l disruption) {
	was := s.job(l.job)
	if was == nil || was.Admitted == "" {
		return
	}
	if d := s.dataOf(was.Admitted).Disruption; d == nil || d.PerHour == 0 {
		return
	}
	r := *was
	r.Disrupted = nil
	for _, d := range was.Disrupted {
		if s.now.Before(d.At.Add(budgetSpan)) {
			r.Disrupted = append(r.Disrupted, d)
		}
	}
	r.Disrupted = withSpent(r.Disrupted, schema.Disrupted{At: s.now, Tasks: len(l.serve)})
	s.setJob(l.job, &r)
}

// withSpent adds d to a list that is sorted by time, where d is the last: to that
// of the same minute, if there is one.
func withSpent(list []schema.Disrupted, d schema.Disrupted) []schema.Disrupted {
	if n := len(list); n > 0 && list[n-1].At.Truncate(time.Minute).Equal(d.At.Truncate(time.Minute)) {
		list[n-1] = schema.Disrupted{At: d.At, Tasks: list[n-1].Tasks + d.Tasks}
		return list
	}
	return append(list, d)
}

// downOf returns the indices of a job's tasks that are wanted and do not serve,
// for whatever reason: those that have no place, are stopping, are on a silent
// machine, or do not work, or not yet for as long as the update policy wants.
// A job without a budget of its own does not count those which have no place for
// longer than a rollout would wait for: they may never get one.
func (s *step) downOf(name schema.JobName, want *schema.Job) map[int]bool {
	if b := s.budgets[name]; b != nil && b.changes == s.changes[name] {
		return b.down
	}
	b := &disruptions{changes: s.changes[name], down: map[int]bool{}}
	known := map[int]bool{}
	for _, t := range s.tasks(name) {
		known[t.Index] = true
		if s.wants(want, &t) && t.Done == nil && s.isDown(name, want, &t) {
			b.down[t.Index] = true
		}
	}
	if want.Disruption != nil && want.Kind != schema.System {
		for i := range want.Tasks {
			if !known[i] {
				b.down[i] = true
			}
		}
	}
	if s.budgets == nil {
		s.budgets = map[schema.JobName]*disruptions{}
	}
	s.budgets[name] = b
	return b.down
}

// isDown reports whether a task that is wanted does not serve.
func (s *step) isDown(name schema.JobName, want *schema.Job, t *schema.TaskRecord) bool {
	switch {
	case t.Machine == "":
		return want.Disruption != nil || s.holdsUp(*t, s.job(name).Admitted)
	case t.Stop != nil || !s.isUp(t.Machine):
		return true
	}
	said := s.in.Observed.Task(t.Machine, name.Task(t.Index), t.Generation)
	if t.Data != s.job(name).Admitted {
		return !s.worksFor(said, 0) // what it waits for is not to be healthy for longer
	}
	return !s.healthy(said, want)
}
