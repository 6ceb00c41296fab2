package control

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/musterhq/muster/placement"
	"github.com/musterhq/muster/reconciler/model"
	"github.com/musterhq/muster/schema"
)

// ask is a task that wants a machine, and the data that it will run.
type ask struct {
	task schema.TaskName
	job  *schema.Job
	data schema.Digest
}

// askFor asks for a machine for each task of the job that has none and wants
// one now.
func (s *step) askFor(name schema.JobName, want *schema.Job) {
	runs := s.share(name, want)
	have := s.tasks(name)
	for index := range want.Tasks {
		a := ask{name.Task(index), s.dataOf(runs.of(index)), runs.of(index)}
		if len(have) > 0 && have[0].Index == index {
			t := have[0]
			have = have[1:]
			a = s.asBefore(a, &t)
			if !s.mayAsk(name, t, a.job) {
				continue
			}
		}
		s.want(a)
	}
}

// want asks for a machine when all jobs have been looked at.
func (s *step) want(a ask) {
	s.askOf[a.task] = a
	s.asks = append(s.asks, a)
	s.asking[a.task.JobName] = true
}

// mayAsk reports whether a task that has a record wants a machine now.
func (s *step) mayAsk(name schema.JobName, t schema.TaskRecord, want *schema.Job) bool {
	if t.Machine != "" {
		return false
	}
	if t = s.forget(name, t, want); t.Done != nil {
		return false
	}
	return !s.waits(s.setRight(name, t).NotBefore, RetryCap)
}

// place gives the asks of tasks that run in allocs, or those of the others,
// machines, as far as there are any, and each that gets one a new generation.
func (s *step) place(inside bool) {
	var asks []ask
	held := len(s.asks) > 0 && s.joining()
	for _, a := range s.asks {
		if (a.job.AllocSet != "") == inside && (!held || a.job.Kind == schema.System) {
			asks = append(asks, a)
		}
	}
	if len(asks) == 0 {
		return
	}
	if s.out.Why == nil {
		s.out.Why, s.out.Claims = map[schema.TaskName]placement.Why{}, map[schema.TaskName]Claim{}
	}
	if inside {
		s.placeInside(asks)
		return
	}
	list := make([]placement.Ask, 0, len(asks))
	for _, a := range asks {
		list = append(list, s.placementAsk(a))
	}
	s.decide(list)
}

// decide has placement decide asks, and returns those that got no place.
func (s *step) decide(asks []placement.Ask) (refused []placement.Ask) {
	if len(asks) == 0 {
		return nil
	}
	byName := make(map[schema.TaskName]int, len(asks))
	for i := range asks {
		byName[asks[i].Name] = i
	}
	s.snapshot().SetBudgets(s.spare)
	for _, d := range placement.Place(s.snapshot(), s.claim(asks), s.in.Seed) {
		a := s.askOf[d.Name]
		delete(s.out.Claims, d.Name) // one that was claimed from, and asked again
		delete(s.out.Why, d.Name)
		switch {
		case d.Machine == "":
			i, ok := byName[d.Name]
			if ok && asks[i].On != "" && a.job.Kind != schema.System {
				d.Why.Waits = s.noRoomAtHome(&asks[i], s.snapshot())
			}
			s.out.Why[d.Name] = d.Why
			if ok {
				refused = append(refused, asks[i])
			}
			if s.claimed[d.Name] {
				s.wakeAtOnce() // others could not have the room that it could not take
			}
		case d.Later:
			s.preempt(a, d)
		default:
			s.evict(a.task, a.job.Priority, d) // claims, if any
			s.assign(a, d)
		}
	}
	return refused
}

// bareAsk returns what placement is asked for a task by its job's data alone.
func bareAsk(task schema.TaskName, job *schema.Job) placement.Ask {
	a := placement.Ask{
		Name: task, Priority: job.Priority, Limit: job.Task.Resources.Resources, Ports: job.Task.Resources.Ports, PortNumbers: job.Task.Resources.PortNumbers,
		IsAlloc: job.Kind == schema.Allocs,
	}
	if set, inside := job.HostSet(); inside {
		a.AllocSet = set
	}
	where(&a, job)
	return a
}

