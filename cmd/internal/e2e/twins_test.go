package e2e_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/musterhq/muster/reconciler/status"
	"github.com/musterhq/muster/schema"
)

// TestTwins has a second machine with the first one's certificate and name: it starts
// nothing while the first is there, both places are named wherever somebody looks, and it
// has the name once an operator has said that the first is gone. Then the first is refused.
func TestTwins(t *testing.T) {
	t.Parallel()
	s := newSpread(t, time.Hour)
	s.commit("a talker", map[string][]byte{teamFile: []byte(talker)})
	first, second := s.net.attach(), s.net.attach()
	s.agent(first, "first", "--token-file", s.token("m1"))
	s.up(1)
	before := s.pids()

	s.copyIdentity("first", "second")
	s.agent(second, "second", "--name", "m1")
	s.conflict("second", address0(first), address0(second))
	if log := s.log("second"); strings.Contains(log, "linked to the master") || strings.Contains(log, "msg=started") {
		t.Errorf("the agent that was refused:\n%s", log)
	}
	if now := s.pids(); fmt.Sprint(now) != fmt.Sprint(before) {
		t.Errorf("tasks are %v, were %v", now, before)
	}
	if out, err := s.try("machine", "forget", "m1", "--reason", "its twin", "--yes"); err == nil || !strings.Contains(err.Error(), "is connected") {
		t.Errorf("forgot a machine that is connected: %s, %v", out, err)
	}

	s.must(s.agents["first"].end(syscall.SIGINT, bound))
	delete(s.agents, "first")
	var forgotten schema.Forgetting
	s.must(within(bound, func() error {
		out, err := s.try("machine", "forget", "m1", "--reason", "its board is broken", "--yes", "-o", "json")
		if err != nil {
			return err // until the master has seen that it is gone
		}
		return json.Unmarshal(out, &forgotten)
	}))
	if !forgotten.Done || !strings.Contains(forgotten.Place.String(), address0(first)) {
		t.Errorf("forgotten is %+v, want the machine at %s", forgotten, address0(first))
	}
	s.must(within(bound, func() error {
		for _, m := range s.status().Machines {
			if m.Name == "m1" && strings.Contains(s.log("second"), "linked to the master") {
				return nil
			}
		}
		return errors.New("the second has not got the name")
	}))
	s.up(1)
	if now := s.pids(); fmt.Sprint(now) == fmt.Sprint(before) {
		t.Errorf("the talker is still %v", now)
	}

	before = s.pids()
	s.agent(first, "first", "--name", "m1")
	s.conflict("first", address0(second), address0(first))
	if now := s.pids(); fmt.Sprint(now) != fmt.Sprint(before) {
		t.Errorf("tasks are %v, were %v", now, before)
	}
}

// copyIdentity gives another agent's state directory the certificate of one.
func (s *spread) copyIdentity(from, to string) {
	s.t.Helper()
	b, err := os.ReadFile(filepath.Join(s.path("state-"+from), "identity.json"))
	s.must(err)
	s.must(os.MkdirAll(s.path("state-"+to), 0o700))
	s.must(os.WriteFile(filepath.Join(s.path("state-"+to), "identity.json"), b, 0o600))
}

// conflict waits until an agent's log, the events and the machine's status have the
// addresses of machine m1 and of the agent that is refused.
func (s *spread) conflict(log, has, refused string) {
	s.t.Helper()
	both := func(text string) bool { return strings.Contains(text, has+":") && strings.Contains(text, refused+":") }
	s.must(within(bound, func() error {
		if text := s.log(log); !slices.ContainsFunc(strings.Split(text, "\n"), both) {
			return fmt.Errorf("the log of the agent does not name both:\n%s", text)
		}
		events := string(s.muster("events"))
		if !slices.ContainsFunc(strings.Split(events, "\n"), both) {
			return fmt.Errorf("no event names both:\n%s", events)
		}
		machines := s.status().Machines
		if !slices.ContainsFunc(machines, func(m status.MachineStatus) bool {
			return slices.ContainsFunc(m.Conditions, func(c schema.Condition) bool {
				return c.Kind == schema.NameConflict && both(c.Message+" "+m.Place.String())
			})
		}) {
			return fmt.Errorf("no machine with a condition names both: %+v", machines)
		}
		return nil
	}))
}
