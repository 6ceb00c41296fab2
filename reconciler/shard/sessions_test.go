package shard_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/musterhq/muster/reconciler/model"
	"github.com/musterhq/muster/reconciler/shard"
	"github.com/musterhq/muster/schema"
)

func reportOf(machine string, tasks int) schema.Report {
	return schema.Report{Machine: schema.MachineInfo{Name: machine}, Tasks: make([]schema.TaskStatus, tasks)}
}

// next wants what is new to be exactly this.
func next(t *testing.T, s *shard.Sessions, want ...model.SessionUpdate) {
	t.Helper()
	if diff := cmp.Diff(want, s.Next(100), cmp.Comparer(func(a, b *schema.Report) bool {
		return a == b || a != nil && b != nil && model.SameReport(a, b)
	})); diff != "" {
		t.Errorf("what is new (-want +got):\n%s", diff)
	}
}

func reported(t *testing.T, s *shard.Sessions, epoch uint64, r schema.Report) {
	t.Helper()
	if !s.Report(r.Machine.Name, epoch, r) {
		t.Errorf("machine %s has no session %d", r.Machine.Name, epoch)
	}
}

// TestDifferences: a report travels once; the same again only says that there was one.
func TestDifferences(t *testing.T) {
	s := shard.New()
	s.Open("m", 3, schema.Connection{}, true)
	next(t, s)
	r := reportOf("m", 2)
	reported(t, s, 3, r)
	if !s.Urgent() {
		t.Error("a new report can wait")
	}
	next(t, s, model.SessionUpdate{Machine: "m", Epoch: 3, Report: &r, Reported: true})
	reported(t, s, 3, r)
	if s.Urgent() {
		t.Error("the same report cannot wait")
	}
	next(t, s, model.SessionUpdate{Machine: "m", Epoch: 3, Reported: true})
	other := reportOf("m", 2)
	reported(t, s, 3, r)
	reported(t, s, 3, other)
	reported(t, s, 3, other)
	u := &schema.MachineUsage{Machine: "m"}
	s.Used(3, u)
	next(t, s, model.SessionUpdate{Machine: "m", Epoch: 3, Report: &other, Reported: true, Usage: u})
	next(t, s)
	s.Close("m", 3)
	next(t, s, model.SessionUpdate{Machine: "m", Epoch: 3, Left: true})
	if s.Report("m", 3, r) {
		t.Error("a report of a session that is over is taken")
	}
}

// TestAnotherLeader: it is sent each session, with the last report from memory, and
// none that has ended meanwhile.
func TestAnotherLeader(t *testing.T) {
	s := shard.New()
	at := schema.Connection{From: "here", Key: "k"}
	a, b := reportOf("a", 1), reportOf("b", 1)
	for _, machine := range []string{"a", "b", "c", "gone"} {
		s.Open(machine, 1, at, true)
	}
	reported(t, s, 1, a)
	next(t, s, model.SessionUpdate{Machine: "a", Epoch: 1, Report: &a, Reported: true})
	s.Close("gone", 1)
	reported(t, s, 1, b)
	s.Attach()
	if !s.Urgent() {
		t.Error("a new leader can wait for the sessions")
	}
	next(t, s,
		model.SessionUpdate{Machine: "b", Epoch: 1, Resume: &at, Report: &b, Reported: true},
		model.SessionUpdate{Machine: "a", Epoch: 1, Resume: &at, Report: &a},
		model.SessionUpdate{Machine: "c", Epoch: 1, Resume: &at})
	reported(t, s, 1, a)
	next(t, s, model.SessionUpdate{Machine: "a", Epoch: 1, Reported: true})

	// What was on its way when the leader went is sent again.
	reported(t, s, 1, reportOf("c", 1))
	s.Next(100)
	s.Attach()
	if got := s.Next(100); len(got) != 3 || got[2].Report == nil || got[2].Resume == nil {
		t.Errorf("after a report was lost with the leader: %+v", got)
	}
}

// TestWelcomedByTheOneBefore: a session that the leader before has welcomed is resumed
// at the present one.
func TestWelcomedByTheOneBefore(t *testing.T) {
	s := shard.New()
	s.Attach()
	s.Open("m", 4, schema.Connection{}, false)
	next(t, s, model.SessionUpdate{Machine: "m", Epoch: 4, Resume: &schema.Connection{}})

	s.Open("n", 4, schema.Connection{}, false)
	s.Close("n", 4) // before this leader knew of it
	next(t, s)
}

