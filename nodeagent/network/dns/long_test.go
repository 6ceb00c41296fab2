package dns_test

import (
	"net/netip"
	"strings"
	"testing"

	mdns "github.com/miekg/dns"

	"github.com/musterhq/muster/nodeagent/naming"
	"github.com/musterhq/muster/nodeagent/network/dns"
	"github.com/musterhq/muster/schema"
)

// TestLongNames: names that are longer than those of DNS can be are left out of answers, and others are answered.
func TestLongNames(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("a", 63)
	domain := strings.Repeat("d", 49) + "." + strings.Repeat("e", 50)
	at := netip.MustParseAddr("10.1.0.10")
	d := naming.New()
	for _, user := range []string{long, "ann"} {
		d.Apply(schema.DirectoryChange{Set: []schema.DirectoryEntry{
			{Cell: &schema.DirectoryCell{Name: long, Network: schema.CellNetwork{Domain: domain, Range: netip.MustParsePrefix("10.1.0.0/16")}}},
			{Machine: &schema.DirectoryMachine{Name: "m1", Subnets: []netip.Prefix{netip.MustParsePrefix("10.1.0.0/24")}}},
			{Tasks: &schema.DirectoryTasks{User: user, Job: long, Labels: map[string]string{"app": "a"}, Tasks: []schema.DirectoryTask{{Index: 0, Machine: "m1", Address: at, Ports: ports, Ready: true}}}},
			{Service: &schema.DirectoryService{ServiceSpec: schema.ServiceSpec{User: user, Name: "s", Selector: "app=a", Ports: map[string]schema.ServicePort{"http": {Port: 80}}}}},
		}})
		z := dns.NewZone(long, domain, nil)
		end := user + ".svc." + long + "." + domain + "."
		fit, pointed := 1, mdns.RcodeSuccess // names of user ann do
		if user == long {
			fit, pointed = 0, mdns.RcodeNameError
		}
		for _, q := range []struct {
			name       string
			kind       uint16
			want, code int
		}{
			{"s." + end, mdns.TypeA, 1, mdns.RcodeSuccess},
			{"_http._tcp.s." + end, mdns.TypeSRV, fit, mdns.RcodeSuccess},
			{"10.0.1.10.in-addr.arpa.", mdns.TypePTR, fit, pointed},
		} {
			if _, ok := mdns.IsDomainName(q.name); !ok {
				t.Fatalf("%s cannot be asked for", q.name)
			}
			r := new(mdns.Msg)
			r.SetQuestion(q.name, q.kind)
			m, ok := dns.Reply(z, d.Snapshot(), r, dns.Question{})
			if !ok {
				t.Fatalf("%s: no reply", q.name)
			}
			if m.Rcode != q.code || len(m.Answer) != q.want {
				t.Errorf("%s: want %d answers\n%v", q.name, q.want, m)
			}
			for _, rr := range append(m.Answer, m.Extra...) {
				for _, name := range strings.Fields(rr.String()) {
					if len(name) > 254 {
						t.Errorf("%s: there is no name of %d bytes: %s", q.name, len(name), name)
					}
				}
			}
		}
	}
}
