package network_test

import (
	"crypto/sha256"
	"encoding/base32"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/nftables"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/nodeagent/network"
	"github.com/musterhq/muster/schema"
	"github.com/musterhq/muster/schema/thread"
)

var rounds = flag.Int("rounds", 30, "how many networks of tasks are made and removed")

// place is a network namespace that stands for a machine.
type place struct {
	ns netns.NsHandle
	t  *testing.T
}

// in calls f in the namespace. What it starts in other goroutines is not there.
func (p *place) in(f func()) {
	p.t.Helper()
	inNamespace(p.t, int(p.ns), f)
}

func inNamespace(t *testing.T, ns int, f func()) {
	t.Helper()
	err := thread.Run(func() error {
		if err := unix.Setns(ns, unix.CLONE_NEWNET); err != nil {
			return err
		}
		f()
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// newPlace makes a namespace, with lo.
func newPlace(t *testing.T) *place {
	t.Helper()
	p := &place{t: t}
	err := thread.Run(func() error {
		var err error
		if p.ns, err = netns.New(); err == nil {
			err = up("lo")
		}
		return err
	})
	if err != nil {
		if errors.Is(err, unix.EPERM) {
			t.Skip("no network namespaces here: ", err)
		}
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.ns.Close() })
	return p
}

func up(name string) error {
	l, err := netlink.LinkByName(name)
	if err != nil {
		return err
	}
	return netlink.LinkSetUp(l)
}

// connect has places in one network of layer 2: machine i has 192.0.2.i+1 and 2001:db8::i+1.
func connect(t *testing.T, places ...*place) {
	t.Helper()
	between := newPlace(t)
	between.in(func() {
		must(t, netlink.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "lan"}}))
		must(t, up("lan"))
	})
	for i, p := range places {
		between.in(func() {
			name := fmt.Sprint("port", i)
			must(t, netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: name}, PeerName: "lan0", PeerNamespace: netlink.NsFd(p.ns)}))
			l, err := netlink.LinkByName(name)
			must(t, err)
			lan, err := netlink.LinkByName("lan")
			must(t, err)
			must(t, netlink.LinkSetMaster(l, lan))
			must(t, netlink.LinkSetUp(l))
		})
		p.in(func() {
			l, err := netlink.LinkByName("lan0")
			must(t, err)
			for _, a := range []string{fmt.Sprintf("192.0.2.%d/24", i+1), fmt.Sprintf("2001:db8::%d/64", i+1)} {
				addr, err := netlink.ParseAddr(a)
				must(t, err)
				if strings.Contains(a, ":") {
					addr.Flags = unix.IFA_F_NODAD
				}
				must(t, netlink.AddrAdd(l, addr))
			}
			must(t, netlink.LinkSetUp(l))
		})
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		_, file, line, _ := runtime.Caller(1)
		t.Errorf("%s:%d: %v", filepath.Base(file), line, err)
		runtime.Goexit()
	}
}

// machine is a place with a Manager.
type machine struct {
	*place
	m       *network.Manager
	cfg     network.Config
	network *schema.MachineNetwork
}

func newMachine(t *testing.T, p *place, number int, mode schema.NetworkMode) *machine {
	t.Helper()
	m := &machine{place: p, cfg: network.Config{
		Taken: func(netip.Addr) bool { return false },
		Cell:  "local", Machine: fmt.Sprint("m", number), Agent: fmt.Sprint("agent", number), Dir: filepath.Join(t.TempDir(), "net"),
		Address: netip.AddrFrom4([4]byte{192, 0, 2, byte(number)}), Log: slog.New(slog.DiscardHandler),
	}}
	if mode == schema.ModeRoutes {
		m.cfg.Address = netip.MustParseAddr(fmt.Sprint("2001:db8::", number))
	}
	m.network = &schema.MachineNetwork{
		Ranges:  []netip.Prefix{netip.MustParsePrefix("10.64.0.0/12"), netip.MustParsePrefix("fd00::/96")},
		Subnets: []netip.Prefix{netip.MustParsePrefix(fmt.Sprintf("10.64.%d.0/24", number)), netip.MustParsePrefix(fmt.Sprintf("fd00::%d:0/112", number))}, Mode: mode,
	}
	m.open()
	t.Cleanup(func() {
		m.in(func() {
			must(t, m.m.Keep(nil))
			m.m.Close()
		})
	})
	return m
}

