package control

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/musterhq/muster/reconciler/intent"
	"github.com/musterhq/muster/reconciler/model"
	"github.com/musterhq/muster/reconciler/quota"
	"github.com/musterhq/muster/schema"
)

// Memo is what one step finds out that spares the next one work: which jobs are
// idle, the verdict of admission, and the cell as placement sees it. It is
// derived: documents and reports are replaced and never written to, so what was
// found out holds for as long as it was of the same ones. A step without a Memo
// decides the same, but for the choice between machines that are about as good.
// The zero Memo is empty. A Memo goes with one State and one Observed, and
// belongs to one goroutine at a time.
type Memo struct {
	mirror    *mirror
	machines  map[string]machineMemo
	names     []string                           // of machines, sorted
	jobs      map[schema.JobName]*idleJob        // idle
	on        map[string]map[schema.JobName]bool // of them, by machine
	empty     map[string]bool                    // machines that get no tasks, and were found to have none
	orders    map[string]*ordersMemo
	admission *admissionMemo
	suspended map[string]*schema.Suspension
	combed    map[string]bool // machines without generations of before a restore, see survivors
	several   bool            // machines were up, so that tasks could be spread
}

// machineMemo is how a machine was when a step last looked at it.
type machineMemo struct {
	heard *model.LastReport
	up    bool
}

// ordersMemo is what is declared of a machine, and what that was a function of.
type ordersMemo struct {
	record  *schema.MachineRecord
	desired *intent.Desired
	orders  intent.MachineSpec
}

// idleJob is a job of which nothing has to be done before one of these changes or
// until has come.
type idleJob struct {
	record   *schema.JobRecord
	chunks   []*schema.Chunk
	machines []string
	until    deadline
	left     time.Duration // until the time of day of until, when the job came to rest
}

// admissionMemo is a verdict that changed nothing, and what it was a function
// of.
type admissionMemo struct {
	desired  *intent.Desired
	jobs     map[schema.JobName]*schema.JobRecord
	machines map[string]*schema.MachineRecord
	verdict  quota.Admission
}

// machineNames returns the names of all machines, sorted.
func (m *Memo) machineNames(s *model.State) []string {
	same := len(m.names) == len(s.Machines)
	for i := 0; same && i < len(m.names); i++ {
		same = s.Machines[m.names[i]] != nil
	}
	if !same {
		m.names = s.MachineNames()
	}
	return m.names
}

// invalidate finds the jobs that are not idle any more since a machine that holds
// tasks of theirs has changed, or says other things of them.
func (s *step) invalidate() {
	m := s.memo
	if m.machines == nil {
		m.machines, m.jobs, m.on = map[string]machineMemo{}, map[schema.JobName]*idleJob{}, map[string]map[schema.JobName]bool{}
	}
	for task := range s.released {
		m.wakeUp(task.JobName)
	}
	if !maps.Equal(m.suspended, s.base.Suspensions) {
		m.suspended = maps.Clone(s.base.Suspensions)
		for name := range m.jobs { // what had no leave may have it now
			m.wakeUp(name)
		}
	}
	for job := range s.asked {
		m.wakeUp(job)
	}
	if several := len(s.up) > 1; several != m.several {
		m.several = several
		for name := range m.jobs { // when it is to be looked at for repair depends on it
			m.wakeUp(name)
		}
	}
	for _, name := range s.names {
		was, known := m.machines[name]
		is := machineMemo{s.in.Observed.Last(name), s.isUp(name)}
		switch {
		case !known || is.up != was.up:
			for job := range m.on[name] {
				m.wakeUp(job)
			}
		case is.heard != was.heard:
			m.compare(was.heard, is.heard)
		}
		m.machines[name] = is
	}
}

