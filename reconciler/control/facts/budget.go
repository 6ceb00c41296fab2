package facts

import (
	"fmt"
	"slices"

	"github.com/musterhq/muster/schema"
)

// The disruption budget of a job binds all that muster stops by its own choice:
// updates, drains, moves. What the owner asks for (a job removed, or with fewer tasks)
// and what happens (a failure, a lost machine) are not bound by it, but the tasks that
// are down for them count. Preemption keeps to the budgets that jobs declare as long as
// any victims do that make room: see Spare.

// budgetSays begins what is said of a stop that a budget does not allow.
const budgetSays = "disruption budget"

// Blocked says why a task that is assigned is not to be stopped by muster's choice now, ""
// if it may be: as far as the budgets of its job and, of an alloc, of the jobs inside go. A
// task that is known not to serve takes nothing of them. One on a silent machine is left
// alone, since the stop could not be sent, and whether it serves is not known.
func (f *Facts) Blocked(job schema.JobName, t *schema.TaskRecord) (why string, until Until) {
	switch {
	case t.Machine == "":
		return "it has no machine", Until{}
	case t.Stop != nil:
		return "it is stopping", Until{}
	case !f.IsUp(t.Machine):
		return fmt.Sprintf("its machine %s is silent", t.Machine), Until{}
	case f.Frozen(job):
		return "it is " + f.Suspended.Of(job).String(), Until{}
	}
	for _, l := range f.LostWith(job, t) {
		why, changes := f.Refusal(l)
		until = until.Or(changes)
		if why != "" {
			return why, until
		}
	}
	return "", until
}

// Disruption is what a job loses by one stop: the indices of tasks that serve.
type Disruption struct {
	Job   schema.JobName
	Serve []int // sorted
}

// LostWith returns what jobs lose when a task, or an alloc with what runs
// inside, is stopped. Jobs inside count if they have a budget of their own.
func (f *Facts) LostWith(job schema.JobName, t *schema.TaskRecord) []Disruption {
	var out []Disruption
	if f.Serves(job, t) {
		out = append(out, Disruption{job, []int{t.Index}})
	}
	if f.Data(t.Data).Kind != schema.Allocs {
		return out
	}
	alloc := job.Task(t.Index)
	for _, name := range f.InsideOf(job) {
		if f.Bounded(name) == nil {
			continue
		}
		l := Disruption{Job: name}
		for _, u := range f.Tasks(name) {
			if u.Alloc != nil && u.Machine != "" && u.Stop == nil && u.Alloc.Of(name) == alloc && f.Serves(name, &u) {
				l.Serve = append(l.Serve, u.Index)
			}
		}
		if len(l.Serve) > 0 {
			out = append(out, l)
		}
	}
	return out
}

// Refusal says why a job's budget does not allow a loss now, "" if it does.
func (f *Facts) Refusal(l Disruption) (why string, until Until) {
	want := f.Admitted(l.Job)
	if want == nil {
		return "", Until{} // its owner has given it up
	}
	down, until := f.Down(l.Job, want)
	others := len(down)
	for _, i := range l.Serve {
		if down[i] { // it works, but not for long enough to count as healthy
			others--
		}
	}
	if most := want.MayBeDown(); others+len(l.Serve) > most {
		return fmt.Sprintf("%s: %d of the tasks of %s are down, %d would be stopped, and at most %d may be down", budgetSays, others, l.Job.Short(), len(l.Serve), most), until
	}
	why, next := f.hourly(l, want)
	return why, until.Or(next)
}

// Bounded returns the data of a job that has declared a budget, nil of any other.
func (f *Facts) Bounded(name schema.JobName) *schema.Job {
	if want := f.Admitted(name); want != nil && want.Disruption != nil {
		return want
	}
	return nil
}

// Spare returns how many more tasks of a job may be preempted, and whether the job has
// said so at all.
func (f *Facts) Spare(name schema.JobName) (left int, bound bool, until Until) {
	want := f.Bounded(name)
	if want == nil {
		return 0, false, Until{}
	}
	down, until := f.Down(name, want)
	left = want.MayBeDown() - len(down)
	if want.Disruption.PerHour > 0 {
		spent, _ := f.Job(name).Spent(f.Now)
		left = min(left, want.Disruption.PerHour-spent)
	}
	return max(0, left), true, until
}

