package e2e_test

import (
	"context"
	"flag"
	"fmt"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/musterhq/muster/cmd/internal/binaries"
	"github.com/musterhq/muster/reconciler/failpoint"
	"github.com/musterhq/muster/reconciler/pki"
	"github.com/musterhq/muster/reconciler/status"
	"github.com/musterhq/muster/reconciler/web/client"
	"github.com/musterhq/muster/schema/identity"
)

var passages = flag.Int("e2e.passages", 1, "how many passages of each failpoint TestFailpoints kills the master at")

// commitPassages is how many of a commit's some twelve batches the master is killed at
// in any case: each decides something else.
const commitPassages = 4

var (
	// atStart are the writes of a master with an empty data directory, in their order.
	atStart = []failpoint.Point{failpoint.GitReplace, failpoint.DirectoryIdentity, failpoint.StoreIdentity, failpoint.EventSegment}
	// inCluster are those that are made, or that mean more, in an etcd cluster.
	inCluster = []failpoint.Point{failpoint.StoreLease, failpoint.StoreElection, failpoint.StoreCommit, failpoint.StoreResign}
)

// TestFailpoints kills the master before and after each of its writes that are to
// outlive it: at a first start, and again and again while commits come. The next master
// gets to the commit, from whatever was written: no task is started twice or forgotten,
// none ends but for the reason that the commit gives, and that is in the events.
func TestFailpoints(t *testing.T) {
	t.Parallel()
	x := newFailing(t)
	for _, p := range atStart {
		for _, place := range placesOf(p) {
			x.start(place, 1)
			if !x.died() {
				t.Fatalf("%s: a first start does not pass it", place)
			}
		}
	}
	x.start("", 0)
	x.cell.startAgent()
	x.cell.joined()
	x.round("", 0)
	killed, walked := 0, 0
	for _, p := range failpoint.Points() {
		if slices.Contains(atStart, p) || p == failpoint.StoreLease || p == failpoint.StoreResign {
			continue // those of a cluster: TestFailpointsOfCluster
		}
		for _, place := range placesOf(p) {
			if walked++; !plays(walked) {
				continue
			}
			most := *passages
			if p == failpoint.StoreCommit {
				most = max(most, commitPassages)
			}
			for n := 1; n <= most && x.round(place, n) && !t.Failed(); n++ {
				killed++
			}
			if t.Failed() {
				return
			}
		}
	}
	t.Logf("the master was killed at %d places", killed+2*len(atStart))
	x.removeAll()
}

// placesOf are before and after a write.
func placesOf(p failpoint.Point) []string {
	return []string{string(p) + "/before", string(p) + "/after"}
}

// failing is a cell of which each write is one that can be waited for: its repository is
// behind http, it has certificates, takes snapshots all the time, and one of its
// documents is kept in pieces.
type failing struct {
	chaos
}

func newFailing(t *testing.T) *failing {
	t.Helper()
	x := &failing{chaos{cell: prepare(t), want: map[string]int{}}}
	c := x.cell
	c.bin = binaries.Of(t, ".", "-tags", "failpoints")
	c.socket = c.path("link", "api.sock")
	c.initRepo()
	c.git(c.repo, "config", "http.receivepack", "false")
	server := httptest.NewServer(c.gitServer())
	t.Cleanup(server.Close)
	c.pki("init", "--cell", cellName, "--host", "127.0.0.1")
	c.follows = []string{
		"--repo", server.URL + "/config/.git", "--poll", "300ms", "--pki", c.path("pki"), "--socket", c.socket,
		"--snapshot-every", "1s", "--snapshot-keep", "1",
	}
	return x
}

