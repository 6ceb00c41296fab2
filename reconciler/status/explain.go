package status

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/musterhq/muster/reconciler/control"
	"github.com/musterhq/muster/reconciler/control/facts"
	"github.com/musterhq/muster/reconciler/control/snapshot"
	"github.com/musterhq/muster/reconciler/intent"
	"github.com/musterhq/muster/reconciler/model"
	"github.com/musterhq/muster/reconciler/quota"
	"github.com/musterhq/muster/schema"
)

// Explanation is what `muster why` prints: a job, a task or a machine, and everything
// that made it as it is.
type Explanation struct {
	Name      string               `json:"name"`
	Job       *JobStatus           `json:"job,omitempty"` // nil if nothing of it is admitted
	Tasks     []TaskStatus         `json:"tasks"`
	Rejection *Rejection           `json:"rejection,omitempty"`
	Stale     *StalePackage        `json:"stale,omitempty"`   // of the directory that declares it
	Pending   *PendingPackage      `json:"pending,omitempty"` // likewise
	Unread    *UnreadCommit        `json:"unread,omitempty"`
	Hold      *intent.Hold         `json:"hold,omitempty"` // of its removal
	Suspended *SuspensionStatus    `json:"suspended,omitempty"`
	Warnings  []quota.Warning      `json:"warnings,omitempty"` // of its owner, at its band
	Origin    schema.Position      `json:"origin"`
	Updated   []intent.FieldChange `json:"updated,omitempty"`   // by the newest version, where tasks run older
	Avoid     map[string][]Avoided `json:"avoid,omitempty"`     // by task
	Behind    []MakesWay           `json:"behind,omitempty"`    // those of its tasks that make way for others
	Apart     []schema.Apart       `json:"apart,omitempty"`     // jobs that its tasks are kept apart from for a while
	Placement *snapshot.Placing    `json:"placement,omitempty"` // of one task
	Spread    string               `json:"spread,omitempty"`    // what is wrong with it
	Connect   *Connecting          `json:"connect,omitempty"`   // left out where no policy refuses anything
	Room      string               `json:"room,omitempty"`      // by which moves a task that waits would get some
	Machine   *MachineStatus       `json:"machine,omitempty"`   // that is explained, and then nothing of a job is
	Emptying  string               `json:"emptying,omitempty"`  // whether the machine is emptied so that it can be switched off, and why not
}

// Avoided is a machine that a task is kept off for a while, since it failed or was
// evicted there. Where all machines are, none is.
type Avoided struct {
	Machine string    `json:"machine"`
	Until   time.Time `json:"until"`
}

// Explain returns why the job or task of the given name (user/job or
// user/job/index) is as it is; false if the cell knows of no such thing. For a
// task, machine may be one that it could run on, or is thought to; without a name
// it is what is explained.
func Explain(in DescribeInput, of *Snapshot, name, machine string) (Explanation, bool) {
	if name == "" {
		return explainMachine(in, of, machine)
	}
	job, index, isTask := model.SplitName(in.State.Cell, name)
	status := of.Brief()
	e := Explanation{Name: name, Unread: status.Unread, Tasks: []TaskStatus{}}
	if p := of.Part(job.Short()); p != nil {
		j := *p.Job
		e.Job, e.Tasks = &j, keep(p.Tasks, func(t *TaskStatus) bool { return t.Name == name || !isTask })
	}
	e.addStatus(status, job)
	if r := in.State.Jobs[job]; r != nil {
		e.Origin = r.Origin
		if data := in.State.Data[r.Admitted]; data != nil && e.Job != nil {
			e.Job.Annotations = data.Annotations
		}
		e.addRecords(in, r, index, isTask)
		e.Apart = keep(r.Apart, func(a *schema.Apart) bool { return facts.Ahead(in.Now, a.Until, facts.ApartFor) })
	}
	if d, ok := in.desired().Jobs[job]; ok {
		e.Origin = d.Origin
	}
	for i := range status.Stale {
		if status.Stale[i].Dir == path.Dir(e.Origin.Path) {
			e.Stale = &status.Stale[i]
		}
	}
	for i := range status.Pending {
		if status.Pending[i].Dir == path.Dir(e.Origin.Path) {
			e.Pending = &status.Pending[i]
		}
	}
	return e, e.place(in, job.Task(index), machine, isTask)
}

