package control

import (
	"fmt"
	"slices"
	"time"

	"github.com/musterhq/muster/reconciler/model"
	"github.com/musterhq/muster/schema"
)

// recoverFor is how long the machines of a restored cell are heard before anything is
// decided: as long as one may be silent, as a rule.
const recoverFor = model.DefaultLostAfter

// recovering holds all decisions while the machines of a restored cell are heard.
// What they say is all that is left of what was decided since the snapshot.
func (s *step) recovering() bool {
	if !s.base.Recovering() {
		return false
	}
	until := s.in.Observed.ListeningSince().Add(recoverFor)
	if !s.now.Before(until) {
		return false
	}
	s.wake(until)
	s.out.Admission, _ = s.verdict()
	s.out.Recovering = fmt.Sprintf("the store was restored from a snapshot of %s: waiting until %s for machines to report before anything is decided",
		s.base.Restored.Snapshot.Format(time.RFC3339), until.UTC().Format(time.TimeOnly))
	return true
}

// survivor is a generation that a machine holds and the state does not know.
type survivor struct {
	machine string
	*schema.TaskStatus
}

// recover takes the generations that machines hold, of those that were decided
// between the snapshot and the restore, into the state: what runs goes on, and
// what has finished is not run again. It also does so later, for machines that
// were silent meanwhile, unless their task has been decided upon since. A
// generation whose data nobody has any more cannot be taken over; its machine
// stops it, and says so.
func (s *step) recover() {
	restored := s.base.Restored
	if restored == nil {
		return
	}
	for _, found := range s.survivors(restored) {
		s.adoptSurvivor(found)
	}
	if !restored.Settled.IsZero() {
		return
	}
	for _, job := range s.allJobs() {
		for _, t := range s.tasks(job) {
			s.forgotten(job, t)
		}
	}
	settled := *restored
	settled.Settled = s.now
	s.restored = &settled
	s.event(schema.Event{Kind: schema.EventMaster, Message: "the machines of the restored cell have been heard"})
}

// survivors returns the newest of the unknown generations of each task, sorted by
// task. A machine that holds none once the cell has settled will never: none are
// given any more. It is not looked at again.
func (s *step) survivors(restored *schema.Restored) []survivor {
	newest := map[schema.TaskName]survivor{}
	for _, machine := range s.names {
		h := s.in.Observed.Last(machine)
		if h == nil || s.memo.combed[machine] {
			continue
		}
		none := true
		for i := range h.Report.Tasks {
			t := &h.Report.Tasks[i]
			if r := s.recordOf(t.Task); !survives(restored, t) || r != nil && r.Generation >= t.Generation {
				continue
			}
			none = false
			if t.Generation > newest[t.Task].generation() {
				newest[t.Task] = survivor{machine, t}
			}
		}
		if none && !restored.Settled.IsZero() {
			if s.memo.combed == nil {
				s.memo.combed = map[string]bool{}
			}
			s.memo.combed[machine] = true
		}
	}
	out := make([]survivor, 0, len(newest))
	for _, found := range newest {
		out = append(out, found)
	}
	slices.SortFunc(out, func(a, b survivor) int { return a.Task.Compare(b.Task) })
	return out
}

// survives reports whether a generation may be one that was decided upon after the
// snapshot, and has not failed.
func survives(restored *schema.Restored, t *schema.TaskStatus) bool {
	return t.Generation > restored.Counter && t.Generation <= restored.Floor &&
		(t.State != schema.Dead || t.End != nil && t.End.Kind == schema.CauseFinished)
}

func (f survivor) generation() uint64 {
	if f.TaskStatus == nil {
		return 0
	}
	return f.Generation
}

// adoptSurvivor makes what a machine holds the task's generation, if the task has
// none that is newer, or that was decided upon since the restore.
func (s *step) adoptSurvivor(found survivor) {
	job, index := found.Task.JobName, found.Task.Index
	t := schema.TaskRecord{Index: index}
	if r := s.recordOf(found.Task); r != nil {
		t = *r
	}
	if !s.base.Recovering() && t.Machine != "" || !s.takeOver(job, found.Data) {
		return
	}
	was := t.Generation
	t.Generation, t.Machine, t.Data, t.At = found.Generation, found.machine, found.Data, s.now
	t.Ports, t.Devices, t.Alloc, t.Stop, t.Done = found.Ports, found.Devices, found.Alloc, nil, nil
	if s.dataOf(found.Data).Kind == schema.System {
		t.On = found.machine
	}
	s.set(job, t)
	s.event(schema.Event{
		Kind: schema.EventSchedule, Job: job.Short(), Task: found.Task.Short(), Machine: found.machine, Generation: found.Generation,
		Message: fmt.Sprintf("taken over as it is: the store was restored, and knew of generation %d", was),
	})
}

// takeOver makes sure that the state has a job's data with a digest, and a record
// of the job. It reports false when nobody has the data.
func (s *step) takeOver(job schema.JobName, digest schema.Digest) bool {
	wanted, declared := s.desired.Jobs[job]
	if s.dataOf(digest) == nil {
		if !declared || wanted.Digest != digest {
			return false
		}
		s.data[digest] = wanted.Job
	}
	if s.job(job) == nil {
		// Not admitted: it is stopped, or admitted, as any other.
		s.setJob(job, &schema.JobRecord{Name: job, Since: s.now})
	}
	return true
}

// forgotten ends a generation of the snapshot that its machine, which was heard,
// does not hold any more: it has ended since, and is not run a second time under
// its number.
func (s *step) forgotten(job schema.JobName, t schema.TaskRecord) {
	if t.Machine == "" || !s.in.Observed.Heard(t.Machine) || s.in.Observed.Status(t.Machine, job.Task(t.Index), t.Generation) != nil {
		return
	}
	s.end(job, t, schema.Cause{
		Kind: schema.CauseUnknown, Message: "the store was restored from a snapshot of before its end, and its machine does not hold it any more",
	})
}
