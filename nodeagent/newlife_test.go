package nodeagent_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/musterhq/muster/nodeagent"
	"github.com/musterhq/muster/schema"
)

// once is an assignment of a task that must never run twice.
func once(name string, generation uint64, kind schema.JobKind) schema.Assignment {
	a := assignment(name, 0, generation, kind)
	a.Job.Silence = &schema.Silence{NeverTwice: true}
	return a
}

// newLife has an agent start on what the disk has.
func (m *machine) newLife() { m.life = nodeagent.Life{Began: m.now} }

// TestNewLife: an agent that starts again, with its tasks gone, starts what must
// never run twice only when a master has confirmed it, and all else after a moment.
func TestNewLife(t *testing.T) {
	t.Parallel()
	pair := assignment("pair", 0, 1, schema.Allocs)
	inside := once("inside", 2, schema.Service)
	inside.Alloc = &schema.AllocUse{Set: "pair", Generation: 1}
	tasks := []schema.Assignment{
		inside, once("job", 3, schema.Batch), once("ledger", 4, schema.Service),
		assignment("logs", 0, 5, schema.System), pair, assignment("web", 0, 6, schema.Service),
	}
	free, all := "u/logs/0 u/pair/0 u/web/0", "u/inside/0 u/job/0 u/ledger/0 u/logs/0 u/pair/0 u/web/0"
	for _, tt := range []struct {
		name string
		ends func(m *machine) // what has become of the tasks
		held bool             // they ran in the life before
	}{
		{"never started", nil, false},
		{"killed with the agent", func(m *machine) { m.exitAll(schema.Exit{Code: -1, Signal: "SIGKILL"}) }, true},
		{"stopped with the agent", func(m *machine) {
			m.shutdown = true
			m.settle()
			m.exitAll(schema.Exit{Code: -1, Signal: "SIGTERM"})
			m.shutdown = false
		}, true},
		{"the machine restarts", func(m *machine) { m.boot = "boot-2" }, true},
	} {
		for _, linked := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, linked %t", tt.name, linked), func(t *testing.T) {
				t.Parallel()
				m := newMachine(t)
				m.assign(tasks...)
				if tt.held {
					m.life = nodeagent.Life{Confirmed: m.now}
					m.settle()
					m.running(all)
					tt.ends(m)
				}
				m.now = m.now.Add(time.Hour)
				m.newLife()
				m.settle()
				m.running("")
				if linked {
					m.life.Confirmed = m.now
					m.settle()
					m.running(all)
					return
				}
				plan := m.settle()
				if want := m.now.Add(nodeagent.FirstView); !plan.Wake.Equal(want) {
					t.Fatalf("the agent wakes at %v, want %v", plan.Wake, want)
				}
				m.now = plan.Wake
				for range 3 { // an hour without a master changes nothing
					plan = m.settle()
					m.running(free)
					m.now = m.now.Add(time.Hour)
				}
				m.checkNotes(plan)
				m.life.Confirmed = m.now
				m.settle()
				m.running(all)
			})
		}
	}
}

// running fails the test unless just the named tasks are alive.
func (m *machine) running(want string) {
	m.t.Helper()
	var got []string
	for i := range m.held {
		if h := &m.held[i]; h.Alive() && last(h).Boot == m.boot {
			got = append(got, h.Assignment.Task.Short())
		}
	}
	slices.Sort(got)
	if s := strings.Join(got, " "); s != want {
		m.t.Fatalf("%q are alive, want %q", s, want)
	}
}

func (m *machine) exitAll(e schema.Exit) {
	for i := range m.held {
		m.exit(m.held[i].Assignment.Task, e)
	}
}

// checkNotes: what waits for a master says so, and what did not wait, too.
func (m *machine) checkNotes(plan nodeagent.Plan) {
	m.t.Helper()
	for _, s := range plan.Tasks {
		waits := slices.Contains([]string{"u/inside/0", "u/job/0", "u/ledger/0"}, s.Task.Short())
		if waits != s.Withheld || waits != (s.Note == schema.NoteWithheld) || waits == s.Unconfirmed {
			m.t.Fatalf("%s is %s, unconfirmed %t, with note %q", s.Task.Short(), s.State, s.Unconfirmed, s.Note)
		}
		ref := schema.TaskRef{Task: s.Task, Generation: s.Generation}
		if waits != slices.Contains(plan.Withheld, ref) {
			m.t.Fatalf("%s: withheld are %v", s.Task.Short(), plan.Withheld)
		}
	}
}

// TestRunsOn: what runs when an agent starts goes on, without a master too; when it
// ends then, it waits for one. In a life in which a master has confirmed it, it is
// restarted whether there is a master or not.
func TestRunsOn(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	ledger := once("ledger", 4, schema.Service)
	m.assign(ledger)
	m.life = nodeagent.Life{Confirmed: m.now}
	m.settle()
	m.newLife()
	m.advance(time.Hour)
	m.running("u/ledger/0")
	if s := m.status(4); s.Note != "" || s.Unconfirmed {
		t.Errorf("it ran on, and its status is %+v", s)
	}
	m.exit(ledger.Task, schema.Exit{Code: 1})
	m.advance(time.Hour)
	m.running("")
	m.life.Confirmed = m.now
	m.settle()
	m.exit(ledger.Task, schema.Exit{Code: 1})
	m.advance(time.Hour)
	m.running("u/ledger/0")
}

// TestUnconfirmedForAWhile: that a task was started without a master's word is said
// until ten minutes after a master has come.
func TestUnconfirmedForAWhile(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.assign(assignment("web", 0, 6, schema.Service))
	m.newLife()
	m.settle()
	m.advance(time.Minute)
	m.advance(time.Hour)
	if !m.status(6).Unconfirmed {
		t.Error("it is not said that no master has confirmed it")
	}
	m.life.Confirmed = m.now
	if plan := m.settle(); !m.status(6).Unconfirmed || !plan.Wake.Equal(m.now.Add(nodeagent.ReportFor)) {
		t.Errorf("unconfirmed %t, the next decision at %v", m.status(6).Unconfirmed, plan.Wake)
	}
	m.advance(2 * nodeagent.ReportFor)
	if m.status(6).Unconfirmed {
		t.Error("it is said for ever")
	}
}
