package kernel_test

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/netip"
	"os"
	"testing"

	"github.com/google/nftables"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"github.com/musterhq/muster/nodeagent/network/policy"
	"github.com/musterhq/muster/nodeagent/network/policy/kernel"
	"github.com/musterhq/muster/schema/thread"
)

const table = "muster-test-policy"

// inside calls f in a network namespace; with 0 it makes one, which it returns.
func inside(t *testing.T, ns netns.NsHandle, f func()) netns.NsHandle {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root, for network namespaces")
	}
	err := thread.Run(func() error {
		if ns == 0 {
			made, err := netns.New()
			if err != nil {
				return err
			}
			ns = made
			t.Cleanup(func() { _ = made.Close() })
		} else if err := netns.Set(ns); err != nil {
			return err
		}
		f()
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return ns
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// drawn returns a state of a few addresses.
func drawn(t *rapid.T) policy.State {
	s := policy.State{Guards: map[netip.Addr]string{}, Ports: map[policy.Port]string{}, Selves: map[netip.Addr]struct{}{}, Groups: map[string]policy.Group{}}
	address := func(what string) netip.Addr {
		n := rapid.IntRange(0, 9).Draw(t, what)
		if n%2 == 0 {
			return netip.AddrFrom4([4]byte{10, 0, 0, byte(n)})
		}
		return netip.MustParseAddr(fmt.Sprint("fd00::", n))
	}
	names := []string{policy.Refuse}
	for i := range rapid.IntRange(0, 3).Draw(t, "groups") {
		name := fmt.Sprintf("job-%d", rapid.IntRange(0, 4).Draw(t, fmt.Sprint("group ", i)))
		names = append(names, name)
		g := policy.Group{Sources: map[netip.Addr]struct{}{}}
		for range rapid.IntRange(0, 4).Draw(t, "sources") {
			g.Sources[address("source")] = struct{}{}
		}
		for n := range rapid.IntRange(0, 2).Draw(t, "ranges") {
			g.Ranges = append(g.Ranges, []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24"), netip.MustParsePrefix("2001:db8::/32")}[n])
		}
		s.Groups[name] = g
	}
	for range rapid.IntRange(0, 4).Draw(t, "guards") {
		a := address("guard")
		s.Guards[a], s.Selves[a] = rapid.SampledFrom(names).Draw(t, "to"), struct{}{}
		if rapid.Bool().Draw(t, "shared") {
			s.Ports[policy.Port{Address: a, Protocol: 6, Port: uint16(rapid.IntRange(1, 3).Draw(t, "port"))}] = rapid.SampledFrom(append(names, policy.Admit)).Draw(t, "port to")
		}
	}
	return s
}

// TestProgram: whatever leads to what, the kernel has it: another agent that begins finds nothing
// to change, and finds what others have changed.
func TestProgram(t *testing.T) {
	t.Parallel()
	inside(t, 0, func() {
		must(t, kernel.Supported(table))
		p := kernel.New(table)
		rapid.Check(t, func(t *rapid.T) {
			for range 2 {
				want := drawn(t)
				if _, err := p.Program(want); err != nil {
					t.Fatal(err)
				}
				found, err := kernel.New(table).Program(want)
				if err != nil || len(want.Guards) > 0 && found.Size() > 0 {
					t.Fatalf("another one changes %+v, %v", found, err)
				}
				if there, err := p.Present(); err != nil || there != (len(want.Guards) > 0) {
					t.Fatalf("the table is there: %v, with %d guards, %v", there, len(want.Guards), err)
				}
			}
		})
	})
}

// TestPutRight: what others change of the table is put right, be it an element, a rule or all of it.
func TestPutRight(t *testing.T) {
	t.Parallel()
	inside(t, 0, func() {
		guarded, source := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2")
		want := policy.State{
			Guards: map[netip.Addr]string{guarded: "job-a"}, Selves: map[netip.Addr]struct{}{guarded: {}},
			Groups: map[string]policy.Group{"job-a": {Sources: map[netip.Addr]struct{}{source: {}}, Ranges: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}}},
		}
		for name, spoil := range map[string]func(*nftables.Conn, *nftables.Table){
			"nothing":   func(*nftables.Conn, *nftables.Table) {},
			"the table": func(c *nftables.Conn, t *nftables.Table) { c.DelTable(t) },
			"a rule":    func(c *nftables.Conn, t *nftables.Table) { c.FlushChain(&nftables.Chain{Table: t, Name: "own"}) },
			"a group":   func(c *nftables.Conn, t *nftables.Table) { c.FlushChain(&nftables.Chain{Table: t, Name: "job-a"}) },
			"a source": func(c *nftables.Conn, t *nftables.Table) {
				_ = c.SetDeleteElements(&nftables.Set{Table: t, Name: "from4-a"}, []nftables.SetElement{{Key: source.AsSlice()}})
			},
			"a guard": func(c *nftables.Conn, t *nftables.Table) {
				_ = c.SetDeleteElements(&nftables.Set{Table: t, Name: "guards4"}, []nftables.SetElement{{Key: guarded.AsSlice()}})
			},
		} {
			p := kernel.New(table)
			_, err := p.Program(want)
			must(t, err)
			c, err := nftables.New()
			must(t, err)
			spoil(c, &nftables.Table{Name: table, Family: nftables.TableFamilyINet})
			must(t, c.Flush())
			if change, err := p.Audit(want, &policy.Change{}); err != nil || name == "nothing" && change.Size() > 0 {
				t.Errorf("without %s: changed %+v, %v", name, change, err)
			}
			again, err := kernel.New(table).Program(want)
			if err != nil || again.Size() > 0 {
				t.Errorf("after %s: there is still %+v to change, %v", name, again, err)
			}
		}
	})
}

// TestEnforced: of three tasks that a machine routes between one may connect to the first and one may
// not, and once the first is not admitted any more its open connection ends, too.
func TestEnforced(t *testing.T) {
	t.Parallel()
	var tasks [3]netns.NsHandle
	at := func(i int) []netip.Addr {
		return []netip.Addr{netip.AddrFrom4([4]byte{10, 0, byte(i), 2}), netip.MustParseAddr(fmt.Sprintf("fd00:%x::2", i+1))}
	}
	for i := range tasks {
		tasks[i] = inside(t, 0, func() {})
	}
	machine := inside(t, 0, func() {
		for _, name := range []string{"ipv4/ip_forward", "ipv6/conf/all/forwarding"} {
			must(t, os.WriteFile("/proc/sys/net/"+name, []byte("1"), 0))
		}
		for i, ns := range tasks {
			must(t, netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: fmt.Sprint("t", i)}, PeerName: "eth0", PeerNamespace: netlink.NsFd(ns)}))
			furnish(t, fmt.Sprint("t", i), at(i)[0].Prev(), at(i)[1].Prev())
		}
	})
	for i, ns := range tasks {
		inside(t, ns, func() {
			furnish(t, "lo") // without which nothing has an address of IPv6
			furnish(t, "eth0", at(i)...)
			for _, via := range at(i) {
				must(t, netlink.RouteAdd(&netlink.Route{Gw: via.Prev().AsSlice()}))
			}
		})
	}
	inside(t, tasks[0], func() {
		l, err := net.Listen("tcp", ":80")
		must(t, err)
		t.Cleanup(func() { _ = l.Close() })
		go func() {
			for c, err := l.Accept(); err == nil; c, err = l.Accept() {
				go func() { _, _ = io.Copy(c, c); _ = c.Close() }()
			}
		}()
	})
	for i := range 2 {
		dial := func(from int) (c net.Conn, err error) {
			inside(t, tasks[from], func() { c, err = net.Dial("tcp", netip.AddrPortFrom(at(0)[i], 80).String()) })
			return c, err
		}
		p := kernel.New(table)
		want := policy.State{
			Guards: map[netip.Addr]string{at(0)[i]: "job-a"}, Selves: map[netip.Addr]struct{}{at(0)[i]: {}},
			Groups: map[string]policy.Group{"job-a": {Sources: map[netip.Addr]struct{}{at(1)[i]: {}}}},
		}
		program := func() { inside(t, machine, func() { _, err := p.Program(want); must(t, err) }) }
		program()
		open, err := dial(1)
		must(t, err)
		echo := func() error {
			if _, err := open.Write([]byte("x")); err != nil {
				return err
			}
			_, err := io.ReadFull(open, make([]byte, 1))
			return err
		}
		must(t, echo())
		if _, err := dial(2); !errors.Is(err, unix.ECONNREFUSED) {
			t.Errorf("who may not connect: %v, want that it is refused", err)
		}
		group := want.Groups["job-a"]
		group.Sources, group.Ranges = maps.Clone(group.Sources), []netip.Prefix{netip.PrefixFrom(at(2)[i], at(2)[i].BitLen())}
		delete(group.Sources, at(1)[i])
		want.Groups = map[string]policy.Group{"job-a": group}
		program()
		if c, err := dial(2); err != nil {
			t.Errorf("who may connect now, by a range: %v", err)
		} else {
			_ = c.Close()
		}
		if err := echo(); !errors.Is(err, unix.ECONNRESET) {
			t.Errorf("a connection that is not admitted any more: %v, want a reset", err)
		}
		if _, err := dial(1); !errors.Is(err, unix.ECONNREFUSED) {
			t.Errorf("who may not connect any more: %v, want that it is refused", err)
		}
		_ = open.Close()
		inside(t, machine, func() { must(t, p.Withdraw()) })
		if c, err := dial(1); err != nil {
			t.Errorf("without rules: %v", err)
		} else {
			_ = c.Close()
		}
	}
}

// furnish gives a link addresses, and brings it up.
func furnish(t *testing.T, name string, addresses ...netip.Addr) {
	t.Helper()
	l, err := netlink.LinkByName(name)
	must(t, err)
	for _, a := range addresses {
		bits := 24
		if a.Is6() {
			bits = 64
		}
		addr, err := netlink.ParseAddr(netip.PrefixFrom(a, bits).String())
		must(t, err)
		if a.Is6() {
			addr.Flags = unix.IFA_F_NODAD
		}
		must(t, netlink.AddrAdd(l, addr))
	}
	must(t, netlink.LinkSetUp(l))
}
