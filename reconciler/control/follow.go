package control

import (
	"maps"
	"slices"
	"time"

	"github.com/musterhq/muster/schema"
)

const (
	// retryBase is the wait after a task's first failed generation; it doubles
	// with each further one, up to RetryCap.
	retryBase = 10 * time.Second
	// RetryCap is the longest wait after failed generations of a task.
	RetryCap = 5 * time.Minute
	// AvoidFor is how long a machine is avoided on which the task failed: the
	// pairing may be what is wrong (Borg §4).
	AvoidFor = 10 * time.Minute
	// provenAfter is how long a task must run for its failures to be forgotten.
	provenAfter = 5 * time.Minute
)

// follow takes what is known of a task's generation into its record.
func (s *step) follow(job schema.JobName, t schema.TaskRecord) {
	if t.Machine == "" {
		return
	}
	if why, ok := s.released[job.Task(t.Index)]; ok {
		s.end(job, t, schema.Cause{Kind: schema.CauseMachineLost, Message: why, At: s.now})
		return
	}
	said := s.in.Observed.Task(t.Machine, job.Task(t.Index), t.Generation)
	switch {
	case said.TaskStatus == nil:
	case said.State == schema.Dead && said.End != nil:
		s.end(job, t, *said.End)
	case said.State == schema.Running && t.Failures > 0:
		if proven := said.Since.Add(provenAfter); s.now.Before(proven) {
			s.wake(proven)
		} else {
			t.Failures = 0
			s.set(job, t)
		}
	}
}

// end takes the end of a task's generation into its record: the task is done,
// or it is pending again.
func (s *step) end(job schema.JobName, t schema.TaskRecord, cause schema.Cause) {
	// The time is the master's: machines' clocks differ, and waits are counted
	// from here. The exit keeps its own.
	cause.Machine, cause.Generation, cause.At = t.Machine, t.Generation, s.now
	e := schema.Event{Job: job.Short(), Task: job.Task(t.Index).Short(), Machine: t.Machine, Generation: t.Generation, Cause: cause.Kind, Message: cause.String()}
	switch cause.Kind {
	case schema.CauseFinished:
		e.Kind = schema.EventFinish
		t.Done = cause.Exit
		if t.Done == nil {
			t.Done = &schema.Exit{At: cause.At}
		}
		t.Failures = 0
	case schema.CauseFailed, schema.CauseStartFailed:
		e.Kind = schema.EventFail
		t.Failures++
		t.NotBefore = s.now.Add(retryAfter(t.Failures))
		t.Avoid = avoid(t.Avoid, t.Machine, s.now)
	case schema.CauseMachineLost:
		e.Kind = schema.EventLost
	case schema.CausePortInUse:
		e.Kind = schema.EventEvict
		// Other ports are tried at once, but not for ever.
		if n := len(t.Causes); n > 0 && t.Causes[n-1].Kind == schema.CausePortInUse {
			t.NotBefore = s.now.Add(retryBase)
		}
	case schema.CauseOutOfResources:
		e.Kind = schema.EventEvict
		// The machine is avoided, or it would be short again at once. A task that
		// meets the same everywhere waits, longer each time.
		t.Avoid = avoid(t.Avoid, t.Machine, s.now)
		if n := evictions(t.Causes); n > 0 {
			t.NotBefore = s.now.Add(retryAfter(n))
		}
	case schema.CauseRemoved, schema.CauseScaledDown, schema.CauseRestart:
		e.Kind = schema.EventKill
		e.Message = "stopped: " + e.Message
	default:
		e.Kind = schema.EventEvict
		e.Message = "stopped: " + e.Message
	}
	s.event(e)
	if data := s.dataOf(t.Data); data.Kind != schema.System && data.Task.Sticky.Has() && ran(cause.Kind) {
		t.On = t.Machine
	}
	causes := append(slices.Clone(t.Causes), cause)
	t.Causes = causes[max(0, len(causes)-schema.MaxCauses):]
	t.Machine, t.Ports, t.Devices, t.Alloc, t.Stop = "", nil, nil, nil, nil
	s.set(job, t)
}

// ran reports whether a generation that ended so may have run.
func ran(k schema.CauseKind) bool {
	return k != schema.CauseStartFailed && k != schema.CausePortInUse
}

// evictions counts the last ends in a row that were for want of resources.
func evictions(causes []schema.Cause) int {
	n := 0
	for _, c := range slices.Backward(causes) {
		if c.Kind != schema.CauseOutOfResources {
			break
		}
		n++
	}
	return n
}

// retryAfter returns the wait after the n-th failure in a row, n from 1.
func retryAfter(n int) time.Duration {
	d := retryBase
	for ; n > 1 && d < RetryCap; n-- {
		d *= 2
	}
	return min(d, RetryCap)
}

// avoid returns the machines to avoid, those that need not be any more left out.
func avoid(was map[string]time.Time, machine string, now time.Time) map[string]time.Time {
	out := maps.Clone(was)
	if out == nil {
		out = map[string]time.Time{}
	}
	maps.DeleteFunc(out, func(_ string, until time.Time) bool { return !Ahead(now, until, AvoidFor) })
	out[machine] = now.Add(AvoidFor)
	return out
}
