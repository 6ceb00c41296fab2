package plan

import (
	"slices"
	"testing"
	"time"

	"github.com/musterhq/muster/schema"
)

// TestUses: where tasks want more than the machine has, those below production get less CPU, and of
// these the lowest priority, and the newest, end for want of memory.
func TestUses(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	m := &machine{begun: map[uint64]*task{}}
	m.report.Machine = schema.MachineInfo{Name: "m1", Capacity: schema.Resources{CPUMilli: 10_000, RAMBytes: 10 << 30}}
	for i, p := range []schema.Priority{0, 200, 100, 0} {
		name := schema.JobName{Cell: "c", User: "u", Job: "j"}.Task(i)
		m.begun[uint64(i)] = &task{TaskStatus: schema.TaskStatus{Task: name, Generation: uint64(i), State: schema.Running, StartedAt: now}, job: &schema.Job{Priority: p}}
	}
	use := schema.Resources{CPUMilli: 4000, RAMBytes: 2 << 30}
	uses := func() (out []int64) {
		for _, u := range m.uses(func(schema.TaskName, time.Duration) schema.Resources { return use }, now).Tasks {
			out = append(out, int64(u.Generation), u.CPUMilli)
		}
		return out
	}
	if got := uses(); !slices.Equal(got, []int64{1, 4000, 2, 4000, 0, 2000, 3, 0}) || m.news {
		t.Errorf("short of CPU: generations and CPU %v, news %t", got, m.news)
	}
	use.RAMBytes = 4 << 30
	if got := uses(); !slices.Equal(got, []int64{1, 4000, 2, 4000}) || !m.news {
		t.Errorf("short of memory: generations and CPU %v, news %t", got, m.news)
	}
	for generation, ends := range map[uint64]bool{0: true, 1: false, 2: false, 3: true} {
		if s := m.begun[generation]; (s.State == schema.Dead) != ends || ends && s.End.Kind != schema.CauseOutOfResources {
			t.Errorf("generation %d: %s, %+v", generation, s.State, s.End)
		}
	}
}
