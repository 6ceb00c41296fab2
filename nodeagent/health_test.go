package nodeagent_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/musterhq/muster/nodeagent"
	"github.com/musterhq/muster/schema"
)

// TestProbe: what a row of results comes to. Each word is a result and the
// second of it after the start; the want is the state after each.
func TestProbe(t *testing.T) {
	t.Parallel()
	spec := schema.Health{StartSeconds: 10, IntervalSeconds: 1, TimeoutSeconds: 1, Failures: 3, Successes: 2}
	for name, tt := range map[string]struct {
		from    nodeagent.Probe
		results string // + passed, - failed, o void
		first   time.Duration
		want    string // ? unknown, h healthy, u unhealthy
	}{
		"passes twice":                    {results: "++", want: "?h"},
		"failures in the start period":    {results: "------", want: "??????"},
		"the start period ends":           {results: "-----", first: 8 * time.Second, want: "????u"},
		"after it, without a success":     {results: "---", first: time.Minute, want: "??u"},
		"a success ends it":               {results: "+---", want: "???u"},
		"one failure is forgiven":         {results: "++-+--+---", want: "?hhhhhhhhu"},
		"back to healthy takes two":       {results: "---+-++", first: time.Minute, want: "??uuuuh"},
		"void counts neither way":         {results: "++--oo-", want: "?hhhhhu"},
		"void between successes":          {results: "+o+", want: "??h"},
		"adopted healthy: asked anew":     {from: nodeagent.Known(schema.Healthy, ""), results: "--+--", first: time.Minute, want: "hhhhh"},
		"adopted unhealthy: healthy":      {from: nodeagent.Known(schema.Unhealthy, "x"), results: "++", want: "uh"},
		"adopted healthy: void":           {from: nodeagent.Known(schema.Healthy, ""), results: "ooo", want: "hhh"},
		"the clock was set back":          {results: "---", first: -time.Hour, want: "??u"},
		"adopted in its start period":     {from: nodeagent.Known(schema.HealthUnknown, "x"), results: "----", want: "????"},
		"adopted healthy in start period": {from: nodeagent.Known(schema.Healthy, ""), results: "---", want: "hhu"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, got := tt.from, ""
			for i, c := range tt.results {
				r := nodeagent.Result{At: t0.Add(tt.first + time.Duration(i)*time.Second), OK: c == '+', Void: c == 'o', Message: "no answer"}
				p = p.Next(&spec, t0, r)
				got += map[schema.HealthState]string{schema.HealthUnknown: "?", schema.Healthy: "h", schema.Unhealthy: "u"}[p.State]
			}
			if got != tt.want {
				t.Errorf("%s: states %s, want %s", tt.results, got, tt.want)
			}
		})
	}
}

// TestProbeSoonest: a task that passes every check, or none, is healthy or unhealthy when its
// check says.
func TestProbeSoonest(t *testing.T) {
	t.Parallel()
	for _, h := range []schema.Health{
		(&schema.Health{}).Timed(),
		(&schema.Health{Exec: &schema.ExecCheck{}}).Timed(),
		{StartSeconds: 30, IntervalSeconds: 10, Failures: 3, Successes: 5},
		{IntervalSeconds: 3600, Failures: 1, Successes: 1},
		{StartSeconds: 7, IntervalSeconds: 3600, Failures: 2, Successes: 2},
	} {
		for _, ok := range []bool{true, false} {
			want, becomes := h.UnhealthyAfter(), schema.Unhealthy
			if ok {
				want, becomes = h.HealthyAfter(), schema.Healthy
			}
			p, age := nodeagent.Probe{}, time.Duration(0)
			for p.State != becomes {
				age += p.Wait(&h)
				p = p.Next(&h, t0, nodeagent.Result{At: t0.Add(age), OK: ok})
			}
			if age != want {
				t.Errorf("%+v is %s after %v, want %v", h, becomes, want, age)
			}
		}
	}
	h := schema.Health{StartSeconds: 30, IntervalSeconds: 10, Failures: 3, Successes: 5}
	if got := h.HealthyAfter(); got != 40050*time.Millisecond {
		t.Errorf("healthy after %v", got)
	}
}

