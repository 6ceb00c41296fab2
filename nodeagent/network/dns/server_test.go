package dns_test

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	mdns "github.com/miekg/dns"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/musterhq/muster/nodeagent/naming"
	"github.com/musterhq/muster/nodeagent/network/dns"
)

// serve serves the small cell on loopback until the test ends.
func serve(t *testing.T, upstreams ...netip.AddrPort) netip.AddrPort {
	t.Helper()
	s := cell()
	server, err := dns.NewServer(dns.Config{
		Cell: "local", Machine: "m1", Snapshot: func() *naming.Snapshot { return s },
		Upstreams: func() []netip.AddrPort { return upstreams },
		Metrics:   prometheus.NewRegistry(), Now: time.Now,
	})
	if err != nil {
		t.Fatal(err)
	}
	socket, err := dns.Listen(t.Context(), netip.MustParseAddrPort("127.0.0.1:0"))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(ctx, socket) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return socket.Address()
}

// upstream is a server for other names, which counts what it is asked.
type upstream struct {
	address netip.AddrPort
	asked   atomic.Int32
}

// serveUpstream serves answers until the test ends.
func serveUpstream(t *testing.T, answer func(w mdns.ResponseWriter, r *mdns.Msg)) *upstream {
	t.Helper()
	u := &upstream{}
	count := mdns.HandlerFunc(func(w mdns.ResponseWriter, r *mdns.Msg) {
		u.asked.Add(1)
		answer(w, r)
	})
	var lc net.ListenConfig
	stream, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	u.address = stream.Addr().(*net.TCPAddr).AddrPort()
	packets, err := lc.ListenPacket(t.Context(), "udp", u.address.String())
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range []*mdns.Server{{Listener: stream, Handler: count}, {PacketConn: packets, Handler: count}} {
		started, ended := make(chan struct{}), make(chan error, 1)
		s.NotifyStartedFunc = func() { close(started) }
		go func() { ended <- s.ActivateAndServe() }()
		<-started
		t.Cleanup(func() {
			if err := s.Shutdown(); err != nil {
				t.Error(err)
			}
			<-ended
		})
	}
	return u
}

// ask asks over a network, and requires an answer.
func ask(t *testing.T, at netip.AddrPort, network, name string, kind uint16) *mdns.Msg {
	t.Helper()
	r := new(mdns.Msg)
	r.SetQuestion(name, kind)
	return exchange(t, at, network, r)
}

func exchange(t *testing.T, at netip.AddrPort, network string, r *mdns.Msg) *mdns.Msg {
	t.Helper()
	c := mdns.Client{Net: network, Timeout: 10 * time.Second}
	m, _, err := c.ExchangeContext(t.Context(), r, at.String())
	if err != nil {
		t.Fatalf("%s over %s: %v", r.Question[0].Name, network, err)
	}
	return m
}

func addressRecord(name, address string, ttl uint32) mdns.RR {
	return &mdns.A{Hdr: mdns.RR_Header{Name: name, Rrtype: mdns.TypeA, Class: mdns.ClassINET, Ttl: ttl}, A: net.ParseIP(address)}
}

func TestServe(t *testing.T) {
	t.Parallel()
	at := serve(t)
	for _, network := range []string{"udp", "tcp"} {
		m := ask(t, at, network, "0.wEB.ann.local.muster.internal.", mdns.TypeA)
		if got, want := lines(m.Answer), "0.wEB.ann.local.muster.internal. 5 IN A 10.1.0.10"; got != want || !m.Authoritative || !m.RecursionAvailable {
			t.Errorf("%s: %s\nwant %s", network, m, want)
		}
	}
	m := ask(t, at, "udp", "_http._tcp.many.ann.local.muster.internal.", mdns.TypeSRV)
	if !m.Truncated {
		t.Errorf("200 ports in a packet: %v", m)
	}
	if m = ask(t, at, "tcp", "_http._tcp.many.ann.local.muster.internal.", mdns.TypeSRV); m.Truncated || len(m.Answer) != 200 {
		t.Errorf("%d ports over TCP, want 200", len(m.Answer))
	}
	r := new(mdns.Msg)
	r.SetQuestion("web.ann.local.muster.internal.", mdns.TypeA)
	r.SetEdns0(4096, false)
	r.IsEdns0().SetVersion(1)
	if m = exchange(t, at, "udp", r); m.Rcode != mdns.RcodeBadVers {
		t.Errorf("EDNS 1: %v", m)
	}
	r = new(mdns.Msg)
	r.SetUpdate("local.muster.internal.")
	if m = exchange(t, at, "udp", r); m.Rcode != mdns.RcodeNotImplemented {
		t.Errorf("an update: %v", m)
	}
	if m = ask(t, at, "tcp", "local.muster.internal.", mdns.TypeAXFR); m.Rcode != mdns.RcodeRefused {
		t.Errorf("a transfer: %v", m)
	}
	if m = ask(t, at, "udp", "local.muster.internal.", mdns.TypeANY); len(m.Answer) != 1 || m.Answer[0].Header().Rrtype != mdns.TypeHINFO {
		t.Errorf("ANY: %v", m)
	}
	if m = ask(t, at, "udp", "example.org.", mdns.TypeA); m.Rcode != mdns.RcodeServerFailure {
		t.Errorf("without upstream servers: %v", m)
	}
}

