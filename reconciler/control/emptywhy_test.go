package control

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/musterhq/muster/placement"
	"github.com/musterhq/muster/reconciler/control/facts"
	"github.com/musterhq/muster/reconciler/model"
	"github.com/musterhq/muster/schema"
)

// Of a machine of which little is used it is said what keeps it from being emptied.
func TestEmpties(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 2, 12, 1, 0, 0, time.UTC)
	waiting, other := schema.JobName{Cell: "c", User: "u", Job: "w"}.Task(0), schema.JobName{Cell: "c", User: "u", Job: "c"}.Task(0)
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
		{name: "nothing", want: "10% of it is used, less than 20% (rebalance.emptyBelow): 1 task can move to m2; the cell looks every 10 min, next at 12:10:00Z, and empties machines of which less is used first"},
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
		}, want: "1 task can move to m2, and waits: the cell is to be quiet until 14:00:00Z (rebalance.quiet)"},
		{name: "no moves", change: func(_ *testing.T, in *Input) { in.Desired.Policy.Rebalance.MovesPerHour = 0 }, want: "waits: the cell moves no tasks (rebalance.movesPerHour is 0)"},
		{name: "moves used up", change: func(t *testing.T, in *Input) {
			t.Helper()
			if err := in.State.Apply([]model.Write{in.State.Document(model.KeyMoves, &schema.MovesRecord{Moves: []schema.Disrupted{{At: now.Add(-time.Minute), Tasks: 60}}})}); err != nil {
				t.Fatal(err)
			}
		}, want: "waits: 60 tasks were moved within the last hour, and the cell moves at most 60 (rebalance.movesPerHour): the first of them counts until 13:00:00Z"},
		{name: "drain", last: Output{Draining: map[string]*Draining{"m3": {Left: 1}}}, want: "waits: machine m3 is being drained"},
		{name: "held", change: func(t *testing.T, in *Input) { t.Helper(); in.run(t, "w", "m4", 3000, time.Hour, 0) }, last: Output{Why: map[schema.TaskName]placement.Why{
			schema.JobName{Cell: "c", User: "u", Job: "w"}.Task(0): {Held: "m1"},
		}}, want: "it is held for u/w/0, which waits for room"},
		{name: "joined", change: func(t *testing.T, in *Input) {
			t.Helper()
			in.joined(t, "m1")
		}, want: "it has joined less than 5m0s ago"},
		{name: "another one", change: movesFromM3(false, "m2"), want: "1 task can move to m2, and waits: tasks move from m3 first; the cell looks every 10 min, next at 12:10:00Z"},
		{name: "after a move", last: Output{EmptyEvery: emptyNext}, want: "1 task can move to m2; the cell looks every 1 min, next at 12:02:00Z, and empties machines of which less is used first"},
		{name: "little is held back", change: func(t *testing.T, in *Input) {
			t.Helper()
			in.run(t, "a", "m1", 1500, 2*time.Hour, 0)
			in.run(t, "b2", "m2", 100, 2*time.Hour, 0)
			in.Reserved = small{}
		}, want: "2% of it is used, less than 20% (rebalance.emptyBelow): 1 task can move to m2; the cell looks every 10 min, next at 12:10:00Z, and empties machines of which less is used first"},
		{name: "a task moves to it", change: movesFromM3(false, "m1"), want: "15% of it is used, less than 20% (rebalance.emptyBelow): u/x/0 is on its way to it"},
		{name: "a task has stopped to move to it", change: movesFromM3(true, "m1"), want: "15% of it is used, less than 20% (rebalance.emptyBelow): u/x/0 is on its way to it"},
		{name: "a task that moved to it is done", change: func(t *testing.T, in *Input) {
			t.Helper()
			in.run(t, "x", "", 200, 2*time.Hour, time.Hour)
			name := model.ChunkName{Job: schema.JobName{Cell: "c", User: "u", Job: "x"}}
			r := in.State.Chunks[name].Tasks[0]
			r.Causes[0].To, r.Done = "m1", &schema.Exit{}
			in.edit(t, model.KeyChunk+name.Job.Short()+"/0", &schema.Chunk{Job: name.Job, Tasks: []schema.TaskRecord{r}})
		}, want: "10% of it is used, less than 20% (rebalance.emptyBelow): 1 task can move to m2; the cell looks every 10 min, next at 12:10:00Z, and empties machines of which less is used first"},
		{name: "one of higher priority waits for the room, too", change: func(t *testing.T, in *Input) {
			t.Helper()
			in.run(t, "b", "m2", 3300, 2*time.Hour, 0)
			in.run(t, "c", "", 600, time.Minute, 0)
			job := *in.State.Data[in.State.Jobs[other.JobName].Admitted]
			job.Name, job.Priority, job.Task.Resources.CPUMilli = "w", 210, 200
			in.runJob(t, &job, "", time.Minute, 0)
		}, last: Output{Claims: map[schema.TaskName]Claim{waiting: {Machine: "m2"}, other: {Machine: "m2"}}}, want: "1 task can move to m2; the cell looks every 10 min, next at 12:10:00Z, and empties machines of which less is used first"},
		{
			name: "a task waits to come to it", change: func(t *testing.T, in *Input) { t.Helper(); in.run(t, "w", "", 200, time.Minute, 0) },
			last: Output{Claims: map[schema.TaskName]Claim{waiting: {Machine: "m1"}}}, want: "15% of it is used, less than 20% (rebalance.emptyBelow): u/w/0 is on its way to it",
		},
		{name: "a task waits for the room", change: func(t *testing.T, in *Input) {
			t.Helper()
			in.run(t, "b", "m2", 3300, 2*time.Hour, 0)
			in.run(t, "w", "", 400, time.Minute, 0)
		}, last: Output{Claims: map[schema.TaskName]Claim{waiting: {Machine: "m2"}}}, want: "no machine that is used more has room for u/a/0, where it is as well off"},
		{name: "its tasks are stopping", change: func(t *testing.T, in *Input) {
			t.Helper()
			in.stopped(t, "a", false, schema.Cause{Kind: schema.CauseUpdate})
		}, want: "its tasks are stopping"},
		{name: "a silent machine has tasks", change: func(t *testing.T, in *Input) {
			t.Helper()
			in.Observed = model.NewObserved(now.Add(-time.Minute))
			for _, m := range []string{"m1", "m2", "m3"} {
				in.Observed.AddReport(schema.Report{Machine: in.State.Machines[m].MachineInfo}, now)
			}
			in.run(t, "x", "m4", 200, 2*time.Hour, 0)
		}, want: "1 task can move to m2, and waits: a silent machine has tasks, which may need the room"},
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
			got := Empties(newPass(&in).Facts, in.Reserved, &tt.last, machine)
			if !strings.HasSuffix(got, tt.want) || (got == "") != (tt.want == "") {
				t.Errorf("%q\nwant %q", got, tt.want)
			}
		})
	}
}

