package main

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/nodeagent/directory"
	"github.com/musterhq/muster/nodeagent/network"
	"github.com/musterhq/muster/nodeagent/network/dns"
	"github.com/musterhq/muster/schema"
)

// tasksNetwork is the network of a machine, in a namespace of its own, over agents that replace each other.
type tasksNetwork struct {
	*networks
	t   *testing.T
	dir string
}

// onMachine calls f on a machine without anything but loopback, and removes what it leaves.
func onMachine(t *testing.T, f func(*tasksNetwork)) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root, for networks of tasks")
	}
	n := &tasksNetwork{t: t, dir: t.TempDir()}
	inNamespace(t, func() {
		n.begin()
		defer func() {
			if n.manager != nil {
				n.check(n.withdraw())
				n.manager.Close()
			}
		}()
		if n.manager == nil {
			t.Errorf("no networks for tasks: %s", n.note)
			return
		}
		f(n)
	})
}

func (n *tasksNetwork) check(err error) {
	n.t.Helper()
	if err != nil {
		n.t.Error(err)
	}
}

// begin has another agent begin.
func (n *tasksNetwork) begin() {
	if n.networks != nil {
		n.manager.Close()
	}
	n.networks = openNetworks("c", "m1", n.dir, nil, slog.New(slog.DiscardHandler))
}

// acts has the agent act by what the directory says of its cell and of itself.
func (n *tasksNetwork) acts(cell schema.CellNetwork, self schema.DirectoryMachine, others ...schema.DirectoryMachine) {
	n.t.Helper()
	self.Name = "m1"
	set := []schema.DirectoryEntry{{Cell: &schema.DirectoryCell{Name: "c", Network: cell}}, {Machine: &self}}
	for i := range others {
		set = append(set, schema.DirectoryEntry{Machine: &others[i]})
	}
	directory.New(n.follow).Apply(schema.DirectoryChange{Set: set}, func() {})
	<-n.news
	if !n.act() {
		n.t.Error("not all was made")
	}
}

