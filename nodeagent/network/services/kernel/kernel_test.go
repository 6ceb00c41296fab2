package kernel_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/nftables"

	"github.com/musterhq/muster/nodeagent/network/services"
	"github.com/musterhq/muster/nodeagent/network/services/kernel"
	"github.com/musterhq/muster/nodeagent/network/services/servicestest"
)

var vips = []netip.Addr{netip.MustParseAddr("10.96.0.1"), netip.MustParseAddr("fd00:96::1")}

// web returns a service at vips whose port 8080 goes to port 80 of backends, by TCP and UDP.
func web(backends ...int) *services.Service {
	s := &services.Service{Key: "web", Addresses: vips}
	for _, p := range []services.Protocol{services.TCP, services.UDP} {
		port := services.Port{Protocol: p, Port: 8080}
		for _, i := range backends {
			port.Backends = append(port.Backends, services.Backend{At: at(i, false), Weight: 100}, services.Backend{At: at(i, true), Weight: 100})
		}
		s.Ports = append(s.Ports, port)
	}
	return s
}

func local(s *services.Service) *services.Service {
	for i := range s.Ports {
		for j := range s.Ports[i].Backends {
			s.Ports[i].Backends[j].Local = true
		}
	}
	return s
}

func (l *lab) program(p *kernel.Programmer, list ...*services.Service) services.Change {
	l.t.Helper()
	var c services.Change
	l.machine.do(l.t, func() (err error) {
		p.Set(list...)
		c, err = p.Program()
		return err
	})
	return c
}

func (l *lab) reset(p *kernel.Programmer, gone ...int) int {
	l.t.Helper()
	n := 0
	l.machine.do(l.t, func() (err error) {
		var backends []netip.Addr
		for _, i := range gone {
			backends = append(backends, at(i, false).Addr(), at(i, true).Addr())
		}
		n, err = p.Reset(backends, func(f kernel.Flow) bool {
			for _, i := range gone {
				if f.Backend == at(i, f.Backend.Addr().Is6()) {
					return true
				}
			}
			return false
		})
		return err
	})
	return n
}

func TestConnectionsReachAllEndpoints(t *testing.T) {
	t.Parallel()
	l := newLab(t, 3)
	p := kernel.New("one")
	l.program(p, local(web(0, 1, 2)))
	for _, from := range []struct {
		name  string
		space space
	}{{"forwarded", l.client}, {"own", l.machine}, {"backend", l.backends[0]}} {
		for _, network := range []string{"tcp", "udp"} {
			for _, vip := range vips {
				to := netip.AddrPortFrom(vip, 8080).String()
				seen := map[string]int{}
				for range 40 {
					who, err := l.ask(from.space, network, to)
					if err != nil {
						t.Fatalf("%s %s to %s: %v", from.name, network, to, err)
					}
					name, _, _ := strings.Cut(who, " ")
					seen[name]++
				}
				// (2/3)^40 is 1 in 11 million
				if len(seen) != 3 {
					t.Errorf("%s %s to %s reached %v", from.name, network, to, seen)
				}
			}
		}
	}
	who, err := l.ask(l.client, "tcp", "10.96.0.1:8080")
	if err != nil || !strings.HasSuffix(who, " ::ffff:10.0.0.2") && !strings.HasSuffix(who, " 10.0.0.2") {
		t.Errorf("the backend sees %q, %v; want the client's own address", who, err)
	}
}

func TestBackendReachesItself(t *testing.T) {
	t.Parallel()
	l := newLab(t, 1)
	p := kernel.New("one")
	l.program(p, local(web(0)))
	for _, vip := range vips {
		for _, network := range []string{"tcp", "udp"} {
			if who, err := l.ask(l.backends[0], network, netip.AddrPortFrom(vip, 8080).String()); err != nil || !strings.HasPrefix(who, "b0") {
				t.Errorf("%s to %s: %q, %v", network, vip, who, err)
			}
		}
	}
}

func TestRefused(t *testing.T) {
	t.Parallel()
	l := newLab(t, 1)
	p := kernel.New("one")
	none := web()
	l.program(p, none)
	for _, from := range []space{l.client, l.machine} {
		for _, network := range []string{"tcp", "udp"} {
			for _, vip := range vips {
				for _, port := range []uint16{8080, 9} {
					begin := time.Now()
					_, err := l.ask(from, network, netip.AddrPortFrom(vip, port).String())
					// sendmsg says EPERM of what rules refuse, before the ICMP message arrives
					own := from == l.machine && network == "udp" && errors.Is(err, syscall.EPERM)
					if !errors.Is(err, syscall.ECONNREFUSED) && !own {
						t.Errorf("%s to port %d of %s: %v after %s; want it refused", network, port, vip, err, time.Since(begin))
					}
				}
			}
		}
	}
}