// edit has a machine or the only task of a job be stored otherwise.
func (in *Input) edit(t *testing.T, key string, value any) {
	t.Helper()
	if err := in.State.Apply([]model.Write{in.State.Document(key, value)}); err != nil {
		t.Fatal(err)
	}
}

// stopped has the only task of a job be stopping, or be gone.
func (in *Input) stopped(t *testing.T, job string, gone bool, cause schema.Cause) {
	t.Helper()
	name := model.ChunkName{Job: schema.JobName{Cell: "c", User: "u", Job: job}}
	r := in.State.Chunks[name].Tasks[0]
	if r.Stop = &cause; gone {
		r.Machine, r.Stop, r.Causes = "", nil, []schema.Cause{cause}
	}
	in.edit(t, model.KeyChunk+name.Job.Short()+"/0", &schema.Chunk{Job: name.Job, Tasks: []schema.TaskRecord{r}})
}

// movesFromM3 has a task of another machine, m3, move, or have stopped for that.
func movesFromM3(gone bool, to string) func(*testing.T, *Input) {
	return func(t *testing.T, in *Input) {
		t.Helper()
		in.run(t, "x", "m3", 200, 2*time.Hour, 0)
		in.stopped(t, "x", gone, schema.Cause{Kind: schema.CauseRebalance, To: to, At: in.Now.Add(-time.Minute)})
	}
}

// joined has a machine have joined a minute ago.
func (in *Input) joined(t *testing.T, machine string) {
	t.Helper()
	m := *in.State.Machines[machine]
	m.Joined = in.Now.Add(-time.Minute)
	in.edit(t, model.KeyMachine+machine, &m)
}

// small is that little is held back for each task.
type small struct{}

func (small) Reservation(uint64) schema.Resources {
	return schema.Resources{CPUMilli: 100, RAMBytes: 1}
}

func (small) Since(int) ([]schema.TaskName, int, bool) { return nil, 1, true }

// emptiedBy returns the moves for power of a step, and what it has found out.
func emptiedBy(in *Input) (moves []string, last Output) {
	p := newPass(in)
	s := newStep(p, in)
	s.lost.decide()
	s.activity.invalidate(s.lost.released)
	s.follow()
	s.scale()
	s.scheduler.place(false)
	before := moved(p)
	s.emptying.empty()
	moves = slices.DeleteFunc(moved(p), func(m string) bool { return slices.Contains(before, m) })
	return moves, Output{Why: s.scheduler.why, Claims: s.scheduler.claims, EmptyEvery: s.emptying.kept.every()}
}