// TestHostile sends what is no query: it gets an error or nothing, and the server goes on.
func TestHostile(t *testing.T) {
	t.Parallel()
	at := serve(t)
	var d net.Dialer
	c, err := d.DialContext(t.Context(), "udp", at.String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	header := func(flags, questions byte, rest string) string {
		return "\x12\x34" + string([]byte{flags, 0}) + "\x00" + string([]byte{questions}) + "\x00\x00\x00\x00\x00\x00" + rest
	}
	for _, packet := range []string{"", "x", header(0x80, 1, "\x00\x00\x01\x00\x01"), header(0, 1, "\xc0\x0c\x00\x01\x00\x01"), header(0, 255, ""), header(0, 1, strings.Repeat("\x3f"+strings.Repeat("a", 63), 60))} {
		if _, err := c.Write([]byte(packet)); err != nil {
			t.Fatal(err)
		}
	}
	if m := ask(t, at, "udp", "0.web.ann.local.muster.internal.", mdns.TypeA); len(m.Answer) != 1 {
		t.Errorf("after hostile packets: %v", m)
	}
}

func TestUpstream(t *testing.T) {
	t.Parallel()
	u := serveUpstream(t, func(w mdns.ResponseWriter, r *mdns.Msg) {
		m := new(mdns.Msg)
		m.SetReply(r)
		name := r.Question[0].Name
		_, stream := w.RemoteAddr().(*net.TCPAddr)
		switch {
		case name == "long.example." && !stream:
			m.Truncated = true
		case name == "long.example.":
			for i := range 100 {
				m.Answer = append(m.Answer, addressRecord(name, fmt.Sprintf("192.0.2.%d", i), 300))
			}
		case name == "no.example.":
			m.Rcode = mdns.RcodeNameError
			m.Ns = []mdns.RR{&mdns.SOA{Hdr: mdns.RR_Header{Name: "example.", Rrtype: mdns.TypeSOA, Class: mdns.ClassINET, Ttl: 60}, Ns: "ns.example.", Mbox: "x.example.", Minttl: 30}}
		case name == "short.example.":
			m.Answer = []mdns.RR{addressRecord(name, "192.0.2.1", 0)}
		default:
			m.Answer = []mdns.RR{addressRecord(name, "192.0.2.1", 300)}
		}
		_ = w.WriteMsg(m)
	})
	dead := serveUpstream(t, func(w mdns.ResponseWriter, r *mdns.Msg) {
		m := new(mdns.Msg)
		m.SetRcode(r, mdns.RcodeServerFailure)
		_ = w.WriteMsg(m)
	})
	at := serve(t, dead.address, u.address)
	for _, test := range []struct {
		name  string
		want  string
		asked int32 // of three times
	}{
		{"wWw.example.", "wWw.example. 300 IN A 192.0.2.1", 1},
		{"no.example.", "", 1},
		{"short.example.", "short.example. 0 IN A 192.0.2.1", 3},
	} {
		before := u.asked.Load()
		for range 3 {
			m := ask(t, at, "udp", test.name, mdns.TypeA)
			if got := lines(m.Answer); strings.Replace(got, " 299 ", " 300 ", 1) != test.want || m.Authoritative || (test.want == "") != (m.Rcode == mdns.RcodeNameError) {
				t.Errorf("%s: %v", test.name, m)
			}
		}
		if n := u.asked.Load() - before; n != test.asked {
			t.Errorf("%s: asked %d times, want %d", test.name, n, test.asked)
		}
	}
	if m := ask(t, at, "udp", "long.example.", mdns.TypeA); !m.Truncated || len(m.Answer) == 0 {
		t.Errorf("100 addresses in a packet: %v", m)
	}
	if m := ask(t, at, "tcp", "long.example.", mdns.TypeA); m.Truncated || len(m.Answer) != 100 {
		t.Errorf("100 addresses: %v", m)
	}
	r := new(mdns.Msg)
	r.SetQuestion("new.example.", mdns.TypeA)
	r.RecursionDesired = false
	if m := exchange(t, at, "udp", r); m.Rcode != mdns.RcodeRefused {
		t.Errorf("without recursion: %v", m)
	}
}

// TestSilentUpstream has one that never answers, after which the next is asked; and then first.
func TestSilentUpstream(t *testing.T) {
	t.Parallel()
	silent := serveUpstream(t, func(mdns.ResponseWriter, *mdns.Msg) {})
	wrong := serveUpstream(t, func(w mdns.ResponseWriter, r *mdns.Msg) { // an answer to another question
		m := new(mdns.Msg)
		m.SetReply(r)
		m.Question[0].Name = "other.example."
		m.Answer = []mdns.RR{addressRecord("other.example.", "192.0.2.66", 300)}
		_ = w.WriteMsg(m)
	})
	good := serveUpstream(t, func(w mdns.ResponseWriter, r *mdns.Msg) {
		m := new(mdns.Msg)
		m.SetReply(r)
		m.Answer = []mdns.RR{addressRecord(r.Question[0].Name, "192.0.2.1", 300)}
		_ = w.WriteMsg(m)
	})
	at := serve(t, silent.address, wrong.address, good.address)
	for i := range 3 {
		name := fmt.Sprintf("n%d.example.", i)
		if m := ask(t, at, "udp", name, mdns.TypeA); lines(m.Answer) != name+" 300 IN A 192.0.2.1" {
			t.Errorf("%v", m)
		}
	}
	if n := silent.asked.Load(); n != 1 {
		t.Errorf("the silent server was asked %d times, want once", n)
	}
}

// TestNotItself has the server among its own upstream servers.
func TestNotItself(t *testing.T) {
	t.Parallel()
	s, own := cell(), atomic.Pointer[netip.AddrPort]{}
	server, err := dns.NewServer(dns.Config{
		Cell: "local", Snapshot: func() *naming.Snapshot { return s }, Now: time.Now, Metrics: prometheus.NewRegistry(),
		Upstreams: func() []netip.AddrPort { return []netip.AddrPort{*own.Load()} },
	})
	if err != nil {
		t.Fatal(err)
	}
	socket, err := dns.Listen(t.Context(), netip.MustParseAddrPort("127.0.0.1:0"))
	if err != nil {
		t.Fatal(err)
	}
	at := socket.Address()
	own.Store(&at)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(ctx, socket) }()
	begin := time.Now()
	if m := ask(t, at, "udp", "example.org.", mdns.TypeA); m.Rcode != mdns.RcodeServerFailure || time.Since(begin) > time.Second {
		t.Errorf("after %v: %v", time.Since(begin), m)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func TestListen(t *testing.T) {
	t.Parallel()
	for _, at := range []string{"0.0.0.0:0", "[::]:0", "224.0.0.1:0"} {
		if k, err := dns.Listen(t.Context(), netip.MustParseAddrPort(at)); err == nil {
			t.Errorf("%s was opened", at)
			_ = k.Close()
		}
	}
	k, err := dns.Listen(t.Context(), netip.MustParseAddrPort("198.51.100.7:0")) // which this machine does not have
	if err != nil {
		t.Fatal(err)
	}
	defer k.Close()
	if other, err := dns.Listen(t.Context(), k.Address()); err == nil {
		t.Error("two servers listen at one address")
		_ = other.Close()
	}
}

// TestTools asks with programs that others wrote, where they are.
func TestTools(t *testing.T) {
	t.Parallel()
	at := serve(t)
	found := 0
	for _, tool := range [][]string{{"dig", "+short", "@127.0.0.1", "-p"}, {"kdig", "+short", "@127.0.0.1", "-p"}} {
		path, err := exec.LookPath(tool[0])
		if err != nil {
			continue
		}
		found++
		run := func(args ...string) string {
			args = append(append(tool[1:len(tool):len(tool)], fmt.Sprint(at.Port())), args...)
			out, err := exec.CommandContext(t.Context(), path, args...).CombinedOutput()
			if err != nil {
				t.Errorf("%s %s: %v\n%s", tool[0], args, err, out)
			}
			lines := strings.Split(strings.TrimSpace(string(out)), "\n")
			return strings.Join(slices.DeleteFunc(lines, func(l string) bool { return l == "" || strings.HasPrefix(l, ";;") }), "\n")
		}
		for _, test := range []struct{ args, want string }{
			{"0.web.ann.local.muster.internal A", "10.1.0.10"},
			{"+tcp front.ann.svc.local.muster.internal AAAA", "fd01::1"},
			{"+noedns _log._udp.front.ann.svc.local.muster.internal SRV", "0 100 514 front.ann.svc.local.muster.internal."},
			{"-x 10.1.0.10", "0.web.ann.local.muster.internal."},
		} {
			if got := run(strings.Fields(test.args)...); got != test.want {
				t.Errorf("%s %s: %q, want %q", tool[0], test.args, got, test.want)
			}
		}
		// Truncated in a packet, so that it asks again over TCP.
		if got := len(strings.Split(run("_http._tcp.many.ann.local.muster.internal", "SRV"), "\n")); got != 200 {
			t.Errorf("%s: %d ports, want 200", tool[0], got)
		}
	}
	t.Logf("%d programs", found)
}
