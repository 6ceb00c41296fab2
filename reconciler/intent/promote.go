package intent

import (
	"fmt"
	"slices"
	"time"

	"github.com/musterhq/muster/reconciler/model"
	"github.com/musterhq/muster/schema"
)

// promote takes down which rollouts may go on beyond their canary, or after they
// were paused, since commits say so. What they mean is the version that the job has
// when they are taken, but for the jobs that the commit with the trailer changes:
// these are given, and the head remembers that their new version is meant.
// The writes go before the head's, so that none is lost, and are the same when
// they are made again.
func promote(s *model.State, c schema.Compiled, brings []string, now time.Time) (writes []model.Write, events []schema.Event) {
	for _, why := range c.Ignored {
		events = append(events, schema.Event{At: now, Kind: schema.EventApply, Commit: c.Commit, Message: why})
	}
	for _, short := range slices.Compact(slices.Sorted(slices.Values(c.Promote))) {
		e := schema.Event{At: now, Kind: schema.EventRollout, Commit: c.Commit}
		name, err := schema.ParseJobName(s.Cell + "/" + short)
		if err != nil {
			e.Message = fmt.Sprintf("the trailer %s: %q names no job: want USER/JOB", schema.PromoteTrailer, short)
			events = append(events, e)
			continue
		}
		e.Job = name.Short()
		if slices.Contains(brings, e.Job) {
			e.Message = "promoted by its own commit: it continues when its canary is healthy"
			events = append(events, e)
			continue
		}
		r := s.Jobs[name]
		if why := notPromoted(s, r); why != "" {
			e.Message = fmt.Sprintf("the trailer %s has no effect: %s", schema.PromoteTrailer, why)
			events = append(events, e)
			continue
		}
		next, rollout := *r, *r.Rollout
		e.Message = "promoted by a commit"
		if rollout.Failed != "" {
			e.Message = fmt.Sprintf("continued by a commit, though it has failed: %s", rollout.Failed)
			rollout.Failed, rollout.FailedAt, rollout.Progress = "", time.Time{}, now
			rollout.After, rollout.Passed = s.Counter, true
		}
		rollout.Promoted, next.Rollout = true, &rollout
		writes = append(writes, s.Document(model.KeyJob+name.Short(), &next))
		events = append(events, e)
	}
	return writes, events
}

// changed returns which of the given jobs (user/job) have a canary, and run another
// version than next declares, sorted.
func changed(s *model.State, next *Desired, jobs []string) []string {
	var out []string
	for _, short := range slices.Compact(slices.Sorted(slices.Values(jobs))) {
		name := s.JobName(short)
		if d, ok := next.Jobs[name]; ok && d.Job.Update.Canary != nil && Differ(s.Runs(name), d.Job.With(d.Count)) {
			out = append(out, short)
		}
	}
	return out
}

// notPromoted says why a job's rollout cannot be promoted, "" if it can.
func notPromoted(s *model.State, r *schema.JobRecord) string {
	switch {
	case r == nil || r.Admitted == "":
		return "the cell has no such job"
	case r.Rollout == nil:
		return "no rollout of it is in progress"
	case r.Rollout.Returned != "":
		return "it has returned to its last healthy version: change the job"
	case r.Rollout.Failed != "":
		return ""
	case s.Data[r.Admitted].Update.Canary == nil:
		return "its version has no canary"
	case r.Rollout.Passed || r.Rollout.Promoted:
		return "its rollout has continued already"
	}
	return ""
}
