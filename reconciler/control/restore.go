package control

import (
	"fmt"
	"slices"
	"time"

	"github.com/musterhq/muster/reconciler/control/facts"
	"github.com/musterhq/muster/reconciler/model"
	"github.com/musterhq/muster/schema"
)

// recoverFor is how long the machines of a restored cell report before anything is
// decided: as long as one may be silent, as a rule.
const recoverFor = model.DefaultLostAfter

// recovering says why nothing is decided while the machines of a restored cell report, ""
// once they have, and until when. Their reports are all that is left of what was decided
// since the snapshot.
func recovering(f *facts.Facts) (why string, until facts.Until) {
	if !f.Base.Recovering() {
		return "", facts.Until{}
	}
	ready := f.Observed.ListeningSince().Add(recoverFor)
	if !f.Now.Before(ready) {
		return "", facts.Until{}
	}
	return fmt.Sprintf("the store was restored from a snapshot of %s: waiting until %s for machines to report before anything is decided",
		f.Base.Restored.Snapshot.Format(time.RFC3339), f.Say(ready)), f.At(ready)
}

// restore takes what machines hold into a state that was restored.
type restore struct {
	pass
	lost   *rescheduler
	combed map[string]bool // machines whose generations of before the restore were decided upon, see survivors
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
func (s *restore) recover() {
	restored := s.Base.Restored
	if restored == nil {
		return
	}
	for _, found := range s.survivors(restored) {
		s.adoptSurvivor(found)
	}
	if !restored.Settled.IsZero() {
		return
	}
	for _, job := range s.Jobs() {
		for _, t := range s.Tasks(job) {
			s.forgotten(job, t)
		}
	}
	settled := *restored
	settled.Settled = s.Now
	s.Put(model.KeyRestored, &settled)
	s.Event(schema.Event{Kind: schema.EventMaster, Message: "the machines of the restored cell have reported"})
}

// survivors returns the newest of the unknown generations of each task, sorted by
// task, of machines that report for the first time. What is not taken over then, its
// machine is to stop, and its room is given to others: neither can be taken back. A
// task that is being stopped was decided upon by a master before this one.
func (s *restore) survivors(restored *schema.Restored) []survivor {
	newest := map[schema.TaskName]survivor{}
	for _, machine := range s.Machines() {
		h := s.Observed.Last(machine)
		if h == nil || s.combed[machine] {
			continue
		}
		s.combed[machine] = true
		for i := range h.Report.Tasks {
			t := &h.Report.Tasks[i]
			if r := s.Task(t.Task); !survives(restored, t) || r != nil && r.Generation >= t.Generation {
				continue
			}
			if t.State == schema.Stopping && !restored.Settled.IsZero() {
				continue
			}
			if t.Generation > newest[t.Task].generation() {
				newest[t.Task] = survivor{machine, t}
			}
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
func (s *restore) adoptSurvivor(found survivor) {
	job, index := found.Task.JobName, found.Task.Index
	t := schema.TaskRecord{Index: index}
	if r := s.Task(found.Task); r != nil {
		t = *r
	}
	data := s.dataOf(found)
	if data == nil || !s.Base.Recovering() && (t.Machine != "" || data.Kind == schema.System && s.given(found)) {
		return
	}
	if s.AddData(found.Data, data); s.Job(job) == nil {
		// Not admitted: it is stopped, or admitted, as any other.
		s.SetJob(job, &schema.JobRecord{Name: job, Since: s.Now})
	}
	was := t.Generation
	t.Generation, t.Machine, t.Data, t.At = found.Generation, found.machine, found.Data, s.Now
	t.Ports, t.OwnNetwork, t.Devices, t.Alloc, t.Stop, t.Done, t.Behind = found.Ports, found.Own != nil, found.Devices, found.Alloc, nil, nil, ""
	if data.Kind == schema.System {
		t.On = found.machine
	}
	s.Set(job, t)
	delete(s.lost.released, found.Task) // that was of the machine on which the snapshot has it
	delete(s.lost.kept, found.Task)
	s.lost.lookAgainAt(job, &t) // of whose machine it was decided before
	s.Event(schema.Event{
		Kind: schema.EventSchedule, Job: job.Short(), Task: found.Task.Short(), Machine: found.machine, Generation: found.Generation,
		Message: fmt.Sprintf("adopted as it runs: the restored store has generation %d", was),
	})
}

// given reports whether the index of a system job's task was given to another machine, or
// its machine another index.
func (s *restore) given(found survivor) bool {
	return slices.ContainsFunc(s.Tasks(found.Task.JobName), func(t schema.TaskRecord) bool {
		return t.On != "" && (t.Index == found.Task.Index) != (t.On == found.machine)
	})
}

// dataOf returns the job that a generation is of, nil when nobody has it any more.
func (s *restore) dataOf(found survivor) *schema.Job {
	if data := s.Data(found.Data); data != nil {
		return data
	}
	if wanted, ok := s.Desired.Jobs[found.Task.JobName]; ok && wanted.Digest == found.Data {
		return wanted.Job
	}
	return nil
}

// forgotten ends a generation of the snapshot that its machine, which has reported, does
// not have any more: it has ended since, and is not run a second time under its number. One
// that was given since the restore, by a master that died before all it decided was stored,
// its machine does not have yet.
func (s *restore) forgotten(job schema.JobName, t schema.TaskRecord) {
	if t.Machine == "" || t.Generation > s.Base.Restored.Floor || !s.Observed.HasReported(t.Machine) || s.Said(job, &t).TaskStatus != nil {
		return
	}
	s.end(job, t, schema.Cause{
		Kind: schema.CauseUnknown, Message: "the store was restored from a snapshot taken before it ended, and its machine no longer has it",
	})
}