// Hit reports whether a job has lost a task to a preemption that has not got another place since.
func (f *Facts) Hit(name schema.JobName) bool {
	return slices.ContainsFunc(f.Tasks(name), func(t schema.TaskRecord) bool {
		switch {
		case t.Stop != nil:
			return t.Stop.Kind == schema.CausePreempted
		case t.Machine != "" || t.Done != nil || len(t.Causes) == 0:
			return false
		}
		return t.Causes[len(t.Causes)-1].Kind == schema.CausePreempted
	})
}

// hourly is Refusal for what a budget says of an hour.
func (f *Facts) hourly(l Disruption, want *schema.Job) (string, Until) {
	if want.Disruption == nil || want.Disruption.PerHour == 0 {
		return "", Until{}
	}
	spent, next := f.Job(l.Job).Spent(f.Now)
	if most := want.Disruption.PerHour; spent+len(l.Serve) > most {
		text := fmt.Sprintf("%s: %s of %s %s stopped within the last hour, %d would be, and at most %d may be",
			budgetSays, schema.Count(spent, "task"), l.Job.Short(), schema.Verb(spent, "was", "were"), len(l.Serve), most)
		if !next.IsZero() {
			text += ": the first of them counts until " + f.Say(next)
		}
		return text, f.At(next)
	}
	return "", Until{}
}

// downTasks are the tasks of a job that do not serve, after so many changes of its tasks.
type downTasks struct {
	want    *schema.Job
	changes int
	down    map[int]bool
	until   Until
}

// Down returns the indices of a job's tasks that are wanted and do not serve,
// for whatever reason: those that have no place, are stopping, are on a silent
// machine, or do not work, or not yet for as long as the update policy wants.
// A job without a budget of its own does not count those which have no place for
// longer than a rollout would wait for: they may never get one.
func (f *Facts) Down(name schema.JobName, want *schema.Job) (map[int]bool, Until) {
	d, log := f.down[name], f.changes.Log[name]
	if d == nil || d.want != want {
		d = &downTasks{want: want, changes: len(log), down: map[int]bool{}}
		f.down[name] = d
		missing := 0 // the index of the first that has not been seen
		declared := want.Disruption != nil && want.Kind != schema.System
		tasks := f.Tasks(name)
		for i := range tasks {
			for ; declared && missing < min(tasks[i].Index, want.Tasks); missing++ {
				d.down[missing] = true
			}
			missing = tasks[i].Index + 1
			f.countDown(d, name, &tasks[i])
		}
		for ; declared && missing < want.Tasks; missing++ {
			d.down[missing] = true
		}
		return d.down, d.until
	}
	for _, index := range log[d.changes:] { // the others are as they were
		delete(d.down, index)
		if t := f.Task(name.Task(index)); t != nil {
			f.countDown(d, name, t)
		} else if want.Disruption != nil && want.Kind != schema.System && index < want.Tasks {
			d.down[index] = true
		}
	}
	d.changes = len(log)
	return d.down, d.until
}

func (f *Facts) countDown(d *downTasks, name schema.JobName, t *schema.TaskRecord) {
	if !f.Wants(d.want, t) || t.Done != nil {
		return
	}
	down, until := f.isDown(name, d.want, t)
	if down {
		d.down[t.Index] = true
	}
	d.until = d.until.Or(until)
}

// isDown reports whether a task that is wanted does not serve.
func (f *Facts) isDown(name schema.JobName, want *schema.Job, t *schema.TaskRecord) (bool, Until) {
	admitted := f.Job(name).Admitted
	switch {
	case t.Machine == "" && want.Disruption != nil:
		return true, Until{}
	case t.Machine == "":
		return f.HoldsUp(t, admitted)
	case t.Stop != nil || !f.IsUp(t.Machine):
		return true, Until{}
	case t.Data != admitted:
		works, until := f.worksFor(f.Said(name, t), 0) // what it waits for is not to be healthy for longer
		return !works, until
	}
	healthy, until := f.Healthy(f.Said(name, t), want)
	return !healthy, until
}
