package control

import (
	"slices"

	"github.com/musterhq/muster/reconciler/intent"
	"github.com/musterhq/muster/schema"
)

// askedSince returns since when the tasks of a job have been wanted, nil if all of them since its data
// changed. Those that wait go on waiting, whatever is changed of them, unless they ask for more of a
// machine than before. was is its record before, nil for none, and is the one that it gets with job.
func askedSince(s pass, was, is *schema.JobRecord, job *schema.Job) *schema.Asked {
	if was == nil || was.Admitted == "" || job.Kind == schema.System {
		return nil
	}
	old := s.Data(was.Admitted)
	before, now := old.With(was.Count).Tasks, job.With(is.Count).Tasks
	both := min(before, now)
	var steps []schema.AskedStep
	if !grows(old, job) && waitsForPlace(s, was.Name, both) {
		for _, step := range append(slices.Clip(was.AskedSteps()), schema.AskedStep{Tasks: both, Since: was.Since}) {
			if n := len(steps); n == 0 || steps[n-1].Tasks < both {
				steps = append(steps, schema.AskedStep{Tasks: min(step.Tasks, both), Since: step.Since})
			}
		}
	}
	if now > before && is.Since.Equal(was.Since) {
		steps = append(steps, schema.AskedStep{Tasks: now, Since: s.Now})
	}
	if !slices.ContainsFunc(steps, func(step schema.AskedStep) bool { return !step.Since.Equal(is.Since) }) {
		return nil
	}
	return &schema.Asked{Steps: steps[max(0, len(steps)-schema.MaxAskedSteps):], Of: is.Since}
}

// waitsForPlace reports whether one of the first tasks of a job has no place.
func waitsForPlace(s pass, job schema.JobName, tasks int) bool {
	left := tasks
	for _, t := range s.Tasks(job) {
		if t.Index < tasks && (t.Machine != "" || t.Done != nil) {
			left--
		}
	}
	return left > 0
}

// grows reports whether a task takes anything of a machine that it has not now.
func grows(old, next *schema.Job) bool {
	o, n := old.Task.Resources, next.Task.Resources
	fits := n.Resources.Fits(o.Resources)
	o.Resources, n.Resources = schema.Resources{}, schema.Resources{}
	return !fits || intent.Differ(o, n)
}
