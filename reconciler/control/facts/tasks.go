package facts

import (
	"fmt"
	"slices"
	"time"

	"github.com/musterhq/muster/reconciler/intent"
	"github.com/musterhq/muster/reconciler/model"
	"github.com/musterhq/muster/schema"
)

const (
	// shakyFor is how long a task must have run to count as healthy after it was
	// restarted by its agent: one that crashes again and again runs now and then.
	shakyFor = 10 * time.Second
	// comesBackWithin is how long a task that lost its machine holds up a rollout:
	// one that finds no room would do so for ever, even where the rollout is what
	// makes room.
	comesBackWithin = time.Minute
	// RetryCap is the longest wait after failed generations of a task.
	RetryCap = 5 * time.Minute
	// AvoidFor is how long a machine is avoided on which the task failed: the
	// pairing may be what is wrong (Borg §4).
	AvoidFor = 10 * time.Minute
	// ApartFor is how long two jobs are kept apart of which one made the other wait for
	// processors: load comes and goes by the hour, and what is worse is only the machine that
	// is chosen.
	ApartFor = time.Hour
)

// Works reports whether a task runs and does its work.
func Works(t *schema.TaskStatus) bool {
	return t != nil && t.State == schema.Running && t.Health != schema.Unhealthy && t.Health != schema.HealthUnknown
}

// Frozen reports whether a job is left as it is.
func (f *Facts) Frozen(name schema.JobName) bool { return f.Suspended.Of(name) != nil }

// Said returns what is known of the generation of a task that has a machine.
func (f *Facts) Said(job schema.JobName, t *schema.TaskRecord) model.ReportedTask {
	said := f.known.saidOf(job, t.Index, func() int { return f.highest(job) + 1 })
	if said.generation != t.Generation || said.on.over || said.on.record.Name != t.Machine {
		on := f.known.machines[t.Machine]
		if on == nil {
			return f.Observed.Task(t.Machine, job.Task(t.Index), t.Generation)
		}
		*said = saidOfTask{t.Generation, on, f.Observed.Task(t.Machine, job.Task(t.Index), t.Generation)}
	}
	return said.task
}

// highest returns the greatest index that a task of a job has, -1 if it has none.
func (f *Facts) highest(job schema.JobName) int {
	for n := f.Span(job) - 1; n >= 0; n-- {
		if c := f.Chunk(model.ChunkName{Job: job, Number: n}); c != nil && len(c.Tasks) > 0 {
			return c.Tasks[len(c.Tasks)-1].Index
		}
	}
	return -1
}

// Healthy reports whether a task works, and has run long enough for the update
// policy.
func (f *Facts) Healthy(t model.ReportedTask, want *schema.Job) (bool, Until) {
	return f.worksFor(t, time.Duration(want.Update.MinHealthySeconds)*time.Second)
}

// worksFor reports whether a task works, and has run for so long; for a moment
// at least if it was restarted by its agent.
func (f *Facts) worksFor(t model.ReportedTask, need time.Duration) (bool, Until) {
	if !Works(t.TaskStatus) {
		return false, Until{}
	}
	if schema.Crashes(t.Exits) > 0 {
		need = max(need, shakyFor)
	}
	until := t.Since.Add(need)
	return !f.Now.Before(until), f.At(until)
}

// Wants reports whether a job has a task of this index now.
func (f *Facts) Wants(want *schema.Job, t *schema.TaskRecord) bool {
	if want.Kind == schema.System {
		return t.On != "" && !f.GivenUp(t.On) && (t.Machine != "" || !f.Closed(t.On))
	}
	return t.Index < want.Tasks
}

// Serves reports whether a task that is assigned may do its work, as far as is
// known; one that is not wanted any more is no loss.
func (f *Facts) Serves(job schema.JobName, t *schema.TaskRecord) bool {
	want := f.Admitted(job)
	if want == nil || t.Done != nil || !f.Wants(want, t) {
		return false
	}
	return !f.IsUp(t.Machine) || Works(f.Said(job, t).TaskStatus)
}

