package facts

import (
	"fmt"
	"maps"
	"slices"

	"github.com/musterhq/muster/reconciler/intent"
	"github.com/musterhq/muster/schema"
)

// Gang is the jobs of a user that name the same gang.
type Gang struct {
	Name string
	Jobs []GangJob // sorted by name
	// Returning are those that tasks need which had places and come back: how many of which job
	// have had some, where others have not got theirs yet. nil if no task comes back without these.
	Returning []GangJob
	// Waits says what it waits for that no machine decides, "" for nothing.
	Waits string
}

// GangJob is a job of a gang, and how many of its tasks have to have places.
type GangJob struct {
	Name  schema.JobName
	Tasks int
}

// Gangs are the gangs of a cell, as they were when it was first asked for one.
type Gangs struct {
	facts *Facts
	index *GangIndex
	ready bool // index is as the facts are
	known map[gangName]*Gang
}

type gangName struct{ user, gang string }

// gangJobs are the jobs of a gang that are admitted, and those that are declared only.
type gangJobs struct {
	admitted []schema.JobName
	missing  []*schema.Job
}

// GangIndex is which jobs name which gang, as one step leaves it to the next one: so that it is
// looked at those only that changed. It goes with one State. The zero value is empty.
type GangIndex struct {
	written int              // see model.State.WrittenSince
	drafted []schema.JobName // as they were when it was looked at them, which need not be stored
	named   map[schema.JobName]gangName
	members map[gangName]map[schema.JobName]bool
	// declared are the jobs by the gang that they name in desired.
	declared map[gangName][]*schema.Job
	desired  *intent.Desired
	looks    int // at jobs, for tests
	// protected are the jobs that say that their tasks may not be preempted; version is another
	// number when these have changed, or of which gangs they are.
	protected map[schema.JobName]bool
	version   int
}

// Looks returns at how many jobs it was looked so far, to be measured.
func (x *GangIndex) Looks() int { return x.looks }

// GangsOf returns the gangs of a cell. It looks at nothing before it is asked for one.
func GangsOf(f *Facts, index *GangIndex) *Gangs {
	return &Gangs{facts: f, index: index, known: map[gangName]*Gang{}}
}

// Of returns the gang that a job names in what is admitted of it, whichever version its tasks
// have; nil if it names none.
func (g *Gangs) Of(name schema.JobName) *Gang {
	job := g.facts.Admitted(name)
	if job == nil || job.Gang == "" {
		return nil
	}
	key := gangName{job.User, job.Gang}
	if g.known[key] == nil {
		if !g.ready {
			g.ready = true
			g.index.update(g.facts)
		}
		g.known[key] = gangOf(g.facts, key.gang, g.index.jobs(g.facts, key))
	}
	return g.known[key]
}

// Protected returns a function that reports whether no task of a job is preempted, by what is
// admitted of it now, whichever versions tasks have: where each job of its gang says so, since a gang
// goes as a whole. It is nil if that is so of no job. The version is another number when the answers may
// be others.
func (g *Gangs) Protected() (is func(schema.JobName) bool, version int) {
	x := g.index
	x.update(g.facts)
	g.ready = true
	if len(x.protected) == 0 {
		return nil, x.version
	}
	return x.protects, x.version
}

// protects reports whether a job, and each one of its gang, says that its tasks may not be preempted.
func (x *GangIndex) protects(name schema.JobName) bool {
	if !x.protected[name] {
		return false
	}
	for mate := range x.members[x.named[name]] {
		if !x.protected[mate] {
			return false
		}
	}
	return true
}

// update takes over what has become of jobs.
func (x *GangIndex) update(f *Facts) {
	names, next, ok := f.Base.WrittenSince(x.written)
	if !ok || x.named == nil {
		*x = GangIndex{
			named: map[schema.JobName]gangName{}, members: map[gangName]map[schema.JobName]bool{}, looks: x.looks,
			protected: map[schema.JobName]bool{}, version: x.version + 1,
		}
		names = f.Jobs()
	}
	changed := f.ChangedJobs()
	for _, list := range [][]schema.JobName{names, x.drafted, changed} {
		for _, name := range list {
			x.looks++
			x.set(name, f.Admitted(name))
		}
	}
	x.written, x.drafted = next, changed
	if x.desired == f.Desired {
		return
	}
	x.declared, x.desired = map[gangName][]*schema.Job{}, f.Desired
	for _, d := range f.Desired.Jobs {
		x.looks++
		if d.Job != nil && d.Job.Gang != "" {
			key := gangName{d.Job.User, d.Job.Gang}
			x.declared[key] = append(x.declared[key], d.Job)
		}
	}
}