// pki runs a command of the cell's authority.
func (c *cell) pki(args ...string) {
	c.t.Helper()
	out, err := c.command(append([]string{"pki"}, append(args, "--dir", c.path("pki"))...)...).CombinedOutput()
	if err != nil {
		c.t.Fatalf("muster pki %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

// agedCertificate gives the master a certificate in the last third of its validity, in
// which a master renews it at its start.
func (c *cell) agedCertificate() {
	c.t.Helper()
	dir, err := pki.Open(c.path("pki"))
	c.must(err)
	was, err := pki.Read(dir.MasterFile())
	c.must(err)
	name, err := identity.Of(was)
	c.must(err)
	const life = time.Hour
	_, err = dir.Issue(pki.Request{Name: name, Hosts: identity.Hosts(was), Life: life, Now: time.Now().Add(-life * 3 / 4)}, dir.MasterFile())
	c.must(err)
}

// start starts a master that is to end at a passage of a place; "" for none.
func (x *failing) start(place string, passage int) {
	c := x.cell
	c.t.Helper()
	if c.api != nil {
		c.api.Close()
		c.api = nil
	}
	c.wrap = nil
	if place != "" {
		c.wrap = failAt(place, passage)
	}
	c.startMaster()
}

// died waits for the master to end, and reports whether that was by SIGKILL.
func (x *failing) died() bool {
	x.cell.t.Helper()
	killed, err := x.cell.master.killed()
	x.cell.must(err)
	return killed
}

// killed waits for a process to end, and reports whether that was by SIGKILL.
func (d *daemon) killed() (bool, error) {
	select {
	case <-d.done:
	case <-time.After(bound):
		return false, fmt.Errorf("%s (pid %d) has not ended", filepath.Base(d.cmd.Path), d.pid())
	}
	s, ok := d.cmd.ProcessState.Sys().(syscall.WaitStatus)
	return ok && s.Signaled() && s.Signal() == syscall.SIGKILL, nil
}

// failAt returns a command that starts a master which is to end at a passage of a place.
func failAt(place string, passage int) []string {
	return []string{"env", fmt.Sprintf("MUSTER_FAILPOINT=%s:%d", place, passage)}
}

// round has a master end at a place while a commit comes, and the next one get there.
// It reports whether the first has passed the place.
func (x *failing) round(place string, passage int) (killed bool) {
	c := x.cell
	c.t.Helper()
	if place != "" {
		c.must(c.master.end(syscall.SIGTERM, bound))
		if strings.HasPrefix(place, string(failpoint.Certificate)) {
			c.agedCertificate()
		}
		x.start(place, passage)
	}
	begin := time.Now()
	x.bulk()
	hash := x.next()
	if place != "" {
		if x.outlives(hash) {
			c.must(c.master.cmd.Process.Signal(syscall.SIGTERM))
		}
		if killed = x.died(); !killed && passage == 1 {
			c.t.Errorf("%s: a commit does not pass it", place)
		}
		x.start("", 0)
	}
	c.converge(hash)
	x.settle(begin)
	return killed
}

// bulk writes a package whose document is kept in pieces, of which a commit changes some.
func (x *failing) bulk() {
	c := x.cell
	c.t.Helper()
	c.commit("bulk", map[string][]byte{"teams/bulk/bulk.cue": fmt.Appendf(nil, `package bulk

import (
	"list"
	"strings"
	"%s/muster"
)

job: {
	for i in list.Range(0, 30, 1) {
		"bulk-\(i)": muster.#Job & {
			user: "crew", cell: %q, tasks: 0
			task: {
				process: command: ["/bin/true"]
				env: BULK: strings.Repeat("\(%d+i) ", 12000)
				resources: {cpuMilli: 10, ramBytes: 16Mi, diskBytes: 1Mi}
			}
		}
	}
}
`, module, cellName, 100+x.n)})
}

// outlives waits until the cell has converged at a commit, a snapshot has been taken of
// that, and a second one that replaces it, and reports whether the master still runs.
func (x *failing) outlives(hash string) bool {
	c := x.cell
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), bound)
	defer cancel()
	select {
	case line := <-c.master.said:
		if line == "" {
			return false
		}
	case <-ctx.Done():
		c.t.Fatal("the master has neither said its address nor ended")
	}
	var err error
	c.api, err = client.New("unix:" + c.socket)
	c.must(err)
	for version := uint64(0); ; {
		s, v, err := c.api.Status(ctx, client.StatusQuery{After: version, Wait: time.Second})
		if err == nil && s.Applied == hash && s.Converged {
			break
		}
		version = v
		select {
		case <-c.master.done:
			return false
		case <-ctx.Done():
			c.t.Fatalf("the cell does not converge: %v", err)
		case <-time.After(50 * time.Millisecond):
		}
	}
	select {
	case <-c.master.done:
		return false
	case <-time.After(1500 * time.Millisecond): // what is done once a second
		return true
	}
}

// TestFailpointsOfCluster kills one of two masters before and after it gets its lease,
// takes the lead, stores what it has decided, and gives the lead back. The other one goes
// on: no task is touched but those of the commit, and none is started twice.
func TestFailpointsOfCluster(t *testing.T) {
	t.Parallel()
	p := newSeveralOf(t, binaries.Of(t, ".", "-tags", "failpoints"), 2, 2*time.Second)
	p.startAgentOf(0, 1)
	commits := 0
	next := func() string {
		commits++
		return p.commitVersion(commits, commits, "update: {maxParallel: 2, minHealthySeconds: 0}")
	}
	hash := next()
	a, seen := p.leading(func(s *status.Status) string { return notYet(s, hash) })
	b, before := 1-a, pidsOf(seen)
	for i, point := range inCluster {
		for k, place := range placesOf(point) {
			if !plays(2*i + k) {
				continue
			}
			p.must(p.masters[b].end(syscall.SIGKILL, bound))
			p.wrap = failAt(place, 1)
			p.launchMaster(b)
			p.wrap = nil
			// Until it has the lead it waits for that, with a lease.
			leads := point != failpoint.StoreLease && place != string(failpoint.StoreElection)+"/before"
			if leads {
				p.standsBy(b, p.urls[a])
				p.must(p.masters[a].end(syscall.SIGKILL, bound))
				hash = next()
			}
			if point == failpoint.StoreResign {
				p.leads(b, hash)
				p.must(p.masters[b].cmd.Process.Signal(syscall.SIGTERM))
			}
			if killed, err := p.masters[b].killed(); err != nil || !killed {
				t.Fatalf("%s: the master has not ended there: %v", place, err)
			}
			if leads {
				p.startMaster(a)
			}
			p.startMaster(b)
			a, seen = p.leading(func(s *status.Status) string { return notYet(s, hash) })
			b = 1 - a
			p.checkSteady(place, before, pidsOf(seen))
		}
	}
	last := next()
	p.leading(func(s *status.Status) string { return notYet(s, last) })
}

// checkSteady wants the tasks that no commit touches as they were, and none twice.
func (p *several) checkSteady(when string, before, after map[string]int) {
	p.t.Helper()
	for name, pid := range before {
		if strings.HasPrefix(name, "crew/steady/") && after[name] != pid {
			p.t.Errorf("%s: task %s was pid %d, is %d", when, name, pid, after[name])
		}
	}
	for name, journal := range readJournals(p.t, p.path("journals")) {
		if journal.doubles > 0 || journal.dones > 1 {
			p.t.Errorf("%s: %s: %+v", when, name, journal)
		}
		journal.checkRise(p.t, name)
	}
}
