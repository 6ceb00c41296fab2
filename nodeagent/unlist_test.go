package nodeagent_test

import (
	"slices"
	"testing"
	"time"

	"github.com/musterhq/muster/nodeagent"
	"github.com/musterhq/muster/schema"
)

// TestUnlist: the signal to a task with ports waits until nothing is sent to it any more, if
// masters say so, and the grace period begins then.
func TestUnlist(t *testing.T) {
	t.Parallel()
	const within = 5 * time.Second
	stop := &schema.Cause{Kind: schema.CauseUpdate, Message: "update"}
	for name, tt := range map[string]struct {
		change func(in *nodeagent.Input, c *nodeagent.Incarnation)
		at     []time.Duration // since the stop, of Term and then Kill
	}{
		"nobody says so": {func(in *nodeagent.Input, _ *nodeagent.Incarnation) { in.Unlist.Within = 0 }, []time.Duration{0, 10 * time.Second}},
		"never said":     {func(*nodeagent.Input, *nodeagent.Incarnation) {}, []time.Duration{within, within + 10*time.Second}},
		"without a link": {func(in *nodeagent.Input, _ *nodeagent.Incarnation) { in.Unlist.Linked = time.Time{} }, []time.Duration{4 * within, 4*within + 10*time.Second}},
		"linked again after 9 s": {func(in *nodeagent.Input, _ *nodeagent.Incarnation) {
			in.Unlist.Linked = time.Time{}
			if in.Now.Sub(t0) >= 9*time.Second {
				in.Unlist.Linked = t0.Add(9 * time.Second)
			}
		}, []time.Duration{9*time.Second + within, 9*time.Second + within + 10*time.Second}},
		"linked again and again": {func(in *nodeagent.Input, _ *nodeagent.Incarnation) { in.Unlist.Linked = in.Now }, []time.Duration{4 * within, 4*within + 10*time.Second}},
		"no longer than when linked": {func(in *nodeagent.Input, _ *nodeagent.Incarnation) {
			in.Unlist.Linked, in.Unlist.Unlinked = time.Time{}, 0
		}, []time.Duration{within, within + 10*time.Second}},
		"said before":    {func(_ *nodeagent.Input, c *nodeagent.Incarnation) { c.Unlisted = true }, []time.Duration{0, 10 * time.Second}},
		"in its Before":  {func(_ *nodeagent.Input, c *nodeagent.Incarnation) { c.Step = 1 }, []time.Duration{0, 10 * time.Second}},
		"without a port": {func(in *nodeagent.Input, _ *nodeagent.Incarnation) { in.Held[0].Assignment.Ports = nil }, []time.Duration{0, 10 * time.Second}},
		"said after 2 s": {func(in *nodeagent.Input, c *nodeagent.Incarnation) { c.Unlisted = in.Now.Sub(t0) >= 2*time.Second }, []time.Duration{2 * time.Second, 12 * time.Second}},
		"with a delay": {func(in *nodeagent.Input, c *nodeagent.Incarnation) {
			c.Unlisted = in.Now.Sub(t0) >= 2*time.Second
			in.Held[0].Assignment.Job.Task.Stop = &schema.Stop{DelaySeconds: 3}
		}, []time.Duration{5 * time.Second, 12 * time.Second}},
		"it is unhealthy": {func(in *nodeagent.Input, _ *nodeagent.Incarnation) {
			in.View.Assignments[0].Stop = &schema.Cause{Kind: schema.CauseUnhealthy}
		}, []time.Duration{0, 10 * time.Second}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := assignment("web", 0, 1, schema.Service)
			job := *a.Job
			a.Job, a.Ports, a.Stop = &job, schema.PortsOf(map[string]int{"http": 20001}), stop
			a.Job.Task.GraceSeconds = 10
			h := held(a, nodeagent.Incarnation{Number: 1, Process: nodeagent.Process{PID: 7, Boot: "boot-1", StartedAt: t0}})
			h.Assignment = a
			var at []time.Duration
			for s := range 40 {
				in := nodeagent.Input{Machine: "m1", Boot: "boot-1", Now: t0.Add(time.Duration(s) * time.Second), View: &schema.View{Epoch: 1, Version: 1, Assignments: []schema.Assignment{a}}, Held: []nodeagent.Held{h}, Unlist: nodeagent.UnlistLimits{Within: within, Unlinked: 4 * within, Linked: t0.Add(-time.Hour)}}
				for range 3 { // until nothing more is to be done now
					c := last(&in.Held[0])
					tt.change(&in, c)
					for _, x := range nodeagent.Decide(in).Actions {
						switch x.Kind {
						case nodeagent.Unlist:
							c.UnlistingAt = in.Now
						case nodeagent.Delay:
							c.StoppingAt = in.Now
						case nodeagent.Term:
							c.TermAt, at = in.Now, append(at, in.Now.Sub(t0))
						case nodeagent.Kill:
							if c.KilledAt.IsZero() {
								at = append(at, in.Now.Sub(t0))
							}
							c.KilledAt = in.Now
						}
					}
				}
				h = in.Held[0]
			}
			if !slices.Equal(at, tt.at) {
				t.Errorf("signals after %v, want %v", at, tt.at)
			}
		})
	}
}

