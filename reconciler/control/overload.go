package control

import (
	"fmt"

	"github.com/musterhq/muster/placement"
	"github.com/musterhq/muster/reconciler/control/facts"
	"github.com/musterhq/muster/reconciler/control/snapshot"
	"github.com/musterhq/muster/schema"
)

// relieveShare is how many of the cell's machines tasks are moved away from at
// once, in percent: where many are overloaded together, the cell is too small,
// and moving tasks about would only cost. One machine always may be.
const relieveShare = 5

// overload moves tasks away from machines that are overloaded.
type overload struct {
	pass
	cell   *snapshot.Cell
	budget disruption
	// holds has machines held that are held from a task.
	holds func(schema.TaskName) func(*placement.Snapshot)
}

// relieve moves a task away from machines whose agents say that they have too
// little CPU: of each the first that its agent names, one after the other, and
// only where another machine has room for it. The agent asks again if that was
// not enough.
func (s *overload) relieve() {
	var asking []string
	for _, name := range s.OverloadedMachines() {
		if s.IsUp(name) {
			asking = append(asking, name)
		}
	}
	if len(asking) == 0 {
		return
	}
	moving := map[string]bool{} // machines that a task is leaving for that reason
	for _, name := range asking {
		for _, ref := range s.Observed.Last(name).Report.Overload.Relief {
			if t := s.Task(ref.Task); t != nil && t.Stop != nil && t.Stop.Resource == schema.MachineCPU && t.Machine == name {
				moving[name] = true
			}
		}
	}
	most := max(1, len(s.Machines())*relieveShare/100)
	for _, name := range asking {
		if len(moving) >= most {
			return
		}
		if !moving[name] && s.moveOne(name, s.Observed.Last(name).Report.Overload) {
			moving[name] = true
		}
	}
}

// moveOne stops the first of the tasks that would relieve a machine and that may
// be moved, and reports whether there is one.
func (s *overload) moveOne(machine string, o *schema.Overload) bool {
	for _, ref := range o.Relief {
		t := s.Task(ref.Task)
		if t == nil || t.Machine != machine || t.Generation != ref.Generation || t.Stop != nil || t.Done != nil {
			continue
		}
		may, until := s.mayMove(ref.Task, t)
		if s.bookCell(until); !may {
			continue
		}
		if s.budget.disrupt(ref.Task.JobName, *t, schema.Cause{
			Kind: schema.CauseOutOfResources, Resource: schema.MachineCPU, At: s.Now,
			Message: fmt.Sprintf("machine cpu: %s is overloaded: %s", machine, o.Message),
		}) == "" {
			s.keepApart(ref.Task.JobName, machine, o)
			return true
		}
	}
	return false
}

// mayMove reports whether a task is not prod, its job's disruption budget allows
// it to be down, and it can be elsewhere: it does not stay with its sticky directory.
func (s *overload) mayMove(name schema.TaskName, t *schema.TaskRecord) (may bool, until facts.Until) {
	want := s.Admitted(name.JobName)
	if want == nil || s.Frozen(name.JobName) {
		return false, until
	}
	if _, certain := s.OwnAlloc(name); certain {
		return false, until // it would come back
	}
	if want.Priority.Prod() || want.Kind == schema.System || s.Stays(want, t) != "" {
		return false, until
	}
	why, until := s.Blocked(name.JobName, t)
	if why != "" {
		return false, until
	}
	why, changes := s.cell.NoPlace(snapshot.Ask{Task: name, Job: want, Data: s.Job(name.JobName).Admitted}, t, s.holds(name))
	return why == "", until.Or(changes)
}
