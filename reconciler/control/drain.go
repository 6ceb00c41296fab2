package control

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/musterhq/muster/reconciler/control/snapshot"
	"github.com/musterhq/muster/reconciler/intent"
	"github.com/musterhq/muster/schema"
)

// Draining is how far a machine is emptied.
type Draining struct {
	// Object is what declares it, such as machine.rack-r3, and Origin where.
	Object string          `json:"object"`
	Origin schema.Position `json:"origin"`
	// Deadline is when AtDeadline counts; zero is never.
	Deadline   time.Time `json:"deadline,omitzero"`
	AtDeadline string    `json:"atDeadline"`
	Late       bool      `json:"late"` // Deadline has come, and something is left
	// Turn says that other machines of the object are emptied first.
	Turn bool `json:"turn"`
	Left int  `json:"left"` // tasks that it holds; 0: it is drained
	// Waits say what tasks wait for that are left: of up to shownWaits of them.
	Waits []string `json:"waits"`

	waits map[schema.TaskName]string // of all tasks that wait
}

// Wait says what a task waits for that has yet to leave, "" if for nothing.
func (d *Draining) Wait(task schema.TaskName) string { return d.waits[task] }

// shownWaits is how many tasks a Draining names.
const shownWaits = 5

// String says it in words.
func (d *Draining) String() string {
	if d.Left == 0 {
		return "drained"
	}
	s := fmt.Sprintf("draining: %s left", schema.Count(d.Left, "task"))
	if d.Turn {
		s = fmt.Sprintf("to be drained after others of %s: %s left", d.Object, schema.Count(d.Left, "task"))
	}
	if d.Late {
		s += ", after its deadline"
	}
	if len(d.Waits) > 0 {
		s += ": " + d.Waits[0]
	}
	return s
}

// drained is a machine that is draining, and what it holds.
type drained struct {
	name   string
	spec   *intent.MachineSpec
	tasks  []drainTask
	before int // that it held when the step began
}

// drainTask is a task on a machine that is draining.
type drainTask struct {
	name   schema.TaskName
	data   *schema.Job
	inside bool // of an alloc, with which it goes
}

// drains empties machines.
type drains struct {
	pass
	cell    *snapshot.Cell
	budget  disruption
	drained map[string]*Draining // by name of the machine
}

// drain moves tasks away from machines that are draining, as the disruption
// budgets of their jobs allow and where others have room. Of the machines that
// one object names no more are emptied at a time than it says: those that hold
// nothing any more make way for the next, until a deadline stops all that is left.
// A silent machine cannot stop tasks, and is skipped.
func (s *drains) drain() {
	list := s.draining()
	if len(list) == 0 {
		return
	}
	s.drained = make(map[string]*Draining, len(list))
	turns := map[schema.ObjectKey]int{}
	for i := range list {
		m := &list[i]
		d, key := s.describeDrain(m), m.spec.Drainer.Key()
		s.drained[m.name] = d
		switch most := max(1, m.spec.Drain.AtOnce); {
		case len(m.tasks) == 0:
			if m.before > 0 {
				s.Event(schema.Event{Kind: schema.EventMachine, Machine: m.name, Declared: true, Message: "drained: nothing runs on it any more"})
			}
		case !s.IsUp(m.name):
			d.Waits = append(d.Waits, "it is silent")
		case turns[key] >= most && !d.stops():
			d.Turn = true
		default:
			turns[key]++
			s.drainMachine(m, d)
		}
	}
}

// describeDrain begins to describe a machine that is draining.
func (s *drains) describeDrain(m *drained) *Draining {
	o := m.spec.Drainer
	d := &Draining{
		Object: o.Key().Field(), Origin: o.Origin, Left: len(m.tasks), Waits: []string{}, waits: map[schema.TaskName]string{},
		Deadline: o.Drain.Deadline, AtDeadline: cmp.Or(o.Drain.AtDeadline, schema.DeadlineBudget),
	}
	if !d.Deadline.IsZero() && d.Left > 0 {
		d.Late = !s.Now.Before(d.Deadline)
		s.bookCell(s.At(d.Deadline))
	}
	return d
}