// TestHealthyAfter: it is kept how long an incarnation took until it was healthy first, by an agent
// that has checked it from the start on.
func TestHealthyAfter(t *testing.T) {
	t.Parallel()
	spec := schema.Health{StartSeconds: 60, IntervalSeconds: 1, TimeoutSeconds: 1, Failures: 3, Successes: 2}
	for name, tt := range map[string]struct {
		from    nodeagent.Probe
		results string // of a check each second: + passed, - failed
		first   time.Duration
		want    time.Duration
	}{
		"not yet":                    {results: "---+", want: 0},
		"when it was":                {results: "---++", want: 4 * time.Second},
		"later it fails":             {results: "++---++", want: time.Second},
		"a check that came later":    {results: "++", first: time.Hour, want: 0},
		"adopted":                    {from: nodeagent.Known(schema.HealthUnknown, ""), results: "++", first: time.Minute, want: 0},
		"adopted when it was known":  {from: nodeagent.Probe{State: schema.Healthy, HealthyAfter: time.Second}, results: "---++", first: time.Minute, want: time.Second},
		"the clock was set back":     {results: "++", first: -time.Hour, want: 0},
		"the clock is back for once": {from: nodeagent.Probe{Asked: 1, Passed: 1}, results: "+", first: -time.Hour, want: 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := tt.from
			for i, c := range tt.results {
				p = p.Next(&spec, t0, nodeagent.Result{At: t0.Add(tt.first + time.Duration(i)*time.Second), OK: c == '+'})
			}
			if p.HealthyAfter != tt.want {
				t.Errorf("healthy after %s, want %s", p.HealthyAfter, tt.want)
			}
		})
	}
}

// TestProbeUnanswered: a healthy task whose checks cannot be made for long is not healthy
// any more, and neither unhealthy; one that is made counts as at first.
func TestProbeUnanswered(t *testing.T) {
	t.Parallel()
	spec := schema.Health{IntervalSeconds: 30, TimeoutSeconds: 1, Failures: 3, Successes: 2}
	p := nodeagent.Known(schema.Healthy, "")
	for _, step := range []struct {
		seconds int
		ok      bool // else void
		want    schema.HealthState
	}{
		{0, false, schema.Healthy},
		{89, false, schema.Healthy},
		{90, true, schema.Healthy}, // as if nothing had been
		{120, false, schema.Healthy},
		{209, false, schema.Healthy},
		{210, false, schema.HealthUnknown},
		{1000, false, schema.HealthUnknown},
		{1030, true, schema.HealthUnknown},
		{1060, true, schema.Healthy},
	} {
		p = p.Next(&spec, t0, nodeagent.Result{At: t0.Add(time.Duration(step.seconds) * time.Second), OK: step.ok, Void: !step.ok, Message: "no keeper"})
		if p.State != step.want {
			t.Fatalf("after %d seconds it is %s, want %s", step.seconds, p.State, step.want)
		}
	}
	spec = schema.Health{IntervalSeconds: 1, TimeoutSeconds: 1, Failures: 3, Successes: 1}
	p = nodeagent.Known(schema.Healthy, "")
	for i := range 60 {
		if p = p.Next(&spec, t0, nodeagent.Result{At: t0.Add(time.Duration(i) * time.Second), Void: true}); p.State != schema.Healthy {
			t.Fatalf("%s after %d seconds: an upgrade takes longer", p.State, i)
		}
	}
}

// A check that could not be run is reported while its task is not known to be unhealthy.
func TestProbeVoidMessage(t *testing.T) {
	t.Parallel()
	spec := schema.Health{IntervalSeconds: 1, TimeoutSeconds: 1, Failures: 1, Successes: 1}
	p := nodeagent.Probe{}.Next(&spec, t0, nodeagent.Result{At: t0, Void: true, Message: "no keeper"})
	if p.Message != "no keeper" || p.State != schema.HealthUnknown {
		t.Errorf("%+v, want unknown, and why", p)
	}
	p = p.Next(&spec, t0, nodeagent.Result{At: t0.Add(time.Minute), Message: "status 500"})
	p = p.Next(&spec, t0, nodeagent.Result{At: t0.Add(2 * time.Minute), Void: true, Message: "no keeper"})
	if p.Message != "status 500" || p.State != schema.Unhealthy {
		t.Errorf("%+v, want unhealthy, and the failure that made it so", p)
	}
	if p = p.Next(&spec, t0, nodeagent.Result{At: t0.Add(3 * time.Minute), OK: true}); p.Message != "" {
		t.Errorf("message %q after a check that passed", p.Message)
	}
}

