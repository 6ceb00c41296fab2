package control

import (
	"fmt"
	"slices"

	"github.com/musterhq/muster/schema"
)

// relieveShare is how many of the cell's machines tasks are moved away from at
// once, in percent: where many are overloaded together, the cell is too small,
// and moving tasks about would only cost. One machine always may be.
const relieveShare = 5

// relieve moves a task away from machines whose agents say that they have too
// little CPU: of each the first that its agent names, one after the other, and
// only where another machine has room for it. The agent asks again if that was
// not enough.
func (s *step) relieve() {
	var asking []string
	for _, name := range s.up {
		if h := s.in.Observed.Last(name); h != nil && h.Report.Overload != nil {
			asking = append(asking, name)
		}
	}
	if len(asking) == 0 {
		return
	}
	moving := map[string]bool{} // machines that a task is leaving for that reason
	for _, name := range asking {
		for _, ref := range s.in.Observed.Last(name).Report.Overload.Relief {
			if t := s.recordOf(ref.Task); t != nil && t.Stop != nil && t.Stop.Resource == schema.MachineCPU && t.Machine == name {
				moving[name] = true
			}
		}
	}
	most := max(1, len(s.names)*relieveShare/100)
	for _, name := range asking {
		if len(moving) >= most {
			return
		}
		if !moving[name] && s.moveOne(name, s.in.Observed.Last(name).Report.Overload) {
			moving[name] = true
		}
	}
}

// moveOne stops the first of the tasks that would relieve a machine and that may
// be moved, and reports whether there is one.
func (s *step) moveOne(machine string, o *schema.Overload) bool {
	for _, ref := range o.Relief {
		t := s.recordOf(ref.Task)
		if t == nil || t.Machine != machine || t.Generation != ref.Generation || t.Stop != nil || t.Done != nil || !s.mayMove(ref.Task, t) {
			continue
		}
		if s.disrupt(ref.Task.JobName, *t, schema.Cause{
			Kind: schema.CauseOutOfResources, Resource: schema.MachineCPU, At: s.now,
			Message: fmt.Sprintf("machine cpu: %s is overloaded: %s", machine, o.Message),
		}) {
			return true
		}
	}
	return false
}

// mayMove reports whether a task is not prod, its job's disruption budget allows
// it to be down, and it can be elsewhere: it does not stay with its sticky directory.
func (s *step) mayMove(name schema.TaskName, t *schema.TaskRecord) bool {
	record := s.job(name.JobName)
	if record == nil || record.Admitted == "" || s.frozen(name.JobName) {
		return false
	}
	if _, certain := s.ownAlloc(name); certain {
		return false // it would come back
	}
	job := s.dataOf(record.Admitted)
	if job.Priority.Prod() || job.Kind == schema.System || s.stays(job, t) != "" {
		return false
	}
	return s.disruptionBlocked(name.JobName, t) == "" && s.noPlace(ask{name, job, record.Admitted}, t) == ""
}

// noPlace says why no machine other than its own would take a task now, "" if one
// would. The snapshot is as it was before.
func (s *step) noPlace(a ask, t *schema.TaskRecord) string {
	p := s.placementAsk(a)
	p.Avoid = append(slices.Clip(p.Avoid), t.Machine)
	slices.Sort(p.Avoid)
	p.Avoid = slices.Compact(p.Avoid)
	snapshot := s.snapshot()
	snapshot.RemoveTask(a.task, t.Machine, 0)
	why := ""
	if !snapshot.Fits(p, false) { // placing it, with victims, could not be taken back
		why = snapshot.Explain(p).String()
	}
	snapshot.SetTask(taskOf(s.draft, a.task.JobName, t))
	return why
}
