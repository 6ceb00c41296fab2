package reconciler_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/musterhq/muster/reconciler/control"
	"github.com/musterhq/muster/reconciler/model"
	"github.com/musterhq/muster/schema"
)

func TestLoadErrors(t *testing.T) {
	t.Parallel()
	const digest = "sha256:ab"
	tests := []struct{ name, key, value, want string }{
		{"no JSON", "head", "{", "document head"},
		{"a name that is none", "job/u", "{}", `document job/u: job name "c/u"`},
		{"a chunk without a number", "chunk/u/web/x", "{}", "document chunk/u/web/x"},
		{"a head without its package", "head", `{"packages": {"a": "` + digest + `"}}`, "head refers to package " + digest + " of a, which is not stored"},
		{"a job without its data", "job/u/web", `{"name": "c/u/web", "admitted": "` + digest + `"}`, "job c/u/web refers to data " + digest},
		{"a task without its data", "chunk/u/web/0", `{"tasks": [{"index": 3, "data": "` + digest + `"}]}`, "task c/u/web/3 refers to data " + digest},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			for _, parallel := range []func(int, func(int)){nil, lastFirst} {
				_, err := model.Load("c", map[string][]byte{tt.key: []byte(tt.value)}, parallel)
				if err == nil || !strings.Contains(err.Error(), tt.want) {
					t.Errorf("%v: want one about %q", err, tt.want)
				}
			}
		})
	}
	if _, err := model.Load("c", map[string][]byte{"cell": []byte("?"), "later/x": []byte("?")}, nil); err != nil {
		t.Errorf("documents of other kinds are no trouble: %v", err)
	}
}

// lastFirst makes the calls of workers in an order that they might.
func lastFirst(n int, do func(i int)) {
	for i := n - 1; i >= 0; i-- {
		do(i)
	}
}

func TestJoin(t *testing.T) {
	t.Parallel()
	c := newCell()
	say := func(events []schema.Event) string { return events[0].Message }
	if got := say(c.join("m", 1, 1)); got != "joined" {
		t.Error(got)
	}
	if got := say(c.join("m", 1, 1)); got != "joined again" {
		t.Error(got)
	}
	c.agent("m").info.Boot = "boot-2"
	if got := say(c.join("m", 1, 1)); got != "joined again after a reboot" {
		t.Error(got)
	}
	if got := c.state.Machines["m"].Epoch; got != 3 {
		t.Errorf("epoch %d after three joins", got)
	}
}

// TestReports: each edge is an event once, and none of them for a master that has
// just begun: another one saw it.
func TestReports(t *testing.T) {
	t.Parallel()
	task := schema.JobName{Cell: "c", User: "u", Job: "web"}.Task(0)
	report := func(state schema.TaskState, incarnation int, exits ...schema.Exit) schema.Report {
		return schema.Report{Machine: schema.MachineInfo{Name: "m"}, Tasks: []schema.TaskStatus{{Task: task, Generation: 7, State: state, Incarnation: incarnation, PID: 100 + incarnation, Exits: exits}}}
	}
	killed := schema.Exit{Incarnation: 1, Code: -1, Signal: "SIGKILL"}
	o := model.NewObserved(epoch)
	var got []string
	for _, r := range []schema.Report{
		report(schema.Running, 1), report(schema.Running, 1), report(schema.Waiting, 1, killed), report(schema.Running, 2, killed), report(schema.Running, 2, killed),
	} {
		got = append(got, strings.TrimSpace(lines(o.AddReport(r, epoch))))
	}
	want := []string{"", "", "", "restart u/web/0 m #7: killed by SIGKILL; restarted as pid 102", ""}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	fresh := model.NewObserved(epoch)
	fresh.AddReport(schema.Report{Machine: schema.MachineInfo{Name: "m"}}, epoch)
	if got := lines(fresh.AddReport(report(schema.Running, 1), epoch)); got != "start u/web/0 m #7: runs as pid 101\n" {
		t.Error(got)
	}
}

func TestLocate(t *testing.T) {
	t.Parallel()
	c := newCell()
	c.join("m", 4, 8)
	j := service("u", "web", 1, "crash")
	j.Priority = 0
	c.commit(compiled("1", good(pkg(".", j))))
	if got := c.state.Locate(j.ID().Task(0), 0); got != "" {
		t.Errorf("located on %q before it ever ran", got)
	}
	for range 3 {
		c.now = c.now.Add(time.Second)
		c.exchange()
		c.step()
	}
	if _, s := c.find("u/web/0"); s != nil {
		t.Fatal("it runs")
	}
	if got := c.state.Locate(j.ID().Task(0), 0); got != "m" {
		t.Errorf("after its end it is located on %q: its log is on m", got)
	}
}

