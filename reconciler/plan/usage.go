package plan

import (
	"cmp"
	"slices"
	"time"

	"github.com/musterhq/muster/schema"
)

// sampleEvery is how often machines say what they use, if Config.Uses says that.
const sampleEvery = time.Minute

// uses returns what the tasks of a machine use at now. Where they want more CPU than there is, those
// below production get less; where there is no memory for all, one after the other of them ends:
// the lowest priority first, of these the newest. So agents do it. Production has room, since it is
// placed by its limits.
func (m *machine) uses(of func(schema.TaskName, time.Duration) schema.Resources, now time.Time) *schema.MachineUsage {
	var tasks []*task
	for _, t := range m.tasks() {
		if t.State == schema.Running && t.job != nil {
			tasks = append(tasks, t)
		}
	}
	slices.SortFunc(tasks, func(a, b *task) int {
		return cmp.Or(cmp.Compare(b.job.Priority, a.job.Priority), cmp.Compare(a.Generation, b.Generation))
	})
	u := &schema.MachineUsage{Machine: m.name(), At: now, RAMTotal: m.report.Machine.Capacity.RAMBytes}
	left := m.report.Machine.Capacity
	for i, t := range tasks {
		use := of(t.Task, now.Sub(t.StartedAt))
		if !t.job.Priority.Prod() && use.RAMBytes > left.RAMBytes {
			for _, t := range tasks[i:] {
				t.die(&t.TaskStatus, schema.Cause{Kind: schema.CauseOutOfResources, Message: "the machine has no memory for it", At: now})
			}
			m.news, m.changed, m.counted = true, true, false
			break
		}
		if !t.job.Priority.Prod() {
			use.CPUMilli = max(0, min(use.CPUMilli, left.CPUMilli))
		}
		left = left.Sub(use)
		u.Tasks = append(u.Tasks, schema.TaskUsage{Task: t.Task, Generation: t.Generation, Incarnation: t.Incarnation, Usage: schema.Usage{
			At: now, CPUMilli: use.CPUMilli, RAMBytes: use.RAMBytes, DiskBytes: use.DiskBytes,
		}})
		u.CPUMilli += use.CPUMilli
	}
	u.RAMAvailable = max(0, left.RAMBytes)
	return u
}
