package e2e_test

import (
	"bytes"
	"fmt"
	"maps"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/musterhq/muster/reconciler/status"
)

// TestClusterLost loses all members of an etcd cluster for good. A master that begins
// with a snapshot of the cell, and with an etcd of its own, takes over what runs, what was
// decided since included, and goes on.
func TestClusterLost(t *testing.T) {
	t.Parallel()
	p := newSeveral(t, 2, 2*time.Second, "--snapshot-every", "1s")
	p.leader()
	p.startAgentOf(0, 1)
	a, _ := p.leader()
	p.leads(a, p.commit("two", sleeper(2)))
	snapshot := p.nextSnapshot(p.path(masterName(a)), func(commit string) { p.leads(a, commit) })
	last := p.commit("three", sleeper(3))
	before := p.leads(a, last)

	p.etcd.Stop[0]()
	for _, m := range p.masters {
		p.must(m.end(syscall.SIGTERM, bound))
	}
	p.muster("", "master", "restore", snapshot, "--data-dir", p.path("restored"))
	p.masters[1] = nil
	m, err := launch(p.path("master0.log"), filepath.Join(p.bin, "muster"), append([]string{
		"master", "--cell", cellName, "--data-dir", p.path("restored"), "--link", p.path("link", "agent.sock"),
		"--pki", p.path("pki"), "--listen", p.urls[0][len("https://"):], "--link-listen", p.links[0],
	}, p.follows...)...)
	p.must(err)
	p.masters[0] = m
	p.must(within(3*bound, func() error { // a minute
		out, err := p.command(p.urls[0], "events", "-o", "json").CombinedOutput()
		if err != nil || !bytes.Contains(out, []byte(restoredReported)) {
			return fmt.Errorf("the machines have not reported: %w: %s", err, out)
		}
		return nil
	}))
	if after := p.leads(0, last); !maps.Equal(before, after) {
		t.Errorf("tasks were %v, are %v", before, after)
	}
	after := p.leads(0, p.commit("four", sleeper(4)))
	for name, pid := range before {
		if after[name] != pid {
			t.Errorf("task %s was pid %d, is %d", name, pid, after[name])
		}
	}
	p.await(0, "numbers", func(s *status.Status) string {
		for _, task := range s.Tasks {
			if _, old := before[task.Name]; !old && task.Generation < 10_000_000_000 {
				return fmt.Sprintf("task %s has generation %d, which may have been given before", task.Name, task.Generation)
			}
		}
		return ""
	})
}
