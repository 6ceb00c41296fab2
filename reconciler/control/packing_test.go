package control

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/musterhq/muster/reconciler/control/facts"
	"github.com/musterhq/muster/reconciler/control/snapshot"
	"github.com/musterhq/muster/reconciler/intent"
	"github.com/musterhq/muster/reconciler/model"
	"github.com/musterhq/muster/schema"
)

// Moves count for an hour by the minute, and for a day by the hour, and never for less.
func TestMovesOfADay(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 2, 12, 30, 0, 0, time.UTC)
	ago := func(d time.Duration, tasks int) schema.Disrupted {
		return schema.Disrupted{At: now.Add(-d), Tasks: tasks}
	}
	s := &moveBounds{}
	for _, d := range []schema.Disrupted{
		ago(25*time.Hour, 100), ago(24*time.Hour, 50), ago(24*time.Hour-time.Second, 1), ago(3*time.Hour+20*time.Minute, 2), ago(3*time.Hour+10*time.Minute, 4),
		ago(61*time.Minute, 8), ago(time.Hour, 16), ago(59*time.Minute, 32), ago(time.Minute, 64),
	} {
		s.count(d, now)
	}
	want := []schema.Disrupted{ago(24*time.Hour-time.Second, 1), ago(3*time.Hour+10*time.Minute, 6), ago(time.Hour, 24)}
	if diff := cmp.Diff(want, s.earlier); diff != "" {
		t.Errorf("before the last hour (-want +is):\n%s", diff)
	}
	if got := sumOf(s.moved); got != 96 {
		t.Errorf("%d tasks were moved within an hour: want 96", got)
	}
	if got := s.today(); got != 127 {
		t.Errorf("%d tasks were moved within a day: want 127", got)
	}
}

// What a look has found out counts until something changes, or its time has come.
func TestPackedCountsUntilChange(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 2, 12, 30, 0, 0, time.UTC)
	in := Input{State: model.NewState("c"), Observed: model.NewObserved(now), Now: now, Memo: &Memo{}}
	in.Desired = intent.Of(in.State)
	m, reserved := &in.Memo.packed, 0
	write := func(key string, v any) func() {
		return func() {
			if err := in.State.Apply([]model.Write{in.State.Document(key, v)}); err != nil {
				t.Fatal(err)
			}
		}
	}
	after := func(d time.Duration) func() { return func() { in.Now = in.Now.Add(d) } }
	job := schema.JobName{Cell: "c", User: "u", Job: "web"}
	for _, step := range []struct {
		what   string
		change func()
		counts bool
	}{
		{"the first look", func() {}, false},
		{"nothing", func() {}, true},
		{"some time", after(time.Hour - 1), true},
		{"the time", after(1), false},
		{"nothing but time", after(time.Minute), true},
		{"a clock that is set back", after(-time.Second), false},
		{"a job", write(model.KeyJob+job.Short(), &schema.JobRecord{Name: job, Since: now}), false},
		{"nothing after a job", func() {}, true},
		{"a machine", write(model.KeyMachine+"m1", &schema.MachineRecord{MachineInfo: schema.MachineInfo{Name: "m1"}, Joined: now}), false},
		{"nothing after a machine", func() {}, true},
		{"a suspension", write(model.KeySuspend+"u/web", &schema.Suspension{Name: "u/web", Reason: "x"}), false},
		{"nothing after a suspension", func() {}, true},
		{"a commit", func() { in.Desired = intent.Of(in.State) }, false},
		{"nothing after a commit", func() {}, true},
		{"reservations", func() { reserved++ }, false},
		{"nothing after reservations", func() {}, true},
	} {
		step.change()
		f := newPass(&in).Facts
		if m.follow(f, reserved, 7); (m.looked == 5) != step.counts || !step.counts && (m.looked != 0 || m.turn != 7 || m.until != (facts.Until{})) {
			t.Errorf("after %s: %d machines looked at, turn %d, until %v; it counts: want %t", step.what, m.looked, m.turn, m.until, step.counts)
		}
		if !step.counts {
			m.looked, m.turn, m.until = 5, 12, f.In(time.Hour)
		}
	}
}

