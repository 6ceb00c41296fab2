package quota

import (
	"fmt"
	"slices"

	"github.com/musterhq/muster/reconciler/intent"
	"github.com/musterhq/muster/schema"
)

// The jobs of a gang are admitted together or not at all: a part of a gang gets no places, and
// would use quota. So they are asked as one, when the first of them by name has its turn, and with
// the lowest priority that one of them has. A job that is kept as it is by an overlay, or returns to
// the version before, is asked alone: what its gang is to be has no part in that.

// gangsOf returns the jobs of each gang that has several, sorted by name, by each of these jobs.
func gangsOf(d *intent.Desired, names []schema.JobName) map[schema.JobName][]schema.JobName {
	type gang struct{ user, name string }
	var members map[gang][]schema.JobName
	for _, name := range names {
		if job := d.Jobs[name]; job.Job.Gang != "" && job.By == "" {
			if members == nil {
				members = map[gang][]schema.JobName{}
			}
			g := gang{name.User, job.Job.Gang}
			members[g] = append(members[g], name)
		}
	}
	var out map[schema.JobName][]schema.JobName
	for _, jobs := range members {
		if len(jobs) < 2 {
			continue
		}
		if out == nil {
			out = map[schema.JobName][]schema.JobName{}
		}
		for _, name := range jobs {
			out[name] = jobs
		}
	}
	return out
}

// together takes each of some jobs as soon as it fits beside those that are taken already, so that
// each of them is within the bounds after those before it. It returns in which order it has taken
// them, and those that do not fit.
func together[J any](jobs []J, fits func(J) bool, take func(J)) (taken, lacking []J) {
	if len(jobs) == 1 { // as nearly always
		if !fits(jobs[0]) {
			return nil, jobs
		}
		take(jobs[0])
		return jobs, nil
	}
	lacking = jobs
	for before := -1; len(lacking) > 0 && len(lacking) != before; {
		before = len(lacking)
		var left []J
		for _, j := range lacking {
			if !fits(j) {
				left = append(left, j)
				continue
			}
			take(j)
			taken = append(taken, j)
		}
		lacking = left
	}
	return taken, lacking
}

// giveBack undoes what together has done.
func giveBack[J any](taken []J, leave func(J)) {
	for _, j := range slices.Backward(taken) {
		leave(j)
	}
}

// unchanged reports whether a job surely runs what is desired of it, and is still declared where it was.
func (in Input) unchanged(name schema.JobName, d *intent.DesiredJob) bool {
	r := in.Records[name]
	return r != nil && r.Admitted != "" && r.Admitted == d.Digest && r.Origin.Path == d.Origin.Path &&
		(r.Count == d.Count || r.Count != nil && d.Count != nil && *r.Count == *d.Count)
}

// withGang rejects a job that fits, of whose gang another one does not, which is rejected already;
// but one that asks for nothing new, which goes on as it is.
func (a *Admission) withGang(in Input, name, other schema.JobName) {
	d := in.Desired.Jobs[name]
	if in.unchanged(name, &d) {
		a.Order = append(a.Order, name)
		return
	}
	why := a.Rejected[other]
	a.Causes[name] = RejectedGang
	if heal, heals := a.Heals[other]; heals {
		a.Heals[name] = heal
	}
	a.Rejected[name] = &schema.Diagnostic{
		Severity: schema.Error, Rule: why.Rule, Position: d.Origin, Field: intent.KeyOf(d.Job).Field() + ".gang",
		Message:  fmt.Sprintf("gang %q is admitted as a whole, and job %s of it is not: %s", d.Job.Gang, other.Job, why.Message),
		Expected: fmt.Sprintf("all jobs of gang %q to be admitted", d.Job.Gang), Hint: why.Hint,
	}
}