// RunsAgain reports whether a task is stopped for its next process alone: of another version, or as it was.
func RunsAgain(c *schema.Cause) bool {
	return c.Kind == schema.CauseUpdate || c.Kind == schema.CauseRestart
}

// RanOn returns the machine on which a task was until it was last stopped to run again, see RunsAgain; ""
// if it was not, or ended in another way since. t may be nil.
func RanOn(t *schema.TaskRecord) string {
	if t == nil || len(t.Causes) == 0 || !RunsAgain(&t.Causes[len(t.Causes)-1]) {
		return ""
	}
	return t.Causes[len(t.Causes)-1].Machine
}

// HoldsUp reports whether a task without a machine counts as on its way from
// old data to new: always when the rollout itself, or the new version, is why.
func (f *Facts) HoldsUp(t *schema.TaskRecord, digest schema.Digest) (bool, Until) {
	if len(t.Causes) == 0 {
		return false, Until{} // it never ran
	}
	last := t.Causes[len(t.Causes)-1]
	if RunsAgain(&last) || t.Data == digest && t.Failures > 0 {
		return true, Until{}
	}
	return f.Waits(last.At.Add(comesBackWithin), comesBackWithin)
}

// Stays returns the machine that a task stays on, since it has its sticky
// directory: "" of one that may be elsewhere, or whose machine is gone for good.
func (f *Facts) Stays(want *schema.Job, t *schema.TaskRecord) string {
	if want.Task.Sticky != schema.StickyStay || want.Kind == schema.System {
		return ""
	}
	home := t.On
	if t.Machine != "" && f.Data(t.Data).Task.Sticky.Has() {
		home = t.Machine
	}
	if f.Base.Machines[home] == nil || f.silent[home] != nil && f.silent[home].Dead() {
		return ""
	}
	return home
}

// WaitsForHome says what a task waits for that stays on a machine.
func WaitsForHome(machine string) string {
	return fmt.Sprintf("waits for machine %s, which has its sticky directory", machine)
}

// versions are two versions of a job, by where they are in memory: each step asks of the
// same two for each task of a rollout.
type versions struct{ old, next *schema.Job }

// difference is what intent.Diff returns.
type difference struct {
	change intent.Change
	fields []intent.FieldChange
}

// Diff is intent.Diff of two versions, which is found out once. The fields are not to be
// written to.
func (f *Facts) Diff(old, next *schema.Job) (intent.Change, []intent.FieldChange) {
	d, ok := f.diffs[versions{old, next}]
	if !ok {
		d.change, d.fields = intent.Diff(old, next)
		f.diffs[versions{old, next}] = d
	}
	return d.change, d.fields
}

// UpdateCause returns why a task is stopped for the admitted version.
func (f *Facts) UpdateCause(job schema.JobName, t *schema.TaskRecord) schema.Cause {
	record := f.Job(job)
	was, is := f.Data(t.Data), f.Data(record.Admitted)
	message := "restarts with the new version"
	change, fields := f.Diff(was, is)
	resizes := slices.ContainsFunc(fields, func(c intent.FieldChange) bool { return c.Change == intent.Resize })
	switch {
	case was.Kind == schema.Allocs:
		message = "replaced by an alloc of the new version"
	case record.Rollout != nil && record.Rollout.Returned != "":
		message = "returns to the last healthy version"
	case intent.GoesBack(record, was, is):
		message = intent.EarlierVersion
	case change == intent.Resize:
		message = "its machine has no room for its new limits"
	case change == intent.Move && resizes:
		message = "its machine does not meet the job's new constraints, or has no room for its new limits"
	case change == intent.Move:
		message = "its machine does not meet the job's new constraints"
	}
	return schema.Cause{Kind: schema.CauseUpdate, Message: message, At: f.Now}
}

// Apart returns the jobs from which those of a job are kept apart now, sorted.
func (f *Facts) Apart(job schema.JobName) (out []schema.JobName) {
	r := f.Job(job)
	if r == nil {
		return nil
	}
	for i := range r.Apart {
		if Ahead(f.Now, r.Apart[i].Until, ApartFor) {
			out = append(out, r.Apart[i].Job)
		}
	}
	slices.SortFunc(out, schema.JobName.Compare)
	return out
}
