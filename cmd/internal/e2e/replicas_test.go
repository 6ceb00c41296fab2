package e2e_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/musterhq/muster/schema"
)

// history returns the events that a master serves, as lines.
func (p *several) history(i int) map[string]schema.EventRecord {
	p.t.Helper()
	out := map[string]schema.EventRecord{}
	for line := range bytes.Lines(p.muster(p.urls[i], "events", "--limit", "1000", "-o", "json")) {
		var r schema.EventRecord
		p.must(json.Unmarshal(line, &r))
		out[fmt.Sprintf("%d %s %s %s", r.ID, r.Kind, r.Task, r.Message)] = r
	}
	return out
}

// hasAll waits until a master serves all events of a history.
func (p *several) hasAll(i int, of map[string]schema.EventRecord) {
	p.t.Helper()
	if err := within(bound, func() error {
		is := p.history(i)
		for name := range of {
			if _, ok := is[name]; !ok {
				return fmt.Errorf("it has %d events, and not %q", len(is), name)
			}
		}
		return nil
	}); err != nil {
		p.t.Fatalf("the history at master %d: %v", i, err)
	}
}

// TestReplicas: a master that does not lead answers all commands: reads from the state
// that the leader pushes, and the rest by the leader. A machine joins there with its
// token. The history outlives the disk of the master that led.
func TestReplicas(t *testing.T) {
	t.Parallel()
	p := newSeveral(t, 2, 2*time.Second)
	a, others := p.leader()
	b := others[0]
	p.startAgentOf(b) // its first join is at the one that does not lead
	first := p.commit("two", sleeper(2))
	at := p.urls[b]
	p.muster(at, "reconcile")
	if out := p.muster(at, "wait", "--timeout", "60s"); !bytes.Contains(out, []byte("converged")) {
		t.Errorf("wait at the replica: %s", out)
	}
	pids := p.leads(a, first)
	p.standsBy(b, p.urls[a])
	for _, x := range []struct {
		args string
		want string
	}{
		{"status", "this one is on standby; " + p.urls[a] + " leads, and the state is "},
		{"status crew/sleep/0", "running"},
		{"events --kind start", "crew/sleep/0"},
		{"why crew/sleep", "crew/sleep"},
		{"logs crew/sleep/0", "up"},
		{"exec crew/sleep/0 -- echo beside", "beside"},
		{"top", machine},
		{"suspend crew/sleep --reason replicas", "crew/sleep"},
		{"status", "suspended by operator/ada since"}, // who asks next sees it
		{"resume crew/sleep", "crew/sleep"},
		{"restart crew/sleep/0 --reason replicas --wait", "crew/sleep"},
	} {
		if out := p.muster(at, strings.Fields(x.args)...); !strings.Contains(strings.Join(strings.Fields(string(out)), " "), x.want) {
			t.Errorf("muster %s at the replica: want %q in\n%s", x.args, x.want, out)
		}
	}
	if after := p.leads(a, first); after["crew/sleep/0"] == pids["crew/sleep/0"] || after["crew/sleep/1"] != pids["crew/sleep/1"] {
		t.Errorf("before the restart %v, after it %v", pids, after)
	}

	before := p.history(a)
	p.hasAll(b, before)
	p.must(p.masters[a].cmd.Process.Kill())
	<-p.masters[a].done
	p.masters[a] = nil
	p.must(os.RemoveAll(p.path(fmt.Sprint("master", a))))
	p.leads(b, first)
	p.hasAll(b, before)
	p.startMaster(a)
	p.standsBy(a, p.urls[b])
	p.hasAll(a, before)
	second := p.commit("three", sleeper(3))
	p.leads(b, second)
	p.hasAll(a, p.history(b))
}
