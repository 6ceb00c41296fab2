package control

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/musterhq/muster/placement"
	"github.com/musterhq/muster/placement/rebalance"
	"github.com/musterhq/muster/reconciler/control/facts"
	"github.com/musterhq/muster/reconciler/control/snapshot"
	"github.com/musterhq/muster/reconciler/intent"
	"github.com/musterhq/muster/reconciler/model"
	"github.com/musterhq/muster/schema"
)

// idleCell is a cell of machines that run nothing, and have been there for long.
func idleCell(t *testing.T, now time.Time, machines int) Input {
	t.Helper()
	in := Input{State: model.NewState("c"), Observed: model.NewObserved(now), Now: now, Memo: &Memo{}}
	for i := range machines {
		info := schema.MachineInfo{Name: fmt.Sprint("m", i+1), Capacity: schema.Resources{CPUMilli: 4000, RAMBytes: 4000}}
		if err := in.State.Apply([]model.Write{in.State.Document(model.KeyMachine+info.Name, &schema.MachineRecord{MachineInfo: info, Joined: now.Add(-48 * time.Hour)})}); err != nil {
			t.Fatal(err)
		}
		in.Observed.AddReport(schema.Report{Machine: info}, now)
	}
	return in
}

// desire has the cell empty machines of which less than that is used.
func (in *Input) desire(below int) {
	in.Desired = intent.Of(in.State)
	in.Desired.Policy.Rebalance = &schema.RebalancePolicy{MovesPerHour: 60, EmptyBelow: below}
}

// In a cell that does not empty machines nothing is looked at, and where the last look has found
// nothing and nothing has changed none is booked.
func TestEmptyingSleeps(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 2, 12, 40, 0, 0, time.UTC)
	in := idleCell(t, now, 2)
	kept := &in.Memo.emptied
	wake := func() time.Time {
		p := newPass(&in)
		cell := snapshot.New(p.Facts, &in.Memo.cell)
		s := emptying{looking{p, holeSearch{Facts: p.Facts, cell: cell}, &moves{pass: p, bounds: newMoveBounds(p.Facts)}, &scheduler{}}, kept, emptyChecks}
		s.empty()
		return p.wake
	}
	in.desire(0)
	if at := wake(); !at.IsZero() || !kept.now.IsZero() {
		t.Errorf("a cell that empties no machines looks again at %v", at)
	}
	in.desire(20)
	in.Now = now.Add(3 * time.Second)
	next := now.Add(emptyEvery)
	if at := wake(); !at.Equal(next) || !kept.began.IsZero() {
		t.Errorf("between two looks the next one is at %v, want %v", at, next)
	}
	kept.moves = true
	if at := wake(); !at.Equal(now.Add(emptyNext)) {
		t.Errorf("while a machine is being emptied the next look is at %v, want %v", at, now.Add(emptyNext))
	}
	in.Now = now
	kept.moves = false
	wake()
	if at := wake(); !at.IsZero() || !kept.all {
		t.Errorf("when all was looked at the next look is at %v, want none", at)
	}
	kept.until = facts.Until{Wall: now.Add(3 * time.Hour)}
	if at := wake(); !at.Equal(now.Add(3 * time.Hour)) {
		t.Errorf("the next look is at %v, want when something changes, at %v", at, now.Add(3*time.Hour))
	}
	in.desire(30)
	if at := wake(); !at.Equal(next) || kept.all {
		t.Errorf("when something has changed the next look is at %v, want %v", at, next)
	}
}

// In a cell that empties machines new tasks begin none that is empty, also where it would suit them
// better, from when its policy says so and until it does not.
func TestEmptyMachinesAreNotBegun(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 2, 12, 40, 0, 0, time.UTC)
	in := idleCell(t, now, 3)
	for _, step := range []struct {
		below int
		want  string
	}{{0, "m1"}, {20, "m2"}, {0, "m1"}} {
		in.desire(step.below)
		cell := snapshot.New(newPass(&in).Facts, &in.Memo.cell)
		s := cell.Snapshot()
		job := schema.JobName{Cell: "c", User: "u", Job: "has"}
		has := placement.Ask{Name: job.Task(0), Limit: schema.Resources{CPUMilli: 500, RAMBytes: 1500}}
		s.SetTask(placement.Task{Name: has.Name, Machine: "m2", Limit: has.Limit, Ask: &has})
		ask := placement.Ask{Name: schema.JobName{Cell: "c", User: "u", Job: "new"}.Task(0), Limit: schema.Resources{CPUMilli: 125, RAMBytes: 1350}}
		d := placement.Place(s, []placement.Ask{ask}, 1)[0]
		if d.Machine != step.want {
			t.Errorf("with emptyBelow %d it is placed on %s (%s), want %s", step.below, d.Machine, d.Why, step.want)
		}
		s.RemoveTask(ask.Name, d.Machine, 0)
		cell.Leave()
	}
}