// set takes down what is admitted of a job, nil for nothing.
func (x *GangIndex) set(name schema.JobName, job *schema.Job) {
	x.protect(name, job)
	key := gangName{}
	if job != nil && job.Gang != "" {
		key = gangName{job.User, job.Gang}
	}
	was, ok := x.named[name]
	if was == key {
		return
	}
	x.version++
	if ok {
		if delete(x.members[was], name); len(x.members[was]) == 0 {
			delete(x.members, was)
		}
		delete(x.named, name)
	}
	if key == (gangName{}) {
		return
	}
	x.named[name] = key
	if x.members[key] == nil {
		x.members[key] = map[schema.JobName]bool{}
	}
	x.members[key][name] = true
}

// protect takes down whether a job says that its tasks may not be preempted.
func (x *GangIndex) protect(name schema.JobName, job *schema.Job) {
	is := job != nil && job.NeverPreempted()
	if is != x.protected[name] {
		x.version++
	}
	if delete(x.protected, name); is {
		x.protected[name] = true
	}
}

// jobs returns the jobs of a gang.
func (x *GangIndex) jobs(f *Facts, key gangName) (out gangJobs) {
	out.admitted = slices.SortedFunc(maps.Keys(x.members[key]), schema.JobName.Compare)
	for _, job := range x.declared[key] {
		if f.Admitted(job.ID()) == nil {
			out.missing = append(out.missing, job)
		}
	}
	return out
}

// gangOf returns a gang by its jobs, of which one at least is admitted.
func gangOf(f *Facts, name string, jobs gangJobs) *Gang {
	g := &Gang{Name: name}
	first := f.Admitted(jobs.admitted[0])
	for _, job := range jobs.admitted {
		g.Jobs = append(g.Jobs, GangJob{job, Together(f, job)})
	}
	other := otherPriority(f, g.Jobs)
	if g.Returning = returning(f, g.Jobs, len(jobs.missing) > 0); otherPriority(f, g.Returning) != nil {
		g.Returning = nil
	}
	switch {
	case len(jobs.missing) > 0 && !hasRun(f, jobs.admitted):
		missing := slices.MinFunc(jobs.missing, func(a, b *schema.Job) int { return a.ID().Compare(b.ID()) })
		g.Waits = fmt.Sprintf("gang %s: waits for job %s, which is not admitted", name, missing.Name)
	case other != nil:
		g.Waits = fmt.Sprintf("gang %s: job %s has priority %d and job %s %d, and a gang has one", name, first.Name, first.Priority, other.Name, other.Priority)
	}
	return g
}

// hasRun reports whether a task of some jobs has had a place: they were all of their gang once, and
// the others, which are not admitted, have joined it since.
func hasRun(f *Facts, jobs []schema.JobName) bool {
	return slices.ContainsFunc(jobs, func(job schema.JobName) bool {
		for _, t := range f.Tasks(job) {
			if t.Generation > 0 {
				return true
			}
		}
		return false
	})
}

// otherPriority returns the first job that has another priority than the first one; nil if none has.
func otherPriority(f *Facts, jobs []GangJob) *schema.Job {
	for _, j := range jobs {
		if job := f.Admitted(j.Name); job.Priority != f.Admitted(jobs[0].Name).Priority {
			return job
		}
	}
	return nil
}

// ReturningTo returns, of a job whose tasks get places together, how many of them have had places, where one
// comes back without the others; 0 if none does.
func ReturningTo(f *Facts, name schema.JobName) int {
	if jobs := returning(f, []GangJob{{name, Together(f, name)}}, false); len(jobs) > 0 {
		return jobs[0].Tasks
	}
	return 0
}

// Together returns how many tasks of a job that is admitted have to have places for any to get
// one, where all get places or none: all but those that are done.
func Together(f *Facts, name schema.JobName) int {
	want := f.Admitted(name).Tasks
	n := want
	for _, t := range f.Tasks(name) {
		if t.Done != nil && t.Index < want {
			n--
		}
	}
	return n
}