// TestNewerSession: the machine's newest session counts, whatever is said of others.
func TestNewerSession(t *testing.T) {
	s := shard.New()
	s.Open("m", 3, schema.Connection{}, true)
	reported(t, s, 3, reportOf("m", 1))
	s.Open("m", 5, schema.Connection{}, true)
	s.Open("m", 4, schema.Connection{}, true)
	if s.Report("m", 3, reportOf("m", 2)) {
		t.Error("a report of an earlier session is taken")
	}
	s.Close("m", 3)
	next(t, s)
	reported(t, s, 5, reportOf("m", 1))
	if got := s.All(); !cmp.Equal(got, []shard.ID{{Machine: "m", Epoch: 5}}) {
		t.Errorf("sessions %v", got)
	}
}

// TestViews: versions count up within a session, whoever leads, and the same view is
// sent once.
func TestViews(t *testing.T) {
	s := shard.New()
	view := func(epoch uint64, generations ...uint64) (version uint64, news bool) {
		list := make([]schema.Assignment, len(generations))
		for i, g := range generations {
			list[i].Generation = g
		}
		own, news := s.View("m", schema.View{Epoch: epoch, Version: 90, Assignments: list})
		return own.Version, news
	}
	want := func(version uint64, news bool) func(uint64, bool) {
		return func(v uint64, n bool) {
			t.Helper()
			if v != version || n != news {
				t.Errorf("view has version %d, news %v: want %d, %v", v, n, version, news)
			}
		}
	}
	want(0, false)(view(3, 1)) // no such session
	s.Open("m", 3, schema.Connection{}, true)
	want(0, false)(view(2, 1))
	want(1, true)(view(3)) // the first confirms what the machine holds, also that it is nothing
	want(0, false)(view(3))
	want(2, true)(view(3, 1))
	s.Attach()
	want(0, false)(view(3, 1))
	want(3, true)(view(3, 1, 2))
	s.Open("m", 4, schema.Connection{}, true)
	want(1, true)(view(4, 1, 2))
}

// TestMost: what is new is handed out in parts, oldest first.
func TestMost(t *testing.T) {
	s := shard.New()
	for _, machine := range []string{"a", "b", "c"} {
		s.Open(machine, 1, schema.Connection{}, true)
		reported(t, s, 1, reportOf(machine, 1))
	}
	if got := s.Next(2); len(got) != 2 || got[0].Machine != "a" || !s.Urgent() {
		t.Errorf("the first two: %+v, urgent %v", got, s.Urgent())
	}
	if got := s.Next(2); len(got) != 1 || got[0].Machine != "c" || s.Urgent() {
		t.Errorf("the rest: %+v, urgent %v", got, s.Urgent())
	}
}

// TestContent: a leader is sent what has changed of what a machine holds, and another
// leader is sent all.
func TestContent(t *testing.T) {
	s := shard.New()
	s.Open("m", 3, schema.Connection{}, true)
	s.Holds("m", 3, []schema.Digest{"a", "b"})
	next(t, s, model.SessionUpdate{Machine: "m", Epoch: 3, Content: &schema.ContentChange{Whole: true, Added: []schema.Digest{"a", "b"}}})
	s.Holds("m", 3, []schema.Digest{"a"})
	s.Holds("m", 3, []schema.Digest{"b", "c"})
	next(t, s, model.SessionUpdate{Machine: "m", Epoch: 3, Content: &schema.ContentChange{Added: []schema.Digest{"c"}, Removed: []schema.Digest{"a"}}})
	s.Holds("m", 2, nil) // of a session that is over
	s.Attach()
	next(t, s, model.SessionUpdate{Machine: "m", Epoch: 3, Resume: &schema.Connection{}, Content: &schema.ContentChange{Whole: true, Added: []schema.Digest{"b", "c"}}})
	s.Holds("m", 3, nil)
	next(t, s, model.SessionUpdate{Machine: "m", Epoch: 3, Content: &schema.ContentChange{Removed: []schema.Digest{"b", "c"}}})
}
