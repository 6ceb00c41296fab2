package kernel_test

import (
	"errors"
	"net"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/nodeagent/network/services/kernel"
	"github.com/musterhq/muster/schema"
)

var services4, services6 = netip.MustParsePrefix("10.96.0.0/16"), netip.MustParsePrefix("fd00:96::/112")

// TestNoDefaultRoute: programs of a machine without a route to virtual addresses reach them while there are
// services, and nothing is left after that.
func TestNoDefaultRoute(t *testing.T) {
	t.Parallel()
	c := newLab(t, 1).follow()
	c.machine.do(t, func() error {
		return errors.Join(unroute("10.0.0.2"), unroute("fd00:0::2"))
	})
	network := schema.DirectoryEntry{Cell: &schema.DirectoryCell{Name: "one", Network: schema.CellNetwork{Services: services4, Services6: services6}}}
	self := schema.DirectoryEntry{Machine: &schema.DirectoryMachine{Name: "m0", Address: netip.MustParseAddr("10.1.0.1")}}
	both := tasks([]int{0})
	both.Tasks.Tasks[0].Address6 = at(0, true).Addr()
	c.apply(network, self, both)
	if _, err := c.dial(c.machine, "tcp", virtual); !errors.Is(err, syscall.ENETUNREACH) {
		t.Fatalf("without a service: %v; want no route", err)
	}
	c.apply(front(func(s *schema.DirectoryService) { s.Addresses = vips }))
	for _, network := range []string{"tcp", "udp"} {
		for _, vip := range vips {
			who, err := c.ask(c.machine, network, netip.AddrPortFrom(vip, 8080).String())
			if err != nil || !strings.HasPrefix(who, "b0") {
				t.Errorf("%s to %s: %q, %v", network, vip, who, err)
			}
			if network == "tcp" && vip.Is4() && !strings.HasSuffix(who, " ::ffff:10.1.0.1") && !strings.HasSuffix(who, " 10.1.0.1") {
				t.Errorf("seen as %q, want the machine's address", who)
			}
		}
	}
	if _, err := c.dial(c.machine, "tcp", "10.96.0.1:9"); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("a port that no service has: %v; want it refused", err)
	}
	c.update(c.directory.Apply(schema.DirectoryChange{Removed: []string{"service/ana/front"}}).Services)
	if links := c.links(); len(links) > 0 {
		t.Errorf("without services there is still %v", links)
	}
	c.apply(front(nil))
	c.follower.Withdraw()
	c.cancel()
	if links := c.links(); len(links) > 0 {
		t.Errorf("after the end of all tasks there is still %v", links)
	}
}

// TestWay: routes follow the ranges, others' do as well, and what others have removed is put back.
func TestWay(t *testing.T) {
	t.Parallel()
	s := newSpace(t)
	other := netip.MustParsePrefix("10.96.0.0/20")
	both := []netip.Prefix{services4, services6}
	s.do(t, func() error {
		w := kernel.NewWay("one")
		defer w.Close()
		step := func(what string, ranges, want []netip.Prefix) {
			t.Helper()
			if made, err := w.Set(ranges, netip.MustParseAddr("192.0.2.77")); err != nil || !slices.Equal(made, want) {
				t.Errorf("%s: made %v, want %v (error %v)", what, made, want, err)
			}
		}
		step("both", both, both)
		step("again", both, nil)
		next := kernel.NewWay("one")
		defer next.Close()
		if made, err := next.Set(both, netip.Addr{}); err != nil || len(made) > 0 {
			t.Errorf("the next agent: made %v, error %v", made, err)
		}
		step("a smaller range", []netip.Prefix{other, services6}, []netip.Prefix{other})
		l, err := netlink.LinkByName(w.Name())
		if err != nil {
			return err
		}
		if err := netlink.LinkSetDown(l); err != nil {
			return err
		}
		step("others set it down", both, both)
		if err := netlink.LinkDel(l); err != nil {
			return err
		}
		step("others delete it", both, both)
		step("none", nil, nil)
		if _, err := netlink.LinkByName(w.Name()); err == nil {
			t.Error("without ranges there is still a link")
		}
		if err := errors.Join(address("lo", "192.0.2.1/24"), route("192.0.2.9")); err != nil {
			return err
		}
		step("a default route of IPv4", both, []netip.Prefix{services6})
		refusal := &netlink.Route{Dst: &net.IPNet{IP: services4.Addr().AsSlice(), Mask: net.CIDRMask(16, 32)}, Type: unix.RTN_UNREACHABLE}
		if err := netlink.RouteAdd(refusal); err != nil {
			return err
		}
		step("others refuse it", both, nil)
		if err := netlink.RouteDel(refusal); err != nil {
			t.Errorf("the route of others: %v", err)
		}
		return nil
	})
}

func unroute(via string) error {
	return netlink.RouteDel(&netlink.Route{Gw: net.ParseIP(via)})
}

// links are what way has made on the machine.
func (c *cell) links() []string {
	c.t.Helper()
	var out []string
	c.machine.do(c.t, func() error {
		all, err := netlink.LinkList()
		for _, l := range all {
			if strings.HasPrefix(l.Attrs().Name, "mus-") {
				out = append(out, l.Attrs().Name)
			}
		}
		return err
	})
	return out
}
