package facts

import (
	"fmt"
	"slices"

	"github.com/musterhq/muster/schema"
)

// Gang is the jobs of a user that name the same gang.
type Gang struct {
	Name string
	Jobs []GangJob // sorted by name
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
	jobs  map[gangName]gangJobs // nil before that
	known map[gangName]*Gang
}

type gangName struct{ user, gang string }

// gangJobs are the jobs of a gang that are admitted, and those that are declared only.
type gangJobs struct {
	admitted []schema.JobName
	missing  []*schema.Job
}

// GangsOf returns the gangs of a cell. It looks at nothing before it is asked for one.
func GangsOf(f *Facts) *Gangs { return &Gangs{facts: f, known: map[gangName]*Gang{}} }

// Of returns the gang that a job names in what is admitted of it, whichever version its tasks
// have; nil if it names none.
func (g *Gangs) Of(name schema.JobName) *Gang {
	job := g.facts.Admitted(name)
	if job == nil || job.Gang == "" {
		return nil
	}
	key := gangName{job.User, job.Gang}
	if g.known[key] == nil {
		if g.jobs == nil {
			g.find()
		}
		g.known[key] = gangOf(g.facts, key.gang, g.jobs[key])
	}
	return g.known[key]
}

// find looks through all jobs.
func (g *Gangs) find() {
	g.jobs = map[gangName]gangJobs{}
	for _, name := range g.facts.Jobs() {
		if job := g.facts.Admitted(name); job != nil && job.Gang != "" {
			key := gangName{job.User, job.Gang}
			x := g.jobs[key]
			x.admitted = append(x.admitted, name)
			g.jobs[key] = x
		}
	}
	for name, d := range g.facts.Desired.Jobs {
		if d.Job != nil && d.Job.Gang != "" && g.facts.Admitted(name) == nil {
			key := gangName{d.Job.User, d.Job.Gang}
			x := g.jobs[key]
			x.missing = append(x.missing, d.Job)
			g.jobs[key] = x
		}
	}
}

// gangOf returns a gang by its jobs, of which one at least is admitted.
func gangOf(f *Facts, name string, jobs gangJobs) *Gang {
	g := &Gang{Name: name}
	first := f.Admitted(jobs.admitted[0])
	var other *schema.Job
	for _, job := range jobs.admitted {
		g.Jobs = append(g.Jobs, GangJob{job, Together(f, job)})
		if j := f.Admitted(job); other == nil && j.Priority != first.Priority {
			other = j
		}
	}
	switch {
	case len(jobs.missing) > 0:
		missing := slices.MinFunc(jobs.missing, func(a, b *schema.Job) int { return a.ID().Compare(b.ID()) })
		g.Waits = fmt.Sprintf("gang %s: waits for job %s, which is not admitted", name, missing.Name)
	case other != nil:
		g.Waits = fmt.Sprintf("gang %s: job %s has priority %d and job %s %d, and a gang has one", name, first.Name, first.Priority, other.Name, other.Priority)
	}
	return g
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
