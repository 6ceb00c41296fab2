package control

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/musterhq/muster/placement"
	"github.com/musterhq/muster/reconciler/control/facts"
	"github.com/musterhq/muster/reconciler/control/snapshot"
	"github.com/musterhq/muster/reconciler/intent"
	"github.com/musterhq/muster/schema"
)

// mostKin bounds how many tasks move together.
const mostKin = 48

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

// kinship finds out which tasks on machines that are draining have to move together.
type kinship struct {
	pass
	cell  *snapshot.Cell
	list  []drained                                       // all machines that are draining
	moves []snapshot.On                                   // that were under way when the step began
	holds func(schema.TaskName) func(*placement.Snapshot) // has machines held that are held from a task
	// together are the machines that would take those which move together, by their key; nil for those that
	// have none.
	together map[string]map[schema.TaskName]string
	picked   map[nearKey][]schema.TaskName
	// on are the tasks on these machines, and gone those of moves that have no place; nil until they are asked for.
	on, gone *labelled
}

// kin is a task on a machine that is draining, and those with which it has to move: on such machines, too,
// and near which it has to be, or one of these has.
type kin struct {
	first schema.TaskName
	by    string        // what it has to be near: "affinity by rack"
	tasks []snapshot.On // with what runs inside those that are allocs, which comes after them
	in    map[schema.TaskName]bool
	many  bool // more than mostKin
	// coming are those that have been stopped to move, and have no place yet.
	coming map[schema.TaskName]bool
}

// of returns a task with those that have to move with it.
func (s *kinship) of(first schema.TaskName) *kin {
	k := &kin{first: first, in: map[schema.TaskName]bool{}, coming: map[schema.TaskName]bool{}}
	s.addKin(k, first)
	for i := 0; i < len(k.tasks) && !k.many; i++ {
		s.addNear(k, k.tasks[i])
	}
	return k
}

// halfway reports whether a task has to move with some that have been stopped for that, and have no place yet:
// a master may have died before it had stored all stops.
func (s *kinship) halfway(task schema.TaskName) bool {
	if len(s.moves) == 0 {
		return false
	}
	k := s.of(task)
	return slices.ContainsFunc(k.tasks, func(t snapshot.On) bool { return t.Machine == "" })
}

// addNear adds those near which a task has to be.
func (s *kinship) addNear(k *kin, t snapshot.On) {
	job := s.Job(t.Task.JobName)
	if job == nil || job.Admitted == "" {
		return
	}
	near := s.cell.Near(job.Admitted)
	if len(near) > 0 && s.on == nil {
		s.index()
	}
	for n := range near {
		a, before := &near[n], len(k.in)
		if a.By == "" {
			a.By = schema.AttributeMachine
		}
		// The first of a job that has to be near itself may go anywhere only if none is left.
		self, domain := s.cell.Picks(a, job.Admitted), ""
		if !self && t.Machine != "" {
			domain = s.DomainOf(t.Machine, a.By)
		}
		if self || domain != "" {
			for _, name := range s.pickedBy(nearKey{job.Admitted, n, domain}, a) {
				s.addKin(k, name)
			}
		}
		for _, to := range s.pickedOf(s.gone, a) {
			s.addKin(k, to.name)
		}
		if k.by == "" && len(k.in) > before {
			k.by = "affinity by " + a.By
		}
	}
}

// nearKey is what tasks that run some data have to be near, the n-th, in a domain, or in all for "".
type nearKey struct {
	data   schema.Digest
	n      int
	domain string
}

// pickedBy returns the tasks on machines that are draining which an affinity picks.
func (s *kinship) pickedBy(key nearKey, a *placement.Affinity) []schema.TaskName {
	if out, known := s.picked[key]; known {
		return out
	}
	var out []schema.TaskName
	for _, u := range s.pickedOf(s.on, a) {
		if key.domain == "" || s.DomainOf(u.machine, a.By) == key.domain {
			out = append(out, u.name)
		}
	}
	s.picked[key] = out
	return out
}

