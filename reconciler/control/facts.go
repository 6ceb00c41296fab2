package control

import (
	"github.com/musterhq/muster/reconciler/model"
	"github.com/musterhq/muster/schema"
)

// Facts answers what is so in a cell, by what is stored and heard, as the controllers
// see it. It decides nothing, and what it is made of is not written to. It is of one
// moment, and belongs to one goroutine.
type Facts struct {
	in   Input
	last *Output
	step *step // on a draft without changes, which is thrown away
}

// NewFacts returns the facts of what in has; last is what the newest step decided.
func NewFacts(in Input, last *Output) *Facts {
	f := &Facts{in: in, last: last, step: newStep(in)}
	for _, name := range f.step.names {
		if health, _ := in.Observed.HealthOf(in.State.Machines[name], in.Now); health == model.HealthUp {
			f.step.up = append(f.step.up, name)
		}
	}
	return f
}

// Machines returns the names of all machines, sorted.
func (f *Facts) Machines() []string { return f.step.names }

// RolloutFacts is how far the rollout of a job has come.
type RolloutFacts struct {
	// Protects says that something is to be kept from a version that fails: an older one
	// that runs, or ran well.
	Protects bool
	Healthy  int // tasks with the newest version that are healthy
	// Canary is what the newest version has yet to pass, nil for nothing. It has so many
	// tasks, of which so many are healthy.
	Canary                    *schema.Canary
	CanaryTasks, CanaryPassed int
}

// Rollout returns how far the rollout of an admitted job has come.
func (f *Facts) Rollout(name schema.JobName, r *schema.JobRecord) RolloutFacts {
	want := f.in.State.Data[r.Admitted]
	p := f.step.progressOf(name, r, want)
	out := RolloutFacts{Protects: f.step.protects(r, &p), Healthy: p.healthy, Canary: f.step.canaryOf(r, want)}
	if out.Canary != nil {
		out.CanaryPassed, out.CanaryTasks = f.step.canaryTasks(name, want, &p)
	}
	return out
}

// RestartFacts is a restart, and how many of its tasks are restarted and healthy.
type RestartFacts struct {
	*schema.RestartRequest
	Done int
}

// Restarts returns the restarts of a job, sorted by name.
func (f *Facts) Restarts(name schema.JobName) []RestartFacts {
	asked := f.step.asked[name]
	out := make([]RestartFacts, 0, len(asked))
	for _, x := range asked {
		p := f.step.restartProgressOf(name, x)
		out = append(out, RestartFacts{x.RestartRequest, p.done(x.RestartRequest)})
	}
	return out
}

// MayDisrupt reports whether one more task of a job may be stopped now by its budget.
func (f *Facts) MayDisrupt(job schema.JobName) bool { return f.surveyed().mayDisrupt(job) }

// surveyed returns a step that knows of each machine what the controllers know.
func (f *Facts) surveyed() *step {
	s := newStep(f.in)
	s.surveyMachines()
	return s
}