func TestStickyAndWeights(t *testing.T) {
	t.Parallel()
	l := newLab(t, 3)
	p := kernel.New("one")
	sticky := web(0, 1, 2)
	sticky.Sticky = true
	l.program(p, sticky)
	first := map[netip.Addr]string{}
	for range 10 {
		for _, vip := range vips {
			who, err := l.ask(l.client, "udp", netip.AddrPortFrom(vip, 8080).String())
			if err != nil {
				t.Fatal(err)
			}
			if first[vip] == "" {
				first[vip] = who
			}
			if who != first[vip] {
				t.Errorf("%s: once %s, once %s", vip, first[vip], who)
			}
		}
	}
	canary := web(0, 1)
	for i := range canary.Ports {
		for j := range canary.Ports[i].Backends {
			if canary.Ports[i].Backends[j].At == at(1, false) {
				canary.Ports[i].Backends[j].Weight = 900
			}
		}
	}
	l.program(p, canary)
	n := 0
	for range 300 {
		if who, err := l.ask(l.client, "udp", "10.96.0.1:8080"); err != nil {
			t.Fatal(err)
		} else if who == "b1" {
			n++
		}
	}
	if n < 240 || n > 295 { // 270 are expected; this is 5 deviations
		t.Errorf("%d of 300 went to the backend with 9 of 10 of the weight", n)
	}
}

func TestOthersChangesLeaveConnectionsAlone(t *testing.T) {
	t.Parallel()
	l := newLab(t, 3)
	p := kernel.New("one")
	l.program(p, web(0, 1, 2))
	c, name := l.open(l.client, "10.96.0.1:8080")
	var keep int
	_, _ = fmt.Sscanf(name, "b%d", &keep)
	for i := range 20 {
		l.program(p, web(i%3), &services.Service{Key: "other", Addresses: []netip.Addr{netip.AddrFrom4([4]byte{10, 96, 1, byte(i)})}})
		l.reset(p, (keep+1)%3)
		if err := echo(c); err != nil {
			t.Fatalf("change %d: %v", i, err)
		}
	}
	// It is no endpoint any more, but has not ended: the connection stays.
	l.program(p, web((keep+1)%3))
	if err := echo(c); err != nil {
		t.Fatal(err)
	}
	// Nor is it lost with the service.
	l.machine.do(t, func() error {
		p.Remove("web")
		_, err := p.Program()
		return err
	})
	if err := echo(c); err != nil {
		t.Fatal(err)
	}
}

func TestEndedBackendIsResetAtOnce(t *testing.T) {
	t.Parallel()
	l := newLab(t, 2)
	p := kernel.New("one")
	for _, from := range []struct {
		name  string
		space space
	}{{"forwarded", l.client}, {"own", l.machine}} {
		for _, vip := range vips {
			l.program(p, web(0))
			to := netip.AddrPortFrom(vip, 8080).String()
			c, _ := l.open(from.space, to)
			waiting, _ := l.open(from.space, to)
			packets, err := l.dial(from.space, "udp", to)
			if err != nil {
				t.Fatal(err)
			}
			if who, err := answer(packets, "udp"); err != nil || who != "b0" {
				t.Fatalf("%q, %v", who, err)
			}
			l.program(p, web(1))
			if n := l.reset(p, 0); n != 3 {
				t.Errorf("%s %s: %d flows were reset; want 3", from.name, vip, n)
			}
			if _, err := waiting.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
				t.Errorf("%s %s: a client that waits got %v; want a reset", from.name, vip, err)
			}
			if err := echo(c); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("%s %s: a client that writes got %v; want a reset", from.name, vip, err)
			}
			if who, err := answer(packets, "udp"); err != nil || who != "b1" {
				t.Errorf("%s %s: packets of UDP went to %q, %v; want b1", from.name, vip, who, err)
			}
		}
	}
}

// TestResetLeavesTheNextConnection: a client closes its connection to a backend that has ended, and opens
// another one from the same port, between the moment at which that flow is read and the one at which it is deleted.
func TestResetLeavesTheNextConnection(t *testing.T) {
	t.Parallel()
	l := newLab(t, 2)
	p := kernel.New("one")
	const first, count = 40000, 20
	for _, vip := range vips {
		to := netip.AddrPortFrom(vip, 8080).String()
		// from connects from a port, to which the one before from there was closed with a reset.
		from := func(port int, want string) (c net.Conn, err error) {
			l.client.do(t, func() error {
				d := net.Dialer{Timeout: 5 * time.Second, LocalAddr: &net.TCPAddr{Port: port}}
				c, err = d.Dial("tcp", to)
				return nil
			})
			if err != nil {
				return nil, err
			}
			t.Cleanup(func() { _ = c.Close() })
			_ = c.SetDeadline(time.Now().Add(10 * time.Second))
			if who, err := answer(c, "tcp"); err != nil || !strings.HasPrefix(who, want) {
				return nil, fmt.Errorf("port %d: answered by %q, %w; want %s", port, who, err, want)
			}
			return c, c.(*net.TCPConn).SetLinger(0)
		}
		l.program(p, web(0))
		var before, after []net.Conn
		for i := range count {
			c, err := from(first+i, "b0")
			if err != nil {
				t.Fatal(err)
			}
			before = append(before, c)
		}
		l.program(p, web(1))
		var failed error
		l.machine.do(t, func() error {
			n, err := p.Reset(nil, func(f kernel.Flow) bool {
				for i, c := range before {
					_ = c.Close()
					next, err := from(first+i, "b1")
					if err != nil {
						failed = errors.Join(failed, err)
						continue
					}
					after = append(after, next)
				}
				before = nil
				return f.Backend == at(0, f.Backend.Addr().Is6())
			})
			if n != 0 {
				t.Errorf("%s: %d flows were reset, which were closed before", vip, n)
			}
			return err
		})
		if failed != nil || len(after) != count {
			t.Fatalf("%s: %d connections, %v", vip, len(after), failed)
		}
		for i, c := range after {
			if err := echo(c); err != nil {
				t.Errorf("%s: connection %d: %v", vip, i, err)
			}
			_ = c.Close()
		}
	}
}