func (m *machine) open() {
	m.t.Helper()
	m.in(func() {
		var err error
		m.m, err = network.Open(m.cfg)
		must(m.t, err)
	})
}

func (m *machine) join(key string) (out network.Task) {
	m.t.Helper()
	m.in(func() {
		var err error
		out, err = m.m.Join(m.network, key, "search/web/"+key)
		must(m.t, err)
	})
	return out
}

func (m *machine) directory() schema.DirectoryMachine {
	return schema.DirectoryMachine{Name: m.cfg.Machine, Address: m.cfg.Address, Subnets: m.network.Subnets}
}

// inTask calls f in the network of a task.
func inTask(t *testing.T, of network.Task, f func()) {
	t.Helper()
	ns, err := os.Open(of.Namespace)
	if err != nil {
		t.Fatal(err)
	}
	defer ns.Close()
	inNamespace(t, int(ns.Fd()), f)
}

// serve has a task answer with the address that a client comes from, once for each address.
func serve(t *testing.T, of network.Task, port int) {
	t.Helper()
	inTask(t, of, func() { serveHere(t, port) })
}

func serveHere(t *testing.T, port int) {
	l, err := net.Listen("tcp", fmt.Sprint(":", port))
	must(t, err)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			host, _, _ := net.SplitHostPort(c.RemoteAddr().String())
			_, _ = io.WriteString(c, host)
			_ = c.Close()
		}
	}()
	t.Cleanup(func() { _ = l.Close() })
}

// from returns which address a server sees a connection come from.
func from(t *testing.T, address netip.Addr, port int) string {
	t.Helper()
	c, err := net.Dial("tcp", netip.AddrPortFrom(address, uint16(port)).String())
	must(t, err)
	defer c.Close()
	b, err := io.ReadAll(c)
	must(t, err)
	return string(b)
}

// TestReach: tasks reach each other by their own addresses, on one machine and on two, and
// others from the address of their machine.
func TestReach(t *testing.T) {
	t.Parallel()
	for _, mode := range []schema.NetworkMode{schema.ModeRoutes, schema.ModeVXLAN} {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			a, b, outside := newPlace(t), newPlace(t), newPlace(t)
			connect(t, a, b, outside)
			m1, m2 := newMachine(t, a, 1, mode), newMachine(t, b, 2, mode)
			all := []schema.DirectoryMachine{m1.directory(), m2.directory()}
			one, two, far := m1.join("1"), m1.join("2"), m2.join("3")
			for _, m := range []*machine{m1, m2} {
				m.in(func() { must(t, m.m.Route(all)) })
				if p := m.m.Problems(); len(p) > 0 {
					t.Errorf("problems: %q", p)
				}
			}
			const port = 80
			for _, task := range []network.Task{one, two, far} {
				serve(t, task, port)
			}
			outside.in(func() { serveHere(t, port) })
			for i := range 2 {
				for _, to := range []network.Task{one, two, far} {
					inTask(t, one, func() {
						if got := from(t, to.Addresses[i], port); got != one.Addresses[i].String() {
							t.Errorf("from %s to %s: it came from %s", one.Addresses[i], to.Addresses[i], got)
						}
					})
					m2.in(func() { from(t, to.Addresses[i], port) }) // the machine itself
				}
				inTask(t, far, func() {
					to := []string{"192.0.2.3", "2001:db8::3"}[i]
					if got, want := from(t, netip.MustParseAddr(to), port), []string{"192.0.2.2", "2001:db8::2"}[i]; got != want {
						t.Errorf("from %s out of the cell: it came from %s, want %s", far.Addresses[i], got, want)
					}
				})
			}
			// A machine that goes is not routed to any more.
			m1.in(func() {
				must(t, m1.m.Route(all[:1]))
				must(t, m1.m.Use(m1.network))
			})
			inTask(t, one, func() {
				if c, err := net.Dial("tcp", netip.AddrPortFrom(far.Addresses[0], port).String()); err == nil {
					_ = c.Close()
					t.Error("a machine that went is reached")
				} else if !errors.Is(err, unix.EHOSTUNREACH) && !errors.Is(err, unix.ENETUNREACH) {
					t.Errorf("%v", err)
				}
			})
		})
	}
}

