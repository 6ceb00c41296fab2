package reconciler_test

import (
	"strings"
	"testing"

	"github.com/musterhq/muster/reconciler/model"
	"github.com/musterhq/muster/schema"
)

// TestHeavyJob: a job that an earlier release let in, and that no message carries, keeps
// nothing else from its machine. It is what fails, and says why; and it can be removed,
// though its machine never had it.
func TestHeavyJob(t *testing.T) {
	t.Parallel()
	c := newCell()
	c.join("m1", 8, 64)
	heavy := service("u", "heavy", 2, "v1")
	heavy.Task.Env = map[string]string{"X": strings.Repeat("x", schema.MaxJobData)}
	c.commit(compiled("1", crew(heavy)...))
	c.exchange()
	c.step()
	held := func() []uint64 { // generations of the heavy job that are on a machine
		var out []uint64
		for _, chunk := range c.state.Chunks {
			for i := range chunk.Tasks {
				if r := &chunk.Tasks[i]; r.Machine != "" && chunk.Job.Job == "heavy" {
					out = append(out, r.Generation)
				}
			}
		}
		return out
	}
	if len(held()) != 2 {
		t.Fatalf("generations %v of the job are assigned: want 2", held())
	}
	for machine, view := range model.Views(c.state) {
		if len(view.Assignments) > 0 {
			t.Errorf("machine %s is sent %d tasks with data that the link does not carry", machine, len(view.Assignments))
		}
	}
	c.restart() // the store has it so, as an earlier release would have left it
	c.join("m1", 8, 64)
	small := service("u", "small", 2, "v1")
	c.commit(compiled("2", crew(heavy, small)...))
	var fails []string
	for range 3 {
		c.exchange()
		for _, e := range c.stepEvents() {
			if e.Kind == schema.EventFail {
				fails = append(fails, e.Message)
			}
		}
	}
	c.exchange()
	if _, runs := c.find("u/small/1"); runs == nil {
		t.Error("a job beside the heavy one does not run")
	}
	if len(fails) == 0 || !strings.Contains(fails[0], "the link carries at most 16777088: make it smaller") {
		t.Errorf("ends of tasks %q: want one that says that the data is too large", fails)
	}

	// Removed while it is assigned once more, and has not been sent.
	for wait := 0; len(held()) == 0; wait++ {
		if c.pass(1); wait > 600 {
			t.Fatal("the job is not tried again")
		}
	}
	c.commit(compiled("3", crew(small)...))
	c.pass(3)
	if r := c.state.Jobs[heavy.ID()]; len(held()) > 0 || r != nil {
		t.Errorf("generations %v and record %+v of the job that was removed are left", held(), r)
	}
}

// stepEvents is step; it returns the events.
func (c *cell) stepEvents() []schema.Event {
	c.master.Decide()
	return c.carryOut()
}
