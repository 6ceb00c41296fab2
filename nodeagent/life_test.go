package nodeagent_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/musterhq/muster/nodeagent"
	"github.com/musterhq/muster/schema"
)

// A crash loop: back-off doubles, then the generation has failed, and the end
// says how the last incarnation went.
func TestCrashLoop(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.assign(assignment("web", 0, 7, schema.Service))
	var waits []time.Duration
	for range schema.DefaultRestart.Attempts + 1 {
		m.settle()
		if got := m.status(7); got.State != schema.Running {
			t.Fatalf("state %s, want running", got.State)
		}
		m.exit(task("web", 0), schema.Exit{Code: 3})
		if wake := m.settle().Wake; !wake.IsZero() {
			waits = append(waits, wake.Sub(m.now))
			m.now = wake
		}
	}
	want := make([]time.Duration, 4)
	for i := range want {
		want[i] = nodeagent.Backoff(schema.DefaultRestart, task("web", 0), i+1)
	}
	if diff := cmp.Diff(want, waits); diff != "" {
		t.Errorf("back-off (-want +got):\n%s", diff)
	}
	got := m.status(7)
	exit := schema.Exit{Incarnation: 5, Code: 3, At: m.now}
	end := &schema.Cause{
		Kind: schema.CauseFailed, Machine: "m1", Generation: 7, At: m.now, Exit: &exit,
		Message: "exited with status 3; 5 failures in " + m.now.Sub(t0).Round(100*time.Millisecond).String(),
	}
	if got.State != schema.Dead || !cmp.Equal(got.End, end) || got.Incarnation != 5 || len(got.Exits) != 5 {
		t.Errorf("status %+v, want dead with end %+v", got, end)
	}
}

// A task that runs for a minute between crashes is restarted for ever, and the
// disk does not fill with its incarnations.
func TestSlowCrashLoop(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.assign(assignment("web", 0, 7, schema.Service))
	for range 50 {
		m.settle()
		m.now = m.now.Add(schema.DefaultRestart.Window())
		m.exit(task("web", 0), schema.Exit{Code: 3})
		m.advance(time.Second)
	}
	m.settle()
	if got := m.status(7); got.State != schema.Running || got.Incarnation != 51 || len(got.Exits) != schema.MaxCauses {
		t.Errorf("status %+v, want running, incarnation 51, %d exits", got, schema.MaxCauses)
	}
	policy := m.held[0].Assignment.Job.Task.RestartPolicy()
	if n, most := len(m.held[0].Incarnations), nodeagent.KeepIncarnations+policy.Attempts+3; n > most {
		t.Errorf("%d incarnations on disk, want at most %d", n, most)
	}
}

// Shutdown stops all, ends nothing, and the next agent goes on with the same
// generation under the next incarnation.
func TestShutdownAndReturn(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.assign(assignment("batch", 0, 7, schema.Batch))
	m.settle()
	m.shutdown = true
	m.settle()
	if got := m.status(7); got.State != schema.Stopping {
		t.Errorf("state %s, want stopping", got.State)
	}
	m.exit(task("batch", 0), schema.Exit{Code: 0}) // obeyed SIGTERM, and is not finished
	if plan := m.settle(); plan.Alive != 0 {
		t.Errorf("%d alive after shutdown", plan.Alive)
	}
	got := m.status(7)
	if got.State != schema.Waiting || got.End != nil || got.Exits[0].Message != "stopped: shutdown: the agent is stopping all tasks" {
		t.Errorf("status after shutdown %+v, want waiting with the cause in its exit", got)
	}
	m.shutdown = false
	m.settle()
	if got := m.status(7); got.State != schema.Running || got.Incarnation != 2 {
		t.Errorf("status %+v, want running, incarnation 2", got)
	}
	m.exit(task("batch", 0), schema.Exit{Code: 0})
	m.settle()
	if got := m.status(7); got.State != schema.Dead || got.End.Kind != schema.CauseFinished {
		t.Errorf("status %+v, want dead, finished", got)
	}
}

// Only the newest generations that ended stay on disk, and of those that failed
// as many, and longer.
func TestKeepGenerations(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	for g := uint64(1); g <= 12; g++ {
		m.assign(assignment("web", 0, g, schema.Service))
		m.settle()
		m.exit(task("web", 0), schema.Exit{Code: int(g % 3)}) // each third well
	}
	m.settle()
	var kept []uint64
	for i := range m.held {
		kept = append(kept, m.held[i].Assignment.Generation)
	}
	if diff := cmp.Diff([]uint64{3, 6, 8, 9, 10, 11, 12}, kept); diff != "" {
		t.Errorf("generations on disk (-want +got):\n%s", diff)
	}
	m.assign()
	m.settle()
	m.now = m.now.Add(nodeagent.KeepFor)
	if m.settle(); len(m.held) != nodeagent.KeepGenerations {
		t.Errorf("%d generations on disk after a day, want those that failed last", len(m.held))
	}
	m.now = m.now.Add(nodeagent.KeepFailedFor - nodeagent.KeepFor)
	if m.settle(); len(m.held) != 0 {
		t.Errorf("%d generations on disk after a week, want none", len(m.held))
	}
}

func TestReportOfRunning(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.assign(assignment("web", 0, 7, schema.Service))
	plan := m.settle()
	want := schema.TaskStatus{
		Task: task("web", 0), Generation: 7, State: schema.Running, Incarnation: 1, PID: 1001, StartedAt: t0,
		Ports: schema.PortsOf(map[string]int{"http": 20007}), Health: schema.HealthUnknown,
		Data: assignment("web", 0, 7, schema.Service).Data,
	}
	if diff := cmp.Diff([]schema.TaskStatus{want}, plan.Tasks); diff != "" {
		t.Errorf("report (-want +got):\n%s", diff)
	}
	check := nodeagent.Check{
		Task: task("web", 0), Generation: 7, Incarnation: 1, StartedAt: t0, Assignment: m.held[0].Assignment,
		Health: m.held[0].Assignment.Job.Task.Health.Timed(),
	}
	if diff := cmp.Diff([]nodeagent.Check{check}, plan.Checks); diff != "" {
		t.Errorf("checks (-want +got):\n%s", diff)
	}
	last(&m.held[0]).Probe.State = schema.Healthy
	if got := m.status(7).Health; got != schema.Healthy {
		t.Errorf("health %q, want healthy", got)
	}
	m.exit(task("web", 0), schema.Exit{Code: 1})
	if plan := m.settle(); len(plan.Checks) != 0 || plan.Tasks[0].Health != "" {
		t.Errorf("after its end: checks %v, health %q, want none", plan.Checks, plan.Tasks[0].Health)
	}
}
