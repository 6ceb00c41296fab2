package plan

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/musterhq/muster/reconciler/model"
	"github.com/musterhq/muster/schema"
)

// How long a simulated machine takes for what its view asks. A health check has a result no
// earlier than startsWithin after the start.
const (
	startsWithin = 100 * time.Millisecond
	stopsWithin  = 100 * time.Millisecond
)

// machine is a simulated machine: it runs what its view says.
type machine struct {
	report schema.Report // the newest; its tasks are replaced as a whole, never written to
	epoch  uint64
	// begun are the tasks by generation, of a machine of which anything has become since it goes
	// on: nil until it is asked for, most have only what report says. See tasks.
	begun   map[uint64]*task
	news    bool   // report is older than view or tasks
	changed bool   // report is older than tasks
	silent  bool   // it sends no report
	version uint64 // of the view that it acts on
	// due is when something happens next to one of its tasks, zero if never: if counted says that
	// it is of the tasks as they are.
	due     time.Time
	counted bool
}

// task is one generation on a machine.
type task struct {
	schema.TaskStatus
	next  time.Time                // when something happens to it; zero if never
	what  func(*schema.TaskStatus) // happens then
	stops bool
	// fails says that what it is started from does not work, and lasts after how long it ends
	// by itself; 0 is never.
	fails bool
	lasts time.Duration
	took  func(*schema.Job) time.Duration // see behaviour; nil of what was not assigned since
	job   *schema.Job                     // nil of what ran before and was not assigned since
	life  *Life                           // nil if it is not known
	turns int                             // of life that are over
	// checks says that next is when its health check has a result.
	checks bool
}

// newMachine returns a machine that goes on from what it said last.
func newMachine(saved *model.SavedMachine, epoch uint64) *machine {
	return &machine{report: *saved.Report, epoch: epoch, news: true, changed: !slices.IsSortedFunc(saved.Report.Tasks, func(a, b schema.TaskStatus) int { return inOrder(&a, &b) })}
}

// tasks are those that the machine has, by generation.
func (m *machine) tasks() map[uint64]*task {
	if m.begun == nil {
		all := make([]task, len(m.report.Tasks))
		m.begun = make(map[uint64]*task, len(all))
		for i := range all {
			all[i].TaskStatus = m.report.Tasks[i]
			m.begun[all[i].Generation] = &all[i]
		}
	}
	return m.begun
}

// asks reports whether a view asks for anything else than what goes on already, on a machine of
// which nothing has become yet.
func (m *machine) asks(v *schema.View) bool {
	if len(v.Assignments) != len(m.report.Tasks) {
		return true
	}
	has := make(map[uint64]*schema.TaskStatus, len(m.report.Tasks))
	for i := range m.report.Tasks {
		has[m.report.Tasks[i].Generation] = &m.report.Tasks[i]
	}
	return slices.ContainsFunc(v.Assignments, func(a schema.Assignment) bool {
		s := has[a.Generation]
		return s == nil || s.State != schema.Running || s.Health == schema.HealthUnknown || a.Stop != nil || s.Data != a.Data || !slices.Equal(s.Brought, a.Bring)
	})
}

func (m *machine) name() string { return m.report.Machine.Name }

func (m *machine) compare(o *machine) int { return strings.Compare(m.name(), o.name()) }

// behaviour says how tasks behave that are started.
type behaviour struct {
	fails func(*schema.Assignment) bool   // they do not work
	lasts func(*schema.Job) time.Duration // they end after so long; 0 is never
	took  func(*schema.Job) time.Duration // until tasks with such a health check were healthy; 0 is not known
	life  func(schema.TaskName, uint64) *Life
}

// take has a machine act on a view at now.
func (m *machine) take(v *schema.View, now time.Time, is behaviour) {
	m.version, m.news = v.Version, true
	if m.begun == nil && !m.asks(v) {
		return
	}
	m.counted = false
	tasks := m.tasks()
	assigned := make(map[uint64]bool, len(v.Assignments))
	for i := range v.Assignments {
		a := &v.Assignments[i]
		assigned[a.Generation] = true
		t := tasks[a.Generation]
		if t == nil {
			m.changed = true
			t = &task{fails: is.fails(a), lasts: is.lasts(a.Job), TaskStatus: schema.TaskStatus{Task: a.Task, Generation: a.Generation, State: schema.Starting, Ports: a.Ports, Devices: a.Devices, Alloc: a.Alloc}}
			tasks[a.Generation] = t
			t.job = a.Job
			if t.life = is.life(a.Task, a.Generation); t.life != nil {
				t.live(now)
			} else {
				t.then(now.Add(startsWithin), func(s *schema.TaskStatus) { t.run(s, t.next) })
			}
		} else if t.State == schema.Starting && t.next.IsZero() && t.life == nil { // it was about to when this began
			t.then(now.Add(startsWithin), func(s *schema.TaskStatus) { t.run(s, t.next) })
		}
		m.changed = m.changed || t.Data != a.Data || !slices.Equal(t.Brought, a.Bring)
		had := t.health()
		t.job, t.Data, t.Brought, t.took = a.Job, a.Data, a.Bring, is.took
		if t.State == schema.Running && !t.stops && t.life == nil {
			t.recheck(had, now)
		}
		if a.Stop != nil && !t.stops && t.State != schema.Dead {
			m.changed = true
			t.stop(a.Stop, now)
		}
	}
	for g, t := range tasks {
		switch {
		case assigned[g]:
		case t.State == schema.Dead:
			m.changed = true
			delete(tasks, g)
		case !t.stops:
			m.changed = true
			t.stop(&schema.Cause{Kind: schema.CauseSuperseded, At: now}, now)
		}
	}
}