// TestAnotherRange: while subnets of a range from before are leaving, tasks with addresses of them, of the new ones, and of
// both machines see each other's own; others still see the machine's.
func TestAnotherRange(t *testing.T) {
	t.Parallel()
	a, b, outside := newPlace(t), newPlace(t), newPlace(t)
	connect(t, a, b, outside)
	m1, m2 := newMachine(t, a, 1, schema.ModeVXLAN), newMachine(t, b, 2, schema.ModeVXLAN)
	tasks := []network.Task{m1.join("1"), m2.join("2")}
	var all []schema.DirectoryMachine
	for i, m := range []*machine{m1, m2} {
		m.network = &schema.MachineNetwork{
			Ranges:  []netip.Prefix{netip.MustParsePrefix("10.96.0.0/12"), netip.MustParsePrefix("fd01::/96")},
			Subnets: []netip.Prefix{netip.MustParsePrefix(fmt.Sprintf("10.96.%d.0/24", i+1)), netip.MustParsePrefix(fmt.Sprintf("fd01::%d:0/112", i+1))},
			Leaving: m.network.Subnets, Mode: schema.ModeVXLAN,
		}
		x := m.directory()
		x.Leaving = m.network.Leaving
		all = append(all, x)
		m.in(func() { must(t, m.m.Use(m.network)) })
	}
	tasks = append(tasks, m1.join("3"), m2.join("4"))
	outside.in(func() { serveHere(t, 80) })
	for _, m := range []*machine{m1, m2} {
		m.in(func() {
			must(t, m.m.Route(all))
			if restored, err := m.m.Audit(); err != nil || len(restored) > 0 {
				t.Errorf("the audit: %q, %v", restored, err)
			}
		})
	}
	for _, task := range tasks {
		serve(t, task, 80)
	}
	for _, of := range tasks {
		for i := range 2 {
			inTask(t, of, func() {
				for _, to := range tasks {
					if got := from(t, to.Addresses[i], 80); got != of.Addresses[i].String() {
						t.Errorf("from %s to %s: it came from %s", of.Addresses[i], to.Addresses[i], got)
					}
				}
				if got := from(t, netip.MustParseAddr([]string{"192.0.2.3", "2001:db8::3"}[i]), 80); !netip.MustParsePrefix([]string{"192.0.2.0/24", "2001:db8::/64"}[i]).Contains(netip.MustParseAddr(got)) {
					t.Errorf("from %s out of the cell: it came from %s", of.Addresses[i], got)
				}
			})
		}
	}
}

// remains lists what a namespace has beside what it had at first.
func (p *place) remains(t *testing.T) (out []string) {
	t.Helper()
	p.in(func() {
		links, err := netlink.LinkList()
		must(t, err)
		for _, l := range links {
			out = append(out, "link "+l.Attrs().Name)
		}
		for _, family := range []int{unix.AF_INET, unix.AF_INET6} {
			routes, err := netlink.RouteListFiltered(family, &netlink.Route{Table: unix.RT_TABLE_UNSPEC}, netlink.RT_FILTER_TABLE)
			must(t, err)
			for i := range routes {
				if d := routes[i].Dst; d != nil && (d.IP.IsLinkLocalUnicast() || d.IP.IsMulticast()) {
					continue // which the kernel makes and removes in its own time
				}
				out = append(out, fmt.Sprint("route ", routes[i].Dst, routes[i].Type, routes[i].Gw))
			}
		}
		neighbors, err := netlink.NeighList(0, 0)
		must(t, err)
		for i := range neighbors {
			if neighbors[i].IP.IsMulticast() {
				continue
			}
			out = append(out, "neighbor "+neighbors[i].IP.String())
		}
		c, err := nftables.New()
		must(t, err)
		tables, err := c.ListTables()
		must(t, err)
		for _, table := range tables {
			out = append(out, "table "+table.Name)
		}
	})
	slices.Sort(out)
	return out
}

