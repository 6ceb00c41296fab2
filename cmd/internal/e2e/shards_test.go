package e2e_test

import (
	"bytes"
	"fmt"
	"os"
	"syscall"
	"testing"
	"time"
)

// agentLines returns how often the agent has said something.
func (p *several) agentLines(text string) int {
	p.t.Helper()
	log, err := os.ReadFile(p.path("agent.log"))
	p.must(err)
	return bytes.Count(log, []byte(text))
}

// TestShards: an agent stays with the master that it has found, whichever leads. The
// leader is killed twice: no task ends, and the agent neither loses its link nor joins
// again. Logs and commands beside its tasks are asked for at the one that leads.
func TestShards(t *testing.T) {
	t.Parallel()
	p := newSeveral(t, 3, 2*time.Second)
	p.leader()
	p.startAgentOf(0, 1, 2)
	first := p.commit("two", sleeper(2))
	a, others := p.leader()
	pids := p.leads(a, first)

	// With whom the agent is, its certificate's join decided: now it shall be with one
	// that does not lead.
	at := others[0]
	p.must(p.agent.end(syscall.SIGKILL, bound))
	p.startAgentOf(at)
	if err := within(bound, func() error {
		if n := p.agentLines("linked to the master"); n < 2 {
			return fmt.Errorf("it has linked %d times", n)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	look := func(leads int, commit string) {
		t.Helper()
		after := p.leads(leads, commit)
		for name, pid := range pids {
			if after[name] != pid {
				t.Errorf("tasks were %v, are %v", pids, after)
			}
		}
		if out := p.muster(p.urls[leads], "logs", "crew/sleep/0"); !bytes.Contains(out, []byte("up")) {
			t.Errorf("the log through master %d: %q", leads, out)
		}
		if out := p.muster(p.urls[leads], "exec", "crew/sleep/0", "--", "echo", "beside"); !bytes.Contains(out, []byte("beside")) {
			t.Errorf("a command through master %d: %q", leads, out)
		}
	}
	look(a, first)
	linked, unlinked := p.agentLines("linked to the master"), p.agentLines("no link to the master")

	// The one that takes over next may be the one that the agent is with, or not: both
	// come, since each leader is killed until that one leads.
	for n := 3; a != at && n < 5; n++ {
		p.must(p.masters[a].cmd.Process.Kill())
		<-p.masters[a].done
		p.masters[a] = nil
		p.leader()
		commit := p.commit(fmt.Sprint(n), sleeper(n))
		a, _ = p.leader()
		look(a, commit)
	}
	if got := p.agentLines("linked to the master"); got != linked {
		t.Errorf("the agent has linked %d times more", got-linked)
	}
	if got := p.agentLines("no link to the master"); got != unlinked {
		t.Errorf("the agent has lost its link %d times", got-unlinked)
	}
}
