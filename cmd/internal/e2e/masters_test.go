package e2e_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/musterhq/muster/cmd/internal/binaries"
	"github.com/musterhq/muster/reconciler/status"
	"github.com/musterhq/muster/reconciler/store/storetest"
)

// several is a cell whose documents are in an etcd cluster, with several masters.
type several struct {
	*cell
	etcd    *storetest.Cluster
	lease   time.Duration
	ways    []*proxy // from each master to the cluster
	net     *network // whose host i+1 master i is on; nil: all are on this one
	skew    *skew    // of the masters that are started from now on; nil: none
	masters []*daemon
	urls    []string
	links   []string
}

func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// newSeveral starts n masters, with further flags.
func newSeveral(t *testing.T, n int, lease time.Duration, flags ...string) *several {
	t.Helper()
	return newSeveralOf(t, binaries.Dir(t), n, lease, flags...)
}

// newSeveralOf starts n masters of the binaries in a directory.
func newSeveralOf(t *testing.T, bin string, n int, lease time.Duration, flags ...string) *several {
	t.Helper()
	p := &several{
		cell: prepare(t), etcd: storetest.Start(t, 1), lease: lease,
		ways: make([]*proxy, n), masters: make([]*daemon, n), urls: make([]string, n), links: make([]string, n),
	}
	p.bin, p.follows = bin, append(p.follows, flags...)
	t.Cleanup(p.stop)
	p.initRepo()
	p.muster("", "pki", "init", "--dir", p.path("pki"), "--cell", cellName, "--host", "127.0.0.1")
	p.muster("", "pki", "issue", "ada", "--dir", p.path("pki"), "--role", "operator", "--out", p.path("ada.pem"))
	for i := range p.masters {
		p.ways[i] = newProxy(t, strings.TrimPrefix(p.etcd.URLs[0], "https://"))
		p.urls[i], p.links[i] = "https://"+freeAddress(t), freeAddress(t)
		p.startMaster(i)
	}
	return p
}

// startAgentOf starts the agent, which knows of some of the masters.
func (p *several) startAgentOf(masters ...int) {
	p.t.Helper()
	var links []string
	for _, i := range masters {
		links = append(links, p.links[i])
	}
	token := p.path("token")
	p.must(os.WriteFile(token, p.muster("", "pki", "token", machine, "--dir", p.path("pki")), 0o600))
	a, err := launch(p.path("agent.log"), filepath.Join(p.bin, "muster-agent"),
		"--master", strings.Join(links, ","), "--token-file", token, "--state-dir", p.state, "--writable", p.path("journals"))
	p.must(err)
	p.agent = a
}

// startMaster starts a master and waits until it has said its address.
func (p *several) startMaster(i int) {
	p.t.Helper()
	p.launchMaster(i)
	select {
	case <-p.masters[i].said:
	case <-time.After(bound):
		p.t.Fatalf("master %d has not said its address", i)
	}
}

func (p *several) launchMaster(i int) {
	p.t.Helper()
	file := func(name string) string { return filepath.Join(p.etcd.Certs, name) }
	endpoints := strings.Join(p.etcd.URLs, ",")
	if p.ways[i] != nil {
		endpoints = "https://" + p.ways[i].address
	}
	line := p.at(i+1, append(slices.Clone(p.wrap), filepath.Join(p.bin, "muster"))...)
	line = append(append(line,
		"master", "--cell", cellName, "--data-dir", p.path(fmt.Sprint("master", i)),
		"--pki", p.path("pki"), "--listen", strings.TrimPrefix(p.urls[i], "https://"), "--link-listen", p.links[i], "--machine-life", "1h",
		"--etcd", endpoints, "--etcd-ca", file("ca.pem"), "--etcd-cert", file("cert.pem"), "--etcd-key", file("key.pem"), "--etcd-lease", p.lease.String(),
	), p.follows...)
	start := (*exec.Cmd).Start
	if p.skew != nil {
		start = p.skew.start("muster")
	}
	m, err := launchBy(p.path(masterName(i)+".log"), start, line[0], line[1:]...)
	p.must(err)
	p.masters[i] = m
}

func (p *several) stop() {
	for i, m := range p.masters {
		if m == nil {
			continue
		}
		_ = syscall.Kill(m.pid(), syscall.SIGCONT) // it may have ended
		p.check(m.end(syscall.SIGTERM, bound))
		if log, err := os.ReadFile(p.path(fmt.Sprintf("master%d.log", i))); p.t.Failed() {
			p.t.Logf("the end of the log of master %d: %v\n%s", i, err, log[max(0, len(log)-4000):])
		}
	}
}

