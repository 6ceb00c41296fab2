package e2e_test

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/musterhq/muster/reconciler/model"
	"github.com/musterhq/muster/reconciler/status"
	"github.com/musterhq/muster/schema"
	"github.com/musterhq/muster/schema/turns"
)

var (
	faultKills = flag.Int("e2e.faultkills", 2, "how often the scenario leader-killed kills the master that leads")
	whole      = flag.Bool("e2e.whole", false, "play all of TestFaults, TestFailpoints and TestRollingUpgrade, and not a third of each")
)

// plays reports whether a step of what is played as a whole by make e2e is played now: in
// CI, whose runs take turns, as the environment says, and else if it is in the first third.
func plays(step int) bool {
	if *whole || os.Getenv(turns.Env) != "" {
		return *whole || turns.Takes(step)
	}
	return step%3 == 0
}

// faults are the scenarios of TestFaults. Each gets a site that has converged, does
// something to it, and repairs it; docs/operations.md lists them. Their order has the thirds
// take about as long.
var faults = []struct {
	name string
	play func(*site)
}{
	{"leader-stopped", (*site).leaderStopped},
	{"leader-cut-off", (*site).leaderCutOff},
	{"slow-network", (*site).slowNetwork},
	{"leader-killed", (*site).leaderKilled},
	{"machine-cut-off", (*site).machineCutOff},
	{"etcd-member-lost", (*site).etcdMemberLost},
	{"full-disk", (*site).fullDisk},
	{"machine-mute", (*site).machineMute},
	{"machine-deaf", (*site).machineDeaf},
	{"clock-set", (*site).clockSet},
	{"etcd-majority-lost", (*site).etcdMajorityLost},
	{"etcd-survivor", (*site).etcdSurvivor},
}

// TestFaults does real things to a site of three masters, three etcd members and agents
// on other hosts. After each, and while it lasts where that can be: the tasks that nobody
// has touched are the same processes, none runs twice, ends have their reasons in the
// events, and the next commit is carried out.
func TestFaults(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	ctx, cancel := context.WithCancel(t.Context())
	watched := make(chan []string, 1)
	go func() { watched <- watchDoubles(ctx, s.dir) }()
	defer func() {
		cancel()
		for _, d := range <-watched {
			t.Error(d)
		}
	}()
	s.decides(s.next())
	for i, f := range faults {
		if !plays(i) {
			continue
		}
		t.Run(f.name, func(t *testing.T) {
			above := s.t
			s.t = t
			defer func() { s.t = above }()
			s.since = time.Now()
			at, before := s.decides(s.next())
			s.machine(at, "m1", string(model.HealthUp))
			s.machine(at, "m2", string(model.HealthUp))
			begin := time.Now()
			f.play(s)
			_, after := s.decides(s.next())
			t.Logf("%s", time.Since(begin).Round(100*time.Millisecond))
			s.checkSteady(f.name, before, after)
			s.checkCauses()
		})
		if t.Failed() {
			return
		}
	}
}

// leaderStopped: SIGSTOP ends the term of the master that leads; when it goes on it is a
// standby.
func (s *site) leaderStopped() {
	a, _ := s.leader()
	s.must(syscall.Kill(s.masters[a].pid(), syscall.SIGSTOP))
	b := s.leaderBeside(a)
	s.leads(b, s.next())
	s.must(syscall.Kill(s.masters[a].pid(), syscall.SIGCONT))
	s.standsBy(a, s.urls[b])
	s.wantEvent(schema.EventMaster, "a master leads the cell")
}

// leaderBeside waits until another master than a leads, which does not answer.
func (s *site) leaderBeside(a int) int {
	s.t.Helper()
	d := s.masters[a]
	s.masters[a] = nil
	defer func() { s.masters[a] = d }()
	leads, _ := s.leader()
	return leads
}

// leaderKilled: the master that leads is killed, again and again.
func (s *site) leaderKilled() {
	for range *faultKills {
		a, _ := s.leader()
		s.must(s.masters[a].end(syscall.SIGKILL, bound))
		s.masters[a] = nil
		b, _ := s.leader()
		s.leads(b, s.next())
		s.startMaster(a)
	}
	s.wantEvent(schema.EventMaster, "a master leads the cell")
}