// explainMachine returns how a machine is, and whether it is emptied.
func explainMachine(in DescribeInput, of *Snapshot, name string) (e Explanation, known bool) {
	e = Explanation{Name: name, Tasks: []TaskStatus{}}
	for _, m := range of.machines {
		if m.Name == name {
			e.Machine, e.Emptying = m, control.Empties(in.facts(nil), in.Reserved, &in.Last, name)
		}
	}
	return e, e.Machine != nil
}

// place adds what placement says of one task, and reports whether the cell knows
// of what is explained.
func (e *Explanation) place(in DescribeInput, task schema.TaskName, machine string, isTask bool) (known bool) {
	if e.Job == nil && e.Rejection == nil {
		return false
	}
	f := in.facts(nil)
	e.Spread = control.Spread(f, in.Reserved, &in.Last, task.JobName)
	e.Connect = in.connecting(task.JobName, e.Tasks)
	if isTask && len(e.Tasks) > 0 {
		e.Room = control.Room(f, in.Reserved, &in.Last, task)
		e.Placement = snapshot.PlacingOf(f, in.Reserved, task, machine, control.Seed(in.State.Cell, in.State.Head.Commit))
	}
	return !isTask || len(e.Tasks) > 0
}

// addStatus adds what the status has of a job.
func (e *Explanation) addStatus(status *Status, job schema.JobName) {
	e.Warnings = keep(status.Warnings, func(w *quota.Warning) bool { return e.Job != nil && w.User == job.User && w.Band == e.Job.Band })
	for i := range status.Held {
		if _, ok := slices.BinarySearch(status.Held[i].Jobs, job.Short()); ok {
			e.Hold = &status.Held[i]
		}
	}
	for i := range status.Suspended {
		if x := &status.Suspended[i]; e.Job != nil && x.Name == e.Job.Suspended {
			e.Suspended = x
		}
	}
	for i := range status.Rejected {
		if status.Rejected[i].Job == job.Short() {
			e.Rejection = &status.Rejected[i]
		}
	}
}

// addRecords adds what the records of a job's tasks have beyond the status.
func (e *Explanation) addRecords(in DescribeInput, r *schema.JobRecord, index int, isTask bool) {
	for n := range in.State.Span(r.Name) {
		c := in.State.Chunks[model.ChunkName{Job: r.Name, Number: n}]
		if c == nil {
			continue
		}
		for i := range c.Tasks {
			t := &c.Tasks[i]
			if isTask && t.Index != index {
				continue
			}
			if t.Machine != "" && r.Admitted != "" && t.Data != r.Admitted && e.Updated == nil {
				_, e.Updated = intent.Diff(in.State.Data[t.Data], in.State.Data[r.Admitted])
			}
			e.addBehind(in, r.Name.Task(t.Index), t, in.State.Data[r.Admitted])
			e.addAvoided(in.Now, r.Name.Task(t.Index).Short(), t)
		}
	}
}

// addAvoided adds the machines that a task avoids.
func (e *Explanation) addAvoided(now time.Time, short string, t *schema.TaskRecord) {
	for _, m := range slices.Sorted(maps.Keys(t.Avoid)) {
		if facts.Ahead(now, t.Avoid[m], facts.AvoidFor) {
			if e.Avoid == nil {
				e.Avoid = map[string][]Avoided{}
			}
			e.Avoid[short] = append(e.Avoid[short], Avoided{m, t.Avoid[m]})
		}
	}
}

// Lines returns the explanation as text, one fact a line.
func (e *Explanation) Lines() []string {
	var l lines
	if e.Machine != nil {
		l.machine(e)
		return l
	}
	if e.Job != nil {
		unknown := ""
		if e.Job.Unknown > 0 {
			unknown = fmt.Sprintf(", %d unknown", e.Job.Unknown)
		}
		l.say("job %s: %d desired, %d running, %d pending, %d failed%s, %d done", e.Job.Name, e.Job.Desired, e.Job.Running, e.Job.Pending, e.Job.Failed, unknown, e.Job.Done)
		l.sayIf("  runs %s", schema.ShortImage(e.Job.Image))
		l.sayIf("  because: %s", e.Job.Reason)
		l.sayIf("  it %s", e.Job.Crashes)
	}
	l.sayIf("  declared at %s", e.Origin.String())
	l.sayIf("  spread: %s", e.Spread)
	l.connecting(e.Connect)
	l.sayIf("  rebalancing: %s", e.Room)
	l.newest(e)
	if x := e.Suspended; x != nil {
		l.say("  %s is %s", subjectOf(x.Name), x.Suspension.String())
		l.sayIf("  %s for that to end", x.Waits)
		l.say("  next: %s", x.Next)
	}
	if e.Job != nil {
		for i := range e.Job.Restarting {
			l.say("  %s", e.Job.Restarting[i].Message)
			l.say("  next: %s ends it", e.Job.Restarting[i].Next)
		}
	}
	for i := range e.Apart {
		l.apart(&e.Apart[i])
	}
	for _, f := range e.Updated {
		l.say("  the newest version changes %s: %s", f.Field, f.Change)
	}
	for i := range e.Tasks {
		l.task(&e.Tasks[i], e.Avoid[e.Tasks[i].Name])
		for _, b := range e.Behind {
			if b.Task == e.Tasks[i].Name {
				l.say("  may be preempted for %s: it got its place on a machine that was held for that one, which still waits", b.For)
			}
		}
	}
	if e.Placement != nil {
		for _, line := range e.Placement.Lines() {
			l.say("  %s", line)
		}
	}
	return l
}

