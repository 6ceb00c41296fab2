package dns

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/miekg/dns"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/musterhq/muster/nodeagent/naming"
	"github.com/musterhq/muster/schema"
)

func TestAllowed(t *testing.T) {
	t.Parallel()
	d := naming.New()
	for i, name := range []string{"m1", "m2"} {
		d.Apply(schema.DirectoryChange{Set: []schema.DirectoryEntry{{Machine: &schema.DirectoryMachine{
			Name: name, Address: netip.AddrFrom4([4]byte{192, 0, 2, byte(i + 1)}),
			Subnets: []netip.Prefix{netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 9, byte(i), 0}), 24)},
		}}}})
	}
	d.Apply(schema.DirectoryChange{Set: []schema.DirectoryEntry{{Cell: &schema.DirectoryCell{Name: "local", Network: schema.CellNetwork{
		Range: netip.MustParsePrefix("10.0.0.0/22"), Domain: "muster.internal",
	}}}}})
	is := d.Snapshot()
	s, err := NewServer(Config{
		Cell: "local", Machine: "m1", Snapshot: func() *naming.Snapshot { return is },
		Allowed: []netip.Prefix{netip.MustParsePrefix("203.0.113.0/24")}, Metrics: prometheus.NewRegistry(), Now: time.Now,
	})
	if err != nil {
		t.Fatal(err)
	}
	server := netip.MustParseAddr("198.51.100.1")
	for client, want := range map[string]bool{
		"127.0.0.1": true, "::1": true, "198.51.100.1": true, "192.0.2.1": true, "10.9.0.77": true, "10.9.1.77": false, "203.0.113.9": true, "10.0.3.1": true,
		"198.51.100.2": false, "192.0.2.2": false, "10.0.4.77": false, "8.8.8.8": false, "fe80::1": false,
	} {
		if got := s.allowed(is, netip.MustParseAddr(client), server); got != want {
			t.Errorf("%s: %v, want %v", client, got, want)
		}
		r := new(dns.Msg)
		r.SetQuestion("local.muster.internal.", dns.TypeSOA)
		if m, _, _ := s.reply(r, false, netip.MustParseAddr(client), server); (m.Rcode == dns.RcodeSuccess) != want || (m.Rcode == dns.RcodeRefused) == want {
			t.Errorf("%s: %v", client, m)
		}
	}
}

func TestLimit(t *testing.T) {
	t.Parallel()
	a, b, c := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2"), netip.MustParseAddr("10.0.0.3")
	l := newLimit(3, 2)
	for i, step := range []struct {
		client netip.Addr
		want   bool
	}{{a, true}, {a, true}, {a, false}, {b, true}, {c, false}} {
		if got := l.take(step.client); got != step.want {
			t.Errorf("step %d: %v, want %v", i, got, step.want)
		}
	}
	l.give(a)
	if !l.take(c) {
		t.Error("no room after one has ended")
	}
	l.give(a)
	l.give(b)
	l.give(c)
	if l.n != 0 || len(l.by) != 0 {
		t.Errorf("%d left, %v", l.n, l.by)
	}
}

// record returns an answer with an address.
func record(name string, ttl uint32) *dns.Msg {
	m := new(dns.Msg)
	m.SetQuestion(name, dns.TypeA)
	m.Answer = []dns.RR{&dns.A{Hdr: header(name, dns.TypeA, ttl), A: net.IPv4(192, 0, 2, 1)}}
	return m
}

func TestCache(t *testing.T) {
	t.Parallel()
	c, now := newCache(), time.Unix(1_000_000, 0)
	key := func(name string) cacheKey { return cacheKey{name: name, kind: dns.TypeA, class: dns.ClassINET} }
	c.put(key("a."), record("a.", 100), now)
	m, ok := c.get(key("a."), now.Add(40*time.Second))
	if !ok || m.Answer[0].Header().Ttl != 60 {
		t.Errorf("after 40 of 100 s: %v", m)
	}
	if _, ok := c.get(key("a."), now.Add(100*time.Second)); ok || c.len() != 0 {
		t.Errorf("after 100 s: there, %d kept", c.len())
	}
	c.put(key("b."), record("b.", 1<<31), now)
	if _, ok := c.get(key("b."), now.Add(longestTTL)); ok {
		t.Error("kept for years")
	}
	c.put(key("first."), record("first.", 100), now)
	for i := range mostCached {
		if i == mostCached/2 {
			c.get(key("first."), now)
		}
		name := fmt.Sprint(i, ".")
		c.put(key(name), record(name, 100), now)
	}
	if _, ok := c.get(key("first."), now); !ok || c.len() != mostCached {
		t.Errorf("one that was used is there: %v; %d kept", ok, c.len())
	}
	if _, ok := c.get(key("0."), now); ok {
		t.Error("the first one that was never used is there")
	}
}

func TestTTL(t *testing.T) {
	t.Parallel()
	soa := &dns.SOA{Hdr: header("example.", dns.TypeSOA, 600), Minttl: 20}
	for _, test := range []struct {
		name string
		m    dns.Msg
		want time.Duration
	}{
		{"no such name", dns.Msg{MsgHdr: dns.MsgHdr{Rcode: dns.RcodeNameError}, Ns: []dns.RR{soa}}, 20 * time.Second},
		{"no such name, without SOA", dns.Msg{MsgHdr: dns.MsgHdr{Rcode: dns.RcodeNameError}}, 0},
		{"no data", dns.Msg{Ns: []dns.RR{soa}}, 20 * time.Second},
		{"truncated", dns.Msg{MsgHdr: dns.MsgHdr{Truncated: true}, Answer: record("a.", 9).Answer}, 0},
		{"failure", dns.Msg{MsgHdr: dns.MsgHdr{Rcode: dns.RcodeServerFailure}}, failureTTL},
		{"refused", dns.Msg{MsgHdr: dns.MsgHdr{Rcode: dns.RcodeRefused}}, 0},
		{"the least of two", dns.Msg{Answer: append(record("a.", 9).Answer, record("a.", 4).Answer...)}, 4 * time.Second},
	} {
		if got := ttlOf(&test.m); got != test.want {
			t.Errorf("%s: %v, want %v", test.name, got, test.want)
		}
	}
}

func TestResolvConf(t *testing.T) {
	t.Parallel()
	path, now := filepath.Join(t.TempDir(), "resolv.conf"), time.Unix(1, 0)
	r := NewResolvConf(path, func() time.Time { return now })
	for _, step := range []struct {
		text string
		want string
	}{
		{"", "[]"}, // no file
		{"search example.org\nnameserver 192.0.2.1\nnameserver fe80::1%eth0\nnameserver x\n", "[192.0.2.1:53 [fe80::1%eth0]:53]"},
		{"nameserver 192.0.2.2\n", "[192.0.2.2:53]"},
	} {
		if step.text != "" {
			if err := os.WriteFile(path, []byte(step.text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if got := fmt.Sprint(r.Servers()); step.text != "" && got == step.want {
			t.Errorf("%s before it is read again", got)
		}
		now = now.Add(rereadEvery)
		if got := fmt.Sprint(r.Servers()); got != step.want {
			t.Errorf("%s, want %s", got, step.want)
		}
	}
}
