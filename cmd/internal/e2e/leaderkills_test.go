package e2e_test

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"maps"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/musterhq/muster/reconciler/status"
	"github.com/musterhq/muster/reconciler/store/storetest"
	"github.com/musterhq/muster/reconciler/web/client"
)

var (
	leaderKills    = flag.Int("e2e.leaderkills", 2, "how often TestLeaderKilled kills the master that leads")
	leaderMachines = flag.Int("e2e.leadermachines", 60, "hollow machines of TestLeaderKilled")
	leaderLease    = flag.Duration("e2e.leaderlease", 2*time.Second, "lease of the masters of TestLeaderKilled")
)

// shards are masters on one machine, with hollow machines.
type shards struct {
	*cell
	etcd    *storetest.Cluster
	masters []*daemon
	apis    []*client.Client
}

func (s *shards) start(i int) {
	s.t.Helper()
	file := func(name string) string { return filepath.Join(s.etcd.Certs, name) }
	dir := s.path(fmt.Sprint("master", i))
	m, err := launch(dir+".log", filepath.Join(s.bin, "muster"), append([]string{
		"master", "--cell", cellName, "--data-dir", dir, "--etcd", strings.Join(s.etcd.URLs, ","), "--etcd-lease", leaderLease.String(),
		"--etcd-ca", file("ca.pem"), "--etcd-cert", file("cert.pem"), "--etcd-key", file("key.pem"),
	}, s.follows...)...)
	s.must(err)
	s.masters[i] = m
	select {
	case <-m.said:
	case <-time.After(bound):
		s.t.Fatalf("master %d has not said its address", i)
	}
}

func (s *shards) socket(i int, name string) string {
	return s.path(fmt.Sprint("master", i), "link", name)
}

// leading returns the master that leads and has applied a commit, and what it says; -1 if
// there is none.
func (s *shards) leading(commit string) (int, *status.Status) {
	for i, m := range s.masters {
		if m == nil {
			continue
		}
		ctx, cancel := context.WithTimeout(s.t.Context(), bound)
		seen, _, err := s.apis[i].Status(ctx, client.StatusQuery{})
		cancel()
		if err == nil && seen.Master == nil && seen.Replica == nil && seen.Applied == commit {
			return i, seen
		}
	}
	return -1, nil
}

// awaitLeader waits until a master leads and all is as a commit says.
func (s *shards) awaitLeader(commit string) (leads int, generations map[string]uint64) {
	s.t.Helper()
	generations = map[string]uint64{}
	if err := within(bound, func() error {
		i, seen := s.leading(commit)
		if i < 0 || !seen.Converged {
			return fmt.Errorf("master %d leads: %+v", i, seen)
		}
		leads = i
		for _, t := range seen.Tasks {
			generations[t.Name] = t.Generation
		}
		return nil
	}); err != nil {
		s.t.Fatal(err)
	}
	return leads, generations
}

// metrics returns what a master counts.
func (s *shards) metrics(i int) map[string]int {
	s.t.Helper()
	to := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", s.socket(i, "api.sock"))
	}}}
	r, err := to.Get("http://master/metrics")
	s.must(err)
	defer r.Body.Close()
	out := map[string]int{}
	for lines := bufio.NewScanner(r.Body); lines.Scan(); {
		if name, value, ok := strings.Cut(lines.Text(), " "); ok {
			n, _ := strconv.ParseFloat(value, 64) // 0 of a comment
			out[name] = int(n)
		}
	}
	return out
}

// TestLeaderKilled kills the master that leads, again and again, while commits come: the
// next one decides. The machines of the others neither connect nor report again, and no
// task is touched.
func TestLeaderKilled(t *testing.T) {
	t.Parallel()
	s := &shards{cell: prepare(t), etcd: storetest.Start(t, 1), masters: make([]*daemon, 3), apis: make([]*client.Client, 3)}
	s.initRepo()
	var links []string
	for i := range s.masters {
		s.start(i)
		links = append(links, "unix:"+s.socket(i, "agent.sock"))
		var err error
		s.apis[i], err = client.New("unix:" + s.socket(i, "api.sock"))
		s.must(err)
		t.Cleanup(s.apis[i].Close)
	}
	fleet, err := launch(s.path("fleet.log"), filepath.Join(s.bin, "muster"),
		"hollow", "--cell", cellName, "--count", fmt.Sprint(*leaderMachines), "--master", strings.Join(links, ","))
	s.must(err)
	t.Cleanup(func() {
		for _, d := range append(s.masters, fleet) {
			if d != nil {
				_ = d.cmd.Process.Kill()
				<-d.done
			}
		}
	})
	probe := func(n int) string {
		return s.commit(fmt.Sprint(n), map[string][]byte{teamFile: fmt.Appendf(nil, `package crew

import "%s/muster"

job: many: muster.#Job & {
	user: "crew", cell: "%s", tasks: %d
	task: {process: command: ["/bin/sleep", "1000"], resources: {cpuMilli: 10, ramBytes: 16Mi, diskBytes: 8Mi}}
}
job: none: muster.#Job & {
	user: "crew", cell: "%[2]s", tasks: 0, labels: n: "%[4]d"
	task: {process: command: ["/bin/sleep", "1000"], resources: {cpuMilli: 10, ramBytes: 16Mi, diskBytes: 8Mi}}
}
`, module, cellName, *leaderMachines, n)})
	}
	at, tasks := s.awaitLeader(probe(0))
	if len(tasks) != *leaderMachines {
		t.Fatalf("%d tasks: want %d", len(tasks), *leaderMachines)
	}
	var took []time.Duration
	for n := 1; n <= *leaderKills; n++ {
		s.allConnected()
		before := map[int]map[string]int{}
		for i := range s.masters {
			if i != at {
				before[i] = s.metrics(i)
			}
		}
		dead := at
		begun := time.Now()
		s.must(s.masters[dead].cmd.Process.Kill())
		<-s.masters[dead].done
		s.masters[dead] = nil
		commit := probe(n)
		if err := within(bound, func() error {
			if i, _ := s.leading(commit); i < 0 {
				return fmt.Errorf("nobody has decided on commit %d", n)
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		took = append(took, time.Since(begun))
		var after map[string]uint64
		if at, after = s.awaitLeader(commit); !maps.Equal(tasks, after) {
			t.Errorf("kill %d: tasks were touched", n)
		}
		s.allConnected()
		for i, was := range before {
			is := s.metrics(i)
			const whole = `muster_link_reports_total{report="whole"}`
			moved, reports := is["muster_link_sessions"]-was["muster_link_sessions"], is[whole]-was[whole]
			// One that has moved reports when it joins, and that it has its view.
			if moved < 0 || reports > 2*moved {
				t.Errorf("kill %d: %d whole reports at master %d, to which %d machines have moved", n, reports, i, moved)
			}
		}
		s.start(dead)
	}
	slices.Sort(took)
	t.Logf("%d machines, %d kills, lease %v: the next decision after %v in the middle, %v at the 95th percentile, %v at most",
		*leaderMachines, len(took), *leaderLease, took[len(took)/2], took[(len(took)*95+99)/100-1], took[len(took)-1])
}

// allConnected waits until each machine has a session with a master that is there.
func (s *shards) allConnected() {
	s.t.Helper()
	if err := within(bound, func() error {
		n := 0
		for i, m := range s.masters {
			if m != nil {
				n += s.metrics(i)["muster_link_sessions"]
			}
		}
		if n != *leaderMachines {
			return fmt.Errorf("%d machines of %d are connected", n, *leaderMachines)
		}
		return nil
	}); err != nil {
		s.t.Fatal(err)
	}
}