// run has a task of a service run on a machine, for so long, that was moved for something else
// before that if moved is not 0.
func (in *Input) run(t *testing.T, task, machine string, cpu int64, ago, moved time.Duration) {
	t.Helper()
	in.runJob(t, &schema.Job{
		Cell: "c", User: "u", Name: task, Kind: schema.Service, Priority: 200, Tasks: 1,
		Task: schema.TaskSpec{Resources: schema.TaskResources{Resources: schema.Resources{CPUMilli: cpu, RAMBytes: 1}}},
	}, machine, ago, moved)
}

// runJob has the task of a job run.
func (in *Input) runJob(t *testing.T, job *schema.Job, machine string, ago, moved time.Duration) {
	t.Helper()
	name, digest := job.ID(), schema.DigestOf(job)
	r := schema.TaskRecord{Generation: in.State.Counter + 1, Machine: machine, Data: digest, At: in.Now.Add(-ago)}
	if moved != 0 {
		r.Causes = []schema.Cause{{Kind: schema.CauseRebalance, At: in.Now.Add(-moved)}}
	}
	if err := in.State.Apply([]model.Write{
		in.State.Document(model.KeyData+string(digest), job),
		in.State.Document(model.KeyJob+name.Short(), &schema.JobRecord{Name: name, Admitted: digest, Good: digest}),
		in.State.Document(model.KeyChunk+name.Short()+"/0", &schema.Chunk{Job: name, Tasks: []schema.TaskRecord{r}}),
		in.State.Document(model.KeyCounter, r.Generation),
	}); err != nil {
		t.Fatal(err)
	}
}

// moved returns which tasks are stopped to be moved, and where to.
func moved(p pass) (list []string) {
	for _, key := range p.ChangedChunks() {
		for _, r := range p.Chunk(key).Tasks {
			if r.Stop != nil && r.Stop.Kind == schema.CauseRebalance {
				list = append(list, key.Job.Task(r.Index).Short()+" to "+r.Stop.To)
			}
		}
	}
	slices.Sort(list)
	return list
}

