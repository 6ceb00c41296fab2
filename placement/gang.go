package placement

import (
	"slices"

	"github.com/musterhq/muster/placement/layers"
	"github.com/musterhq/muster/schema"
)

// gangs numbers the gangs of tasks that machines hold, from 1 on, and says which jobs are in
// each, or once were.
type gangs struct {
	ids  layers.Index[gangName, int32]
	jobs layers.Table[[]int32] // by number less 1; never written in place
	all  layers.Table[string]  // names, in the same way
}

type gangName struct{ cell, user, gang string }

func newGangs() gangs { return gangs{ids: layers.NewIndex[gangName, int32](0)} }

func (g *gangs) fork() gangs { return gangs{g.ids.Fork(), g.jobs.Fork(), g.all.Fork()} }

func (g *gangs) parts() []layers.Part { return []layers.Part{&g.ids, &g.jobs, &g.all} }

// join has a job be in a gang of its user, and returns the number of that.
func (g *gangs) join(job schema.JobName, gang string, id int32) int32 {
	key := gangName{job.Cell, job.User, gang}
	n, known := g.ids.Get(key)
	if !known {
		g.all.Add(gang)
		n = g.jobs.Add(nil) + 1
		g.ids.Set(key, n)
	}
	if jobs := *g.jobs.At(n - 1); !slices.Contains(jobs, id) {
		*g.jobs.Edit(n - 1) = append(slices.Clip(jobs), id)
	}
	return n
}

// name returns the name of a gang, "" for 0.
func (g *gangs) name(n int32) string {
	if n == 0 {
		return ""
	}
	return *g.all.At(n - 1)
}

// crowd is asks that are decided together: those of a job, or of a gang of its user.
type crowd struct {
	cell, user, gang, job string
	returns               bool // see Ask.Returns
}

func crowdOf(a *Ask) crowd {
	if a.Gang != nil {
		return crowd{cell: a.Name.Cell, user: a.Name.User, gang: a.Gang.Name, returns: a.Returns}
	}
	return crowd{cell: a.Name.Cell, user: a.Name.User, job: a.Name.Job, returns: a.Returns}
}

// musts returns how many tasks of which jobs have to have places.
func (a *Ask) musts() []GangJob {
	if a.Gang != nil {
		return a.Gang.Jobs
	}
	return []GangJob{{a.Name.JobName, a.Together}}
}

// With reports whether the ask is decided with those of a job, which may be its own.
func (a *Ask) With(job schema.JobName) bool {
	return a.gathers() && slices.ContainsFunc(a.musts(), func(j GangJob) bool { return j.Job == job })
}

// roll counts, of the jobs whose tasks get places together, those that have one.
type roll struct {
	must []GangJob
	has  []int
}

func (r *roll) add(job schema.JobName, by int) {
	if i := slices.IndexFunc(r.must, func(m GangJob) bool { return m.Job == job }); i >= 0 {
		r.has[i] += by
	}
}

// places returns how many have a place, and how many have to.
func (r *roll) places() (has, must int) {
	for i := range r.must {
		has, must = has+min(r.has[i], r.must[i].Tasks), must+r.must[i].Tasks
	}
	return has, must
}

// lacks returns the jobs that have too few places, and how many are missing.
func (r *roll) lacks() (out []GangLack) {
	for i := range r.must {
		if n := r.must[i].Tasks - r.has[i]; n > 0 {
			out = append(out, GangLack{r.must[i].Job.Job, n})
		}
	}
	return out
}
