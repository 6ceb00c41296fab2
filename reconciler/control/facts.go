package control

import (
	"github.com/musterhq/muster/reconciler/model"
	"github.com/musterhq/muster/schema"
)

// Facts answers what is so in a cell, by what is stored and heard, as the controllers
// see it. It decides nothing, and what it is made of is not written to. It is of one
// moment, and belongs to one goroutine.
type Facts struct {
	in     Input
	last   *Output
	health map[string]model.Health // by machine; made with step
	step   *step                   // see plain; nil until it is needed
}

// NewFacts returns the facts of what in has; last is what the newest step decided.
func NewFacts(in Input, last *Output) *Facts { return &Facts{in: in, last: last} }

// plain returns a step on a draft without changes, which is thrown away: it knows of
// machines which are up, and no more.
func (f *Facts) plain() *step {
	if f.step == nil {
		f.step, f.health = newStep(f.in), map[string]model.Health{}
		for _, name := range f.step.names {
			if f.health[name], _ = f.in.Observed.HealthOf(f.in.State.Machines[name], f.in.Now); f.health[name] == model.HealthUp {
				f.step.up = append(f.step.up, name)
			}
		}
	}
	return f.step
}

// Machines returns the names of all machines, sorted.
func (f *Facts) Machines() []string { return f.plain().names }

// Health returns how a machine is, "" of one that the cell does not know.
func (f *Facts) Health(machine string) model.Health {
	f.plain()
	return f.health[machine]
}

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
	s := f.plain()
	p := s.progressOf(name, r, want)
	out := RolloutFacts{Protects: s.protects(r, &p), Healthy: p.healthy, Canary: s.canaryOf(r, want)}
	if out.Canary != nil {
		out.CanaryPassed, out.CanaryTasks = s.canaryTasks(name, want, &p)
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
	s := f.plain()
	asked := s.asked[name]
	out := make([]RestartFacts, 0, len(asked))
	for _, x := range asked {
		p := s.restartProgressOf(name, x)
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
