package e2e_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/musterhq/muster/cmd/internal/binaries"
	"github.com/musterhq/muster/reconciler/status"
)

// neighbour is the newest commit of the release before this one, as far as master, agent
// and store see it: its masters hold no sessions for each other. A later release names
// the last commit of the one before it here.
const neighbour = "5ae425bff5cc008391e43635e9fbafcb1c280123"

// rolling is a cell of several masters and machines, of which each runs one of two
// releases.
type rolling struct {
	*several
	old, current string // directories of binaries
	agents       map[string]*daemon
	ports        map[string]string // by machine
	running      map[string]string // binaries, by master and machine
	commits      int
}

// parts are what is upgraded, one after the other.
var parts = []string{"master0", "master1", "master2", "m1", "m2"}

// TestRollingUpgrade upgrades masters and agents of the release before one by one, goes
// back, and upgrades them again, in different orders. In between commits come, whichever
// release leads: each is carried out, and what it does not change runs on as the same
// processes.
func TestRollingUpgrade(t *testing.T) {
	t.Parallel()
	r := &rolling{
		old: binaries.At(t, neighbour, "-ldflags", "-s -w -X main.version=before"), current: binaries.Dir(t),
		agents: map[string]*daemon{}, ports: map[string]string{}, running: map[string]string{},
	}
	r.several = newSeveralOf(t, r.old, 3, 2*time.Second)
	t.Cleanup(r.stopAgents)
	r.leader()
	for _, name := range parts {
		if r.running[name] = r.old; !strings.HasPrefix(name, "master") {
			r.ports[name] = freePorts(t)
			r.must(os.WriteFile(r.path(name+".token"), r.muster("", "pki", "token", name, "--dir", r.path("pki")), 0o600))
			r.start(name)
		}
	}
	before := r.converges("the release before")
	mastersFirst, agentsFirst := parts, slices.Concat(parts[3:], parts[:3])
	for i, turn := range []struct {
		name  string
		to    string
		order []string
	}{
		{"masters first", r.current, mastersFirst},
		{"back, agents first", r.old, agentsFirst},
		{"one of each in turn", r.current, []string{"master2", "m2", "master0", "m1", "master1"}},
		{"back, masters first", r.old, mastersFirst},
		{"agents first", r.current, agentsFirst},
	} {
		// A third of it is there and back, or there; two of six runs play the same.
		if !plays(i/2) && !plays(i/2+3) {
			continue
		}
		for k, name := range turn.order {
			if r.running[name] == turn.to {
				continue
			}
			r.move(name, turn.to)
			when := fmt.Sprintf("%s, %s", turn.name, name)
			if k%2 == 0 || k == len(turn.order)-1 {
				r.checkSteady(when, before, r.converges(when))
			}
		}
	}
}

// start starts a machine's agent, of the release that it runs.
func (r *rolling) start(name string) {
	r.t.Helper()
	a, err := launch(r.path(name+".log"), filepath.Join(r.running[name], "muster-agent"), "--master", strings.Join(r.links, ","), "--token-file", r.path(name+".token"),
		"--state-dir", r.path("state-"+name), "--ports", r.ports[name], "--writable", r.path("journals"))
	r.must(err)
	r.agents[name] = a
}

// move ends a master or an agent in order, and starts it as another release.
func (r *rolling) move(name, to string) {
	r.t.Helper()
	r.running[name] = to
	if a := r.agents[name]; a != nil {
		r.must(a.end(syscall.SIGTERM, bound))
		r.start(name)
		return
	}
	var i int
	_, err := fmt.Sscanf(name, "master%d", &i)
	r.must(err)
	r.must(r.masters[i].end(syscall.SIGTERM, bound))
	r.bin = to
	r.startMaster(i)
	r.bin = r.current
}

// converges commits another version, waits until all machines run it, and returns which
// process each task is. It checks that each part runs the release that it is to.
func (r *rolling) converges(when string) map[string]int {
	r.t.Helper()
	r.commits++
	hash := r.commitVersion(r.commits, r.commits, "update: {maxParallel: 2, minHealthySeconds: 0}")
	_, s := r.leading(func(s *status.Status) string { return notYet(s, hash) })
	for name, dir := range r.running {
		d := r.agents[name]
		if d == nil {
			d = r.masters[name[len(name)-1]-'0']
		}
		exe, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", d.pid()))
		if err != nil || filepath.Dir(exe) != dir {
			r.t.Errorf("%s: %s runs %s, want one of %s: %v", when, name, exe, dir, err)
		}
	}
	return pidsOf(s)
}

func (r *rolling) stopAgents() {
	for name, a := range r.agents {
		if log, err := os.ReadFile(r.path(name + ".log")); r.t.Failed() {
			r.t.Logf("the end of the log of %s: %v\n%s", name, err, log[max(0, len(log)-4000):])
		}
		r.check(a.end(syscall.SIGINT, bound))
	}
}