// links are those of the machine beside loopback, without those of tasks.
func (n *tasksNetwork) links() (names []string) {
	n.t.Helper()
	all, err := net.Interfaces()
	n.check(err)
	for i := range all {
		if name, _, own := strings.Cut(all[i].Name, "-"); own {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

var (
	taskRange  = schema.CellNetwork{Range: netip.MustParsePrefix("10.64.0.0/16"), Mode: schema.ModeVXLAN}
	taskSubnet = []netip.Prefix{netip.MustParsePrefix("10.64.7.0/24")}
	webTask    = &schema.Assignment{Task: schema.JobName{Cell: "c", User: "u", Job: "web"}.Task(0), Generation: 1, Job: &schema.Job{Name: "web", User: "u", Cell: "c"}, OwnNetwork: true}
)

// TestNetworksGivenUp: an agent that begins after its cell has given up its range keeps how tasks are
// reached that have addresses of it, until they end.
func TestNetworksGivenUp(t *testing.T) {
	t.Parallel()
	onMachine(t, func(n *tasksNetwork) {
		address := netip.MustParseAddr("192.0.2.1")
		n.acts(taskRange, schema.DirectoryMachine{Address: address, Subnets: taskSubnet})
		task, err := n.Join(webTask)
		n.check(err)
		want := []string{"mub", "mux"}
		if got := n.links(); !slices.Equal(got, want) {
			t.Errorf("there is %q, want %q", got, want)
		}
		n.begin()
		n.acts(schema.CellNetwork{}, schema.DirectoryMachine{Address: address, Leaving: taskSubnet})
		if got := n.links(); !slices.Equal(got, want) {
			t.Errorf("after the next agent began there is %q, want %q", got, want)
		}
		if got := n.addresses(); !slices.Equal(got, []netip.Addr{network.Gateway(taskSubnet[0])}) || !n.has() {
			t.Errorf("names are answered at %v; has: %v", got, n.has())
		}
		if found, err := n.Keep([]*schema.Assignment{webTask}); err != nil || found[0] == nil || !slices.Equal(found[0].Addresses, task.Addresses) {
			t.Errorf("found %v, %v", found, err)
		}
		n.check(n.Leave(webTask))
		n.acts(schema.CellNetwork{}, schema.DirectoryMachine{Address: address})
		if got := n.links(); len(got) > 0 || n.has() || len(n.addresses()) > 0 {
			t.Errorf("after the last task there is %q, at %v", got, n.addresses())
		}
	})
}

// TestNetworksNextAgent: an agent that begins leaves the routes to other machines alone.
func TestNetworksNextAgent(t *testing.T) {
	t.Parallel()
	onMachine(t, func(n *tasksNetwork) {
		self := schema.DirectoryMachine{Address: netip.MustParseAddr("192.0.2.1"), Subnets: taskSubnet}
		other := schema.DirectoryMachine{Name: "m2", Address: netip.MustParseAddr("192.0.2.2"), Subnets: []netip.Prefix{netip.MustParsePrefix("10.64.8.0/24")}}
		n.acts(taskRange, self, other)
		changes := routeChanges(t)
		n.begin()
		n.acts(taskRange, self, other)
		last := schema.DirectoryMachine{Name: "m3", Address: netip.MustParseAddr("192.0.2.3"), Subnets: []netip.Prefix{netip.MustParsePrefix("10.64.9.0/24")}}
		n.check(n.manager.Route([]schema.DirectoryMachine{other, last}))
		for {
			switch change := changes(); change.to {
			case last.Subnets[0]:
				return
			case other.Subnets[0]:
				t.Errorf("the next agent changes the route to %s (message %d)", change.to, change.kind)
			}
		}
	})
}

// routeChange is a message of the kernel about a route.
type routeChange struct {
	kind uint16
	to   netip.Prefix
}

// routeChanges returns what returns the next change of a route of IPv4 in the network namespace of this thread.
func routeChanges(t *testing.T) func() routeChange {
	t.Helper()
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if err == nil {
		t.Cleanup(func() { _ = unix.Close(fd) })
		err = unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: unix.RTMGRP_IPV4_ROUTE})
	}
	if err != nil {
		t.Fatal(err)
	}
	var list []syscall.NetlinkMessage
	return func() (c routeChange) {
		for len(list) == 0 {
			b := make([]byte, 1<<16)
			n, _, err := unix.Recvfrom(fd, b, 0)
			if err == nil {
				list, err = syscall.ParseNetlinkMessage(b[:n])
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		c.kind = list[0].Header.Type
		attributes, err := syscall.ParseNetlinkRouteAttr(&list[0])
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range attributes {
			if to, ok := netip.AddrFromSlice(a.Value); a.Attr.Type == unix.RTA_DST && ok {
				c.to = netip.PrefixFrom(to, int(list[0].Data[1])) // rtm_dst_len
			}
		}
		list = list[1:]
		return c
	}
}

// TestNetworksNotHeld: a network whose namespace is gone is made anew for the next start.
func TestNetworksNotHeld(t *testing.T) {
	t.Parallel()
	onMachine(t, func(n *tasksNetwork) {
		n.acts(taskRange, schema.DirectoryMachine{Address: netip.MustParseAddr("192.0.2.1"), Subnets: taskSubnet})
		task, err := n.Join(webTask)
		n.check(err)
		n.check(unix.Unmount(task.Namespace, unix.MNT_DETACH))
		again, err := n.Join(webTask)
		n.check(err)
		if !(network.Task{Namespace: again.Namespace}).Held() {
			t.Errorf("%s is given to a task, and is no namespace", again.Namespace)
		}
	})
}

// TestAnswering: an address that others have is tried again without a word each time, the machine says so
// meanwhile, and one at which the server ends by itself is listened at again.
func TestAnswering(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("needs root, for a network namespace")
	}
	inNamespace(t, func() {
		n := &networks{plugins: &plugins{}, left: &schema.MachineNetwork{Subnets: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}}}
		at := n.addresses()[0]
		notes := func() []string {
			info := schema.MachineInfo{Notes: []string{"of others", dnsMark + "of before"}}
			n.describeNames(&info)
			return info.Notes[1:]
		}
		theirs, err := dns.Listen(t.Context(), netip.AddrPortFrom(at, dns.Port))
		if err != nil {
			t.Error(err)
			return
		}
		var log strings.Builder
		fail := make(chan struct{})
		a := answering{log: slog.New(slog.NewTextHandler(&log, nil)), at: map[netip.Addr]answered{}, failed: map[netip.Addr]string{}}
		a.serve = func(ctx context.Context, k *dns.Socket) error {
			defer k.Close()
			select {
			case <-fail:
				return errors.New("broken")
			case <-ctx.Done():
				return nil
			}
		}
		defer a.wait()
		for range 3 {
			if n.answer(t.Context(), &a) {
				t.Error("an address that another has is answered at")
			}
		}
		if is := notes(); len(is) != 1 || !strings.Contains(is[0], "cannot ask for names: ") || !strings.Contains(is[0], at.String()+":53: bind: address already in use") {
			t.Errorf("the machine says %q", is)
		}
		if n := strings.Count(log.String(), "cannot ask for names"); n != 1 {
			t.Errorf("it was logged %d times: %s", n, log.String())
		}
		if err := theirs.Close(); err != nil {
			t.Error(err)
		}
		if !n.answer(t.Context(), &a) || !strings.Contains(log.String(), "can ask for names again") || len(notes()) > 0 {
			t.Errorf("it is not answered at, that is not logged, or the machine says so still (%q): %s", notes(), log.String())
		}
		over := a.at[at].over
		fail <- struct{}{}
		<-over
		if a.whole() || !a.set(t.Context(), []netip.Addr{at}) || !a.whole() || a.at[at].over == over {
			t.Error("where the server has ended it does not begin again")
		}
	})
}