// pickedOf returns those of some tasks which an affinity picks.
func (s *kinship) pickedOf(tasks *labelled, a *placement.Affinity) (out []labelledTask) {
	for _, i := range tasks.mayPick(a.Selector) {
		if t := tasks.tasks[i]; s.cell.Picks(a, t.data) {
			out = append(out, t)
		}
	}
	return out
}

// index finds out which tasks affinities may pick.
func (s *kinship) index() {
	s.on, s.gone = &labelled{by: map[string]map[string][]int{}}, &labelled{by: map[string]map[string][]int{}}
	for i := range s.list {
		m := &s.list[i]
		for j := range m.tasks {
			if u := &m.tasks[j]; u.data.Kind != schema.System {
				data := s.Task(u.name).Data
				s.on.add(labelledTask{u.name, m.name, data}, s.cell.Labels(data))
			}
		}
	}
	for _, to := range s.moves {
		if r, j := s.Task(to.Task), s.Job(to.Task.JobName); r != nil && r.Machine == "" && j != nil && j.Admitted != "" {
			s.gone.add(labelledTask{to.Task, "", j.Admitted}, s.cell.Labels(j.Admitted))
		}
	}
}

// labelled are tasks, and an index of them by their labels: an affinity picks few of many.
type labelled struct {
	tasks []labelledTask
	by    map[string]map[string][]int // key and value of a label: of tasks, in order
}

// labelledTask is a task, and the data whose labels it has.
type labelledTask struct {
	name    schema.TaskName
	machine string
	data    schema.Digest
}

// add adds a task after the others.
func (l *labelled) add(t labelledTask, labels map[string]string) {
	for key, value := range labels {
		if l.by[key] == nil {
			l.by[key] = map[string][]int{}
		}
		l.by[key][value] = append(l.by[key][value], len(l.tasks))
	}
	l.tasks = append(l.tasks, t)
}

// mayPick returns which tasks a selector may pick, in order; it picks none of the others.
func (l *labelled) mayPick(selector schema.Selector) []int {
	var best [][]int
	least := len(l.tasks)
	for key, values := range selector.Wanted() {
		var lists [][]int
		if values == nil {
			lists = slices.Collect(maps.Values(l.by[key]))
		}
		for _, value := range values {
			lists = append(lists, l.by[key][value])
		}
		n := 0
		for _, list := range lists {
			n += len(list)
		}
		if n < least {
			best, least = lists, n
		}
	}
	if least == len(l.tasks) { // each of them
		best = [][]int{make([]int, least)}
		for i := range best[0] {
			best[0][i] = i
		}
	}
	return slices.Compact(slices.Sorted(slices.Values(slices.Concat(best...))))
}

// addKin adds a task, and its alloc with all that runs inside, unless it stops for another reason.
func (s *kinship) addKin(k *kin, task schema.TaskName) {
	r := s.Task(task)
	if r != nil && r.Alloc != nil {
		task = r.Alloc.Of(task.JobName)
		r = s.Task(task)
	}
	switch {
	case k.many || k.in[task] || r == nil || r.Done != nil || r.Stop != nil && r.Stop.To == "" || s.Admitted(task.JobName) == nil:
		return
	case r.Machine == "" || r.Stop != nil:
		k.coming[task] = true
	}
	for _, on := range s.cell.GoesWith(task.JobName, r) {
		k.in[on.Task] = true
		k.tasks = append(k.tasks, on)
	}
	k.many = k.many || len(k.tasks) > mostKin
}

// going returns those that are to be stopped, but what runs inside allocs, which goes with these.
func (s *kinship) going(k *kin) (out []schema.TaskName) {
	for _, t := range k.tasks {
		if !k.coming[t.Task] && s.Task(t.Task).Alloc == nil {
			out = append(out, t.Task)
		}
	}
	slices.SortFunc(out, schema.TaskName.Compare)
	return out
}

// under returns the moves of those that have been stopped before: they may have found no room near those
// that move only now.
func (s *kinship) under(k *kin) (out []snapshot.On) {
	for _, t := range k.tasks {
		if k.coming[t.Task] {
			if to := movesTo(s.Task(t.Task)); to != "" {
				out = append(out, snapshot.On{Task: t.Task, Machine: to})
			}
		}
	}
	return out
}

