package reconciler_test

import (
	"testing"
	"time"

	"github.com/musterhq/muster/schema"
)

// TestDevicesOfSuperseded: what a machine still runs of what it was assigned long
// ago keeps its devices from others until it has ended.
func TestDevicesOfSuperseded(t *testing.T) {
	t.Parallel()
	c := newCell()
	c.join("m1", 4, 8)
	a := c.agent("m1")
	a.info.Devices = []schema.DeviceGroup{{Kind: "tpu", Count: 1}, {Kind: "gpu", Count: 1}}
	c.join("m1", 4, 8)
	job := service("u", "train", 1, "v")
	job.Task.Resources.Devices = map[string]schema.DeviceAsk{"gpu": {Count: 1, Milli: 1000}}
	c.commit(compiled("c1", good(pkg(".", schema.Cell{Name: "c", Quota: "off"}, job))))
	old := schema.TaskStatus{
		Task: schema.JobName{Cell: "c", User: "u", Job: "old"}.Task(0), Generation: 77, State: schema.Stopping,
		Devices: []schema.DeviceUse{{Kind: "gpu", Index: 0, Milli: 1}},
	}
	for _, state := range []schema.TaskState{schema.Stopping, schema.Dead} {
		old.State = state
		r := a.report()
		r.Tasks = append(r.Tasks, old)
		c.now = c.now.Add(time.Second)
		c.observed.AddReport(r, c.now)
		c.step()
		got := c.status().Tasks[0]
		if placed := got.Machine != ""; placed != (state == schema.Dead) {
			t.Errorf("while the old generation is %s, the task is on %q: %s", state, got.Machine, got.Reason)
		}
		if state == schema.Dead && (len(got.Devices) != 1 || got.Devices[0] != schema.DeviceUse{Kind: "gpu", Index: 0, Milli: 1000}) {
			t.Errorf("it has the devices %+v, want gpu 0", got.Devices)
		}
	}
}
