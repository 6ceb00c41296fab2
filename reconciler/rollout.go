package reconciler

import (
	"time"

	"github.com/musterhq/muster/schema"
)

// shakyFor is how long a task must have run to count as healthy after it was
// restarted by its agent: one that crashes again and again runs now and then.
const shakyFor = 10 * time.Second

// rollOut brings the job's running tasks to the admitted data. What can change
// in place does so at once. What needs a new process is stopped, at most as
// many tasks at once as the update policy allows; tasks that do not work
// anyway go first. New data that does not get healthy so ends the rollout, and
// the tasks that were not reached run on with the old.
func (s *step) rollOut(job schema.JobName, want *schema.Job, digest schema.Digest) {
	var sick, well []schema.TaskRecord // run old data
	moving := 0                        // tasks between old and new
	for _, t := range s.tasks(job, chunksOf(want.Tasks)) {
		if t.Done != nil || t.Index >= want.Tasks {
			continue
		}
		if t.Machine == "" {
			if t.Generation != 0 {
				moving++
			}
			continue
		}
		healthy := s.healthy(job, t, want)
		switch {
		case t.Stop != nil:
			moving++
		case t.Data == digest && !healthy:
			moving++
		case t.Data == digest:
		case s.inPlace(t.Data, want):
			t.Data = digest
			s.set(job, t)
		case healthy:
			well = append(well, t)
		default:
			sick = append(sick, t)
		}
	}
	parallel := max(1, want.Update.MaxParallel)
	for _, t := range sick {
		if moving < parallel {
			s.update(job, t)
		}
		moving++ // one that stays is down all the same, and takes its part of the budget
	}
	for _, t := range well {
		if moving < parallel {
			moving++
			s.update(job, t)
		}
	}
}

func (s *step) update(job schema.JobName, t schema.TaskRecord) {
	s.stop(job, t, schema.Cause{Kind: schema.CauseUpdate, Message: "new data needs a new process", At: s.now})
}

// inPlace reports whether a task that runs the data with the given digest can
// go on as it is when want is its data.
func (s *step) inPlace(digest schema.Digest, want *schema.Job) bool {
	change, _ := Diff(s.dataOf(digest), want)
	return change != Restart
}

// healthy reports whether a task runs and does its work, long enough for the
// update policy.
func (s *step) healthy(job schema.JobName, t schema.TaskRecord, want *schema.Job) bool {
	status := s.in.Observed.status(t.Machine, job.Task(t.Index), t.Generation)
	if status == nil || status.State != schema.Running || status.Health == schema.Unhealthy || status.Health == schema.HealthUnknown {
		return false
	}
	need := time.Duration(want.Update.MinHealthySeconds) * time.Second
	if len(status.Exits) > 0 {
		need = max(need, shakyFor)
	}
	since := status.StartedAt.Add(need)
	if s.now.Before(since) {
		s.wake(since)
		return false
	}
	return true
}

// chunksOf returns how many chunks hold n tasks.
func chunksOf(n int) int { return (n + schema.ChunkSize - 1) / schema.ChunkSize }