// A task that has not answered is asked more and more rarely, one that has at
// its interval.
func TestProbeWait(t *testing.T) {
	t.Parallel()
	spec := schema.Health{StartSeconds: 10, IntervalSeconds: 1, TimeoutSeconds: 1, Failures: 3, Successes: 1}
	var p nodeagent.Probe
	var waits []time.Duration
	for i := range 8 {
		waits = append(waits, p.Wait(&spec))
		p = p.Next(&spec, t0, nodeagent.Result{At: t0, OK: i == 6})
	}
	want := []time.Duration{50e6, 100e6, 200e6, 400e6, 800e6, 1e9, 1e9, 1e9}
	if diff := cmp.Diff(want, waits); diff != "" {
		t.Errorf("waits (-want +got):\n%s", diff)
	}
	p = nodeagent.Probe{Asked: 1 << 40}
	spec.IntervalSeconds = 3600
	if got := p.Wait(&spec); got != time.Hour && got < 50*time.Minute {
		t.Errorf("after very many checks it waits %s", got)
	}
}

// An unhealthy task is marked and stopped, and restarted under its policy: that
// it did not die by itself makes no difference to what is counted.
func TestUnhealthy(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	a := assignment("web", 0, 7, schema.Service)
	a.Job.Task.Restart = &schema.Restart{Attempts: 1, WindowSeconds: 60, DelaySeconds: 1, MaxDelaySeconds: 1}
	m.assign(a)
	bad := nodeagent.Result{Message: "GET http://127.0.0.1:20007/: connection refused"}
	for n := 1; n <= 2; n++ {
		m.settle()
		m.checked(nodeagent.Result{At: m.now, Void: true, Message: "no keeper"})
		if got := m.status(7); got.Health != schema.HealthUnknown || !got.Unchecked {
			t.Fatalf("status %+v, want that it could not be checked", got)
		}
		m.checked(nodeagent.Result{At: m.now, OK: true})
		if got := m.status(7); got.State != schema.Running || got.Health != schema.Healthy || got.Unchecked || got.Incarnation != n {
			t.Fatalf("status %+v, want running and healthy, incarnation %d", got, n)
		}
		for range schema.DefaultFailures {
			bad.At = m.now
			m.checked(bad)
		}
		actions := describe(nodeagent.Decide(m.input()).Actions)
		if len(actions) != 1 || !strings.HasPrefix(actions[0], "term u/web/0 7#") || !strings.HasSuffix(actions[0], " unhealthy") {
			t.Fatalf("actions %v, want term for it is unhealthy", actions)
		}
		m.settle()
		got := m.status(7)
		if got.State != schema.Stopping || got.Health != schema.Unhealthy || got.HealthMessage != bad.Message {
			t.Errorf("status %+v, want stopping, unhealthy and why", got)
		}
		m.exit(a.Task, schema.Exit{Code: 0})
		if plan := m.settle(); n == 1 {
			if w := m.status(7); w.State != schema.Waiting || w.Failures != 1 || !w.RestartAt.Equal(plan.Wake) {
				t.Errorf("status %+v, want waiting until %v after 1 failure", w, plan.Wake)
			}
			m.now = plan.Wake
		}
	}
	got := m.status(7)
	const said = "exited with status 0: stopped: unhealthy: GET http://127.0.0.1:20007/: connection refused, 3 times"
	if got.State != schema.Dead || got.End.Kind != schema.CauseFailed || !strings.HasPrefix(got.End.Message, said+"; 2 failures in ") {
		t.Errorf("end %v, want failed with %q", got.End, said)
	}
}