// stops reports whether all that is left is stopped, since the deadline has come.
func (d *Draining) stops() bool { return d.Late && d.AtDeadline == schema.DeadlineStop }

// draining returns the machines that are draining, sorted by name, with
// what they hold: tasks before those of system jobs, and else by name.
func (s *drains) draining() []drained {
	var out []drained
	at := map[string]int{}
	for _, name := range s.DrainingMachines() {
		at[name] = len(out)
		out = append(out, drained{name: name, spec: s.MachineSpec(name)})
	}
	if len(out) == 0 {
		return nil
	}
	for _, key := range s.ChunkNames() {
		if base := s.Base.Chunks[key]; base != nil {
			for i := range base.Tasks {
				if n, ok := at[base.Tasks[i].Machine]; ok {
					out[n].before++
				}
			}
		}
		c := s.Chunk(key)
		for i := range c.Tasks {
			t := &c.Tasks[i]
			if n, ok := at[t.Machine]; ok {
				out[n].tasks = append(out[n].tasks, drainTask{key.Job.Task(t.Index), s.Data(t.Data), t.Alloc != nil})
			}
		}
	}
	for i := range out {
		slices.SortStableFunc(out[i].tasks, func(a, b drainTask) int {
			return schema.CompareBool(a.data.Kind == schema.System, b.data.Kind == schema.System)
		})
	}
	return out
}

// drainMachine stops the tasks of a machine that may go now, and says what the
// others wait for.
func (s *drains) drainMachine(m *drained, d *Draining) {
	r := removal{machine: m.name, drain: d, full: map[schema.JobName]string{}}
	r.others = slices.ContainsFunc(m.tasks, func(t drainTask) bool { return t.data.Kind != schema.System })
	for i := range m.tasks {
		t := &m.tasks[i]
		why := s.moveAway(&r, t)
		if why == "" {
			continue
		}
		if d.waits[t.name] = why; len(d.Waits) < shownWaits {
			d.Waits = append(d.Waits, t.name.Short()+": "+why)
		}
	}
}

// removal is one step's work on one machine.
type removal struct {
	machine string
	drain   *Draining
	others  bool                      // tasks of jobs that are no system jobs are left
	full    map[schema.JobName]string // why no other machine takes tasks of a job
}

// moveAway stops a task on a machine that is draining, or says what it waits
// for; "" of one that is stopping, or goes with its alloc.
func (s *drains) moveAway(r *removal, t *drainTask) string {
	record := s.Task(t.name)
	job := s.Job(t.name.JobName)
	if record.Stop != nil || t.inside || job == nil || job.Admitted == "" {
		return ""
	}
	cause := schema.Cause{Kind: schema.CauseMaintenance, At: s.Now, Message: fmt.Sprintf("%s drains its machine", r.drain.Object)}
	system, late := t.data.Kind == schema.System, r.drain.stops()
	switch {
	case s.Frozen(t.name.JobName): // whatever a deadline says
		return "it is " + s.Suspended.Of(t.name.JobName).String()
	case system && r.others:
		return "it belongs to a system job, and is stopped last"
	case system:
		s.budget.disruptAnyway(t.name.JobName, *record, cause)
		return ""
	case late:
		cause.Message += ", and its deadline has passed"
		s.budget.disruptAnyway(t.name.JobName, *record, cause)
		return ""
	}
	if s.Stays(s.Data(job.Admitted), record) != "" {
		return fmt.Sprintf("it stays with its sticky directory (sticky: %q), and moves when the machine is declared gone", schema.StickyStay)
	}
	why, until := s.Blocked(t.name.JobName, record)
	if s.bookCell(until); why != "" {
		return why
	}
	if r.full[t.name.JobName] == "" {
		full, until := s.cell.NoPlace(snapshot.Ask{Task: t.name, Job: s.Data(job.Admitted), Data: job.Admitted}, record)
		s.bookCell(until)
		r.full[t.name.JobName] = full
	}
	if why := r.full[t.name.JobName]; why != "" {
		return "no other machine can run it: " + why
	}
	return s.budget.disrupt(t.name.JobName, *record, cause)
}
