package control

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/musterhq/muster/reconciler/control/snapshot"
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

// drains empties machines.
type drains struct {
	pass
	cell    *snapshot.Cell
	budget  disruption
	waiting *scheduler           // has others make room
	drained map[string]*Draining // by name of the machine
	kin     *kinship
	// stuck are tasks that may be stopped, for which no other machine has room.
	stuck []stuck
	// roaming says that tasks are stopping for which other machines have room, and nobody makes any.
	roaming bool
}

// stuck is a task that no other machine has room for.
type stuck struct {
	task     schema.TaskName
	priority schema.Priority
	drain    *Draining
	full     string // why there is no room
	kin      string // with whom it would have to move, and why these do not; "" if with nobody
}

// why says why the task stays.
func (x *stuck) why() string {
	if x.kin != "" {
		return x.kin
	}
	return noRoom(x.full)
}

// noRoom says that no other machine takes a task, and why.
func noRoom(full string) string { return "no other machine can run it: " + full }

// drain moves tasks away from machines that are draining, as the disruption
// budgets of their jobs allow and where others have room, or make some. Of the machines that
// one object names no more are emptied at a time than it says: those that hold
// nothing any more make way for the next, until a deadline stops all that is left.
// A silent machine cannot stop tasks, and is skipped.
func (s *drains) drain() {
	list := s.draining()
	if len(list) == 0 {
		return
	}
	s.drained = make(map[string]*Draining, len(list))
	s.kin = &kinship{
		pass: s.pass, cell: s.cell, list: list, moves: s.waiting.stops.moves, holds: s.waiting.holdsFrom,
		together: map[string]map[schema.TaskName]string{}, picked: map[nearKey][]schema.TaskName{},
	}
	for i := range list {
		s.drained[list[i].name] = s.describeDrain(&list[i])
	}
	turns := map[schema.ObjectKey]int{}
	for i := range list {
		m := &list[i]
		d, key := s.drained[m.name], m.spec.Drainer.Key()
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
	s.makeRoom()
	for i := range list {
		s.drained[list[i].name].say(list[i].tasks)
	}
}

// say names the first tasks that wait.
func (d *Draining) say(tasks []drainTask) {
	for i := range tasks {
		name := tasks[i].name
		if why := d.waits[name]; why != "" && len(d.Waits) < shownWaits {
			d.Waits = append(d.Waits, name.Short()+": "+why)
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
// what they hold: tasks before those of system jobs, those of high priority first, which get what room
// there is, and else by name.
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
			return cmp.Or(schema.CompareBool(a.data.Kind == schema.System, b.data.Kind == schema.System), cmp.Compare(b.data.Priority, a.data.Priority))
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
		if why := s.moveAway(&r, t); why != "" {
			d.waits[t.name] = why
		}
		stop := s.Task(t.name).Stop
		s.roaming = s.roaming || !d.stops() && stop != nil && stop.Kind == schema.CauseMaintenance && len(s.waiting.preempted[t.name.Short()]) == 0 && !t.inside && t.data.Kind != schema.System
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
// for; "" of one that is stopping, goes with its alloc, or is stuck.
func (s *drains) moveAway(r *removal, t *drainTask) string {
	record := s.Task(t.name)
	job := s.Job(t.name.JobName)
	if record.Stop != nil || t.inside || job == nil || job.Admitted == "" {
		return ""
	}
	cause := s.causeOf(r.drain)
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
	return s.moveOn(r, t, cause)
}

// moveOn stops a task for which another machine has room, or says what it waits for, as moveAway does.
func (s *drains) moveOn(r *removal, t *drainTask, cause schema.Cause) string {
	record, job := s.Task(t.name), s.Job(t.name.JobName)
	want := s.Data(job.Admitted)
	blocked, until := s.Blocked(t.name.JobName, record)
	s.bookCell(until)
	if blocked != "" && !(bound(want) && s.kin.goesWhole(t.name.JobName)) {
		return blocked
	}
	if blocked == "" && r.full[t.name.JobName] == "" {
		a := snapshot.Ask{Task: t.name, Job: want, Data: job.Admitted}
		to, full, until := s.cell.PlaceElsewhere(a, record, s.waiting.holdsFrom(a.Task))
		s.bookCell(until)
		r.full[t.name.JobName], cause.To = full, to
	}
	full := r.full[t.name.JobName]
	if bound(want) && s.kin.halfway(t.name) { // alone it might go where these have no room
		if moved, _ := s.moveKin(t.name, full); moved {
			return ""
		}
	}
	if blocked == "" && full == "" {
		why := s.budget.disrupt(t.name.JobName, *record, cause)
		if why == "" && cause.To != "" {
			s.waiting.keepPlace(snapshot.On{Task: t.name, Machine: cause.To}) // others may be stopped in this step, too
		}
		return why
	}
	var kept string
	if bound(want) {
		moved, why := s.moveKin(t.name, full)
		if moved {
			return ""
		}
		kept = why
	}
	if blocked == "" {
		s.stuck = append(s.stuck, stuck{t.name, want.Priority, r.drain, full, kept})
	}
	return blocked
}

// moveKin stops a task which no other machine takes only since it has to be near others that are drained,
// too, in one step with these, if others take all of them and their budgets allow it; moved says so. Else it
// says why it does not, "" if it has to be near no such. full is why no other machine takes it alone.
func (s *drains) moveKin(task schema.TaskName, full string) (moved bool, why string) {
	k := s.kin.of(task)
	if len(k.in) < 2 || k.by == "" {
		return false, ""
	}
	must := "it must move " + k.with(task)
	if k.many {
		return false, fmt.Sprintf("%s, and no more than %d tasks are moved in one step", must, mostKin)
	}
	to := s.kin.place(k)
	if to == nil {
		return false, fmt.Sprintf("%s; nor is there room for it %s", noRoom(full), k.with(task))
	}
	list := s.kin.going(k)
	if why := s.kin.refuse(list); why != "" {
		return false, must + "; " + why
	}
	moves := s.kin.under(k)
	for _, name := range list {
		r := s.Task(name)
		cause := s.causeOf(s.drained[r.Machine])
		cause.To = to[name]
		cause.Message += ", and it moves " + k.with(name)
		s.budget.disruptAnyway(name.JobName, *r, cause)
		moves = append(moves, snapshot.On{Task: name, Machine: cause.To})
	}
	s.waiting.keepKin(moves) // others may be stopped in this step, too; what moved before has its room
	s.another()              // those that wait near which room is kept now may have places
	s.roaming = true
	return true, ""
}

func (s *drains) causeOf(d *Draining) schema.Cause {
	return schema.Cause{Kind: schema.CauseMaintenance, At: s.Now, Message: fmt.Sprintf("%s drains its machine", d.Object)}
}

// makeRoom has tasks of lower priority make room for those that no other machine has room for, of
// high priority first. Such a task is stopped in the same step as the others: room is kept for it
// from then on, and nobody else is preempted for it. What keeps the others of one task of a job
// keeps those of the next.
func (s *drains) makeRoom() {
	slices.SortFunc(s.stuck, func(a, b stuck) int { return cmp.Or(cmp.Compare(b.priority, a.priority), a.task.Compare(b.task)) })
	kept := map[schema.JobName]string{}
	for i := range s.stuck {
		x := &s.stuck[i]
		why, known := kept[x.task.JobName]
		if !known {
			var stays bool
			if why, stays = s.makeRoomFor(x); stays {
				kept[x.task.JobName] = why
			}
		} else if x.kin != "" { // with others than the one before
			why = x.kin
		}
		if why != "" {
			x.drain.waits[x.task] = why
		}
	}
}

// seesPart reports whether machines may have room that are not up now, and soon may be: some are
// silent, or have not reported yet to a master that has begun to lead, and are not given up.
func (s *drains) seesPart() bool {
	for name := range s.SilentMachines() {
		if !s.GivenUp(name) {
			return true
		}
	}
	return false
}

// makeRoomFor stops a task, and those that make room for it, or says what it waits for; stays says
// that there is no room to be made.
func (s *drains) makeRoomFor(x *stuck) (why string, stays bool) {
	job, record := x.task.JobName, s.Task(x.task)
	full := x.why()
	if s.roaming {
		return full + "; tasks for which other machines have room move first", true
	}
	if s.seesPart() {
		return full + "; nobody is preempted for it while machines are silent that are not given up", true
	}
	why, until := s.Blocked(job, record)
	if s.bookCell(until); why != "" {
		return why, false
	}
	v, kept := s.waiting.vacate(x.task)
	switch {
	case v.decision.Machine == "" && kept == "":
		return full, true
	case v.decision.Machine == "":
		return full + "; " + kept, true
	}
	cause := s.causeOf(x.drain)
	cause.To = v.decision.Machine
	if n := len(v.decision.Victims); n > 0 {
		cause.Message += fmt.Sprintf(", and %s %s room for it on %s", schema.Count(n, "task"), schema.Verb(n, "makes", "make"), cause.To)
	}
	if why := s.budget.disrupt(job, *record, cause); why != "" {
		return why, false
	}
	s.waiting.evict(x.task, v.ask.Priority, v.decision)
	return "", false
}
