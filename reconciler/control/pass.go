package control

import (
	"maps"
	"slices"
	"time"

	"github.com/musterhq/muster/reconciler/control/draft"
	"github.com/musterhq/muster/reconciler/control/facts"
	"github.com/musterhq/muster/schema"
)

// pass is what all controllers of a step have: what is so, what is to become of it, and
// who is to be looked at again when. What else one needs it has by itself.
type pass struct {
	*facts.Facts
	*draft.Draft
	*timers
}

// retryBase is the wait after a task's first failed generation; it doubles with each
// further one, up to facts.RetryCap.
const retryBase = 10 * time.Second

// stop has a task's machine end its generation.
func (s pass) stop(job schema.JobName, t schema.TaskRecord, cause schema.Cause) {
	cause.Machine, cause.Generation = t.Machine, t.Generation
	t.Stop = &cause
	s.Set(job, t)
	if want := s.Admitted(job); want != nil && want.Spread != nil && len(want.Spread.MaxSkew) > 0 {
		s.another() // its domain may have another task from now on, and one may have been refused that
	}
	kind := schema.EventKill
	switch cause.Kind {
	case schema.CauseUpdate, schema.CausePreempted, schema.CauseMaintenance, schema.CauseOutOfResources, schema.CauseAllocGone, schema.CauseRebalance, schema.CauseGang:
		kind = schema.EventEvict
	}
	s.Event(schema.Event{Kind: kind, Job: job.Short(), Task: job.Task(t.Index).Short(), Machine: t.Machine, Generation: t.Generation, Cause: cause.Kind, Message: cause.Message})
}

// end takes the end of a task's generation into its record: the task is done,
// or it is pending again.
func (s pass) end(job schema.JobName, t schema.TaskRecord, cause schema.Cause) {
	// The time is the master's: machines' clocks differ, and waits are counted
	// from here. The exit keeps its own.
	cause.Machine, cause.Generation, cause.At = t.Machine, t.Generation, s.Now
	if t.Stop != nil && t.Stop.Kind == cause.Kind {
		cause.To = t.Stop.To // which machines are not sent
	}
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
		t.NotBefore = s.Now.Add(retryAfter(t.Failures))
		t.Avoid = avoid(t.Avoid, t.Machine, s.Now)
	case schema.CauseMachineLost:
		e.Kind = schema.EventLost
	case schema.CausePortInUse:
		e.Kind = schema.EventEvict
		// Other ports are tried at once, but not for ever.
		if n := len(t.Causes); n > 0 && t.Causes[n-1].Kind == schema.CausePortInUse {
			t.NotBefore = s.Now.Add(retryBase)
		}
	case schema.CauseOutOfResources:
		e.Kind = schema.EventEvict
		// The machine is avoided, or it would be short again at once. A task that
		// meets the same everywhere waits, longer each time.
		t.Avoid = avoid(t.Avoid, t.Machine, s.Now)
		if n := evictions(t.Causes); n > 0 {
			t.NotBefore = s.Now.Add(retryAfter(n))
		}
	case schema.CauseRemoved, schema.CauseScaledDown, schema.CauseRestart:
		e.Kind = schema.EventKill
		e.Message = "stopped: " + e.Message
	default:
		e.Kind = schema.EventEvict
		e.Message = "stopped: " + e.Message
	}
	s.Event(e)
	if data := s.Data(t.Data); data.Kind != schema.System && data.Task.Sticky.Has() && ran(cause.Kind) {
		t.On = t.Machine
	}
	if t.Had = nil; facts.RunsAgain(&cause) {
		t.Had = t.Devices
	}
	causes := append(slices.Clone(t.Causes), cause)
	t.Causes = causes[max(0, len(causes)-schema.MaxCauses):]
	t.Machine, t.Ports, t.OwnNetwork, t.Devices, t.Alloc, t.Stop, t.Bring = "", nil, false, nil, nil, nil, nil
	s.Set(job, t)
}

// ran reports whether a generation that ended so may have run.
func ran(k schema.CauseKind) bool {
	return k != schema.CauseStartFailed && k != schema.CausePortInUse
}

// evictions counts the last ends in a row that were for lack of resources.
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
	for ; n > 1 && d < facts.RetryCap; n-- {
		d *= 2
	}
	return min(d, facts.RetryCap)
}

// avoid returns the machines to avoid, those that need not be any more left out.
func avoid(was map[string]time.Time, machine string, now time.Time) map[string]time.Time {
	out := maps.Clone(was)
	if out == nil {
		out = map[string]time.Time{}
	}
	maps.DeleteFunc(out, func(_ string, until time.Time) bool { return !facts.Ahead(now, until, facts.AvoidFor) })
	out[machine] = now.Add(facts.AvoidFor)
	return out
}
