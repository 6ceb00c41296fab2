package linktest

import (
	"log/slog"
	"testing"
	"time"

	"github.com/musterhq/muster/nodeagent/hollow"
	masterlink "github.com/musterhq/muster/reconciler/link"
	"github.com/musterhq/muster/schema"
)

// TestHollow has a fleet join, run what it is assigned, report it, and be silent.
func TestHollow(t *testing.T) {
	t.Parallel()
	const machines = 150 // more than share a connection
	path, m := socket(t), newMaster()
	s, _ := serve(t, path, masterlink.Config{Master: m, PullEvery: 10 * time.Millisecond, UsageEvery: 10 * time.Millisecond})
	fleet := hollow.New(hollow.Config{Cell: "c", Masters: []string{path}, Count: machines, Seed: 1, Log: slog.New(slog.DiscardHandler)})
	background(t, fleet.Run)
	eventually(t, "sessions of all machines", func() bool { return fleet.Stats().Linked == machines })

	const name = "hollow-00120"
	s.Push(name, schema.View{Epoch: 1, Version: 1, Assignments: []schema.Assignment{task("web", 1)}})
	eventually(t, "a report that the task runs", func() bool {
		r := m.of(name)
		return len(r.Tasks) == 1 && r.Tasks[0].State == schema.Running
	})
	eventually(t, "a sample of what the task uses", func() bool {
		for _, u := range m.samples() {
			if u.Machine == name && len(u.Tasks) == 1 {
				return true
			}
		}
		return false
	})

	silent, heal := fleet.Silence(machines, nil)
	if len(silent) != machines {
		t.Fatalf("%d machines are silent", len(silent))
	}
	s.Push(name, schema.View{Epoch: 1, Version: 2})
	eventually(t, "no answer to any pull", func() bool {
		n := m.count()
		time.Sleep(50 * time.Millisecond)
		return m.count() == n
	})
	if n := fleet.Stats().Running; n != 1 {
		t.Errorf("%d tasks run on machines that are silent, want 1", n)
	}
	heal()
	eventually(t, "the end of the task", func() bool { return fleet.Stats().Running == 0 && m.count() > machines })
}