// The tasks of a cell are counted again for the jobs that were written, and for all where it is
// not known which were.
func TestTasksAreCounted(t *testing.T) {
	t.Parallel()
	s, c, last := model.NewState("c"), taskCount{}, 0
	chunk := func(job string, number, tasks int) model.Write {
		name := schema.JobName{Cell: "c", User: "u", Job: job}
		key := fmt.Sprintf("%s%s/%d", model.KeyChunk, name.Short(), number)
		doc := schema.Chunk{Job: name, Number: number}
		for i := range tasks {
			doc.Tasks = append(doc.Tasks, schema.TaskRecord{Index: number*schema.ChunkSize + i})
		}
		if tasks == 0 {
			return model.Write{Key: key}
		}
		return s.Document(key, &doc)
	}
	for _, step := range []struct {
		what  string
		write []model.Write
		all   bool
		want  int
		jobs  int
	}{
		{"nothing", nil, false, 0, 0},
		{"two jobs", []model.Write{chunk("a", 0, 3), chunk("b", 0, 64), chunk("b", 1, 2)}, false, 69, 2},
		{"nothing more", nil, false, 69, 2},
		{"one job grows", []model.Write{chunk("a", 0, 5)}, false, 71, 2},
		{"one job shrinks", []model.Write{chunk("b", 1, 0)}, false, 69, 2},
		{"one job goes", []model.Write{chunk("b", 0, 0)}, false, 5, 1},
		{"any may have changed", []model.Write{chunk("b", 0, 7)}, true, 12, 2},
	} {
		if err := s.Apply(step.write); err != nil {
			t.Fatal(err)
		}
		written, next, ok := s.WrittenSince(last)
		if !ok {
			t.Fatalf("%s: it is not known what was written", step.what)
		}
		if last = next; step.all {
			written = nil
		}
		if c.follow(s, written, step.all); c.all != step.want || len(c.of) != step.jobs {
			t.Errorf("after %s: %d tasks of %d jobs: want %d of %d", step.what, c.all, len(c.of), step.want, step.jobs)
		}
	}
}

// Where the last look has found nothing and nothing has changed, none is booked.
func TestPackingSleeps(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 2, 12, 35, 0, 0, time.UTC)
	in := Input{State: model.NewState("c"), Observed: model.NewObserved(now), Now: now, Memo: &Memo{}}
	in.Desired = intent.Of(in.State)
	for _, name := range []string{"m1", "m2"} {
		info := schema.MachineInfo{Name: name}
		if err := in.State.Apply([]model.Write{in.State.Document(model.KeyMachine+name, &schema.MachineRecord{MachineInfo: info, Joined: now.Add(-48 * time.Hour)})}); err != nil {
			t.Fatal(err)
		}
		in.Observed.AddReport(schema.Report{Machine: info}, now)
	}
	kept := &in.Memo.packed
	wake := func() time.Time {
		p := newPass(&in)
		if up := len(p.Up()); up != 2 {
			t.Fatalf("%d machines are up, want 2", up)
		}
		s := packing{looking{pass: p, search: holeSearch{cell: snapshot.New(p.Facts, nil)}, moves: &moves{pass: p, bounds: newMoveBounds(p.Facts)}, waiting: &scheduler{}}, kept}
		s.improve()
		return p.wake
	}
	next := time.Date(2026, 1, 2, 12, 40, 0, 0, time.UTC)
	if at := wake(); !at.Equal(next) {
		t.Errorf("before the first look the next one is at %v, want %v", at, next)
	}
	kept.looked = 2
	if at := wake(); !at.IsZero() {
		t.Errorf("when all was looked at the next look is at %v, want none", at)
	}
	kept.until = facts.Until{Wall: now.Add(3 * time.Hour)}
	if at := wake(); !at.Equal(now.Add(3 * time.Hour)) {
		t.Errorf("the next look is at %v, want when something changes, at %v", at, now.Add(3*time.Hour))
	}
	in.Desired = intent.Of(in.State)
	if at := wake(); !at.Equal(next) {
		t.Errorf("when something has changed the next look is at %v, want %v", at, next)
	}
}
