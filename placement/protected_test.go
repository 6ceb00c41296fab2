package placement_test

import (
	"fmt"
	"testing"

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