// TestLeavesNothing: of tasks that come and go nothing is left, also where an agent is
// replaced at any time.
func TestLeavesNothing(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	empty := p.remains(t)
	m := newMachine(t, p, 1, schema.ModeRoutes)
	if got := p.remains(t); !slices.Equal(got, empty) {
		t.Errorf("what was tried left %q", got)
	}
	m.in(func() { must(t, m.m.Use(m.network)) })
	before := p.remains(t)
	seen := map[netip.Addr]string{}
	for i := range *rounds {
		key := fmt.Sprint(i)
		task := m.join(key)
		if again := m.join(key); !slices.Equal(again.Addresses, task.Addresses) {
			t.Fatalf("%v, then %v", task, again)
		}
		for _, a := range task.Addresses {
			if other, ok := seen[a]; ok {
				t.Fatalf("%s was given to %s and %s", a, other, key)
			}
			seen[a] = key
		}
		if i%5 == 4 { // another agent: it has what this one had, and keeps what it is given
			m.in(m.m.Close)
			m.open()
			if again := m.join(key); !slices.Equal(again.Addresses, task.Addresses) {
				t.Fatalf("%v, by another agent %v", task, again)
			}
			m.in(func() { must(t, m.m.Keep([]string{key})) })
			clear(seen)
			for _, a := range task.Addresses {
				seen[a] = key
			}
		}
		if i%3 == 0 {
			m.in(func() { must(t, m.m.Leave(key)) })
			for _, a := range task.Addresses {
				delete(seen, a)
			}
		}
	}
	m.in(func() { must(t, m.m.Keep(nil)) })
	if got := p.remains(t); !slices.Equal(got, before) {
		t.Errorf("after %d tasks there is %q, before them %q", *rounds, got, before)
	}
	if files, err := os.ReadDir(m.cfg.Dir); err != nil || len(files) > 0 {
		t.Errorf("%v is left, %v", files, err)
	}
	m.in(func() { must(t, m.m.Use(nil)) })
	if got := p.remains(t); !slices.Equal(got, empty) {
		t.Errorf("without a network there is %q, at first %q", got, empty)
	}
}

// TestRemovedOnce: what is removed is not looked for again each time that there is to be nothing.
func TestRemovedOnce(t *testing.T) {
	t.Parallel()
	m := newMachine(t, newPlace(t), 1, schema.ModeRoutes)
	task := m.join("1")
	bridge := "mub-" + filepath.Base(task.Namespace)[1:6]
	m.in(func() {
		_, err := netlink.LinkByName(bridge)
		must(t, err)
		must(t, m.m.Use(nil))
		must(t, netlink.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: bridge}}))
		must(t, m.m.Use(nil))
		if _, err = netlink.LinkByName(bridge); err != nil {
			t.Errorf("it was removed once more: %v", err)
		}
		must(t, m.m.Use(m.network))
		must(t, m.m.Use(nil))
		if _, err = netlink.LinkByName(bridge); err == nil {
			t.Error("what was made since is not removed")
		}
	})
}

// TestHalfMade: a network that an agent was killed over is removed by the next one, and two
// agents leave each other's alone.
func TestHalfMade(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	m := newMachine(t, p, 1, schema.ModeRoutes)
	whole := m.join("whole")
	p.in(func() {
		// Without its alias it is not known to be complete.
		half, err := m.m.Join(m.network, "half", "t")
		must(t, err)
		l, err := netlink.LinkByName(filepath.Base(half.Namespace))
		must(t, err)
		must(t, netlink.LinkSetAlias(l, ""))
	})
	must(t, os.WriteFile(filepath.Join(m.cfg.Dir, "stray"), nil, 0o600))
	other := newMachine(t, p, 2, schema.ModeRoutes)
	theirs := other.join("whole")
	m.in(m.m.Close)
	m.open()
	files, err := os.ReadDir(m.cfg.Dir)
	must(t, err)
	if len(files) != 1 || files[0].Name() != filepath.Base(whole.Namespace) {
		t.Errorf("there is %v", files)
	}
	m.in(func() {
		must(t, m.m.Use(m.network))
		must(t, m.m.Keep(nil))
		must(t, m.m.Use(nil))
	})
	if again := other.join("whole"); !slices.Equal(again.Addresses, theirs.Addresses) {
		t.Errorf("another agent's task had %v, and has %v", theirs.Addresses, again.Addresses)
	}
	serve(t, theirs, 80)
	p.in(func() { from(t, theirs.Addresses[0], 80) })
}

