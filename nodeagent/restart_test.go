package nodeagent_test

import (
	"testing"
	"time"

	"github.com/musterhq/muster/nodeagent"
	"github.com/musterhq/muster/schema"
	"pgregory.net/rapid"
)

// TestBackoff: the wait is between half and all of the delay, doubled for each
// failure up to the longest; always the same for one task, and rarely for two.
func TestBackoff(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		p := schema.Restart{
			DelaySeconds: rapid.IntRange(0, 3600).Draw(t, "delay"), MaxDelaySeconds: rapid.IntRange(0, 3600).Draw(t, "most"),
		}
		name := task("web", rapid.IntRange(0, 1000).Draw(t, "index"))
		if got := nodeagent.Backoff(p, name, 0); got != 0 {
			t.Fatalf("without a failure: %s", got)
		}
		longest := max(p.Delay(), p.MaxDelay())
		full := p.Delay()
		for n := 1; n <= 101; n++ {
			full = min(full, longest)
			got := nodeagent.Backoff(p, name, n)
			if got < full/2 || got > full || got != nodeagent.Backoff(p, name, n) {
				t.Fatalf("after %d failures it waits %s, want %s to %s", n, got, full/2, full)
			}
			full *= 2
		}
	})
	seen := map[time.Duration]bool{}
	for i := range 100 {
		seen[nodeagent.Backoff(schema.DefaultRestart, task("web", i), 1)] = true
	}
	if len(seen) < 90 {
		t.Errorf("100 tasks have only %d waits", len(seen))
	}
}

// TestRestartPolicy: how many incarnations a task that always crashes has.
func TestRestartPolicy(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		policy  *schema.Restart
		kind    schema.JobKind
		starts  int
		message string
	}{
		"default":      {nil, schema.Service, 5, "exited with status 3; 5 failures in "},
		"never":        {&schema.Restart{WindowSeconds: 60}, schema.Batch, 1, "exited with status 3; its policy allows no restart"},
		"many":         {&schema.Restart{Attempts: schema.MaxAttempts, WindowSeconds: 86400}, schema.Service, schema.MaxAttempts + 1, "exited with status 3; 101 failures in "},
		"without wait": {&schema.Restart{Attempts: 2, WindowSeconds: 60}, schema.Batch, 3, "exited with status 3; 3 failures in "},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t)
			a := assignment("web", 0, 7, tt.kind)
			a.Job.Task.Restart = tt.policy
			m.assign(a)
			for range 200 {
				plan := m.settle()
				if plan.Alive == 0 && plan.Wake.IsZero() {
					break
				}
				if plan.Alive == 0 {
					m.now = plan.Wake
					continue
				}
				m.now = m.now.Add(time.Second)
				m.exit(a.Task, schema.Exit{Code: 3})
			}
			end := m.status(7).End
			if m.starts[a.Task] != tt.starts || end == nil || end.Kind != schema.CauseFailed || len(end.Message) < len(tt.message) || end.Message[:len(tt.message)] != tt.message {
				t.Errorf("%d starts, end %v: want %d, failed, %q", m.starts[a.Task], end, tt.starts, tt.message)
			}
		})
	}
}

// A policy that changes applies to what has happened already.
func TestRestartPolicyInPlace(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	a := assignment("web", 0, 7, schema.Service)
	m.assign(a)
	m.settle()
	m.exit(a.Task, schema.Exit{Code: 3})
	if wake := m.settle().Wake; wake.IsZero() {
		t.Fatal("it is not restarted by the default policy")
	}
	job := *a.Job
	job.Task.Restart = &schema.Restart{WindowSeconds: 60}
	a.Job = &job
	m.assign(a)
	m.settle()
	if got := m.status(7); got.State != schema.Dead {
		t.Errorf("status %+v under a policy without restarts, want dead", got)
	}
}

// TestKeeperKilled: a task whose keeper is killed has not failed, however often:
// it starts again, the first time at once. What it was asked to stop for before is
// still its own.
func TestKeeperKilled(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	a := assignment("web", 0, 7, schema.Service)
	a.Job.Task.Restart = &schema.Restart{DelaySeconds: 10, MaxDelaySeconds: 60, WindowSeconds: 60}
	m.assign(a)
	m.settle()
	kill := func() {
		last(&m.held[0]).Unseen = true
		m.exit(a.Task, schema.Exit{Code: -1, Message: "its keeper was killed, and the task with it"})
	}
	kill()
	if m.settle(); m.starts[a.Task] != 2 {
		t.Fatalf("%d starts, want it to start again at once", m.starts[a.Task])
	}
	var waits []time.Duration
	for range 4 {
		kill()
		wake := m.settle().Wake
		waits = append(waits, wake.Sub(m.now))
		m.now = wake
		m.settle()
	}
	if waits[0] < 5*time.Second || waits[1] <= waits[0] || waits[3] > time.Minute {
		t.Errorf("it waits %v, want 5 s to a minute, and longer each time", waits)
	}
	if got := m.status(7); got.State != schema.Running || got.Incarnation != 6 {
		t.Fatalf("%+v, want it to run: its policy allows no failure, and it had none", got)
	} else if len(got.Exits) == 0 || schema.Crashes(got.Exits) != 0 {
		t.Errorf("%+v, want exits that are no crashes", got.Exits)
	}
	last(&m.held[0]).Stop = &schema.Cause{Kind: schema.CauseUnhealthy, At: m.now}
	kill()
	m.settle()
	if got := m.status(7); got.State != schema.Dead || got.End.Kind != schema.CauseFailed {
		t.Errorf("%+v, want it to have failed: it was unhealthy", got)
	}
}

// TestShutDownCause: the exit of an incarnation that ended with its machine has the cause.
func TestShutDownCause(t *testing.T) {
	t.Parallel()
	web := assignment("web", 0, 7, schema.Service)
	for name, tt := range map[string]struct {
		change func(*nodeagent.Incarnation)
		want   string
	}{
		"shut down": {func(c *nodeagent.Incarnation) { c.Boot, c.Terminated = "boot-0", true }, "the machine was shut down; SIGTERM was sent"},
		"stopped, and then shut down": {func(c *nodeagent.Incarnation) {
			c.Boot, c.Terminated, c.Stop = "boot-0", true, &schema.Cause{Kind: schema.CausePreempted}
		}, "stopped: preempted; SIGTERM was sent"},
		"in this boot":           {func(c *nodeagent.Incarnation) { c.Terminated = true }, "SIGTERM was sent"},
		"by itself, in that one": {func(c *nodeagent.Incarnation) { c.Boot = "boot-0" }, "SIGTERM was sent"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := exited(1, 143, time.Second)
			c.Exit.Message = "SIGTERM was sent"
			tt.change(&c)
			plan := nodeagent.Decide(nodeagent.Input{Machine: "m1", Boot: "boot-1", Now: t0, View: &schema.View{Epoch: 1, Version: 3, Assignments: []schema.Assignment{web}}, Held: []nodeagent.Held{held(web, c)}})
			if got := plan.Tasks[0].Exits[0].Message; got != tt.want {
				t.Errorf("%q, want %q", got, tt.want)
			}
		})
	}
}
