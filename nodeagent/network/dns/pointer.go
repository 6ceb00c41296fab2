package dns

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/miekg/dns"

	"github.com/musterhq/muster/nodeagent/naming"
)

// Pointer answers which task has an address, of a name below in-addr.arpa or ip6.arpa. It is false
// of what is no address of the cell's ranges or of a task: others may know of it.
func (z *Zone) Pointer(s *naming.Snapshot, name string) (Answer, bool) {
	ip, ok := reversed(name)
	if !ok {
		return Answer{}, false
	}
	if job, index, ok := s.TaskAt(ip); ok {
		task := strconv.Itoa(index) + "." + job.Name + "." + job.User + "." + z.apex
		if len(task) <= longest {
			return Answer{Answer: []dns.RR{&dns.PTR{Hdr: header(name, dns.TypePTR, positiveTTL), Ptr: task}}}, true
		}
	}
	for _, p := range rangesOf(s) {
		if !p.Contains(ip) {
			continue
		}
		labels := p.Bits()/8 + 2 // in-addr.arpa, and the octets that all have
		if ip.Is6() {
			labels = p.Bits()/4 + 2
		}
		all := strings.Split(name, ".") // the last one is empty
		apex := strings.Join(all[len(all)-1-labels:], ".")
		return Answer{Code: dns.RcodeNameError, Ns: []dns.RR{z.soa(apex, z.apex, negativeTTL)}}, true
	}
	return Answer{}, false
}

// rangesOf returns the ranges of a cell's tasks and services.
func rangesOf(s *naming.Snapshot) []netip.Prefix {
	c := s.Cell()
	if c == nil {
		return nil
	}
	return []netip.Prefix{c.Network.Range, c.Network.Range6, c.Network.Services, c.Network.Services6}
}

// reversed returns the address that a name below in-addr.arpa or ip6.arpa stands for.
func reversed(name string) (netip.Addr, bool) {
	name = strings.ToLower(name)
	if rest, ok := strings.CutSuffix(name, ".in-addr.arpa."); ok {
		labels := strings.Split(rest, ".")
		slices.Reverse(labels)
		ip, err := netip.ParseAddr(strings.Join(labels, "."))
		return ip, err == nil && ip.Is4()
	}
	rest, ok := strings.CutSuffix(name, ".ip6.arpa.")
	if !ok || len(rest) != 63 {
		return netip.Addr{}, false
	}
	var text strings.Builder
	for i := len(rest) - 1; i >= 0; i-- {
		if i%2 == 1 {
			if rest[i] != '.' {
				return netip.Addr{}, false
			}
			continue
		}
		text.WriteByte(rest[i])
		if i%8 == 0 && i > 0 {
			text.WriteByte(':')
		}
	}
	ip, err := netip.ParseAddr(text.String())
	return ip, err == nil && ip.Is6()
}
