package dns_test

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	mdns "github.com/miekg/dns"

	"github.com/musterhq/muster/nodeagent/naming"
	"github.com/musterhq/muster/nodeagent/network/dns"
	"github.com/musterhq/muster/schema"
)

var ports = schema.NewPorts(schema.Port{Name: "http", Port: 8080}, schema.Port{Name: "metrics", Port: 9100})

// cell returns a small cell: jobs of users ann and svc, services, and a job of 200 tasks.
func cell() *naming.Snapshot {
	tasks := func(user, job string, list ...schema.DirectoryTask) schema.DirectoryEntry {
		return schema.DirectoryEntry{Tasks: &schema.DirectoryTasks{
			User: user, Job: job, Part: list[0].Index / schema.DirectoryPart, Labels: map[string]string{"app": job}, Tasks: list,
		}}
	}
	task := func(index int, address string, ready bool) schema.DirectoryTask {
		t := schema.DirectoryTask{Index: index, Machine: "m1", Ports: ports, Ready: ready}
		if address != "" {
			t.Address = netip.MustParseAddr(address)
		}
		return t
	}
	dual := func(t schema.DirectoryTask, address string) schema.DirectoryTask {
		t.Address6 = netip.MustParseAddr(address)
		return t
	}
	service := func(name, selector string, addresses ...netip.Addr) schema.DirectoryEntry {
		return schema.DirectoryEntry{Service: &schema.DirectoryService{Addresses: addresses, ServiceSpec: schema.ServiceSpec{
			User: "ann", Name: name, Selector: selector,
			Ports: map[string]schema.ServicePort{"web": {Port: 80, Target: "http"}, "log": {Port: 514, Protocol: schema.UDP, Target: "metrics"}},
		}}}
	}
	set := []schema.DirectoryEntry{
		{Cell: &schema.DirectoryCell{Name: "local", Network: schema.CellNetwork{
			Range: netip.MustParsePrefix("10.1.0.0/18"), Range6: netip.MustParsePrefix("fd00::/60"), Services: netip.MustParsePrefix("172.16.0.0/24"),
		}}},
		{Machine: &schema.DirectoryMachine{Name: "m1", Address: netip.MustParseAddr("192.0.2.1"), Subnets: []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16"), netip.MustParsePrefix("fd00::/64")}}},
		tasks("ann", "web", task(0, "10.1.0.10", true), task(1, "10.1.0.11", false), task(2, "fd00::12", true)),
		tasks("ann", "quiet", task(7, "10.1.0.20", false)),
		tasks("ann", "lost", task(0, "", true)),
		tasks("ann", "dual", dual(task(0, "10.1.0.60", true), "fd00::60"), dual(task(1, "10.1.0.61", false), "fd00::61"), dual(task(2, "10.1.0.60", true), "fd00::62")),
		tasks("svc", "web", task(3, "10.1.0.30", true)),
		tasks("ann", "5", task(5, "10.1.0.50", true)),
		service("front", "app=web", netip.MustParseAddr("172.16.0.1"), netip.MustParseAddr("fd01::1")),
		service("headless", "app in (web,quiet)"),
		service("nothing", "app=none"),
	}
	for part := range 4 {
		var list []schema.DirectoryTask
		for i := part * 64; i < min(part*64+64, 200); i++ {
			list = append(list, task(i, fmt.Sprintf("10.1.1.%d", i), true))
		}
		set = append(set, tasks("ann", "many", list...))
	}
	d := naming.New()
	d.Apply(schema.DirectoryChange{Set: set})
	return d.Snapshot()
}

func zone() *dns.Zone {
	return dns.NewZone("local", "Muster.Internal", []netip.Addr{netip.MustParseAddr("10.1.0.1")})
}

// lines returns records, sorted.
func lines(records []mdns.RR) string {
	var out []string
	for _, rr := range records {
		out = append(out, strings.ReplaceAll(rr.String(), "\t", " "))
	}
	slices.Sort(out)
	return strings.Join(out, "\n")
}

func TestAnswer(t *testing.T) {
	t.Parallel()
	const (
		end  = "local.muster.internal."
		none = "NXDOMAIN"
		soa  = end + " 5 IN SOA ns." + end + " hostmaster." + end + " 1 3600 600 86400 2"
	)
	for _, test := range []struct {
		name string // before the end
		kind uint16
		want string // records, "" for NODATA, none for no such name
	}{
		{"0.web.ann.", mdns.TypeA, "0.web.ann." + end + " 5 IN A 10.1.0.10"},
		{"0.web.ann.", mdns.TypeAAAA, ""},
		{"1.web.ann.", mdns.TypeA, "1.web.ann." + end + " 5 IN A 10.1.0.11"}, // though it is not ready
		{"2.web.ann.", mdns.TypeAAAA, "2.web.ann." + end + " 5 IN AAAA fd00::12"},
		{"3.web.ann.", mdns.TypeA, none},
		{"00.web.ann.", mdns.TypeA, none},
		{"-1.web.ann.", mdns.TypeA, none},
		{"99999999999999999999.web.ann.", mdns.TypeA, none},
		{"0.WeB.aNn.", mdns.TypeA, "0.WeB.aNn." + end + " 5 IN A 10.1.0.10"},
		{"web.ann.", mdns.TypeA, "web.ann." + end + " 5 IN A 10.1.0.10"},
		{"web.ann.", mdns.TypeAAAA, "web.ann." + end + " 5 IN AAAA fd00::12"},
		{"web.ann.", mdns.TypeMX, ""},
		{"quiet.ann.", mdns.TypeA, ""},
		{"lost.ann.", mdns.TypeA, ""},
		{"1.dual.ann.", mdns.TypeA, "1.dual.ann." + end + " 5 IN A 10.1.0.61"},
		{"1.dual.ann.", mdns.TypeAAAA, "1.dual.ann." + end + " 5 IN AAAA fd00::61"},
		{"dual.ann.", mdns.TypeA, "dual.ann." + end + " 5 IN A 10.1.0.60"},
		{"dual.ann.", mdns.TypeAAAA, "dual.ann." + end + " 5 IN AAAA fd00::60\ndual.ann." + end + " 5 IN AAAA fd00::62"},
		{"0.lost.ann.", mdns.TypeA, ""},
		{"none.ann.", mdns.TypeA, none},
		{"web.bob.", mdns.TypeA, none},
		{"ann.", mdns.TypeA, ""},
		{"bob.", mdns.TypeA, none},
		{"", mdns.TypeA, ""},
		{"", mdns.TypeSOA, strings.TrimSuffix(soa, "\n")},
		{"", mdns.TypeNS, end + " 5 IN NS ns." + end},
		{"ns.", mdns.TypeA, "ns." + end + " 5 IN A 10.1.0.1"},
		{"ns.", mdns.TypeAAAA, ""},

		{"front.ann.svc.", mdns.TypeA, "front.ann.svc." + end + " 5 IN A 172.16.0.1"},
		{"front.ann.svc.", mdns.TypeAAAA, "front.ann.svc." + end + " 5 IN AAAA fd01::1"},
		{"0.front.ann.svc.", mdns.TypeA, none},
		{"headless.ann.svc.", mdns.TypeA, "headless.ann.svc." + end + " 5 IN A 10.1.0.10"},
		{"nothing.ann.svc.", mdns.TypeA, ""},
		{"other.ann.svc.", mdns.TypeA, none},
		{"ann.svc.", mdns.TypeA, ""},
		{"bob.svc.", mdns.TypeA, none},
		{"svc.", mdns.TypeA, ""},
		{"web.svc.", mdns.TypeA, "web.svc." + end + " 5 IN A 10.1.0.30"}, // a job of user svc
		{"3.web.svc.", mdns.TypeA, "3.web.svc." + end + " 5 IN A 10.1.0.30"},
		{"5.ann.", mdns.TypeA, "5.ann." + end + " 5 IN A 10.1.0.50"},
		{"5.5.ann.", mdns.TypeA, "5.5.ann." + end + " 5 IN A 10.1.0.50"},

		{"_http._tcp.0.web.ann.", mdns.TypeSRV, "_http._tcp.0.web.ann." + end + " 5 IN SRV 0 100 8080 0.web.ann." + end},
		{"_http._udp.0.web.ann.", mdns.TypeSRV, "_http._udp.0.web.ann." + end + " 5 IN SRV 0 100 8080 0.web.ann." + end},
		{"_HTTP._TCP.web.ann.", mdns.TypeSRV, "_HTTP._TCP.web.ann." + end + " 5 IN SRV 0 100 8080 0.web.ann." + end + "\n" + "_HTTP._TCP.web.ann." + end + " 5 IN SRV 0 100 8080 2.web.ann." + end},
		{"_http._tcp.web.ann.", mdns.TypeA, ""},
		{"_none._tcp.web.ann.", mdns.TypeSRV, none},
		{"_http._sctp.web.ann.", mdns.TypeSRV, none},
		{"_tcp.web.ann.", mdns.TypeSRV, ""},
		{"_tcp.none.ann.", mdns.TypeSRV, none},
		{"_tcp.", mdns.TypeSRV, none},
		{"_http._tcp.", mdns.TypeSRV, none},
		{"_http._tcp.quiet.ann.", mdns.TypeSRV, ""},
		{"_web._tcp.front.ann.svc.", mdns.TypeSRV, "_web._tcp.front.ann.svc." + end + " 5 IN SRV 0 100 80 front.ann.svc." + end},
		{"_log._udp.front.ann.svc.", mdns.TypeSRV, "_log._udp.front.ann.svc." + end + " 5 IN SRV 0 100 514 front.ann.svc." + end},
		{"_log._tcp.front.ann.svc.", mdns.TypeSRV, none},
		{"_web._tcp.headless.ann.svc.", mdns.TypeSRV, "_web._tcp.headless.ann.svc." + end + " 5 IN SRV 0 100 8080 0.web.ann." + end + "\n_web._tcp.headless.ann.svc." + end + " 5 IN SRV 0 100 8080 2.web.ann." + end},
		{"_web._tcp.nothing.ann.svc.", mdns.TypeSRV, ""},
		{"a.b.c.d.e.f.g.", mdns.TypeA, none},
		{`0\.web.ann.`, mdns.TypeA, none},
		{`\000.ann.`, mdns.TypeA, none},
		{"*.ann.", mdns.TypeA, none},
	} {
		t.Run(test.name+mdns.TypeToString[test.kind], func(t *testing.T) {
			t.Parallel()
			name := test.name + end
			if !zone().Has(name) {
				t.Fatalf("%s is not in the zone", name)
			}
			a := zone().Answer(cell(), dns.Question{Name: name, Type: test.kind})
			got := lines(a.Answer)
			if a.Code == mdns.RcodeNameError {
				got = none
			}
			if got != test.want {
				t.Errorf("got\n%s\nwant\n%s", got, test.want)
			}
			if negative := test.want == "" || test.want == none; negative != (len(a.Ns) == 1) {
				t.Errorf("authority: %v", a.Ns)
			} else if negative && !strings.EqualFold(lines(a.Ns), strings.Replace(soa, " 5 ", " 2 ", 1)) {
				t.Errorf("authority: %s", lines(a.Ns))
			}
		})
	}
}

func TestAdditional(t *testing.T) {
	t.Parallel()
	const end = "local.muster.internal."
	a := zone().Answer(cell(), dns.Question{Name: "_http._tcp.web.ann." + end, Type: mdns.TypeSRV})
	if got, want := lines(a.Extra), "0.web.ann."+end+" 5 IN A 10.1.0.10\n2.web.ann."+end+" 5 IN AAAA fd00::12"; got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	a = zone().Answer(cell(), dns.Question{Name: "_http._tcp.1.dual.ann." + end, Type: mdns.TypeSRV})
	if got, want := lines(a.Extra), "1.dual.ann."+end+" 5 IN A 10.1.0.61\n1.dual.ann."+end+" 5 IN AAAA fd00::61"; got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	a = zone().Answer(cell(), dns.Question{Name: end, Type: mdns.TypeNS})
	if got, want := lines(a.Extra), "ns."+end+" 5 IN A 10.1.0.1"; got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestHas(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]bool{
		"local.muster.internal.": true, "LOCAL.Muster.internal.": true, "a.b.local.muster.internal.": true,
		"muster.internal.": false, "nonlocal.muster.internal.": false, "other.muster.internal.": false, ".": false,
		`a\.local.muster.internal.`: false, `a\.b.local.muster.internal.`: true, "local.muster.internal.example.": false,
	} {
		if got := zone().Has(name); got != want {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
}

// TestMany is about a job with more tasks than an answer has: each task is in some.
func TestMany(t *testing.T) {
	t.Parallel()
	s := cell()
	for _, stream := range []bool{false, true} {
		counts, firsts := map[string]int{}, map[string]int{}
		const rounds = 4000
		for seed := range uint64(rounds) {
			a := zone().Answer(s, dns.Question{Name: "many.ann.local.muster.internal.", Type: mdns.TypeA, Seed: seed, Stream: stream})
			if want := map[bool]int{false: 16, true: 200}[stream]; len(a.Answer) != want {
				t.Fatalf("%d addresses, want %d", len(a.Answer), want)
			}
			seen := map[string]bool{}
			for i, rr := range a.Answer {
				ip := rr.(*mdns.A).A.String()
				if seen[ip] {
					t.Fatalf("%s twice", ip)
				}
				seen[ip] = true
				counts[ip]++
				if i == 0 {
					firsts[ip]++
				}
			}
			if stream && seed == 500 {
				break
			}
		}
		if len(counts) != 200 || len(firsts) < 150 {
			t.Errorf("%d tasks in the answers, %d at the first place; want 200 and nearly all", len(counts), len(firsts))
		}
		for ip, n := range counts {
			if mean := rounds * 16 / 200; !stream && (n < mean/2 || n > 2*mean) {
				t.Errorf("%s is in %d answers; %d on average", ip, n, mean)
			}
		}
	}
}

func TestPointer(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"10.0.1.10.in-addr.arpa.": "10.0.1.10.in-addr.arpa. 5 IN PTR 0.web.ann.local.muster.internal.",
		"10.0.1.10.IN-ADDR.ARPA.": "10.0.1.10.IN-ADDR.ARPA. 5 IN PTR 0.web.ann.local.muster.internal.",
		"2.1.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.d.f.ip6.arpa.": "2.1.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.d.f.ip6.arpa. 5 IN PTR 2.web.ann.local.muster.internal.",
		"1.6.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.d.f.ip6.arpa.": "1.6.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.d.f.ip6.arpa. 5 IN PTR 1.dual.ann.local.muster.internal.",
		"99.0.2.10.in-addr.arpa.": "", "0.1.10.in-addr.arpa.": "", "in-addr.arpa.": "", "010.0.1.10.in-addr.arpa.": "",
		"fd00::12.in-addr.arpa.": "", "x.ip6.arpa.": "", `1\.0.0.1.10.in-addr.arpa.`: "", "1.2.0.192.in-addr.arpa.": "",
	} {
		a, ok := zone().Pointer(cell(), name)
		if got := lines(a.Answer); got != want || ok != (want != "") {
			t.Errorf("%s: %v %s, want %s", name, ok, got, want)
		}
	}
}

// TestNoPointer is about addresses of the cell that no task has: nobody else is asked for them.
func TestNoPointer(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"99.0.1.10.in-addr.arpa.": "1.10.in-addr.arpa.", "1.0.16.172.in-addr.arpa.": "0.16.172.in-addr.arpa.",
		"9.9.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.D.F.ip6.arpa.": "0.0.0.0.0.0.0.0.0.0.0.0.0.D.F.ip6.arpa.",
	} {
		a, ok := zone().Pointer(cell(), name)
		if !ok || a.Code != mdns.RcodeNameError || len(a.Ns) != 1 || a.Ns[0].Header().Name != want {
			t.Errorf("%s: %+v, want that it is not in %s", name, a, want)
		}
	}
}

// TestNothingKnown is about an agent that no master has said anything to.
func TestNothingKnown(t *testing.T) {
	t.Parallel()
	r := new(mdns.Msg)
	r.SetQuestion("web.ann.local.muster.internal.", mdns.TypeA)
	if m, ok := dns.Reply(zone(), naming.New().Snapshot(), r, dns.Question{}); !ok || m.Rcode != mdns.RcodeServerFailure {
		t.Errorf("%v, want SERVFAIL", m)
	}
}

// FuzzReply has messages that nobody else checks before.
func FuzzReply(f *testing.F) {
	for _, name := range []string{
		"0.web.ann.local.muster.internal.", "_http._tcp.many.ann.local.muster.internal.", "front.ann.svc.local.muster.internal.",
		"local.muster.internal.", `a\.\000.ann.local.muster.internal.`, "10.0.1.10.in-addr.arpa.", "example.org.",
	} {
		for _, kind := range []uint16{mdns.TypeA, mdns.TypeSRV, mdns.TypePTR, mdns.TypeANY, mdns.TypeAXFR} {
			r := new(mdns.Msg)
			r.SetQuestion(name, kind)
			r.SetEdns0(uint16(len(name)), true)
			b, err := r.Pack()
			if err != nil {
				f.Fatal(err)
			}
			f.Add(b, uint64(1), false)
		}
	}
	s, z := cell(), zone()
	f.Fuzz(func(t *testing.T, b []byte, seed uint64, stream bool) {
		r := new(mdns.Msg)
		if r.Unpack(b) != nil {
			return
		}
		m, ok := dns.Reply(z, s, r, dns.Question{Seed: seed, Stream: stream})
		if !ok {
			return
		}
		dns.Fit(m, r, stream)
		out, err := m.Pack()
		if err != nil {
			t.Fatalf("%v\nfor %v", err, r)
		}
		most := 65535
		if opt := r.IsEdns0(); !stream {
			if most = 512; opt != nil {
				most = min(max(512, int(opt.UDPSize())), 1232)
			}
		}
		if len(out) > most {
			t.Fatalf("%d bytes of at most %d", len(out), most)
		}
		var back mdns.Msg
		if err := back.Unpack(out); err != nil {
			t.Fatalf("%v\nof %v", err, m)
		}
		if !back.Response || back.Id != r.Id {
			t.Fatalf("it is no reply: %v", back)
		}
	})
}

// TestFit is about replies that are longer than the client takes.
func TestFit(t *testing.T) {
	t.Parallel()
	s, z := cell(), zone()
	for _, test := range []struct {
		kind      uint16
		size      uint16 // that the client takes; 0: no EDNS0
		stream    bool
		truncated bool
		least     int // records
		extra     bool
	}{
		{mdns.TypeSRV, 0, false, true, 5, false},
		{mdns.TypeSRV, 100, false, true, 5, false},
		{mdns.TypeSRV, 1232, false, true, 16, true},  // as many as fit, of 200
		{mdns.TypeSRV, 65535, false, true, 16, true}, // never more than 1232
		{mdns.TypeSRV, 0, true, false, 200, true},
	} {
		r := new(mdns.Msg)
		r.SetQuestion("_http._tcp.many.ann.local.muster.internal.", test.kind)
		if test.size > 0 {
			r.SetEdns0(test.size, false)
		}
		m, _ := dns.Reply(z, s, r, dns.Question{Stream: test.stream})
		dns.Fit(m, r, test.stream)
		if (m.IsEdns0() != nil) != (test.size > 0) {
			t.Errorf("%+v: EDNS0 %v", test, m.IsEdns0())
		}
		extra := len(m.Extra)
		if test.size > 0 {
			extra--
		}
		if m.Truncated != test.truncated || len(m.Answer) < test.least || (extra > 0) != test.extra {
			t.Errorf("%+v: truncated %v, %d records, %d more", test, m.Truncated, len(m.Answer), extra)
		}
	}
}