// leaderCutOff: the host of the master that leads, with its etcd member, is cut off.
func (s *site) leaderCutOff() {
	a, _ := s.leader()
	s.filter(a+1, "drop", "drop")
	b := s.leaderBeside(a)
	s.leads(b, s.next())
	s.filter(a+1, "", "")
	s.standsBy(a, s.urls[b])
	s.wantEvent(schema.EventMaster, "a master leads the cell")
}

// machineCutOff: nothing goes to a machine or comes from it, and its agent is killed
// meanwhile; it is back before it is given up.
func (s *site) machineCutOff() {
	a, _ := s.leader()
	s.filter(s.hosts["m2"], "drop", "drop")
	s.must(s.agents["m2"].end(syscall.SIGKILL, bound))
	s.startAgent("m2")
	s.machine(a, "m2", string(model.HealthSilent))
	s.filter(s.hosts["m2"], "", "")
	s.machine(a, "m2", string(model.HealthUp))
}

// machineDeaf: a machine receives nothing, and what it sends arrives.
func (s *site) machineDeaf() { s.oneWay("drop", "") }

// machineMute: a machine receives all, and nothing that it sends arrives.
func (s *site) machineMute() { s.oneWay("", "drop") }

func (s *site) oneWay(in, out string) {
	a, _ := s.leader()
	s.filter(s.hosts["m2"], in, out)
	s.machine(a, "m2", string(model.HealthSilent))
	s.filter(s.hosts["m2"], "", "")
	s.machine(a, "m2", string(model.HealthUp))
}

// slowNetwork: what goes to a machine and comes from it waits in a queue of seconds.
func (s *site) slowNetwork() {
	host := s.hosts["m2"]
	port := fmt.Sprintf("port%d", host)
	for where, device := range map[int]string{host: "eth0", 0: port} {
		s.tc(where, "qdisc", "add", "dev", device, "root", "tbf", "rate", "24kbit", "burst", "1600", "latency", "20s")
		defer s.tc(where, "qdisc", "del", "dev", device, "root")
	}
	for range 2 {
		s.decides(s.next())
	}
	if out := s.tc(host, "-s", "qdisc", "show", "dev", "eth0"); !strings.Contains(out, "overlimits") || strings.Contains(out, "overlimits 0 ") {
		s.t.Errorf("nothing has waited:\n%s", out)
	}
}