// TestUnlisted: what a master says of a task holds for what is to stop, and not for what runs again since.
func TestUnlisted(t *testing.T) {
	t.Parallel()
	stop := &schema.Cause{Kind: schema.CauseUpdate, Message: "update"}
	for name, tt := range map[string]struct {
		said       int // 0: before the stop; 1: with its assignment, before that is acted on; 2: while it waits
		generation uint64
		want       string
	}{
		"of a stop before this one":           {0, 0, "unlist u/web/0"},
		"of this one":                         {1, 0, "term u/web/0"},
		"while it waits":                      {2, 0, "term u/web/0"},
		"of its generation":                   {2, 1, "term u/web/0"},
		"of its generation, before the stop":  {0, 1, "unlist u/web/0"},
		"late, of a generation before":        {1, 9, "unlist u/web/0"},
		"of a generation before, as it waits": {2, 9, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := assignment("web", 0, 1, schema.Service)
			a.Ports = schema.PortsOf(map[string]int{"http": 20001})
			cfg := nodeagent.AgentConfig{Cell: "local", Machine: schema.MachineInfo{Name: "m1", Boot: "boot-1"}, UnlistWithin: time.Second, Listing: true}
			d := newDriver(nodeagent.Found{})
			d.agent = nodeagent.NewAgent(cfg, nodeagent.Found{}, t0)
			d.assign(t, 1, a)
			d.decide()
			say := func(when int) {
				if when == tt.said {
					d.agent.Unlisted(schema.TaskRef{Task: a.Task, Generation: tt.generation})
				}
			}
			say(0)
			d.decide()
			stopping := a
			stopping.Stop = stop
			d.assign(t, 2, stopping)
			say(1)
			did := d.decide()
			if tt.said == 2 {
				say(2)
				did = d.decide()
			}
			if tt.want != "" && !slices.Contains(did, tt.want) || tt.want == "" && slices.Contains(did, "term u/web/0") {
				t.Errorf("did %q, want %q", did, tt.want)
			}
		})
	}
}

// TestUnlinked: a stop waits longer while no master is there to say that nothing is sent to the task any more.
func TestUnlinked(t *testing.T) {
	t.Parallel()
	const within, unlinked = time.Second, 10 * time.Second
	a := assignment("web", 0, 1, schema.Service)
	a.Ports = schema.PortsOf(map[string]int{"http": 20001})
	cfg := nodeagent.AgentConfig{Cell: "local", Machine: schema.MachineInfo{Name: "m1", Boot: "boot-1"}, UnlistWithin: within, UnlistUnlinked: unlinked, Listing: true}
	d := newDriver(nodeagent.Found{})
	d.agent = nodeagent.NewAgent(cfg, nodeagent.Found{}, t0)
	d.assign(t, 1, a)
	d.decide()
	a.Stop = &schema.Cause{Kind: schema.CauseUpdate}
	d.assign(t, 2, a)
	d.agent.Unlinked()
	after := func(wait time.Duration, want string) {
		t.Helper()
		d.now = d.now.Add(wait)
		if did := d.decide(); want != "" && !slices.Contains(did, want) || want == "" && slices.Contains(did, "term u/web/0") {
			t.Fatalf("%v after the stop: did %q, want %q", d.now.Sub(t0), did, want)
		}
	}
	after(0, "unlist u/web/0")
	after(2*within, "")
	if err := d.agent.Welcome(2, d.now); err != nil {
		t.Fatal(err)
	}
	after(within/2, "")
	after(within/2, "term u/web/0")
}
