package reconciler_test

import (
	"maps"
	"testing"

	"github.com/musterhq/muster/reconciler/control"
	"github.com/musterhq/muster/reconciler/intent"
	"github.com/musterhq/muster/schema"
)

// scaled returns what is desired with another number of tasks of a job, as an overlay
// says it.
func scaled(desired *intent.Desired, name schema.JobName, count int) *intent.Desired {
	d := *desired
	d.Jobs = maps.Clone(d.Jobs)
	job := d.Jobs[name]
	job.Count, job.By = &count, "scaled"
	d.Jobs[name] = job
	return &d
}

// TestCount: an overlay that owns the number of tasks of a job changes that and no
// version, and admission counts what it says.
func TestCount(t *testing.T) {
	t.Parallel()
	c := newCell()
	c.join("m1", 16, 64)
	j := service("u", "web", 2, "v1")
	j.Task.Resources.Ports = nil
	c.commit(compiled("1", good(pkg(".", newQuota("q", "u", 5), j))))
	c.turn()
	version := c.state.Jobs[j.ID()].Admitted
	for _, tt := range []struct {
		count    int
		want     int // tasks with a machine that are not stopping
		rejected bool
	}{{2, 2, false}, {4, 4, false}, {6, 4, true}, {5, 5, false}, {1, 1, false}} {
		in := c.input()
		in.Desired = scaled(in.Desired, j.ID(), tt.count)
		out := control.Step(in)
		if err := c.state.Apply(out.Writes); err != nil {
			t.Fatal(err)
		}
		if _, rejected := out.Admission.Rejected[j.ID()]; rejected != tt.rejected {
			t.Errorf("%d tasks of a quota of 5: rejected %t, want %t", tt.count, rejected, tt.rejected)
		}
		n := 0
		for key, chunk := range c.state.Chunks {
			for i := range chunk.Tasks {
				task := &chunk.Tasks[i]
				if key.Job == j.ID() && task.Machine != "" && task.Stop == nil {
					n++
				}
				if task.Data != version {
					t.Errorf("%d tasks: task %d has version %s, want %s", tt.count, task.Index, task.Data, version)
				}
			}
		}
		if n != tt.want {
			t.Errorf("%d tasks are asked for, and %d run: want %d", tt.count, n, tt.want)
		}
		if r := c.state.Jobs[j.ID()]; r.Admitted != version || len(c.state.Data) != 1 {
			t.Errorf("%d tasks: version %s of %d is admitted, want %s and no other", tt.count, r.Admitted, len(c.state.Data), version)
		}
	}
}
