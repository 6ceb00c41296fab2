package plan

import (
	"slices"
	"time"

	"github.com/musterhq/muster/reconciler/model"
	"github.com/musterhq/muster/schema"
)

// seen is how long the tasks of jobs took from their start until they were healthy, when their
// machines said so last.
type seen struct {
	median map[seenKey]time.Duration
	of     map[*schema.Job]time.Duration // looked up already
}

// seenKey is the tasks of a job with the same health check: what they took with another one says
// nothing of this one.
type seenKey struct {
	job   schema.JobName
	check schema.Digest // with timings
}

// keyOf returns the tasks that a job's are of.
func keyOf(job *schema.Job) seenKey {
	h := job.Task.Health.Timed()
	return seenKey{job.ID(), schema.DigestOf(&h)}
}

// seenOf returns what was seen of the tasks that run on machines with data that the state has. Agents
// of earlier releases do not say it.
func seenOf(s *model.State, machines []model.SavedMachine) seen {
	byData := map[schema.Digest][]int64{} // milliseconds
	for i := range machines {
		if machines[i].Report == nil {
			continue
		}
		tasks := machines[i].Report.Tasks
		for j := range tasks {
			if t := &tasks[j]; t.HealthyMillis > 0 && t.State == schema.Running {
				byData[t.Data] = append(byData[t.Data], t.HealthyMillis)
			}
		}
	}
	took := map[seenKey][]int64{}
	for digest, millis := range byData {
		if job := s.Data[digest]; job != nil && job.Task.Health != nil {
			took[keyOf(job)] = append(took[keyOf(job)], millis...)
		}
	}
	out := seen{map[seenKey]time.Duration{}, map[*schema.Job]time.Duration{}}
	for k, millis := range took {
		slices.Sort(millis)
		n := len(millis)
		out.median[k] = time.Duration(millis[(n-1)/2]+millis[n/2]) * time.Millisecond / 2
	}
	return out
}

// after returns the median of the tasks with the same check as a job's, 0 if none was seen.
func (s *seen) after(job *schema.Job) time.Duration {
	if len(s.median) == 0 {
		return 0
	}
	took, ok := s.of[job]
	if !ok {
		took = s.median[keyOf(job)]
		s.of[job] = took
	}
	return took
}
