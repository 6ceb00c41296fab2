package e2e_test

import (
	"strings"
	"testing"
	"time"

	"github.com/musterhq/muster/reconciler/status"
)

// TestSlowStore holds up, and cuts, what goes between two masters and their etcd.
// A store that takes 5 s for a write is waited for: the leader stays the leader.
// One that cannot be reached ends its term, and the other master takes over. What
// the old leader sent and arrives after that is refused. Whatever happens, no task
// notices, and no generation is given, or started, twice.
func TestSlowStore(t *testing.T) {
	t.Parallel()
	p := newSeveral(t, 2, 8*time.Second)
	p.startAgentOf(0, 1)
	commits := 0
	next := func() string {
		commits++
		return p.commitVersion(commits, commits, "")
	}
	first := next()
	a, others := p.leader()
	b := others[0]
	steady := p.leads(a, first)

	const slow = 5 * time.Second
	for range 2 {
		for _, way := range p.ways {
			way.hold()
		}
		hash := next()
		time.Sleep(slow) // the length is the scenario
		for _, way := range p.ways {
			way.release()
		}
		p.leads(a, hash)
	}
	p.standsBy(b, p.urls[a])
	if n := p.terms(a); n != 1 {
		t.Errorf("the leader has begun %d terms while its store was slow, want 1", n)
	}

	// A store that is gone for one master.
	hash := next()
	p.ways[a].cut()
	p.leads(b, hash)
	p.await(a, "has no store", func(s *status.Status) string {
		if s.Master == nil || s.Master.Role != status.NoStore {
			return "it does not say so"
		}
		return ""
	})
	p.ways[a].restore()
	p.standsBy(a, p.urls[b])

	// What the leader has sent comes when another one leads.
	p.ways[b].hold()
	hash = next()
	p.leads(a, hash)
	p.ways[b].release()
	p.standsBy(b, p.urls[a])
	last := p.leads(a, next())
	p.checkSteady("at the end", steady, last)
}

// terms returns how often master i has begun to lead.
func (p *several) terms(i int) int {
	p.t.Helper()
	return strings.Count(string(p.muster(p.urls[i], "events", "-o", "json")), "a master leads the cell")
}