// lines are what an explanation says.
type lines []string

// machine says how a machine is.
func (l *lines) machine(e *Explanation) {
	m := e.Machine
	l.say("machine %s is %s, and has %s", m.Name, m.Health, schema.Count(m.Tasks, "task"))
	l.say("  reserved: %s of %s of CPU, %s of %s of memory, %s of %s of disk", schema.CPU(m.Used.CPUMilli), schema.CPU(m.Capacity.CPUMilli),
		schema.Bytes(m.Used.RAMBytes), schema.Bytes(m.Capacity.RAMBytes), schema.Bytes(m.Used.DiskBytes), schema.Bytes(m.Capacity.DiskBytes))
	for _, note := range m.Notes {
		l.say("  %s", note)
	}
	if m.Draining != nil {
		l.say("  %s", m.Draining)
	} else if m.Cordoned {
		l.say("  it is cordoned, and gets no new tasks")
	}
	l.sayIf("  emptying: %s", e.Emptying)
}

// newest says what keeps the newest version of a job from running.
func (l *lines) newest(e *Explanation) {
	if r := e.Rejection; r != nil {
		l.say("  its newest version is rejected: %s", r.Diagnostic.Error())
		l.say("  hint: %s", r.Diagnostic.Hint)
	}
	for _, w := range e.Warnings {
		l.say("  warning: %s", w.Diagnostic.Error())
	}
	if u := e.Unread; u != nil {
		l.say("  %s", u.waiting())
		l.say("  next: %s", u.Next)
	}
	if s := e.Stale; s != nil {
		l.say("  %s", s.waiting())
		l.say("  next: %s", s.Next)
	}
	if p := e.Pending; p != nil {
		l.say("  %s", p.waiting())
	}
	if h := e.Hold; h != nil {
		l.say("  it was removed from the repository, or has no tasks there, and keeps running: held: %s", h.Reason)
		l.say("  next: %s", h.Next)
	}
}

func (l *lines) say(format string, args ...any) { *l = append(*l, fmt.Sprintf(format, args...)) }

// sayIf says text, unless there is none.
func (l *lines) sayIf(format, text string) {
	if text != "" {
		l.say(format, text)
	}
}

// apart says from which job the tasks of a job are kept apart, and why.
func (l *lines) apart(a *schema.Apart) {
	who := a.Job.Short() + " waited for CPU beside it"
	if a.Suffers {
		who = "it waited for CPU beside that"
	}
	l.say("  placed apart from %s until %s, where there is room: %s on %s: %s", a.Job.Short(), a.Until.UTC().Format(time.RFC3339), who, a.Machine, a.Message)
}

// task describes one task and the machines that it avoids.
func (l *lines) task(t *TaskStatus, avoided []Avoided) {
	where := ""
	if t.Machine != "" {
		where = fmt.Sprintf(" on %s (generation %d, incarnation %d, pid %d)", t.Machine, t.Generation, t.Incarnation, t.PID)
	}
	l.say("task %s is %s%s", t.Name, t.State, where)
	l.sayIf("  in alloc %s", t.Alloc)
	l.sayIf("  got alternative %s", t.Alternative)
	l.sayIf("  inside run: %s", strings.Join(t.Inside, ", "))
	l.sayIf("  because: %s", t.Reason)
	l.sayIf("  its machine is draining, and it waits: %s", t.Drain)
	l.sayIf("  says: %s", t.Line)
	for _, m := range avoided {
		l.say("  avoids machine %s until %s: it failed or was evicted there recently", m.Machine, m.Until.UTC().Format(time.RFC3339))
	}
	for _, h := range t.History {
		l.say("  %s", h)
	}
}
