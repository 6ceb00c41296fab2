package e2e_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/cmd/internal/binaries"
	"github.com/musterhq/muster/reconciler/status"
	"github.com/musterhq/muster/reconciler/store/storetest"
	"github.com/musterhq/muster/schema"
)

const (
	memberWord = "serve-as-a-member"
	joinWord   = "have-a-member-join"

	siteMasters = 3
	siteAgents  = 2
	// siteLost is how long a machine of a site may be silent: longer than the 20 s after
	// which an agent looks for another master than one that does not answer.
	siteLost = time.Minute
)

// serveMember is an etcd member, or has one join; doc is a storetest.Member.
func serveMember(word, doc string, more []string) int {
	var m storetest.Member
	err := json.Unmarshal([]byte(doc), &m)
	switch {
	case err != nil:
	case word == joinWord:
		err = m.Join(more)
	default:
		err = m.Serve(os.Stdout)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// site is a cell as it is run where it must not fail: three masters on hosts of their
// own, each beside an etcd member, and agents on others. All are processes, and the hosts
// are network namespaces.
type site struct {
	*several
	members []*daemon
	configs []storetest.Member
	agents  map[string]*daemon
	hosts   map[string]int // by machine
	commits int
	since   time.Time // the scenario's begin
}

func masterName(i int) string { return fmt.Sprintf("master%d", i) }

func newSite(t *testing.T) *site {
	t.Helper()
	s := &site{
		several: &several{cell: prepare(t), lease: 4 * time.Second, etcd: &storetest.Cluster{}, ways: make([]*proxy, siteMasters), masters: make([]*daemon, siteMasters)},
		members: make([]*daemon, siteMasters), agents: map[string]*daemon{}, hosts: map[string]int{},
	}
	s.net = newNetwork(t)
	t.Cleanup(s.stop)
	s.bin = binaries.Dir(t)
	s.initRepo()
	var ips []net.IP
	var peers []string
	pki := []string{"pki", "init", "--dir", s.path("pki"), "--cell", cellName}
	for i := range siteMasters {
		host := address0(s.net.attach())
		ips, pki = append(ips, net.ParseIP(host)), append(pki, "--host", host)
		s.urls, s.links = append(s.urls, "https://"+host+":7420"), append(s.links, host+":7421")
		m := storetest.Member{Name: fmt.Sprint("m", i), Dir: s.path(fmt.Sprint("etcd", i)), Client: "https://" + host + ":2379", Peer: "https://" + host + ":2380"}
		peers = append(peers, m.Name+"="+m.Peer)
		s.etcd.URLs, s.configs = append(s.etcd.URLs, m.Client), append(s.configs, m)
	}
	s.etcd.Certs = storetest.Certs(t, ips...)
	s.several.muster("", pki...)
	s.several.muster("", "pki", "issue", "ada", "--dir", s.path("pki"), "--role", "operator", "--out", s.path("ada.pem"))
	for i := range s.configs {
		s.configs[i].Certs, s.configs[i].Initial = s.etcd.Certs, strings.Join(peers, ",")
		s.startMember(i)
	}
	s.follows = append(s.follows, "--lost-after", siteLost.String())
	for i := range s.members {
		s.awaitMember(i)
	}
	for i := range s.masters {
		// A disk of its own, which can be filled.
		dir := s.path(masterName(i))
		s.must(os.Mkdir(dir, 0o700))
		s.must(unix.Mount("muster-e2e", dir, "tmpfs", 0, "size=64m,mode=700"))
		s.launchMaster(i)
	}
	for i := range siteAgents {
		name := fmt.Sprint("m", i+1)
		s.hosts[name] = s.net.attach()
		token := s.path(name + ".token")
		s.must(os.WriteFile(token, s.several.muster("", "pki", "token", name, "--dir", s.path("pki")), 0o600))
	}
	s.leader()
	for name := range s.hosts {
		s.startAgent(name)
	}
	return s
}

func (s *site) startMember(i int) {
	s.t.Helper()
	doc, err := json.Marshal(s.configs[i])
	s.must(err)
	line := s.net.on(i+1, os.Args[0], memberWord, string(doc))
	s.members[i], err = launch(s.path("etcd.log"), line[0], line[1:]...)
	s.must(err)
}

func (s *site) awaitMember(i int) {
	s.t.Helper()
	select {
	case line := <-s.members[i].said:
		if line != "ready" {
			s.t.Fatalf("etcd member %d has ended", i)
		}
	case <-time.After(bound):
		s.t.Fatalf("etcd member %d is not ready", i)
	}
}

func (s *site) startAgent(name string) {
	s.t.Helper()
	line := s.net.on(s.hosts[name], filepath.Join(s.bin, "muster-agent"), "--master", strings.Join(s.links, ","), "--token-file", s.path(name+".token"),
		"--state-dir", s.path("state-"+name), "--writable", s.path("journals"))
	a, err := launch(s.path(name+".log"), line[0], line[1:]...)
	s.must(err)
	s.agents[name] = a
}

// stop ends all, the agents with their tasks first.
func (s *site) stop() {
	for name, a := range s.agents {
		if log, err := os.ReadFile(s.path(name + ".log")); s.t.Failed() {
			s.t.Logf("the end of the log of %s: %v\n%s", name, err, log[max(0, len(log)-4000):])
		}
		_ = a.cmd.Process.Signal(syscall.SIGCONT) // one that a failed test has left stopped
		s.check(a.end(syscall.SIGINT, bound))
	}
	s.several.stop()
	for i, m := range s.members {
		if m != nil {
			s.check(m.end(syscall.SIGTERM, bound))
		}
		if err := unix.Unmount(s.path(masterName(i)), 0); err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
			s.t.Error(err)
		}
	}
}

// filter has a host drop what nftables rules say: those of its input, and of its output.
// Without any it drops nothing.
func (s *site) filter(host int, in, out string) {
	s.t.Helper()
	rules := "table inet cut {}\ndelete table inet cut\n"
	if in+out != "" {
		rules += fmt.Sprintf(`table inet cut {
	chain in { type filter hook input priority 0; iif lo accept; %s; }
	chain out { type filter hook output priority 0; oif lo accept; %s; }
}
`, in, out)
	}
	line := s.net.on(host, "nft", "-f", "-")
	cmd := exec.CommandContext(s.t.Context(), line[0], line[1:]...)
	cmd.Stdin = strings.NewReader(rules)
	if out, err := cmd.CombinedOutput(); err != nil {
		s.t.Fatalf("nft: %v (package nftables)\n%s\n%s", err, out, rules)
	}
}

// next commits another version of the jobs.
func (s *site) next() string {
	s.t.Helper()
	s.commits++
	word := fmt.Sprintf("commit-%d", s.commits)
	return s.commit(word, map[string][]byte{teamFile: s.pack("crew",
		job{name: "steady", tasks: 4},
		job{name: "web", word: word, tasks: 2, more: "update: {maxParallel: 2, minHealthySeconds: 0}"},
		job{name: fmt.Sprintf("count-%d", s.commits), kind: "batch", mode: "batch", tasks: 2})})
}

// decides waits until whoever leads has decided as a commit says, and returns who, and
// which process each task is.
func (s *site) decides(commit string) (int, map[string]int) {
	s.t.Helper()
	at, seen := s.leading(func(seen *status.Status) string { return notYet(seen, commit) })
	return at, pidsOf(seen)
}

// machine waits until the master that leads finds a machine as wanted.
func (s *site) machine(at int, name, want string) {
	s.t.Helper()
	s.await(at, name+" is "+want, func(seen *status.Status) string { return unless(health(seen, name), want) })
}

// events returns what the masters that run have in their histories since the scenario
// began.
func (s *site) events() []schema.EventRecord {
	s.t.Helper()
	var all []schema.EventRecord
	for i, m := range s.masters {
		if m == nil {
			continue
		}
		for line := range bytes.Lines(s.several.muster(s.urls[i], "events", "-o", "json")) {
			var r schema.EventRecord
			s.must(json.Unmarshal(line, &r))
			if !r.At.Before(s.since) {
				all = append(all, r)
			}
		}
	}
	return all
}

// wantEvent wants an event that says something.
func (s *site) wantEvent(kind schema.EventKind, text string) {
	s.t.Helper()
	list := s.events()
	if !slices.ContainsFunc(list, func(r schema.EventRecord) bool { return r.Kind == kind && strings.Contains(r.Message, text) }) {
		s.t.Errorf("no event of kind %s says %q: %d events", kind, text, len(list))
		for _, r := range list {
			s.t.Logf("%s %s %s%s: %s %s", r.At.Format(time.TimeOnly), r.Kind, r.Task, r.Machine, r.Cause, r.Message)
		}
	}
}

// checkCauses wants for each end of a task a reason that it can have.
func (s *site) checkCauses() {
	s.t.Helper()
	may := map[string][]schema.CauseKind{"web": {schema.CauseUpdate}, "count": {schema.CauseFinished, schema.CauseRemoved}}
	ends := 0
	for _, r := range s.events() {
		if r.Task == "" || r.Cause == "" {
			continue
		}
		ends++
		name, _, _ := strings.Cut(strings.TrimPrefix(r.Task, "crew/"), "/")
		name, _, _ = strings.Cut(name, "-")
		if !slices.Contains(may[name], r.Cause) {
			s.t.Errorf("task %s: %s (%s), which is no reason: want one of %v", r.Task, r.Cause, r.Message, may[name])
		}
	}
	if ends == 0 {
		s.t.Error("no event reports the end of a task, and a commit has ended some")
	}
}
