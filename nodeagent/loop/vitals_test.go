package loop_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/musterhq/muster/nodeagent"
	"github.com/musterhq/muster/nodeagent/loop"
	"github.com/musterhq/muster/schema"
)

// troubled waits until the agent reports exactly the conditions of these kinds,
// and returns what it says of the first.
func (s *story) troubled(kinds ...schema.ConditionKind) string {
	s.t.Helper()
	var got []schema.Condition
	for range 60 {
		rest()
		if got = s.agent.Report().Conditions; len(got) == len(kinds) {
			break
		}
		time.Sleep(10 * time.Second)
	}
	if len(got) != len(kinds) {
		s.t.Fatalf("conditions %v, want %v", got, kinds)
	}
	for i, k := range kinds {
		if got[i].Kind != k {
			s.t.Fatalf("conditions %v, want %v", got, kinds)
		}
	}
	if len(got) == 0 {
		return ""
	}
	return got[0].Message
}

// A state directory that cannot be written to is a condition of the machine
// until it can be again for a while; what runs goes on.
func TestReadOnlyStateDirectory(t *testing.T) {
	bubble(t, func(s *story) {
		s.kernel.look = loop.LookEvery
		s.restart()
		s.assign(assignment("web", 0, 1, schema.Service))
		s.until("u/web/0 g1 running")
		s.troubled()
		hints := s.agent.hints.Load()
		obstacle := filepath.Join(s.dir, "writable", "it")
		if err := os.MkdirAll(obstacle, 0o700); err != nil {
			s.t.Fatal(err)
		}
		if m := s.troubled(schema.ReadOnlyFS); !strings.Contains(m, "is a directory") {
			s.t.Errorf("message %q, want the error of the disk", m)
		}
		if s.agent.hints.Load() == hints {
			s.t.Error("the master was not given a hint")
		}
		if err := os.RemoveAll(filepath.Dir(obstacle)); err != nil {
			s.t.Fatal(err)
		}
		time.Sleep(nodeagent.ClearAfter / 2)
		s.troubled(schema.ReadOnlyFS)
		s.troubled()
		s.until("u/web/0 g1 running")
	})
}

// A clock that differs from the master's for a while is a condition; one
// comparison that is off is none.
func TestClockSkew(t *testing.T) {
	bubble(t, func(s *story) {
		s.kernel.look = loop.LookEvery
		s.restart()
		compare := func(ahead time.Duration, times int) {
			for range times {
				s.agent.Clock(ahead, time.Millisecond)
				time.Sleep(loop.LookEvery)
			}
			rest()
		}
		compare(time.Minute, 1)
		compare(0, 3)
		s.troubled()
		compare(-time.Minute, 6)
		if m := s.troubled(schema.ClockSkew); !strings.Contains(m, "1m0s ahead of the master's") {
			s.t.Errorf("message %q", m)
		}
		compare(0, 3)
		s.troubled(schema.ClockSkew)
		compare(0, 8)
		s.troubled()
	})
}

// Starts that fail for no fault of the task make the runtime a broken one; a
// command that is not there does not, however often.
func TestBrokenRuntime(t *testing.T) {
	bubble(t, func(s *story) {
		s.kernel.broken = true
		var view []schema.Assignment
		try := func() {
			g := uint64(len(view) + 1)
			view = append(view, assignment("web", len(view), g, schema.Service))
			s.assign(view...)
			rest()
		}
		for range 2 * nodeagent.StartFailures {
			try()
		}
		s.troubled()
		s.kernel.broken, s.kernel.fault = false, errors.New("fork: no more processes")
		for range nodeagent.StartFailures {
			try()
		}
		if m := s.troubled(schema.BrokenRuntime); !strings.Contains(m, "3 starts in a row failed") || !strings.Contains(m, "fork: no more processes") {
			s.t.Errorf("message %q", m)
		}
		time.Sleep(nodeagent.FirstHold)
		s.troubled() // so that the cell tries again
		try()
		s.troubled(schema.BrokenRuntime)
		s.kernel.fault = nil
		try()
		s.troubled()
	})
}