// What is said of a machine agrees with what the controller does, whatever else there is.
func TestEmptiesAsIsDone(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)
	const long = 2 * time.Hour
	waits := func(victim, machine string) func(*testing.T, *Input) {
		return func(t *testing.T, in *Input) {
			t.Helper()
			in.run(t, victim, machine, 100, long, 0)
			in.stopped(t, victim, false, schema.Cause{Kind: schema.CausePreempted, By: "u/w/0", At: now})
			in.run(t, "w", "", 1000, time.Minute, 0)
		}
	}
	joined := func(machine string) func(*testing.T, *Input) {
		return func(t *testing.T, in *Input) { t.Helper(); in.joined(t, machine) }
	}
	silent := func(machine string) func(*testing.T, *Input) {
		return func(t *testing.T, in *Input) {
			t.Helper()
			in.edit(t, model.KeyMachine+"m9", &schema.MachineRecord{MachineInfo: schema.MachineInfo{Name: "m9", Capacity: in.State.Machines["m1"].Capacity}, Joined: now.Add(-48 * time.Hour)})
			in.run(t, "x", machine, 3000, long, 0)
		}
	}
	for name, tt := range map[string]struct {
		change func(*testing.T, *Input)
		empty  [2]int // at how many sizes at least it is emptied, and is not
	}{
		"nothing":                      {func(*testing.T, *Input) {}, [2]int{7, 7}},
		"little is held back":          {func(_ *testing.T, in *Input) { in.Reserved = small{} }, [2]int{14, 0}},
		"a task moves to it":           {movesFromM3(false, "m1"), [2]int{0, 14}},
		"a task moves to another one":  {movesFromM3(false, "m2"), [2]int{0, 14}},
		"a task waits to come to it":   {waits("v", "m1"), [2]int{0, 14}},
		"a task waits for another one": {waits("v", "m2"), [2]int{5, 9}},
		"a silent machine has a task":  {silent("m9"), [2]int{0, 14}},
		"a silent machine has none":    {silent("m3"), [2]int{7, 7}},
		"it has just joined":           {joined("m1"), [2]int{0, 14}},
		"another one has just joined":  {joined("m2"), [2]int{0, 14}},
		"a third one has just joined":  {joined("m3"), [2]int{7, 7}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var seen [2]int
			for cpu := int64(100); cpu < 1500; cpu += 100 {
				in := idleCell(t, now.Add(-time.Minute), 4)
				in.Now = now
				for _, m := range in.State.Machines {
					in.Observed.AddReport(schema.Report{Machine: m.MachineInfo}, now)
				}
				in.desire(20)
				in.run(t, "a", "m1", cpu, long, 0)
				in.run(t, "b", "m2", 2400, long, 0)
				in.run(t, "b2", "m2", 100, long, 0)
				tt.change(t, &in)
				does, last := emptiedBy(&in)
				says := Empties(newPass(&in).Facts, in.Reserved, &last, "m1")
				if empties := strings.Contains(says, "can move") && !strings.Contains(says, "waits"); empties != (len(does) > 0) {
					t.Errorf("with %d: %q, and %q moves", cpu, says, does)
				}
				seen[min(1, len(does))^1]++
			}
			if seen[0] < tt.empty[0] || seen[1] < tt.empty[1] {
				t.Errorf("emptied at %d sizes, and not at %d: this tests nothing", seen[0], seen[1])
			}
		})
	}
}

// BenchmarkEmpties asks of one machine of 10,000 with 100,000 tasks, most of which has no room elsewhere.
func BenchmarkEmpties(b *testing.B) {
	const machines, tasks = 10_000, 10
	now := time.Date(2026, 1, 2, 12, 1, 0, 0, time.UTC)
	in := Input{State: model.NewState("c"), Observed: model.NewObserved(now), Now: now, Memo: &Memo{}}
	var writes []model.Write
	generation := uint64(0)
	for i := range machines {
		info := schema.MachineInfo{Name: fmt.Sprint("m", i), Capacity: schema.Resources{CPUMilli: 4000, RAMBytes: 4000}}
		job := &schema.Job{
			Cell: "c", User: "u", Name: fmt.Sprint("j", i), Kind: schema.Service, Priority: 200, Tasks: tasks,
			Task: schema.TaskSpec{Resources: schema.TaskResources{Resources: schema.Resources{CPUMilli: int64(10 + i%70), RAMBytes: 1}}},
		}
		digest, name := schema.DigestOf(job), job.ID()
		chunk := &schema.Chunk{Job: name}
		for n := range tasks {
			generation++
			chunk.Tasks = append(chunk.Tasks, schema.TaskRecord{Index: n, Generation: generation, Machine: fmt.Sprint("m", (i+n*997)%machines), Data: digest, At: now.Add(-2 * time.Hour)})
		}
		writes = append(writes,
			in.State.Document(model.KeyMachine+info.Name, &schema.MachineRecord{MachineInfo: info, Joined: now.Add(-48 * time.Hour)}),
			in.State.Document(model.KeyData+string(digest), job),
			in.State.Document(model.KeyJob+name.Short(), &schema.JobRecord{Name: name, Admitted: digest, Good: digest}),
			in.State.Document(model.KeyChunk+name.Short()+"/0", chunk))
		in.Observed.AddReport(schema.Report{Machine: info}, now)
	}
	if err := in.State.Apply(append(writes, in.State.Document(model.KeyCounter, generation))); err != nil {
		b.Fatal(err)
	}
	in.desire(40)
	for b.Loop() {
		f := facts.New(facts.Stored(in.State), in.Desired, in.Observed, now, nil)
		if says := Empties(f, nil, &Output{}, "m77"); says == "" {
			b.Fatal("nothing is said")
		}
	}
	b.Log(Empties(newPass(&in).Facts, nil, &Output{}, "m77"))
}