// TestHealthyMillis: how long a task took until it was healthy is reported of the check by which that
// was found, and not once it has another one.
func TestHealthyMillis(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	a := assignment("web", 0, 7, schema.Service)
	m.assign(a)
	m.settle()
	m.checked(nodeagent.Result{At: m.now})
	m.now = m.now.Add(5 * time.Second)
	m.checked(nodeagent.Result{At: m.now, OK: true})
	if got := m.status(7); got.Health != schema.Healthy || got.HealthyMillis < 5000 || got.HealthyMillis > 6000 {
		t.Fatalf("health %s after %d ms, want healthy after 5 s", got.Health, got.HealthyMillis)
	}
	other, job := a, *a.Job
	job.Task.Health = &schema.Health{HTTP: &schema.HTTPCheck{Port: "http", Path: "/ready"}}
	other.Job = &job
	m.assign(other)
	if got := m.status(7); got.Health != schema.Healthy || got.HealthyMillis != 0 {
		t.Errorf("with another check: health %s after %d ms, want healthy, and no time", got.Health, got.HealthyMillis)
	}
	m.assign(a)
	if got := m.status(7); got.HealthyMillis < 5000 {
		t.Errorf("with the first check again: %d ms, want 5 s", got.HealthyMillis)
	}
}

// A check that is taken away takes what it has found with it, and what is asked
// to stop is not checked.
func TestChecks(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	a := assignment("web", 0, 7, schema.Service)
	m.assign(a)
	m.settle()
	if plan := nodeagent.Decide(m.input()); len(plan.Checks) != 1 || plan.Checks[0].Health.IntervalSeconds != schema.DefaultIntervalSeconds {
		t.Fatalf("checks %+v, want one, with timings", plan.Checks)
	}
	last(m.find(a.Task, 7)).Probe = nodeagent.Known(schema.Unhealthy, "x")
	without := a
	job := *a.Job
	job.Task.Health = nil
	without.Job = &job
	m.assign(without)
	if plan := nodeagent.Decide(m.input()); len(plan.Checks)+len(plan.Actions) != 0 || plan.Tasks[0].Health != "" {
		t.Errorf("without a check: %v, %v, health %q", plan.Checks, describe(plan.Actions), plan.Tasks[0].Health)
	}
	other := job
	other.Task.Health = &schema.Health{TCP: &schema.TCPCheck{Port: "sql"}}
	without.Job = &other
	m.assign(without)
	if plan := nodeagent.Decide(m.input()); len(plan.Checks) != 0 {
		t.Errorf("a port that the process was not given is asked: %+v", plan.Checks)
	}
	m.assign(stopping(a, schema.CauseRemoved))
	if plan := nodeagent.Decide(m.input()); len(plan.Checks) != 0 {
		t.Errorf("what shall stop is asked: %+v", plan.Checks)
	}
}

// A task that SIGKILL does not end is killed again and again, and said to hang.
func TestStuck(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	a := assignment("web", 0, 7, schema.Service)
	m.assign(a)
	m.settle()
	m.assign(stopping(a, schema.CauseRemoved))
	m.settle()
	c := last(m.find(a.Task, 7))
	for kills := range 4 {
		plan := nodeagent.Decide(m.input())
		if want := kills >= 3; plan.Tasks[0].Stuck != want || (plan.Tasks[0].Note == schema.NoteStuck) != want || plan.Tasks[0].State != schema.Stopping {
			t.Errorf("after %d kills: %s, note %q", kills, plan.Tasks[0].State, plan.Tasks[0].Note)
		}
		if len(plan.Actions) > 0 {
			t.Fatalf("too early: %v", describe(plan.Actions))
		}
		m.now = plan.Wake
		if got := describe(nodeagent.Decide(m.input()).Actions); len(got) != 1 || got[0] != "kill u/web/0 7#1" {
			t.Fatalf("actions %v, want kill", got)
		}
		c.KilledAt = m.now // and nothing else happens
	}
	m.exit(a.Task, schema.Exit{Code: -1, Signal: "SIGKILL"})
	m.settle()
	if got := m.status(7); got.State != schema.Dead || got.Stuck || got.Note == schema.NoteStuck {
		t.Errorf("status %+v, want dead", got)
	}
}