// compare wakes up the jobs of which two reports say different things.
func (m *Memo) compare(was, is *model.LastReport) {
	if was == nil || is == nil {
		return // then its health has changed, too
	}
	a, b := was.Report.Tasks, is.Report.Tasks
	if len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0]) {
		return
	}
	for i := range b {
		before, ok := was.Tasks[b[i].Generation]
		if !ok || !before.Since.Equal(is.Tasks[b[i].Generation].Since) || !sameStanding(before.TaskStatus, &b[i]) {
			m.wakeUp(b[i].Task.JobName)
		}
	}
	for i := range a {
		if _, ok := is.Tasks[a[i].Generation]; !ok {
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

// wakeUp says that a job has to be looked at.
func (m *Memo) wakeUp(job schema.JobName) {
	r := m.jobs[job]
	if r == nil {
		return
	}
	delete(m.jobs, job)
	for _, name := range r.machines {
		delete(m.on[name], job)
	}
}

// atRest reports whether nothing has to be done of a job.
func (s *step) atRest(name schema.JobName) bool {
	r := s.memo.jobs[name]
	if r == nil {
		return false
	}
	_, changed := s.jobs[name]
	same := !changed && r.record == s.base.Jobs[name] && len(r.chunks) == s.spans[name] && r.lasts(s.now) && !lastOf(r.record).After(s.now)
	for n := 0; same && n < len(r.chunks); n++ {
		same = r.chunks[n] == s.base.Chunks[model.ChunkName{Job: name, Number: n}]
	}
	if !same {
		s.memo.wakeUp(name)
		return false
	}
	s.wake(r.until.monotonic)
	s.wake(r.until.wall)
	return true
}

// lasts reports whether until is still to come. When more is left than there was,
// the clock was set back: see ahead.
func (r *idleJob) lasts(now time.Time) bool {
	timer, day := r.until.monotonic, r.until.wall
	return (timer.IsZero() || now.Before(timer)) && (day.IsZero() || now.Before(day) && day.Sub(now) <= r.left)
}

// markIdle remembers that a job is idle, if the step has changed nothing of it
// and nothing of it is under way.
func (s *step) markIdle(name schema.JobName) {
	record := s.base.Jobs[name]
	if _, changed := s.jobs[name]; changed || record == nil || record.Admitted == "" || s.asking[name] || len(s.asked[name]) > 0 || s.base.Data[record.Admitted].Kind == schema.System {
		return
	}
	r := &idleJob{record: record, until: s.wakes[name]}
	r.left = r.until.wall.Sub(s.now)
	on := map[string]bool{}
	for n := range s.spans[name] {
		key := model.ChunkName{Job: name, Number: n}
		if s.chunks[key] != nil {
			return
		}
		c := s.base.Chunks[key]
		r.chunks = append(r.chunks, c)
		for i := 0; c != nil && i < len(c.Tasks); i++ {
			t := &c.Tasks[i]
			if t.Stop != nil || t.Machine != "" && t.Data != record.Admitted {
				return
			}
			if t.Machine != "" {
				on[t.Machine] = true
			}
		}
	}
	r.machines = slices.Collect(maps.Keys(on))
	s.memo.jobs[name] = r
	for _, machine := range r.machines {
		if s.memo.on[machine] == nil {
			s.memo.on[machine] = map[schema.JobName]bool{}
		}
		s.memo.on[machine][name] = true
	}
}

// verdict returns the verdict on the desired jobs; settled says that it changes
// nothing.
func (s *step) verdict() (a quota.Admission, settled bool) {
	desired := s.desired
	if m := s.memo.admission; m != nil && len(s.jobs) == 0 && m.desired == desired && maps.Equal(m.jobs, s.base.Jobs) && maps.Equal(m.machines, s.base.Machines) &&
		(m.verdict.Next.IsZero() || s.now.Before(m.verdict.Next)) {
		return m.verdict, true
	}
	s.memo.admission = nil
	a, s.retained = quota.Question{State: s.base, Desired: desired, Records: s.records(), Now: s.now}.Verdict()
	return a, false
}

// rememberVerdict keeps a verdict that changed nothing.
func (s *step) rememberVerdict() {
	if len(s.jobs) == 0 {
		s.memo.admission = &admissionMemo{s.desired, maps.Clone(s.base.Jobs), maps.Clone(s.base.Machines), s.out.Admission}
	}
}

// Audit holds a memo, and what in says is desired, against what is found out from
// nothing, after the writes of the step that filled it were stored. It errs with the
// first difference. Tests and the simulation call it after each step.
func (m *Memo) Audit(in Input) error {
	in.Memo = nil
	fresh := newStep(in)
	fresh.surveyMachines()
	want := fresh.snapshot().Describe()
	in.Memo = m
	kept := newStep(in)
	kept.surveyMachines()
	for i, line := range kept.snapshot().Describe() {
		if i >= len(want) || line != want[i] {
			return fmt.Errorf("the kept snapshot says %q: want %q", line, want[min(i, len(want)-1)])
		}
	}
	return intent.Audit(in.State, kept.desired)
}
