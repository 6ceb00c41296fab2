package model

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/musterhq/muster/schema"
)

// TestSnapshotStays: what is applied and reported later does not change a snapshot, and the
// state that goes on is as one that nobody took a snapshot of.
func TestSnapshotStays(t *testing.T) {
	t.Parallel()
	job := schema.Job{Name: "web", User: "u", Cell: "c", Kind: schema.Service, Tasks: 2}
	digest := schema.DigestOf(&job)
	chunk := func(s *State, machines ...string) Write {
		c := schema.Chunk{Job: job.ID()}
		for i, m := range machines {
			c.Tasks = append(c.Tasks, schema.TaskRecord{Index: i, Generation: uint64(i + 1), Machine: m, Data: digest})
		}
		return s.Document(KeyChunk+"u/web/0", &c)
	}
	apply := func(s *State, writes ...Write) {
		t.Helper()
		if err := s.Apply(writes); err != nil {
			t.Fatal(err)
		}
	}
	machine := func(s *State, name string) Write {
		return s.Document(KeyMachine+name, &schema.MachineRecord{MachineInfo: schema.MachineInfo{Name: name}, Epoch: 1})
	}
	s, other := NewState("c"), NewState("c")
	for _, x := range []*State{s, other} {
		apply(x, x.Document(KeyData+string(digest), &job), machine(x, "m1"), chunk(x, "m1", "m2"))
	}
	kept := s.Snapshot()
	for _, x := range []*State{s, other} {
		apply(x, machine(x, "m3"), chunk(x, "m3", "m2", "m3"))
	}
	if got := Views(kept); len(got) != 2 || len(got["m1"].Assignments) != 1 || len(got["m2"].Assignments) != 1 || len(kept.Machines) != 1 || kept.Span(job.ID()) != 1 {
		t.Errorf("a snapshot has become %v", got)
	}
	if diff := cmp.Diff(Views(other), Views(s)); diff != "" {
		t.Errorf("the state that goes on is another:\n%s", diff)
	}
	apply(s, Write{Key: KeyChunk + "u/web/0"})
	if s.Span(job.ID()) != 0 || len(Views(s)) != 0 || kept.Span(job.ID()) != 1 {
		t.Errorf("without records a job spans %d chunks, with %v", s.Span(job.ID()), Views(s))
	}

	now := time.Unix(1_000_000, 0)
	o := NewObserved(now)
	r := schema.Report{Machine: schema.MachineInfo{Name: "m1"}}
	o.AddReport(r, now)
	before := o.Snapshot()
	if later := now.Add(time.Second); !o.Repeats(&r, later) || !o.LastSeen("m1").Equal(later) || !before.LastSeen("m1").Equal(now) {
		t.Errorf("m1 was last seen at %s, in the snapshot at %s", o.LastSeen("m1"), before.LastSeen("m1"))
	}
}