func (s *site) tc(host int, args ...string) string {
	s.t.Helper()
	line := s.net.on(host, append([]string{"tc"}, args...)...)
	out, err := exec.Command(line[0], line[1:]...).CombinedOutput() // also after the test has failed
	if err != nil {
		s.t.Errorf("tc %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// etcdMemberLost: an etcd member is killed, its disk is lost, and another takes its place.
// That one counts: the cluster stays when a further member is killed.
func (s *site) etcdMemberLost() {
	a, _ := s.leader()
	lost, other := (a+1)%siteMasters, (a+2)%siteMasters
	s.killMember(lost)
	s.must(os.RemoveAll(s.configs[lost].Dir))
	s.decides(s.next())
	s.joinMember(lost, a, other)
	s.decidesWithout(other)
}

func (s *site) killMember(i int) {
	s.t.Helper()
	s.must(s.members[i].end(syscall.SIGKILL, bound))
	s.members[i] = nil
}

// decidesWithout checks that the cluster decides with all of its members, and when one of
// them is killed: so the others count. Then that one is back.
func (s *site) decidesWithout(i int) {
	s.t.Helper()
	s.decides(s.next())
	s.killMember(i)
	s.decides(s.next())
	s.startMember(i)
	s.awaitMember(i)
}

// joinMember does what docs/operations.md says of a member that is lost for good: others
// are those that are there.
func (s *site) joinMember(i int, others ...int) {
	s.t.Helper()
	m := &s.configs[i]
	var endpoints []string
	peers := []string{m.Name + "=" + m.Peer}
	for _, k := range others {
		endpoints, peers = append(endpoints, s.configs[k].Client), append(peers, s.configs[k].Name+"="+s.configs[k].Peer)
	}
	m.Joins, m.Initial = true, strings.Join(peers, ",")
	doc, err := json.Marshal(m)
	s.must(err)
	line := s.net.on(0, append([]string{os.Args[0], joinWord, string(doc)}, endpoints...)...)
	// A cluster that has just lost a member, or gained one, wants a moment.
	s.must(within(bound, func() error {
		out, err := exec.CommandContext(s.t.Context(), line[0], line[1:]...).CombinedOutput()
		if err != nil {
			return fmt.Errorf("member %d cannot join: %w\n%s", i, err, out)
		}
		return nil
	}))
	s.startMember(i)
	s.awaitMember(i)
}

// etcdSurvivor: two of three etcd members are lost for good. What is left becomes a
// cluster by itself, and two others join it.
func (s *site) etcdSurvivor() {
	a, _ := s.leader()
	lost := []int{(a + 1) % siteMasters, (a + 2) % siteMasters}
	for _, i := range append(lost, a) {
		s.killMember(i)
	}
	for _, i := range lost {
		s.must(os.RemoveAll(s.configs[i].Dir))
	}
	s.awaitNoStore(a)
	for _, alone := range []bool{true, false} {
		s.configs[a].Alone = alone
		s.startMember(a)
		s.awaitMember(a)
		if alone {
			s.decides(s.next())
			s.must(s.members[a].end(syscall.SIGTERM, bound))
		}
	}
	s.joinMember(lost[0], a)
	s.joinMember(lost[1], a, lost[0])
	s.decidesWithout(a)
}

func (s *site) awaitNoStore(i int) {
	s.t.Helper()
	s.await(i, "has no store", func(seen *status.Status) string {
		if seen.Master == nil || seen.Master.Role != status.NoStore {
			return "it does not say so"
		}
		return ""
	})
}

// etcdMajorityLost: two of three etcd members are killed, and started again.
func (s *site) etcdMajorityLost() {
	a, _ := s.leader()
	gone := []int{a, (a + 1) % siteMasters}
	for _, i := range gone {
		s.killMember(i)
	}
	s.awaitNoStore(a)
	hash := s.next()
	for _, i := range gone {
		s.startMember(i)
	}
	for _, i := range gone {
		s.awaitMember(i)
	}
	s.decides(hash)
	s.wantEvent(schema.EventStore, "master") // cannot write, or leads no more: whichever it learns first
}

// fullDisk: the disk of the master that leads is full. It decides all the same, since the
// store is elsewhere; its history is kept when there is room.
func (s *site) fullDisk() {
	a, _ := s.leader()
	filler := s.path(masterName(a), "filler")
	s.must(fill(filler))
	for range 2 {
		s.leads(a, s.next())
	}
	log, err := os.ReadFile(s.path(masterName(a) + ".log"))
	s.must(err)
	if !strings.Contains(string(log), "events are kept in memory only") {
		s.t.Errorf("its disk was not full:\n%s", log)
	}
	s.must(os.Remove(filler))
	s.leads(a, s.next())
}

// clockSet: the time of day of the master that leads is set forward and back by minutes,
// as by a person or by a daemon that has found the right time.
func (s *site) clockSet() {
	var clock skew
	a, others := s.leader()
	b := others[0]
	s.skew = &clock
	s.must(s.masters[b].end(syscall.SIGKILL, bound))
	s.startMaster(b)
	s.skew = nil
	s.standsBy(b, s.urls[a])
	away := map[int]*daemon{a: s.masters[a], others[1]: s.masters[others[1]]}
	for i, d := range away { // so that this one is next
		s.must(d.end(syscall.SIGTERM, bound))
		s.masters[i] = nil
	}
	s.decides(s.next())
	for i := range away {
		s.startMaster(i)
	}
	for _, offset := range []time.Duration{5 * time.Minute, -5 * time.Minute, 0} {
		clock.offset.Store(int64(offset))
		at, _ := s.decides(s.next())
		if at != b {
			s.t.Errorf("with a clock that is set to %s another master leads", offset)
		}
	}
	s.wantEvent(schema.EventMaster, "the clock was set forward by")
	s.must(s.masters[b].end(syscall.SIGTERM, bound))
	s.startMaster(b)
}
