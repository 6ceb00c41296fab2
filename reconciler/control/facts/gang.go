package facts

import (
	"fmt"
	"slices"

	"github.com/musterhq/muster/schema"
)

// Gang is the jobs of a user that name the same gang.
type Gang struct {
	Jobs []GangJob
	// Waits says what it waits for that no machine decides, "" for nothing.
	Waits string
}

// GangJob is a job of a gang, and how many of its tasks have to have places.
type GangJob struct {
	Name  schema.JobName
	Tasks int
}

// GangOf returns the gang of a job that names one: of each of its jobs all tasks have to have
// places but those that are done. It looks through all jobs.
func GangOf(f *Facts, of *schema.Job) *Gang {
	g := &Gang{}
	is := func(j *schema.Job) bool { return j != nil && j.Gang == of.Gang && j.User == of.User }
	var priorities []*schema.Job
	for _, name := range f.Jobs() {
		job := f.Admitted(name)
		if !is(job) {
			continue
		}
		n := job.Tasks
		for _, t := range f.Tasks(name) {
			if t.Done != nil && t.Index < job.Tasks {
				n--
			}
		}
		g.Jobs = append(g.Jobs, GangJob{name, n})
		priorities = append(priorities, job)
	}
	byName := func(a, b *schema.Job) int { return a.ID().Compare(b.ID()) }
	var missing []*schema.Job
	for name, d := range f.Desired.Jobs {
		if is(d.Job) && f.Admitted(name) == nil {
			missing = append(missing, d.Job)
		}
	}
	first := slices.MinFunc(priorities, byName)
	priorities = slices.DeleteFunc(priorities, func(j *schema.Job) bool { return j.Priority == first.Priority })
	switch {
	case len(missing) > 0:
		g.Waits = fmt.Sprintf("gang %s: waits for job %s, which is not admitted", of.Gang, slices.MinFunc(missing, byName).Name)
	case len(priorities) > 0:
		other := slices.MinFunc(priorities, byName)
		g.Waits = fmt.Sprintf("gang %s: job %s has priority %d and job %s %d, and a gang has one", of.Gang, first.Name, first.Priority, other.Name, other.Priority)
	}
	return g
}
