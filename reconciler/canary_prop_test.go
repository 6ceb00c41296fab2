package reconciler_test

import (
	"slices"

	"pgregory.net/rapid"

	"github.com/musterhq/muster/reconciler/intent"
	"github.com/musterhq/muster/reconciler/model"
	"github.com/musterhq/muster/schema"
)

// canaries is what is known of the canaries that are in progress.
type canaries map[rolloutID]int // the most tasks that may have the newest version

// rolloutID is one rollout of a job.
type rolloutID struct {
	job      schema.JobName
	admitted schema.Digest
	after    uint64
}

// running returns the newest version of each task that has ever had any.
func (a *anything) running() map[schema.TaskName]*schema.Job {
	out := map[schema.TaskName]*schema.Job{}
	for name, c := range a.state.Chunks {
		for i := range c.Tasks {
			if r := &c.Tasks[i]; r.Data != "" && r.Done == nil {
				out[name.Job.Task(r.Index)] = a.state.Data[r.Data]
			}
		}
	}
	return out
}

// canary: until a canary has passed, no more tasks than it has are given the
// newest version, but those that had it before, or can go on with it as they are.
func (a *anything) canary(t *rapid.T, before map[schema.TaskName]*schema.Job) {
	for name, r := range a.state.Jobs {
		want := a.state.Data[r.Admitted]
		if !a.hasCanary(r, want) {
			continue
		}
		id := rolloutID{name, r.Admitted, r.Rollout.After}
		most, known := a.canaries[id]
		if !known {
			had := 0
			for task, data := range before {
				if change, _ := intent.Diff(data, want); task.JobName == name && a.wants(want, task) && change != intent.Restart {
					had++
				}
			}
			most = max(want.Update.Canary.Tasks, had)
			a.canaries[id] = most
		}
		var have []int
		for task := range a.running() {
			if task.JobName == name && a.wants(want, task) && a.record(task).Data == r.Admitted {
				have = append(have, task.Index)
			}
		}
		if slices.Sort(have); len(have) > most {
			t.Fatalf("tasks %d of %s have the newest version before its canary has passed: %d may", have, name.Short(), most)
		}
	}
}

// hasCanary reports whether newest version has a canary to pass: the job has older
// data to go on with, that takes nothing which is not admitted now.
func (a *anything) hasCanary(r *schema.JobRecord, want *schema.Job) bool {
	if want == nil || want.Update.Canary == nil || r.Rollout == nil || r.Rollout.Passed || r.Rollout.Returned != "" || r.Good == "" || r.Good == r.Admitted {
		return false
	}
	base := a.state.Data[r.Good]
	change, _ := intent.Diff(base, want)
	return base.Kind == want.Kind && change == intent.Restart && base.Priority <= want.Priority && base.Priority.Band() == want.Priority.Band()
}

// record returns the record of a task, which there is.
func (a *anything) record(task schema.TaskName) *schema.TaskRecord {
	c := a.state.Chunks[model.ChunkName{Job: task.JobName, Number: task.Index / schema.ChunkSize}]
	i := slices.IndexFunc(c.Tasks, func(r schema.TaskRecord) bool { return r.Index == task.Index })
	return &c.Tasks[i]
}