// with says with which others a task has to move: "must move with u/g/1 (affinity by rack)".
func (k *kin) with(task schema.TaskName) string {
	var names []string
	for _, name := range slices.SortedFunc(maps.Keys(k.in), schema.TaskName.Compare) {
		if name != task {
			names = append(names, name.Short())
		}
	}
	return fmt.Sprintf("with %s (%s)", schema.ShortList(names), k.by)
}

// key is the same for all that move together.
func (k *kin) key() string {
	var b strings.Builder
	for _, name := range slices.SortedFunc(maps.Keys(k.in), schema.TaskName.Compare) {
		b.WriteString(name.String() + "\n")
	}
	return b.String()
}

// place returns the machines that would take all of them, nil if none would take one.
func (s *kinship) place(k *kin) map[schema.TaskName]string {
	key := k.key()
	if to, known := s.together[key]; known {
		return to
	}
	var asks []snapshot.Ask
	var leaving []snapshot.On
	for _, t := range slices.Backward(k.tasks) { // what runs inside an alloc leaves before it
		if t.Machine != "" {
			leaving = append(leaving, t)
		}
	}
	for _, name := range slices.SortedFunc(maps.Keys(k.in), schema.TaskName.Compare) {
		if job := s.Job(name.JobName); job != nil && job.Admitted != "" {
			asks = append(asks, snapshot.Ask{Task: name, Job: s.Data(job.Admitted), Data: job.Admitted})
		}
	}
	to, until := s.cell.PlaceTogether(asks, leaving, s.holds(k.first))
	s.bookCell(until)
	s.together[key] = to
	return to
}

// refuse says why tasks may not be stopped in one step, "" if they may be.
func (s *kinship) refuse(tasks []schema.TaskName) string {
	lost := map[schema.JobName]facts.Disruption{}
	for _, name := range tasks {
		r := s.Task(name)
		why := ""
		switch {
		case !s.IsUp(r.Machine):
			why = fmt.Sprintf("its machine %s is silent", r.Machine)
		case s.Frozen(name.JobName):
			why = "it is " + s.Suspended.Of(name.JobName).String()
		case s.Stays(s.Admitted(name.JobName), r) != "":
			why = fmt.Sprintf("it stays with its sticky directory (sticky: %q)", schema.StickyStay)
		}
		if why != "" {
			return fmt.Sprintf("%s: %s", name.Short(), why)
		}
		for _, l := range s.LostWith(name.JobName, r) {
			all := lost[l.Job]
			all.Job, all.Serve = l.Job, append(all.Serve, l.Serve...)
			lost[l.Job] = all
		}
	}
	for _, job := range slices.SortedFunc(maps.Keys(lost), schema.JobName.Compare) {
		if why := s.refuseTogether(lost[job]); why != "" {
			return why
		}
	}
	return ""
}

// refuseTogether says why the budget of a job does not allow a loss, "" if it does.
func (s *kinship) refuseTogether(l facts.Disruption) string {
	want := s.Admitted(l.Job)
	if want == nil || s.goesWhole(l.Job) {
		return ""
	}
	slices.Sort(l.Serve)
	if most := want.MayBeDown(); len(l.Serve) > most { // whatever becomes of the others
		what := "update.maxParallel"
		if d := want.Disruption; d != nil && d.MaxDown > 0 {
			what = "disruption.maxDown"
		}
		why := fmt.Sprintf("%s of job %s is %d", what, l.Job.Short(), most)
		if what != "disruption.maxDown" {
			why += ", and it declares no disruption.maxDown"
		}
		return why
	}
	why, until := s.Refusal(l)
	s.bookCell(until)
	return why
}

// goesWhole reports whether a job whose tasks have places together or not at all may lose all of them
// at once: it has declared no budget.
func (s *kinship) goesWhole(job schema.JobName) bool {
	want := s.Admitted(job)
	return want != nil && want.Gathers() && want.Disruption == nil
}