// A machine of which little is used is emptied, unless something is in the way of it.
func TestEmptyingWaits(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	now := time.Date(2026, 1, 2, 12, 40, 0, 0, time.UTC)
	held := func(machine string) func(*step) {
		return func(s *step) {
			waits := schema.JobName{Cell: "c", User: "u", Job: "waits"}.Task(0)
			s.scheduler.holding.held = map[schema.TaskName]placement.Decision{waits: {Name: waits, Why: placement.Why{Held: machine}}}
		}
	}
	joined := func(machine string, ago time.Duration) func(*testing.T, *Input) {
		return func(t *testing.T, in *Input) {
			t.Helper()
			m := *in.State.Machines[machine]
			m.Joined = now.Add(-ago)
			if err := in.State.Apply([]model.Write{in.State.Document(model.KeyMachine+machine, &m)}); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, tt := range []struct {
		name   string
		ago    time.Duration // since the task is there
		moved  time.Duration
		before func(*testing.T, *Input)
		change func(*step)
		want   string
	}{
		{name: "nothing", want: "u/a/0 to m2"},
		{name: "it is held for a task that waits", change: held("m1")},
		{name: "the one that has room is held", change: held("m2"), want: "u/a/0 to m3"},
		{name: "it has just joined", before: joined("m1", 4*time.Minute)},
		{name: "the one that has room has just joined", before: joined("m2", 4*time.Minute), want: "u/a/0 to m3"},
		{name: "it joined before that", before: joined("m2", 6*time.Minute), want: "u/a/0 to m2"},
		{name: "another task moves", change: func(s *step) { s.moves.bounds.moving = 1 }},
		{name: "a machine is being drained", change: func(s *step) { s.moves.bounds.draining = map[string]*Draining{"m9": {Left: 1}} }},
		{name: "a machine was drained", change: func(s *step) { s.moves.bounds.draining = map[string]*Draining{"m9": {}} }, want: "u/a/0 to m2"},
		{name: "the task has just come", ago: 59 * time.Minute},
		{name: "the task came before that", ago: time.Hour, want: "u/a/0 to m2"},
		{name: "the task was moved within a day", moved: day - time.Minute},
		{name: "the task was moved before that", moved: day, want: "u/a/0 to m2"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			in := idleCell(t, now, 40) // two tasks at once
			in.desire(20)
			in.run(t, "a", "m1", 400, cmp.Or(tt.ago, 2*time.Hour), tt.moved)
			in.run(t, "b", "m2", 2000, 2*time.Hour, 0)
			in.run(t, "c", "m3", 1000, 2*time.Hour, 0)
			if tt.before != nil {
				tt.before(t, &in)
			}
			p := newPass(&in)
			s := newStep(p, &in)
			if tt.change != nil {
				tt.change(s)
			}
			s.emptying.empty()
			if got := strings.Join(moved(p), ", "); got != tt.want {
				t.Errorf("%q moves, want %q", got, tt.want)
			}
			if s.emptying.kept.moves != (tt.want != "") {
				t.Errorf("a machine is being emptied: %t", s.emptying.kept.moves)
			}
		})
	}
}

// What is found and then may not move begins nothing: the next look is not sooner for that.
func TestEmptyingBeginsWithAMove(t *testing.T) {
	t.Parallel()
	in := idleCell(t, time.Date(2026, 1, 2, 12, 40, 0, 0, time.UTC), 2)
	in.desire(20)
	in.run(t, "a", "m1", 400, 2*time.Hour, 0)
	p := newPass(&in)
	s := newStep(p, &in)
	list := rebalance.Emptied{Machine: "m1", Moves: []rebalance.Move{{Task: schema.JobName{Cell: "c", User: "u", Job: "a"}.Task(0), From: "m1", To: "m2"}}}
	r := *p.Task(list.Moves[0].Task)
	r.Stop = &schema.Cause{Kind: schema.CauseUpdate}
	p.Set(list.Moves[0].Task.JobName, r)
	if s.emptying.leave(&list); s.emptying.kept.moves || len(moved(p)) > 0 {
		t.Errorf("a task moves that is stopping: %q, and a machine is being emptied: %t", moved(p), s.emptying.kept.moves)
	}
}

// A look that ends before it has seen all machines is gone on with by the next one, and begins anew
// when something has changed: what is held back for tasks, too.
func TestEmptyingGoesOn(t *testing.T) {
	t.Parallel()
	in := idleCell(t, time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC), 4)
	in.desire(20)
	reserved := &reservations{}
	in.Reserved = reserved
	for i, name := range []string{"a", "b", "c"} {
		in.run(t, name, fmt.Sprint("m", i+1), int64(100+100*i), time.Minute, 0) // which may not move yet
	}
	in.run(t, "d", "m4", 2000, time.Minute, 0)
	look := func() *emptied {
		s := newStep(newPass(&in), &in)
		s.emptying.checks = 5 // four for what the machines have
		s.emptying.empty()
		s.cell.Leave()
		s.emptying.kept.began = time.Time{} // as if it had been ten minutes ago
		return s.emptying.kept
	}
	for i, want := range []struct {
		reserved, looked, turn int
		all                    bool
	}{{0, 1, 1, false}, {0, 2, 2, false}, {1, 1, 0, false}, {1, 2, 1, false}, {1, 3, 0, true}, {1, 3, 0, true}, {2, 1, 1, false}} {
		reserved.changes = want.reserved
		if m := look(); m.looked != want.looked || m.turn != want.turn || m.all != want.all {
			t.Errorf("after look %d: %d machines, then %d, all %t: want %+v", i+1, m.looked, m.turn, m.all, want)
		}
	}
}

// reservations are the limits of tasks, and change so many times.
type reservations struct{ changes int }

func (*reservations) Reservation(uint64) schema.Resources { return schema.Resources{} }

func (r *reservations) Since(int) ([]schema.TaskName, int, bool) { return nil, r.changes, true }

// Where machines are emptied, no task moves to one that is, or is to be, so that there is room for
// what may come.
func TestPackingFillsNoMachineThatIsEmptied(t *testing.T) {
	t.Parallel()
	for below, want := range map[int]string{0: "u/s/0 to m4", 40: "", 30: "u/s/0 to m4"} {
		t.Run(fmt.Sprint(below), func(t *testing.T) {
			t.Parallel()
			in := idleCell(t, time.Date(2026, 1, 2, 12, 40, 0, 0, time.UTC), 4)
			in.desire(below)
			for i, name := range []string{"x", "y", "s", "t"} {
				in.run(t, name, fmt.Sprint("m", i+1), []int64{3000, 3000, 1501, 1500}[i], 48*time.Hour, 0)
			}
			p := newPass(&in)
			s := newStep(p, &in)
			s.packing.improve()
			if got := strings.Join(moved(p), ", "); got != want {
				t.Errorf("%q moves, want %q", got, want)
			}
		})
	}
}

// How many machines could be emptied is found out by so many looks at most, and it is known how many
// were not looked at.
func TestEmptiablesIsBounded(t *testing.T) {
	t.Parallel()
	in := idleCell(t, time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC), 6)
	in.desire(0)
	for i := range 5 {
		in.run(t, fmt.Sprint("t", i), fmt.Sprint("m", i+1), int64(100*(i+1)), time.Minute, 0)
	}
	for checks, want := range map[int]Emptiable{0: {4, 5, 5}, 6: {0, 0, 5}, 7: {1, 1, 5}, 1000: {4, 5, 5}} {
		if got := Emptiables(newPass(&in).Facts, 20, checks); got != want {
			t.Errorf("with %d looks: %+v, want %+v", checks, got, want)
		}
	}
}