// TestLocateFrom: a reader of a task's log gets one generation after the other,
// wherever each of them ran.
func TestLocateFrom(t *testing.T) {
	t.Parallel()
	task := schema.JobName{Cell: "c", User: "u", Job: "web"}.Task(1)
	s := model.NewState("c")
	s.Chunks[model.ChunkName{Job: task.JobName}] = &schema.Chunk{Tasks: []schema.TaskRecord{{
		Index: 1, Machine: "m3", Generation: 9,
		Causes: []schema.Cause{{Generation: 2, Machine: "m1"}, {Generation: 5, Machine: "m2"}, {Generation: 7, Machine: "m1"}},
	}}}
	for from, want := range map[uint64]string{0: "m3", 1: "m1", 2: "m1", 3: "m2", 5: "m2", 6: "m1", 8: "m3", 9: "m3", 10: "m3"} {
		if got := s.Locate(task, from); got != want {
			t.Errorf("from generation %d on %q, want %q", from, got, want)
		}
	}
}

// TestClocks: a machine's clock may be what it wants.
func TestClocks(t *testing.T) {
	t.Parallel()
	for _, skew := range []time.Duration{-time.Hour, 0, time.Hour} {
		c := newCell()
		c.join("m", 4, 8)
		j := service("u", "web", 2, "v1")
		j.Priority, j.Update.MinHealthySeconds = 0, 5
		c.commit(compiled("1", good(pkg(".", j))))
		took := time.Duration(0)
		for turn := range 40 {
			if turn == 5 {
				j.Task.Process.Command = []string{"serve", "v2"}
				c.commit(compiled("2", good(pkg(".", j))))
			}
			c.now = c.now.Add(time.Second)
			c.exchange()
			for _, s := range c.agent("m").tasks {
				s.StartedAt = c.now.Add(skew)
			}
			if c.step(); turn > 5 && took == 0 && c.status().Converged {
				took = c.now.Sub(epoch)
			}
		}
		if took != 20*time.Second { // the last task, too, is healthy for 5 s
			t.Errorf("with a clock that is off by %s the rollout is done after %s", skew, took)
		}
	}
}

// TestRefusedPort: the port that a generation was refused for is not one of the
// next, though the agent does not list it as busy; but it comes back in time.
func TestRefusedPort(t *testing.T) {
	t.Parallel()
	c := newCell()
	c.join("m", 4, 8)
	j := service("u", "web", 1, "v")
	j.Priority = 0
	c.commit(compiled("1", good(pkg(".", j))))
	seen := map[int]time.Time{}
	again := false
	for range 24 {
		c.now = c.now.Add(5 * time.Second)
		c.exchange()
		c.step()
		c.exchange()
		a, s := c.find("u/web/0")
		if s == nil {
			continue // back-off
		}
		port, _ := s.Ports.Get("http")
		if last, ok := seen[port]; ok {
			again = true
			if took := c.now.Sub(last); took < 12*time.Second {
				t.Fatalf("port %d is chosen again after %s", port, took)
			}
		}
		seen[port] = c.now
		a.die(s, schema.Cause{Kind: schema.CausePortInUse})
	}
	if len(seen) < 2 || !again {
		t.Errorf("%d ports were tried in two minutes, one of them again: %t", len(seen), again)
	}
}

// BenchmarkStep is a step of an idle cell, and one after a report.
func BenchmarkStep(b *testing.B) {
	for _, size := range []struct{ machines, jobs, tasks int }{{100, 100, 10}, {1000, 1000, 20}} {
		b.Run(fmt.Sprintf("machines=%d/tasks=%d", size.machines, size.jobs*size.tasks), func(b *testing.B) {
			c := newCell()
			for i := range size.machines {
				c.join(fmt.Sprintf("m%04d", i), 64, 256)
				c.agent(fmt.Sprintf("m%04d", i)).info.Ports.Last = 30000
			}
			var objects []any
			for i := range size.jobs {
				j := service("u", fmt.Sprintf("j%d", i), size.tasks, "v")
				j.Priority, j.Task.Resources.Ports = 0, nil
				objects = append(objects, j)
			}
			c.commit(compiled("1", good(pkg(".", objects...))))
			for range 4 {
				c.now = c.now.Add(time.Second)
				c.exchange()
				c.step()
			}
			b.ReportAllocs()
			for b.Loop() {
				if out := control.Step(c.input()); len(out.Writes) > 0 {
					b.Fatalf("%d writes at rest", len(out.Writes))
				}
			}
		})
	}
}
