package placement_test

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/musterhq/muster/placement"
	"github.com/musterhq/muster/schema"
)

// drawProtected draws of which jobs no task is evicted: of none of a gang. gangs says which jobs go
// together with what, as gather does.
func (c *cell) drawProtected(t *rapid.T, gangs map[schema.JobName]string) {
	if rapid.IntRange(0, 2).Draw(t, "protects") > 0 {
		return
	}
	c.protected = map[schema.JobName]bool{}
	for _, name := range []string{"i", "j", "k"} {
		job := schema.JobName{Cell: "c", User: "u", Job: name}
		c.protected[job] = rapid.Bool().Draw(t, "protected") && gangs[job] != "gang"
	}
}

// Of which jobs tasks are protected is asked once for each while that is the same, and what a fork
// learns is its own.
func TestProtectedIsAskedOnce(t *testing.T) {
	t.Parallel()
	s := placement.NewSnapshot(oneEach(10))
	s.Configure(placement.Options{Preempt: true})
	asked := map[schema.JobName]int{}
	version := 1
	protect := func(all bool) {
		s.SetProtected(version, func(job schema.JobName) bool {
			asked[job]++
			return all
		})
	}
	for range 3 {
		protect(true)
		if d := placement.Place(s, []placement.Ask{preemptor(0)}, 1)[0]; d.Machine != "" || d.Why.Protected != 10 {
			t.Fatalf("is on %q, %d protected, want to wait for 10", d.Machine, d.Why.Protected)
		}
	}
	for job, n := range asked {
		if n != 1 {
			t.Errorf("asked %d times for %v, want once", n, job)
		}
	}
	fork := s.Fork()
	if d := placement.Place(fork, []placement.Ask{preemptor(0)}, 1)[0]; d.Machine != "" {
		t.Errorf("a fork has %v evicted", d.Victims)
	}
	fork.Release()
	version++
	protect(false)
	if d := placement.Place(s, []placement.Ask{preemptor(0)}, 1)[0]; len(d.Victims) != 1 {
		t.Errorf("evicts %v, want one", d.Victims)
	}
	s.SetProtected(0, nil)
	if d := placement.Place(s, []placement.Ask{preemptor(1)}, 1)[0]; len(d.Victims) != 1 {
		t.Errorf("evicts %v, want one", d.Victims)
	}
}

// What runs on a machine that is held for another ask, on condition that it may be evicted, is evicted for that one
// though it is protected now, or of the same priority, and for no other.
func TestProtectedBehind(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		change func(t *placement.Task, a *placement.Ask)
		evicts bool
	}{
		{name: "behind", evicts: true, change: func(*placement.Task, *placement.Ask) {}},
		{name: "it was there before", change: func(t *placement.Task, _ *placement.Ask) { t.Behind = "" }},
		{name: "nothing is held", change: func(_ *placement.Task, a *placement.Ask) { a.Held = "" }},
		{name: "another machine is held", change: func(_ *placement.Task, a *placement.Ask) { a.Held = "m1" }},
		{name: "it was held for another one", change: func(t *placement.Task, _ *placement.Ask) { t.Behind = "u/other/0" }},
		{name: "others would go with it", change: func(t *placement.Task, _ *placement.Ask) { t.Together = true }},
		{name: "so of a gang", change: func(t *placement.Task, _ *placement.Ask) { t.Gang = "train" }},
		{name: "it is of the same priority", evicts: true, change: func(t *placement.Task, _ *placement.Ask) { t.Priority = 200 }},
		{name: "it is of a higher band", change: func(t *placement.Task, _ *placement.Ask) { t.Priority = 300 }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			machines, tasks := oneEach(2)
			a := preemptor(0)
			tasks[0].Behind, a.Held = a.Name.Short(), "m0"
			tt.change(&tasks[0], &a)
			s := placement.NewSnapshot(machines, tasks)
			s.Configure(placement.Options{Preempt: true})
			s.SetProtected(1, func(schema.JobName) bool { return true })
			plan := placement.NewPlan(s, []placement.Ask{a}, nil, 1)
			if done, _ := placement.Verify(plan, s); (len(done.Steps) == 1) != tt.evicts {
				t.Errorf("plans %v, of which %v holds, want one: %t", plan.Steps, done.Steps, tt.evicts)
			}
			other := preemptor(1)
			other.Priority++
			if d := placement.Place(s, []placement.Ask{other}, 1)[0]; d.Machine != "" {
				t.Errorf("another one evicts %v", d.Victims)
			}
			d := placement.Place(s, []placement.Ask{a}, 1)[0]
			if got := d.Machine == "m0" && len(d.Victims) == 1; got != tt.evicts {
				t.Errorf("is on %q in the place of %v, want so: %t", d.Machine, d.Victims, tt.evicts)
			}
			if !tt.evicts && tasks[0].Priority < a.Priority && d.Why.Protected != 2 {
				t.Errorf("%d protected, want 2", d.Why.Protected)
			}
		})
	}
}

