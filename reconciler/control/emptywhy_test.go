package control

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/musterhq/muster/placement"
	"github.com/musterhq/muster/reconciler/model"
	"github.com/musterhq/muster/schema"
)

// Of a machine of which little is used it is said what keeps it from being emptied.
func TestEmpties(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 2, 12, 1, 0, 0, time.UTC)
	never := func(t *testing.T, in *Input) {
		t.Helper()
		name := schema.JobName{Cell: "c", User: "u", Job: "a"}
		job, no := *in.State.Data[in.State.Jobs[name].Admitted], false
		job.Rebalance = &no
		in.runJob(t, &job, "m1", 2*time.Hour, 0)
	}
	batch := func(t *testing.T, in *Input) {
		t.Helper()
		job := *in.State.Data[in.State.Jobs[schema.JobName{Cell: "c", User: "u", Job: "a"}].Admitted]
		job.Name, job.Kind, job.Task.Resources.CPUMilli = "t", schema.Batch, 100
		in.runJob(t, &job, "m1", 2*time.Hour, 0)
	}
	for _, tt := range []struct {
		name    string
		machine string
		change  func(*testing.T, *Input)
		last    Output
		want    string
	}{
		{name: "nothing", want: "10% of it is used, less than 20% (rebalance.emptyBelow): 1 task can move to m2; the cell looks at 12:10:00, and empties machines of which less is used first"},
		{name: "much is used", machine: "m2", want: "50% of it is used, and machines are emptied of which less than 20% is (rebalance.emptyBelow)"},
		{name: "empty", machine: "m4", want: "it has no tasks but those of system jobs"},
		{name: "no such machine", machine: "m9"},
		{name: "the cell empties none", change: func(_ *testing.T, in *Input) { in.desire(0) }},
		{name: "never moved", change: never, want: "u/a/0 may not move: tasks of its job are never moved, since rebalance is false"},
		{name: "batch", change: batch, want: `u/t/0 may not move: its job is no service: it is of kind batch`},
		{name: "it has just come", change: func(t *testing.T, in *Input) { t.Helper(); in.run(t, "a", "m1", 400, time.Minute, 0) }, want: "u/a/0 may not move: it came at 2026-01-02T12:00:00Z, and stays until 2026-01-02T13:00:00Z"},
		{name: "it was moved", change: func(t *testing.T, in *Input) { t.Helper(); in.run(t, "a", "m1", 400, 2*time.Hour, 2*time.Hour) }, want: "u/a/0 may not move: it was moved at 2026-01-02T10:01:00Z, and stays until 2026-01-03T10:01:00Z"},
		{name: "no room", change: func(t *testing.T, in *Input) { t.Helper(); in.run(t, "b", "m2", 3900, 2*time.Hour, 0) }, want: "no machine that is used more has room for u/a/0, where it is as well off"},
		{name: "quiet", change: func(_ *testing.T, in *Input) {
			in.Desired.Policy.Rebalance.Quiet = &schema.QuietHours{From: "12:00", To: "14:00"}
		}, want: "1 task can move to m2, and waits: the cell is to be quiet until 14:00:00 (rebalance.quiet)"},
		{name: "no moves", change: func(_ *testing.T, in *Input) { in.Desired.Policy.Rebalance.MovesPerHour = 0 }, want: "waits: the cell moves no tasks (rebalance.movesPerHour is 0)"},
		{name: "moves used up", change: func(t *testing.T, in *Input) {
			t.Helper()
			if err := in.State.Apply([]model.Write{in.State.Document(model.KeyMoves, &schema.MovesRecord{Moves: []schema.Disrupted{{At: now.Add(-time.Minute), Tasks: 60}}})}); err != nil {
				t.Fatal(err)
			}
		}, want: "waits: 60 tasks were moved within the last hour, and the cell moves at most 60 (rebalance.movesPerHour): the first of them counts until 13:00:00"},
		{name: "drain", last: Output{Draining: map[string]*Draining{"m3": {Left: 1}}}, want: "waits: machine m3 is being drained"},
		{name: "held", change: func(t *testing.T, in *Input) { t.Helper(); in.run(t, "w", "m4", 3000, time.Hour, 0) }, last: Output{Why: map[schema.TaskName]placement.Why{
			schema.JobName{Cell: "c", User: "u", Job: "w"}.Task(0): {Held: "m1"},
		}}, want: "it is held for u/w/0, which waits for room"},
		{name: "joined", change: func(t *testing.T, in *Input) {
			t.Helper()
			m := *in.State.Machines["m1"]
			m.Joined = now.Add(-time.Minute)
			if err := in.State.Apply([]model.Write{in.State.Document(model.KeyMachine+"m1", &m)}); err != nil {
				t.Fatal(err)
			}
		}, want: "it has joined less than 5m0s ago"},
		{name: "another one", change: func(t *testing.T, in *Input) {
			t.Helper()
			in.run(t, "x", "m3", 200, 2*time.Hour, 0)
			name := model.ChunkName{Job: schema.JobName{Cell: "c", User: "u", Job: "x"}}
			c := *in.State.Chunks[name]
			r := c.Tasks[0]
			r.Stop = &schema.Cause{Kind: schema.CauseRebalance, To: "m2"}
			c.Tasks = []schema.TaskRecord{r}
			if err := in.State.Apply([]model.Write{in.State.Document(model.KeyChunk+name.Job.Short()+"/0", &c)}); err != nil {
				t.Fatal(err)
			}
		}, want: "1 task can move to m2, and waits: tasks move from m3 first; the cell looks again at 12:10:00 at the latest"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			in := idleCell(t, now, 4)
			in.desire(20)
			in.run(t, "a", "m1", 400, 2*time.Hour, 0)
			in.run(t, "b", "m2", 2000, 2*time.Hour, 0)
			if tt.change != nil {
				tt.change(t, &in)
			}
			machine := "m1"
			if tt.machine != "" {
				machine = tt.machine
			}
			got := Empties(newPass(&in).Facts, &tt.last, machine)
			if !strings.HasSuffix(got, tt.want) || (got == "") != (tt.want == "") {
				t.Errorf("%q\nwant %q", got, tt.want)
			}
		})
	}
}

// What is said of a machine agrees with what the controller does.
func TestEmptiesAsIsDone(t *testing.T) {
	t.Parallel()
	for cpu := int64(100); cpu < 1500; cpu += 100 {
		in := idleCell(t, time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC), 3)
		in.desire(20)
		in.run(t, "a", "m1", cpu, 2*time.Hour, 0)
		in.run(t, "b", "m2", 3400, 2*time.Hour, 0)
		says := Empties(newPass(&in).Facts, &Output{}, "m1")
		p := newPass(&in)
		newStep(p, &in).emptying.empty()
		if does := moved(p); strings.Contains(says, "can move") != (len(does) > 0) {
			t.Errorf("with %d: %q, and %q", cpu, says, fmt.Sprint(does))
		}
	}
}
