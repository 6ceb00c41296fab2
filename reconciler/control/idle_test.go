package control

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/musterhq/muster/reconciler/control/facts"
	"github.com/musterhq/muster/reconciler/model"
	"github.com/musterhq/muster/schema"
)

// TestDue: each job's time comes, the first first, and not that of one that is idle no
// more, or until another time.
func TestDue(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	idle := map[schema.JobName]*idleJob{}
	var d dueJobs
	name := func(i int) schema.JobName { return schema.JobName{Cell: "c", User: "u", Job: fmt.Sprintf("j%02d", i)} }
	for i := range 10 {
		for range 1000 { // only the last counts
			idle[name(i)] = &idleJob{until: facts.Until{Monotonic: now.Add(time.Duration(10-i) * time.Minute)}}
			if i%2 == 0 {
				idle[name(i)].until = facts.Until{Wall: now.Add(time.Duration(10-i) * time.Minute)}
			}
			d.add(name(i), idle[name(i)], idle)
		}
	}
	if n := len(d.monotonic) + len(d.wall); n > 3000 {
		t.Errorf("it remembers %d times of 10 jobs", n)
	}
	idle[name(0)] = &idleJob{}
	delete(idle, name(9))
	for at := range 12 {
		u := d.first(idle)
		got := d.pop(now.Add(time.Duration(at)*time.Minute), idle)
		var want []schema.JobName
		if i := 10 - at; i > 0 && i < 9 {
			want = append(want, name(i))
			first := u.Monotonic
			if i%2 == 0 {
				first = u.Wall
			}
			if !first.Equal(now.Add(time.Duration(at) * time.Minute)) {
				t.Errorf("after %d min the next is due at %s", at, first)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("after %d min %v are due, want %v", at, got, want)
		}
	}
}

// TestWaiting: a job whose tasks only wait for room is not looked at again before something of it
// changes, and each step asks for them in the order of the names of all jobs.
func TestWaiting(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 2, 12, 30, 0, 0, time.UTC)
	in := Input{State: model.NewState("c"), Observed: model.NewObserved(now), Now: now, Memo: &Memo{}}
	put := func(key string, v any) {
		if err := in.State.Apply([]model.Write{in.State.Document(key, v)}); err != nil {
			t.Fatal(err)
		}
	}
	p := &schema.Package{Dir: ".", Origins: map[schema.ObjectKey]schema.Position{}}
	p.Objects.Cells = []schema.Cell{{Name: "c", Quota: "off"}}
	declare := func(names ...string) {
		for _, name := range names {
			p.Objects.Jobs = append(p.Objects.Jobs, schema.Job{
				Name: name, User: "u", Cell: "c", Kind: schema.Batch, Tasks: 2,
				Task: schema.TaskSpec{Process: schema.Process{Command: []string{"run"}}, Resources: schema.TaskResources{Resources: schema.Resources{CPUMilli: 600}}},
			})
		}
		next := *p
		put(model.KeyPackage+string(schema.DigestOf(&next)), &next)
		put(model.KeyHead, schema.Head{Commit: fmt.Sprint(len(names)), Packages: map[string]schema.Digest{".": schema.DigestOf(&next)}})
	}
	step := func() *Output {
		in.Now = in.Now.Add(time.Second)
		out := Step(in)
		for _, w := range model.Batches(out.Writes) {
			if err := in.State.Apply(w); err != nil {
				t.Fatal(err)
			}
		}
		return &out
	}
	waits := func() (names []string) {
		for _, r := range in.Memo.idle.waiters() {
			names = append(names, fmt.Sprint(r.name.Job, len(r.asks)))
		}
		return names
	}
	want := func(when string, names ...string) {
		t.Helper()
		if got := waits(); !slices.Equal(got, names) || len(in.Memo.idle.active) > 0 {
			t.Errorf("%s %v wait, and %v are looked at: want %v and none", when, got, in.Memo.idle.active, names)
		}
	}
	declare("b", "d", "f")
	step()
	step()
	want("without a machine", "b2", "d2", "f2")
	declare("a", "c", "g")
	step()
	if out := step(); len(out.Why) != 12 {
		t.Errorf("%d tasks are pending: want 12", len(out.Why))
	}
	want("with others", "a2", "b2", "c2", "d2", "f2", "g2")

	info := schema.MachineInfo{Name: "m1", Boot: "1", Capacity: schema.Resources{CPUMilli: 2000}, Ports: schema.PortRange{First: 1, Last: 9}}
	put(model.KeyMachine+"m1", schema.MachineRecord{MachineInfo: info, Epoch: 1, Joined: in.Now})
	in.Observed.AddReport(schema.Report{Machine: info}, in.Now)
	if out := step(); len(out.Why) != 9 || in.State.Counter != 3 {
		t.Errorf("%d tasks are pending after %d got places: want 9 and 3", len(out.Why), in.State.Counter)
	}
	if out := step(); len(out.Why) != 9 || len(out.Writes) > 0 {
		t.Errorf("%d tasks are pending, and %d documents are written: want 9 and none", len(out.Why), len(out.Writes))
	}
	in.Observed.AddReport(schema.Report{Machine: info, Tasks: running(in.State, in.Now)}, in.Now)
	step()
	want("with one machine", "a1", "b1", "c1", "d2", "f2", "g2")
}

// running are the tasks that have a machine, as it reports them.
func running(s *model.State, since time.Time) (out []schema.TaskStatus) {
	for name, c := range s.Chunks {
		for i := range c.Tasks {
			r := &c.Tasks[i]
			out = append(out, schema.TaskStatus{
				Task: name.Job.Task(r.Index), Generation: r.Generation, State: schema.Running, Incarnation: 1, StartedAt: since, Data: r.Data,
			})
		}
	}
	return out
}