// then has something happen to t at a time.
func (t *task) then(at time.Time, what func(*schema.TaskStatus)) { t.next, t.what = at, what }

// run begins the first incarnation.
func (t *task) run(s *schema.TaskStatus, now time.Time) {
	s.State, s.Incarnation, s.StartedAt, s.PID = schema.Running, 1, now, 1
	t.goOn(now)
	switch h := t.health(); {
	case h != nil:
		s.Health = schema.HealthUnknown
		t.check(now, now)
	case t.fails:
		t.then(now.Add(startsWithin), func(s *schema.TaskStatus) {
			exit := schema.Exit{Incarnation: 1, Code: 1, At: now.Add(startsWithin), Message: "as is simulated"}
			t.die(s, schema.Cause{Kind: schema.CauseFailed, Exit: &exit, At: exit.At})
		})
	}
}

// check has the check of t, whose health is not known, have its result as soon as it can that is
// made since a time, or as soon after a start as such tasks had it before, unless t ends before.
func (t *task) check(since, now time.Time) {
	h := t.health().Timed()
	after, health, message := h.HealthyAfter(), schema.Healthy, ""
	if t.fails {
		after, health, message = h.UnhealthyAfter(), schema.Unhealthy, "as is simulated"
	}
	if !t.fails && t.life == nil && since.Equal(t.StartedAt) { // else the check has begun later, or what is known is less
		after = max(after, t.took(t.job))
	}
	at := since.Add(max(after, startsWithin))
	if soon := now.Add(startsWithin); at.Before(soon) {
		at = soon
	}
	if !t.next.IsZero() && t.next.Before(at) {
		return
	}
	t.checks = true
	t.then(at, func(s *schema.TaskStatus) {
		s.Health, s.HealthMessage, s.Unchecked = health, message, false
		if t.checks = false; t.life != nil {
			t.live(at)
		} else {
			t.goOn(s.StartedAt)
		}
	})
}

// recheck has the check of a running task go on after its job's data was taken, as an agent does:
// what is known of its health stays, and what another check has counted does not.
func (t *task) recheck(had *schema.Health, now time.Time) {
	switch h := t.health(); {
	case h == nil && t.Health != "":
		t.Health, t.HealthMessage, t.Unchecked = "", "", false
		t.goOn(t.StartedAt)
	case h == nil:
	case t.Health == "":
		t.Health = schema.HealthUnknown
		t.check(now, now)
	case t.Health != schema.HealthUnknown:
	case !t.checks: // it was under way when this began
		t.check(t.StartedAt, now)
	case schema.DigestOf(had) != schema.DigestOf(h):
		t.goOn(t.StartedAt)
		t.check(now, now)
	}
}

// goOn has t run until it ends by itself, or for good.
func (t *task) goOn(since time.Time) {
	t.checks = false
	if t.then(time.Time{}, nil); t.lasts == 0 {
		return
	}
	t.then(since.Add(t.lasts), func(s *schema.TaskStatus) {
		exit := schema.Exit{Incarnation: 1, At: t.next}
		t.die(s, schema.Cause{Kind: schema.CauseFinished, Exit: &exit, At: exit.At})
	})
}

func (t *task) health() *schema.Health {
	if t.job == nil {
		return nil
	}
	return t.job.Task.Health
}

// stop has t end.
func (t *task) stop(cause *schema.Cause, now time.Time) {
	t.stops = true
	if t.State == schema.Running {
		t.State = schema.Stopping
	}
	ends := schema.Cause{Kind: cause.Kind, Message: cause.Message, By: cause.By, At: now.Add(stopsWithin)}
	if is := t.life.stopped(); is != nil {
		ends.Kind, ends.At = is.End, slices.MaxFunc([]time.Time{is.At, now}, time.Time.Compare)
	}
	t.then(ends.At, func(s *schema.TaskStatus) { t.die(s, ends) })
}

func (t *task) die(s *schema.TaskStatus, cause schema.Cause) {
	s.State, s.PID, s.Health, s.End = schema.Dead, 0, "", &cause
	t.then(time.Time{}, nil)
}

// advance has what is due at now happen, and returns the jobs of which a task is healthy by that.
func (m *machine) advance(now time.Time) (healthy []schema.JobName) {
	if m.counted && (m.due.IsZero() || m.due.After(now)) {
		return nil
	}
	m.due, m.counted = time.Time{}, true
	for _, t := range m.begun {
		for !t.next.IsZero() && !t.next.After(now) {
			was := t.Health
			t.what(&t.TaskStatus)
			m.news, m.changed = true, true
			if t.Health == schema.Healthy && was != t.Health {
				healthy = append(healthy, t.Task.JobName)
			}
		}
		if !t.next.IsZero() && (m.due.IsZero() || t.next.Before(m.due)) {
			m.due = t.next
		}
	}
	return healthy
}

// says returns what the machine reports.
func (m *machine) says() schema.Report {
	if m.news {
		m.news = false
		m.report.View = m.version
	}
	if m.changed {
		m.changed = false
		tasks := slices.SortedFunc(maps.Values(m.tasks()), func(a, b *task) int { return inOrder(&a.TaskStatus, &b.TaskStatus) }) // a status is large
		m.report.Tasks = make([]schema.TaskStatus, len(tasks))
		for i, t := range tasks {
			m.report.Tasks[i] = t.TaskStatus
		}
	}
	return m.report
}

// inOrder is the order of tasks in a report.
func inOrder(a, b *schema.TaskStatus) int {
	return cmp.Or(a.Task.Compare(b.Task), cmp.Compare(a.Generation, b.Generation))
}