// TestOpenKeeps: an agent whose machine can make no new networks at its start has those that are there.
func TestOpenKeeps(t *testing.T) {
	t.Parallel()
	m := newMachine(t, newPlace(t), 1, schema.ModeRoutes)
	task := m.join("1")
	// What is not complete, and cannot be removed, is in the way of what is tried.
	key := sha256.Sum256([]byte("try"))
	try := filepath.Base(task.Namespace)[:6] + strings.ToLower(base32.StdEncoding.EncodeToString(key[:])[:9])
	blocked := filepath.Join(m.cfg.Dir, try, "x")
	must(t, os.MkdirAll(blocked, 0o700))
	m.in(m.m.Close)
	m.open()
	if err := m.m.Lacks(); err == nil || !strings.Contains(err.Error(), try) {
		t.Errorf("it lacks %v", err)
	}
	if found, ok := m.m.Find("1"); !ok || !slices.Equal(found.Addresses, task.Addresses) {
		t.Errorf("found %v, was %v", found, task)
	}
	m.in(func() { must(t, m.m.Leave("1")) })
	m.in(func() {
		if _, err := network.Open(m.cfg); err == nil {
			t.Error("a machine without networks, that can make none, was opened")
		}
	})
	must(t, os.RemoveAll(filepath.Dir(blocked)))
	m.in(m.m.Close)
	if m.open(); m.m.Lacks() != nil {
		t.Error(m.m.Lacks())
	}
}

// TestFull: a machine without free addresses says so, and what is given up is given again.
func TestFull(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	m := newMachine(t, p, 1, schema.ModeRoutes)
	m.network = &schema.MachineNetwork{Ranges: m.network.Ranges[:1], Subnets: []netip.Prefix{netip.MustParsePrefix("10.64.1.0/29")}, Mode: schema.ModeRoutes}
	for i := range 5 {
		m.join(fmt.Sprint(i))
	}
	m.in(func() {
		if _, err := m.m.Join(m.network, "more", "search/web/9"); err == nil || !strings.Contains(err.Error(), "all 5 addresses") {
			t.Errorf("%v", err)
		}
		must(t, m.m.Leave("3"))
		_, err := m.m.Join(m.network, "more", "search/web/9")
		must(t, err)
	})
}

// TestSources: what a task sends with the address of another does not leave its machine, of IPv4 and
// of IPv6, also where the machine looks at sources loosely.
func TestSources(t *testing.T) {
	t.Parallel()
	a, b := newPlace(t), newPlace(t)
	connect(t, a, b)
	a.in(func() { must(t, os.WriteFile("/proc/sys/net/ipv4/conf/all/rp_filter", []byte("2"), 0)) })
	m1, m2 := newMachine(t, a, 1, schema.ModeRoutes), newMachine(t, b, 2, schema.ModeRoutes)
	hostile, other, near, far := m1.join("1"), m1.join("2"), m1.join("3"), m2.join("4")
	for _, m := range []*machine{m1, m2} {
		m.in(func() { must(t, m.m.Route([]schema.DirectoryMachine{m1.directory(), m2.directory()})) })
	}
	for _, to := range []network.Task{near, far} {
		for i := range 2 {
			var l net.PacketConn
			inTask(t, to, func() {
				var err error
				l, err = net.ListenPacket("udp", netip.AddrPortFrom(to.Addresses[i], 53).String())
				must(t, err)
			})
			inTask(t, hostile, func() {
				link, err := netlink.LinkByName("eth0")
				must(t, err)
				claimed, err := netlink.ParseAddr(netip.PrefixFrom(other.Addresses[i], other.Addresses[i].BitLen()).String())
				must(t, err)
				claimed.Flags = unix.IFA_F_NODAD
				must(t, netlink.AddrReplace(link, claimed))
				for _, as := range []netip.Addr{other.Addresses[i], hostile.Addresses[i]} {
					c, err := net.DialUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(as, 0)), net.UDPAddrFromAddrPort(netip.AddrPortFrom(to.Addresses[i], 53)))
					must(t, err)
					_, err = io.WriteString(c, as.String())
					must(t, errors.Join(err, c.Close()))
				}
			})
			b := make([]byte, 100)
			n, _, err := l.ReadFrom(b)
			must(t, errors.Join(err, l.Close()))
			if got := string(b[:n]); got != hostile.Addresses[i].String() { // packets are not reordered
				t.Errorf("a packet of %s comes from %s", hostile.Addresses[i], got)
			}
		}
	}
}
