package reconciler_test

import (
	"errors"
	"testing"

	"github.com/musterhq/muster/reconciler"
	"github.com/musterhq/muster/reconciler/model"
	"github.com/musterhq/muster/schema"
)

// settled carries out what a master wants, as a store that takes all; it returns the
// views.
func settled(t *testing.T, m *reconciler.Master, docs map[string][]byte) []reconciler.View {
	t.Helper()
	var views []reconciler.View
	for {
		ready, more := m.Ready(epoch)
		if !more {
			return views
		}
		for _, batch := range model.Batches(ready.Writes) {
			if err := m.Stored(batch); err != nil {
				t.Fatal(err)
			}
			for _, w := range batch {
				docs[w.Key] = w.Value
			}
		}
		views = append(views, ready.Views...)
		m.Advance(epoch)
	}
}

func leads(t *testing.T, docs map[string][]byte) *reconciler.Master {
	t.Helper()
	m, err := reconciler.NewMaster(reconciler.MasterConfig{Cell: "c"}, docs, epoch)
	if err != nil {
		t.Fatal(err)
	}
	settled(t, m, docs)
	return m
}

// joins returns what is stored once a machine has joined a master, and its epoch.
func joins(t *testing.T, info schema.MachineInfo) (docs map[string][]byte, epochOf uint64) {
	t.Helper()
	docs = map[string][]byte{}
	m := leads(t, docs)
	epochOf, err := m.Join(info, epoch)
	if err != nil {
		t.Fatal(err)
	}
	settled(t, m, docs)
	return docs, epochOf
}

// TestResume: a session goes on with another master by the epoch that is stored, and
// nothing is written for that. The machine gets its view, and its report comes from memory.
func TestResume(t *testing.T) {
	t.Parallel()
	info := schema.MachineInfo{Name: "m", ID: "id", Boot: "b"}
	docs, joined := joins(t, info)

	m := leads(t, docs)
	report := schema.Report{Machine: info}
	update := func(w model.SessionUpdate) error { w.Machine = "m"; return m.UpdateSession(&w, epoch) }
	if err := update(model.SessionUpdate{Epoch: joined, Report: &report}); err == nil {
		t.Error("a report of a session that this master does not know of is taken")
	}
	for _, wrong := range []uint64{joined - 1, joined + 1} {
		if err := update(model.SessionUpdate{Epoch: wrong, Resume: &schema.Connection{}, Report: &report}); err == nil {
			t.Errorf("session %d goes on, and the machine's is %d", wrong, joined)
		}
	}
	if err := m.UpdateSession(&model.SessionUpdate{Machine: "other", Epoch: 1, Resume: &schema.Connection{}}, epoch); err == nil {
		t.Error("a session of an unknown machine goes on")
	}
	if m.Observed().HasReported("m") {
		t.Fatal("a report was taken in a session that is not its own")
	}
	if err := update(model.SessionUpdate{Epoch: joined, Resume: &schema.Connection{}, Report: &report}); err != nil {
		t.Fatal(err)
	}
	if ready, _ := m.Ready(epoch); len(ready.Writes) > 0 {
		t.Errorf("a session that goes on writes %v", ready.Writes)
	}
	if !m.Observed().HasReported("m") || !m.News() {
		t.Error("the machine's report was not taken")
	}
	m.Decide()
	if views := settled(t, m, docs); len(views) != 1 || views[0].Epoch != joined {
		t.Errorf("views %+v: want one of session %d", views, joined)
	}

	// The same again, as from a shard that was away for a moment: the view is sent again.
	if err := update(model.SessionUpdate{Epoch: joined, Reported: true}); err != nil {
		t.Error(err)
	}
	if err := update(model.SessionUpdate{Epoch: joined, Left: true}); err != nil {
		t.Error(err)
	}
	if err := update(model.SessionUpdate{Epoch: joined, Reported: true}); err == nil {
		t.Error("a report of a session that has ended is taken")
	}
	if err := update(model.SessionUpdate{Epoch: joined, Resume: &schema.Connection{}, Report: &report}); err != nil {
		t.Fatal(err)
	}
	m.Decide()
	if views := settled(t, m, docs); len(views) != 1 {
		t.Errorf("views %+v: want one", views)
	}

	// Who joins again has the name; the session before is over.
	again, err := m.Join(info, epoch)
	if err != nil || again <= joined {
		t.Fatalf("joins again with epoch %d, %v", again, err)
	}
	settled(t, m, docs)
	if err := update(model.SessionUpdate{Epoch: joined, Resume: &schema.Connection{}}); err == nil {
		t.Error("a session goes on after the machine has joined again")
	}
}

// TestResumeIsRefused: a machine must join again when what it was sent may not be in the
// store, and when it is being forgotten.
func TestResumeIsRefused(t *testing.T) {
	t.Parallel()
	info := schema.MachineInfo{Name: "m", ID: "id", Boot: "b"}
	docs, joined := joins(t, info)
	resume := func(m *reconciler.Master, tasks ...schema.TaskStatus) error {
		return m.UpdateSession(&model.SessionUpdate{Machine: "m", Epoch: joined, Resume: &schema.Connection{}, Report: &schema.Report{Machine: info, Tasks: tasks}}, epoch)
	}
	behind := (*schema.BehindError)(nil)
	if err := resume(leads(t, docs), schema.TaskStatus{Generation: 7}); !errors.As(err, &behind) {
		t.Errorf("a machine with a generation that the store never gave: %v", err)
	}
	forgets := leads(t, docs)
	if _, err := forgets.Forget("m", schema.Forgotten{Reason: "test"}, false, epoch); err != nil {
		t.Fatal(err)
	}
	settled(t, forgets, docs)
	if err := resume(forgets); err == nil {
		t.Error("a machine goes on that is being forgotten")
	}
	restored := leads(t, docs)
	writes := model.Restore(restored.State(), epoch, epoch)
	for _, w := range writes {
		docs[w.Key] = w.Value
	}
	if err := resume(leads(t, docs)); err == nil {
		t.Error("a machine goes on with a restored store without joining it")
	}
}

// TestForgottenJoinsAgain: a machine that is declared gone and silent is forgotten though its
// connection is there. What it says in that session later is refused, so that it joins again.
func TestForgottenJoinsAgain(t *testing.T) {
	t.Parallel()
	info := schema.MachineInfo{Name: "m", ID: "id", Boot: "b"}
	docs, joined := joins(t, info)
	m := leads(t, docs)
	update := func(w model.SessionUpdate) error {
		w.Machine, w.Epoch = "m", joined
		return m.UpdateSession(&w, epoch)
	}
	if err := update(model.SessionUpdate{Resume: &schema.Connection{}, Report: &schema.Report{Machine: info}}); err != nil {
		t.Fatal(err)
	}
	m.Decide()
	settled(t, m, docs)
	if err := m.Stored([]model.Write{{Key: model.KeyMachine + "m"}}); err != nil {
		t.Fatal(err)
	}
	for what, w := range map[string]model.SessionUpdate{
		"a report": {Report: &schema.Report{Machine: info}}, "that a report is as before": {Reported: true}, "usage": {Usage: &schema.MachineUsage{Machine: "m"}},
	} {
		if err := update(w); err == nil {
			t.Errorf("%s of a machine that is forgotten is taken: nobody would ask it to join again", what)
		}
	}
}