// An alloc that came behind goes with the protected task inside, but not with one that takes others along.
func TestAllocBehind(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		change func(alloc, inside *placement.Task)
		evicts bool
	}{
		{"behind", func(_, _ *placement.Task) {}, true},
		{"it was there before", func(alloc, _ *placement.Task) { alloc.Behind = "" }, false},
		{"of the same priority inside", func(_, inside *placement.Task) { inside.Priority = 200 }, true},
		{"others would go with it", func(_, inside *placement.Task) { inside.Together = true }, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			machines, tasks := oneEach(1)
			a := preemptor(0)
			alloc, inside := &tasks[0], tasks[0]
			alloc.IsAlloc, alloc.Behind, a.Held = true, a.Name.Short(), "m0"
			inside.Name = schema.JobName{Cell: "c", User: "u", Job: "inside"}.Task(0)
			inside.Alloc, inside.Generation, inside.Limit.CPUMilli = alloc.Name, 9, 1000
			tt.change(alloc, &inside)
			s := placement.NewSnapshot(machines, []placement.Task{*alloc, inside})
			s.Configure(placement.Options{Preempt: true})
			s.SetProtected(1, func(job schema.JobName) bool { return job == inside.Name.JobName })
			d := placement.Place(s, []placement.Ask{a}, 1)[0]
			if got := d.Machine == "m0" && len(d.Victims) == 2; got != tt.evicts {
				t.Errorf("is on %q in the place of %v, want so: %t", d.Machine, d.Victims, tt.evicts)
			}
		})
	}
}

// A decision says where a task has its place only since it may be evicted from a machine that is held.
func TestDecisionBehind(t *testing.T) {
	t.Parallel()
	machines, tasks := oneEach(1)
	tasks[0].Priority = 200
	s := placement.NewSnapshot(machines, tasks)
	s.Configure(placement.Options{Preempt: true})
	ends := func(schema.TaskName) time.Time { return noon.Add(time.Hour) }
	waits := preemptor(0)
	waits.Limit.CPUMilli, waits.Waited = 4000, time.Hour
	small := func(name string, lasts time.Duration) placement.Ask {
		return placement.Ask{
			Name: schema.JobName{Cell: "c", User: "u", Job: name}.Task(0), Limit: schema.Resources{CPUMilli: 100}, Waiting: placement.Waiting{Lasts: lasts},
		}
	}
	s.SetTimes(noon, ends)
	for _, d := range placement.Place(s, []placement.Ask{waits, small("short", time.Minute), small("long", 2*time.Hour), small("unknown", 0)}, 1) {
		want := ""
		if d.Name.Job == "long" || d.Name.Job == "unknown" {
			want = waits.Name.Short()
		}
		if d.Behind != want || (d.Machine == "") != (d.Name.Job == "web") {
			t.Errorf("%v is on %q, behind %q, want %q", d.Name, d.Machine, d.Behind, want)
		}
	}
}

// A plan that was made before a victim came to be protected does not hold.
func TestPlanOfProtected(t *testing.T) {
	t.Parallel()
	s := placement.NewSnapshot(oneEach(1))
	s.Configure(placement.Options{Preempt: true})
	p := placement.NewPlan(s, []placement.Ask{preemptor(0)}, nil, 1)
	if len(p.Steps) == 0 {
		t.Fatal("nothing is planned")
	}
	s.SetProtected(1, func(job schema.JobName) bool { return job.Job == "v0" })
	done, conflicts := placement.Verify(p, s)
	if len(done.Steps) != 0 || len(conflicts) == 0 || conflicts[0].Reason != placement.ReasonVictims {
		t.Errorf("holds: %v, conflicts: %v", done.Steps, conflicts)
	}
}

// BenchmarkPreemptProtected preempts where most machines hold a task that is protected.
func BenchmarkPreemptProtected(b *testing.B) {
	machines, tasks := oneEach(5000)
	var asks []placement.Ask
	for i := range 200 {
		asks = append(asks, preemptor(i))
	}
	for _, each := range []int{0, 2, 1} { // none, every other, all
		b.Run(fmt.Sprint("each=", each), func(b *testing.B) {
			for range b.N {
				b.StopTimer()
				s := placement.NewSnapshot(machines, tasks)
				s.Configure(placement.Options{Preempt: true, Graceful: true})
				if each > 0 {
					s.SetProtected(1, func(job schema.JobName) bool { return len(job.Job)%each == 0 })
				}
				b.StartTimer()
				placement.Place(s, asks, 1)
			}
		})
	}
}