// muster runs a command, of the master at url if there is one.
func (p *several) muster(url string, args ...string) []byte {
	p.t.Helper()
	out, err := p.command(url, args...).CombinedOutput()
	if err != nil {
		p.t.Fatalf("muster %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return out
}

// at returns a command line that runs another on a host of the network, if there is one.
func (p *several) at(host int, args ...string) []string {
	if p.net == nil {
		return args
	}
	return p.net.on(host, args...)
}

func (p *several) command(url string, args ...string) *exec.Cmd {
	line := p.at(0, append([]string{filepath.Join(p.bin, "muster")}, args...)...)
	cmd := exec.CommandContext(p.t.Context(), line[0], line[1:]...)
	cmd.Env = append(os.Environ(), "MUSTER_MASTER="+url, "MUSTER_CERT="+p.path("ada.pem"))
	return cmd
}

// await waits until the status of master i is as wanted.
func (p *several) await(i int, what string, missing func(*status.Status) string) *status.Status {
	p.t.Helper()
	seen := new(status.Status)
	if err := within(bound, func() error {
		out, err := p.command(p.urls[i], "status", "-o", "json").CombinedOutput()
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		*seen = status.Status{}
		if err := json.Unmarshal(out, seen); err != nil {
			return err
		}
		if why := missing(seen); why != "" {
			return fmt.Errorf("%s, master %+v", why, seen.Master)
		}
		return nil
	}); err != nil {
		p.t.Fatalf("master %d, %s: %v", i, what, err)
	}
	return seen
}

// leader waits until a master says that it leads, and returns which; the others stand
// by. What they say of the leader may be of one that was killed a moment ago.
func (p *several) leader() (leads int, others []int) {
	p.t.Helper()
	leads, _ = p.leading(func(*status.Status) string { return "" })
	for i, d := range p.masters {
		if i != leads && d != nil {
			others = append(others, i)
		}
	}
	return leads, others
}

// leading waits until a master leads, whichever that is in the end, and its status is as
// wanted.
func (p *several) leading(missing func(*status.Status) string) (leads int, seen *status.Status) {
	p.t.Helper()
	p.must(within(bound, func() error {
		var errs []error
		for i, d := range p.masters {
			if d == nil {
				continue
			}
			seen = new(status.Status)
			out, err := p.command(p.urls[i], "status", "-o", "json").Output()
			if err == nil {
				err = json.Unmarshal(out, seen)
			}
			why := fmt.Sprintf("%+v", seen.Master)
			if err == nil && seen.Master == nil && seen.Replica == nil {
				if why = missing(seen); why == "" {
					leads = i
					return nil
				}
			}
			errs = append(errs, fmt.Errorf("master %d: %s, %w", i, why, err))
		}
		return errors.Join(errs...)
	}))
	return leads, seen
}

// leads waits until master i leads and the cell is as commit says.
func (p *several) leads(i int, commit string) map[string]int {
	p.t.Helper()
	s := p.await(i, "leads", func(s *status.Status) string {
		if s.Master != nil || s.Replica != nil {
			return "another one leads"
		}
		return notYet(s, commit)
	})
	return pidsOf(s)
}

// notYet returns what is missing until a cell is as commit says.
func notYet(s *status.Status, commit string) string {
	if s.Applied == commit && s.Converged {
		return ""
	}
	return fmt.Sprintf("applied %.10s, want %.10s: %s", s.Applied, commit, strings.Join(s.Waiting, "; "))
}

// pidsOf returns which process each task is.
func pidsOf(s *status.Status) map[string]int {
	pids := map[string]int{}
	for _, t := range s.Tasks {
		pids[t.Name] = t.PID
	}
	return pids
}

func (p *several) standsBy(i int, leader string) {
	p.t.Helper()
	p.await(i, "stands by", func(s *status.Status) string {
		follows := s.Replica != nil && s.Replica.Leader == leader
		if !follows && (s.Master == nil || s.Master.Role != status.Standby || s.Master.Leader != leader) {
			return "it is no standby of " + leader
		}
		return ""
	})
}

// sleeper is a job of n tasks.
func sleeper(n int) map[string][]byte {
	return map[string][]byte{teamFile: fmt.Appendf(nil, `package crew

import "%s/muster"

job: sleep: muster.#Job & {
	user: "crew", cell: "%s", tasks: %d
	task: {process: command: ["/bin/sh", "-c", "echo up; exec sleep 1000"], resources: {cpuMilli: 10, ramBytes: 16Mi, diskBytes: 8Mi}, graceSeconds: 1}
}
`, module, cellName, n)}
}

// TestTwoMasters: one leads, and says so, the other one stands by for it. A
// leader that is frozen is replaced, and is a standby when it wakes up; one that
// is killed is replaced, too. A store that goes away stops nobody. No task notices
// any of it.
func TestTwoMasters(t *testing.T) {
	t.Parallel()
	p := newSeveral(t, 2, 2*time.Second)
	p.startAgentOf(0, 1)
	first := p.commit("two", sleeper(2))
	a, others := p.leader()
	b := others[0]
	before := p.leads(a, first)
	p.standsBy(b, p.urls[a])
	if out := p.muster(p.urls[b], "why", "crew/sleep"); !strings.Contains(string(out), "crew/sleep") {
		t.Errorf("the standby on why:\n%s", out)
	}

	p.must(syscall.Kill(p.masters[a].pid(), syscall.SIGSTOP))
	if after := p.leads(b, first); !maps.Equal(before, after) {
		t.Errorf("tasks before the leader froze %v, after %v", before, after)
	}
	second := p.commit("three", sleeper(3))
	three := p.leads(b, second)
	p.must(syscall.Kill(p.masters[a].pid(), syscall.SIGCONT))
	p.standsBy(a, p.urls[b])

	p.must(p.masters[b].cmd.Process.Kill())
	<-p.masters[b].done
	p.masters[b] = nil
	if after := p.leads(a, second); !maps.Equal(three, after) {
		t.Errorf("tasks before the leader was killed %v, after %v", three, after)
	}
	for name, pid := range before {
		if three[name] != pid {
			t.Errorf("task %s was pid %d, is %d", name, pid, three[name])
		}
	}

	p.etcd.Stop[0]()
	p.await(a, "has no store", func(s *status.Status) string {
		if s.Master == nil || s.Master.Role != status.NoStore || len(s.Tasks) != 3 || s.Converged {
			return fmt.Sprintf("%d tasks, converged %v", len(s.Tasks), s.Converged)
		}
		return ""
	})
	for name, pid := range three {
		if err := syscall.Kill(pid, 0); err != nil {
			t.Errorf("task %s: %v", name, err)
		}
	}
	p.etcd.Restart(t, 0)
	if after := p.leads(a, second); !maps.Equal(three, after) {
		t.Errorf("tasks before the store was gone %v, after %v", three, after)
	}
}