func TestTwoCells(t *testing.T) {
	t.Parallel()
	l := newLab(t, 2)
	one, two := kernel.New("one"), kernel.New("two")
	l.program(one, web(0))
	other := web(1)
	other.Addresses = []netip.Addr{netip.MustParseAddr("10.97.0.1")}
	l.program(two, other)
	for range 3 {
		for vip, want := range map[string]string{"10.96.0.1:8080": "b0", "10.97.0.1:8080": "b1"} {
			if who, err := l.ask(l.client, "udp", vip); err != nil || who != want {
				t.Errorf("%s: %q, %v; want %s", vip, who, err, want)
			}
		}
	}
	l.machine.do(t, one.Withdraw)
	if who, err := l.ask(l.client, "udp", "10.97.0.1:8080"); err != nil || who != "b1" {
		t.Errorf("the other cell's: %q, %v", who, err)
	}
}

// planned is a Programmer as servicestest.Step takes it.
type planned struct{ *kernel.Programmer }

func (p planned) Set(s *services.Service) { p.Programmer.Set(s) }
func (p planned) Remove(key string)       { p.Programmer.Remove(key) }

func TestKernelHasWhatWasPlanned(t *testing.T) {
	t.Parallel()
	s := newSpace(t)
	s.do(t, func() error {
		r := rand.New(rand.NewPCG(17, 0))
		p, wanted := kernel.New("one"), map[string]*services.Service{}
		for step := range 60 {
			for range 1 + r.IntN(4) {
				servicestest.Step(r, 12, wanted, planned{p})
			}
			program := p.Program
			if r.IntN(3) == 0 {
				var err error
				if program, err = disturb(r, p, program); err != nil {
					return fmt.Errorf("step %d: %w", step, err)
				}
			}
			if r.IntN(10) == 0 { // another agent
				p = kernel.New("one")
				for _, s := range wanted {
					p.Set(s)
				}
				program = p.Program
			}
			if _, err := program(); err != nil {
				return fmt.Errorf("step %d: %w", step, err)
			}
			have, err := kernel.Read("one")
			if err != nil {
				return fmt.Errorf("step %d: %w", step, err)
			}
			if !servicestest.Equal(have, p.Have()) {
				return fmt.Errorf("step %d: %+v; want %+v", step, have, p.Have())
			}
			if err := servicestest.Check(have, wanted); err != nil {
				return fmt.Errorf("step %d: %w", step, err)
			}
		}
		return nil
	})
}

// disturb does to a table what others might, and returns what repairs it.
func disturb(r *rand.Rand, p *kernel.Programmer, program func() (services.Change, error)) (func() (services.Change, error), error) {
	nft, err := nftables.New()
	if err != nil {
		return nil, err
	}
	t := &nftables.Table{Name: kernel.TableName("one"), Family: nftables.TableFamilyINet}
	nft.AddTable(t)
	set := func(name string) *nftables.Set { return &nftables.Set{Table: t, Name: name} }
	switch r.IntN(6) {
	case 0: // a transaction that has nothing to do with it
		nft.AddTable(&nftables.Table{Name: "another", Family: nftables.TableFamilyINet})
	case 1:
		nft.FlushRuleset()
	case 2:
		nft.AddChain(&nftables.Chain{Table: t, Name: "refuse"})
		nft.FlushChain(&nftables.Chain{Table: t, Name: "refuse"})
	case 3:
		nft.FlushSet(set("slots4"))
		program = p.Audit
	case 4:
		if err := nft.SetAddElements(set("addresses4"), []nftables.SetElement{{Key: []byte{10, 1, 1, 1}}}); err != nil {
			return nil, err
		}
		program = p.Audit
	}
	return program, nft.Flush()
}

func TestSupported(t *testing.T) {
	t.Parallel()
	newSpace(t).do(t, func() error {
		if err := kernel.Supported(); err != nil {
			return err
		}
		nft, err := nftables.New()
		if err != nil {
			return err
		}
		tables, err := nft.ListTables()
		if len(tables) > 0 {
			t.Errorf("it left %d tables", len(tables))
		}
		return err
	})
}
