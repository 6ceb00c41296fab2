package facts

import (
	"fmt"
	"slices"
	"time"

	"github.com/musterhq/muster/schema"
)

// An alloc set is a job whose tasks run no process: all that holds for tasks holds for
// allocs. Which alloc of its set a task runs in: a job with as many tasks as its set has
// allocs has one in each, task i in alloc i. The tasks of any other job are shared out.

// AwaitAlloc is how long a task is not put where it would have to be moved away from
// once an alloc is back, and how long one is left where it is after it was put there.
const AwaitAlloc = time.Minute

// Inside reports whether a job's tasks run in allocs, by its admitted data.
func (f *Facts) Inside(name schema.JobName) (set schema.JobName, ok bool) {
	want := f.Admitted(name)
	if want == nil {
		return schema.JobName{}, false
	}
	return want.HostSet()
}

// OwnAlloc returns the alloc that a task belongs in, if it belongs in a certain one.
func (f *Facts) OwnAlloc(task schema.TaskName) (alloc schema.TaskName, ok bool) {
	set, inside := f.Inside(task.JobName)
	if !inside {
		return schema.TaskName{}, false
	}
	tasks, allocs := f.Admitted(task.JobName).Tasks, f.AllocsOf(set)
	return set.Task(task.Index), tasks == allocs && task.Index < allocs
}

// AllocsOf returns how many allocs a set shall have.
func (f *Facts) AllocsOf(set schema.JobName) int {
	want := f.Admitted(set)
	if want == nil || want.Kind != schema.Allocs {
		return 0
	}
	return want.Tasks
}

// InsideOf returns the jobs whose tasks run in a set, sorted.
func (f *Facts) InsideOf(set schema.JobName) []schema.JobName {
	if f.hosted == nil || f.asOf != f.changes.Records {
		f.hosted, f.asOf = map[schema.JobName][]schema.JobName{}, f.changes.Records
		for _, name := range f.Jobs() {
			if host, inside := f.Inside(name); inside {
				f.hosted[host] = append(f.hosted[host], name)
			}
		}
	}
	return f.hosted[set]
}

// Away says what keeps tasks from being put into an alloc that is to be there, ""
// if nothing does. pending says that it is for lack of a machine for the alloc.
func (f *Facts) Away(alloc schema.TaskName) (why string, pending bool) {
	t := f.Task(alloc)
	switch {
	case t == nil:
	case t.Stop != nil:
		return "which is stopping: " + t.Stop.String(), false
	case t.Machine != "" && f.IsUp(t.Machine):
		return "", false
	case t.Machine != "":
		return fmt.Sprintf("whose machine %s is silent", t.Machine), false
	case Ahead(f.Now, t.NotBefore, RetryCap):
		return fmt.Sprintf("which is retried in %s", t.NotBefore.Sub(f.Now).Round(time.Second)), false
	}
	return "which is pending", true
}

// AllocLeft says why a task's alloc is not there for it any more, "" if it is.
func (f *Facts) AllocLeft(job schema.JobName, t *schema.TaskRecord) string {
	name := t.Alloc.Of(job)
	a := f.Task(name)
	switch {
	case a == nil || a.Generation != t.Alloc.Generation || a.Machine != t.Machine:
		return whereLeft(name, a, t.Machine)
	case a.Stop != nil:
		return fmt.Sprintf("its alloc %s is stopping: %s", name.Short(), a.Stop)
	}
	return ""
}

// whereLeft says what has become of an alloc that was on a machine. Of one that
// was lost nobody knows whether it has ended.
func whereLeft(name schema.TaskName, a *schema.TaskRecord, machine string) string {
	var last schema.Cause
	if a != nil && len(a.Causes) > 0 {
		last = a.Causes[len(a.Causes)-1]
	}
	switch lost := last.Kind == schema.CauseMachineLost; {
	case lost && a.Machine != "" && a.Machine != machine:
		return fmt.Sprintf("alloc %s moved to %s", name.Short(), a.Machine)
	case lost:
		return fmt.Sprintf("alloc %s left machine %s", name.Short(), machine)
	case a != nil && a.Machine == "" && last.Kind != "":
		return fmt.Sprintf("its alloc %s has ended: %s", name.Short(), last)
	}
	return fmt.Sprintf("its alloc %s has ended", name.Short())
}

// Goes reports whether a job is an alloc set that is going. Its allocs go when
// nothing runs inside any more.
func (f *Facts) Goes(name schema.JobName) bool {
	r := f.Job(name)
	return r != nil && r.Admitted == "" && slices.ContainsFunc(f.Tasks(name), func(t schema.TaskRecord) bool {
		return t.Machine != "" && f.Data(t.Data).Kind == schema.Allocs
	})
}

// InUse returns the allocs in which something runs.
func (f *Facts) InUse() map[schema.TaskName]bool {
	out := map[schema.TaskName]bool{}
	for _, name := range f.ChunkNames() {
		for _, t := range f.Chunk(name).Tasks {
			if t.Alloc != nil && t.Machine != "" {
				out[t.Alloc.Of(name.Job)] = true
			}
		}
	}
	return out
}

// Movable reports whether a task runs in an alloc of a set and could be made to
// leave it.
func (f *Facts) Movable(set, job schema.JobName, t *schema.TaskRecord) bool {
	return t.Machine != "" && t.Alloc != nil && t.Alloc.Of(job).JobName == set && t.Stop == nil && f.IsUp(t.Machine)
}

// Unsettled says what of a set is on its way, which may change what belongs where;
// "" for nothing. An alloc that has found no place for long is not waited for.
func (f *Facts) Unsettled(set schema.JobName) (why string, until Until) {
	digest := f.Job(set).Admitted
	for _, t := range f.Tasks(set) {
		replaced := t.Stop != nil || t.Machine != "" && t.Data != digest
		if t.Machine == "" && t.Stop == nil {
			var changes Until
			replaced, changes = f.HoldsUp(&t, digest)
			until = until.Or(changes)
		}
		if replaced {
			return fmt.Sprintf("alloc %s is being replaced", set.Task(t.Index).Short()), until
		}
		if f.IsUp(t.Machine) && !Works(f.Said(set, &t).TaskStatus) {
			return fmt.Sprintf("alloc %s is starting", set.Task(t.Index).Short()), until
		}
	}
	for _, job := range f.InsideOf(set) {
		for _, t := range f.Tasks(job) {
			if t.Stop != nil {
				return fmt.Sprintf("%s is stopping", job.Task(t.Index).Short()), until
			}
		}
	}
	return "", until
}
