package facts

import (
	"time"

	"github.com/musterhq/muster/schema"
)

// What has run together may lose a task while others that are to join, of a job that wants more tasks or that
// has come to the gang, find no room. It comes back without these: what had places together needs no
// more than had them. That is found out by the ends of its generations.

// HadPlace reports whether a task has, or had, a place as one that goes together with others.
func HadPlace(t *schema.TaskRecord) bool {
	if t == nil || t.Generation == 0 {
		return false
	}
	if t.Machine != "" && t.Stop == nil {
		return true
	}
	last := lastEnd(t)
	return last == nil || !left(last.Kind)
}

// lastEnd returns why a task has no place that stays; nil if that is not known.
func lastEnd(t *schema.TaskRecord) *schema.Cause {
	if t.Stop != nil {
		return t.Stop
	}
	if n := len(t.Causes); n > 0 {
		return &t.Causes[n-1]
	}
	return nil
}

// left reports whether a task that ended so is no part of its job any more: if it is wanted again, it is a new one.
func left(k schema.CauseKind) bool { return k == schema.CauseScaledDown || k == schema.CauseRemoved }

// returns counts the ends of a task after which it could come back for itself: since it last had to go
// with others. A place that was taken back, since others had none, leaves it as it was before.
func returns(t *schema.TaskRecord) (n int) {
	count := func(c *schema.Cause) {
		switch {
		case c.Kind == schema.CausePreempted || left(c.Kind):
			n = 0
		case c.Kind != schema.CauseGang || n > 0:
			n++
		}
	}
	for i := range t.Causes {
		count(&t.Causes[i])
	}
	if t.Stop != nil {
		count(t.Stop)
	}
	return n
}

// CameBack reports whether a task that has a place may have got it beside those only that had places
// before.
func CameBack(t *schema.TaskRecord) bool { return returns(t) > 0 }

// WentWithAll reports whether a task last lost a place that was its own as others were preempted, or it was: it
// has got none since but with all that are wanted now. Places that were taken back do not count.
func WentWithAll(t *schema.TaskRecord) bool {
	if t.Stop != nil && t.Stop.Kind != schema.CauseGang {
		return t.Stop.Kind == schema.CausePreempted
	}
	for i := len(t.Causes) - 1; i >= 0; i-- {
		if k := t.Causes[i].Kind; k != schema.CauseGang {
			return k == schema.CausePreempted
		}
	}
	return false
}

// mayReturn reports whether a task without a place gets one beside those only that had places, where others
// joined at some time: it ran before that, or has come back since. What got its first place later got that with
// all others, or a part of them has never got any.
func mayReturn(t *schema.TaskRecord, joined time.Time) bool {
	n := returns(t)
	return n > 1 || n == 1 && t.At.Before(joined)
}

// returning returns how many tasks of which of some jobs have had places, of those whose tasks
// get places together; nil if none of them comes back without those that had none. That is so, too, where one
// of them has to wait for all, since it was preempted: the others that lack a place wait with it. missing says that
// there are jobs besides which are not admitted.
func returning(f *Facts, jobs []GangJob, missing bool) (out []GangJob) {
	joined, whole := f.Now, !missing
	for _, j := range jobs {
		had := 0
		for t := range members(f, j.Name) {
			if HadPlace(t) {
				had++
			}
		}
		if had > 0 {
			out = append(out, GangJob{j.Name, had})
		}
		if since := f.Job(j.Name).WholeSince(); had < j.Tasks {
			if whole = false; since.Before(joined) {
				joined = since
			}
		}
	}
	if whole || !comesBack(f, out, joined) {
		return nil
	}
	return out
}

// comesBack reports whether of some jobs, which others joined at some time, a task that had a place gets one
// beside those only that had places. None does while one of them has to wait for all.
func comesBack(f *Facts, jobs []GangJob, joined time.Time) (comes bool) {
	for _, j := range jobs {
		since := f.Job(j.Name).WholeSince()
		if since.Before(joined) {
			since = joined
		}
		for t := range members(f, j.Name) {
			if !HadPlace(t) || t.Machine != "" && t.Stop == nil {
				continue
			}
			if returns(t) == 0 {
				return false
			}
			comes = comes || mayReturn(t, since)
		}
	}
	return comes
}

// members yields the records of the tasks of a job that is admitted which are to run.
func members(f *Facts, name schema.JobName) func(func(*schema.TaskRecord) bool) {
	want := f.Admitted(name).Tasks
	return func(yield func(*schema.TaskRecord) bool) {
		for _, t := range f.Tasks(name) {
			if t.Done == nil && t.Index < want && !yield(&t) {
				return
			}
		}
	}
}
