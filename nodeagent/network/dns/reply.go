package dns

import (
	"github.com/miekg/dns"

	"github.com/musterhq/muster/nodeagent/naming"
)

const (
	// largestPacket is the largest message over UDP, in bytes, whatever a client could take: it passes all
	// networks in one piece (DNS flag day 2020).
	largestPacket = 1232
	largestStream = dns.MaxMsgSize - 1
)

// Reply answers a request as far as it is about the zone, about addresses of tasks, or no question at all. It is
// a function of its arguments. False means that the answer is elsewhere. Fit is to be
// called with each reply before it is sent.
func Reply(z *Zone, s *naming.Snapshot, r *dns.Msg, how Question) (*dns.Msg, bool) {
	if r.Opcode != dns.OpcodeQuery {
		return code(r, dns.RcodeNotImplemented), true
	}
	if len(r.Question) != 1 {
		return code(r, dns.RcodeFormatError), true
	}
	if opt := r.IsEdns0(); opt != nil && opt.Version() != 0 {
		return code(r, dns.RcodeBadVers), true
	}
	q := r.Question[0]
	switch {
	case q.Qclass != dns.ClassINET && q.Qclass != dns.ClassANY,
		q.Qtype == dns.TypeAXFR, q.Qtype == dns.TypeIXFR:
		return code(r, dns.RcodeRefused), true
	case z.Has(q.Name) && s.Empty(): // a name that is not known yet is no name that is not there
		return code(r, dns.RcodeServerFailure), true
	case z.Has(q.Name):
		if q.Qtype == dns.TypeANY { // RFC 8482
			return message(r, Answer{Answer: []dns.RR{&dns.HINFO{Hdr: header(q.Name, dns.TypeHINFO, positiveTTL), Cpu: "RFC8482"}}}), true
		}
		how.Name, how.Type = q.Name, q.Qtype
		return message(r, z.Answer(s, how)), true
	case q.Qtype == dns.TypePTR:
		if a, ok := z.Pointer(s, q.Name); ok {
			return message(r, a), true
		}
	}
	return nil, false
}

// code returns a reply without records.
func code(r *dns.Msg, code int) *dns.Msg {
	m := new(dns.Msg)
	m.SetRcode(r, code)
	return m
}

// message returns a reply that is an answer of the zone.
func message(r *dns.Msg, a Answer) *dns.Msg {
	m := code(r, a.Code)
	m.Authoritative, m.RecursionAvailable, m.Truncated = true, true, a.Truncated
	m.Answer, m.Ns, m.Extra = a.Answer, a.Ns, a.Extra
	return m
}

// Fit makes a reply as large as the client takes: additional records are left out if they have no room, and of
// others as many as must, which the reply then says (TC). A reply with EDNS0 is for a request with it.
func Fit(m, r *dns.Msg, stream bool) {
	size := largestStream
	opt := r.IsEdns0()
	if !stream {
		size = dns.MinMsgSize
		if opt != nil {
			size = min(max(int(opt.UDPSize()), dns.MinMsgSize), largestPacket)
		}
	}
	if opt != nil {
		is := &dns.OPT{Hdr: dns.RR_Header{Name: ".", Rrtype: dns.TypeOPT}}
		is.SetUDPSize(largestPacket)
		if opt.Do() {
			is.SetDo()
		}
		m.Extra = append(m.Extra, is)
	}
	if m.Len() <= dns.MinMsgSize { // to compress is most of the work
		return
	}
	if m.Compress = true; m.Len() <= size {
		return
	}
	if opt != nil {
		m.Extra = m.Extra[len(m.Extra)-1:]
	} else {
		m.Extra = nil
	}
	m.Truncate(size)
}
