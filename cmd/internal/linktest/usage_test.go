package linktest

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	agentlink "github.com/musterhq/muster/nodeagent/link"
	masterlink "github.com/musterhq/muster/reconciler/link"
	"github.com/musterhq/muster/schema"
)

// Usage travels when the master asks for it, and only then; it makes no report
// differ from the one before.
func TestUsageIsAskedFor(t *testing.T) {
	t.Parallel()
	sample := &schema.MachineUsage{
		Machine: "m1", At: time.Unix(7, 0).UTC(), RAMTotal: 100, RAMAvailable: 50,
		Tasks: []schema.TaskUsage{{Task: task("web", 1).Task, Generation: 1, Incarnation: 1, Usage: schema.Usage{CPUMilli: 250}}},
	}
	for _, c := range []struct {
		name  string
		every time.Duration
		least int // samples, by the time of many reports
		most  int
	}{
		{"often", time.Nanosecond, 10, 1 << 20},
		{"once", never, 1, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			path, m, a := socket(t), newMaster(), newAgent("m1")
			serve(t, path, masterlink.Config{Master: m, PullEvery: time.Millisecond, UsageEvery: c.every})
			run(t, path, agentlink.Config{Agent: a, Usage: func() *schema.MachineUsage { return sample }})
			eventually(t, "many reports, and samples", func() bool { return m.count() > 20 && len(m.samples()) >= c.least })
			got := m.samples()
			if len(got) > c.most {
				t.Errorf("%d samples: want at most %d", len(got), c.most)
			}
			if diff := cmp.Diff(sample, got[0]); diff != "" {
				t.Errorf("sample (-sent +received):\n%s", diff)
			}
		})
	}
}

// An agent that measures nothing, or is older, sends none.
func TestNoUsage(t *testing.T) {
	t.Parallel()
	path, m, a := socket(t), newMaster(), newAgent("m1")
	serve(t, path, masterlink.Config{Master: m, PullEvery: time.Millisecond, UsageEvery: time.Nanosecond})
	run(t, path, agentlink.Config{Agent: a})
	eventually(t, "many reports", func() bool { return m.count() > 20 })
	if n := len(m.samples()); n > 0 {
		t.Errorf("%d samples: want none", n)
	}
}