// placementAsk returns what placement is asked for a task.
func (s *step) placementAsk(a ask) placement.Ask {
	p := bareAsk(a.task, a.job)
	t := s.recordOf(a.task)
	p.Waited = s.waited(a, t)
	if t == nil {
		return p
	}
	if a.job.Kind == schema.System { // there is no other place, so none to avoid or prefer
		p.On = t.On
		return p
	}
	if p.On = s.stays(a.job, t); p.On != "" {
		return p
	}
	if n := len(t.Causes); n > 0 && (t.Causes[n-1].Kind == schema.CauseUpdate || t.Causes[n-1].Kind == schema.CauseRestart) {
		if p.Last = t.Causes[n-1].Machine; a.job.Task.Sticky.Has() { // its directory is there
			p.Prefer = p.Last
		}
	}
	for _, m := range slices.Sorted(maps.Keys(t.Avoid)) {
		if s.waits(t.Avoid[m], AvoidFor) {
			p.Avoid = append(p.Avoid, m)
		}
	}
	// Where every machine is to be avoided, avoiding helps nobody.
	if !slices.ContainsFunc(s.mayHold(a), func(m string) bool {
		return !s.closed(m) && s.in.Observed.Admits(m, a.job.Priority) && !slices.Contains(p.Avoid, m)
	}) {
		p.Avoid = nil
	}
	return p
}

// mayHold returns the machines that are up and, for a task that runs in an
// alloc, have one: the one that it belongs in, if it does in a certain one.
func (s *step) mayHold(a ask) []string {
	set, inside := a.job.HostSet()
	if !inside {
		return s.up
	}
	var out []string
	own, certain := s.ownAlloc(a.task)
	for _, t := range s.tasks(set) {
		if certain && t.Index != own.Index {
			continue
		}
		if s.isUp(t.Machine) {
			out = append(out, t.Machine)
		}
	}
	return out
}

// waited returns how long a task without a machine has been able to have one: a
// function of what is stored, so that a new master does not begin to count
// anew. The step comes back when placement may decide otherwise for it.
func (s *step) waited(a ask, t *schema.TaskRecord) time.Duration {
	since := s.job(a.task.JobName).Since
	if t != nil {
		if n := len(t.Causes); n > 0 && t.Causes[n-1].At.After(since) {
			since = t.Causes[n-1].At
		}
		if t.NotBefore.After(since) {
			since = t.NotBefore
		}
	}
	waited := max(0, s.now.Sub(since))
	const turn = placement.DefaultReserveAfter
	if len(s.up) > 0 {
		s.wake(s.now.Add(turn - waited%turn))
	}
	return waited
}

// recordOf returns the record of a task as the draft has it, nil if there is
// none.
func (s *step) recordOf(t schema.TaskName) *schema.TaskRecord {
	c := s.chunk(model.ChunkName{Job: t.JobName, Number: t.Index / schema.ChunkSize})
	if c == nil {
		return nil
	}
	if i, ok := model.SearchTask(c, t.Index); ok {
		return &c.Tasks[i]
	}
	return nil
}

// assign makes a decision of placement the task's newest generation.
func (s *step) assign(a ask, d placement.Decision) {
	t := schema.TaskRecord{Index: a.task.Index}
	if was := s.recordOf(a.task); was != nil {
		t = *was
	}
	s.counter++
	t.Generation, t.Machine, t.Data, t.Ports, t.At = s.counter, d.Machine, a.data, d.Ports, s.now
	t.Devices, t.Alloc = s.devicesOf(d.Machine, d.Devices), s.useOf(d.Alloc)
	t.NotBefore = time.Time{}
	if a.job.Kind != schema.System && t.On != d.Machine {
		t.On = ""
	}
	s.set(a.task.JobName, t)
	message := "assigned to the only machine that fits"
	if n := d.Why.Feasible; n > 1 {
		message = fmt.Sprintf("assigned to one of %d machines that fit", n)
	}
	if t.Alloc != nil {
		message = fmt.Sprintf("assigned to alloc %s", d.Alloc.Short())
	}
	s.event(schema.Event{
		Kind: schema.EventSchedule, Job: a.task.JobName.Short(), Task: a.task.Short(), Machine: d.Machine, Generation: t.Generation, Message: message,
	})
}
