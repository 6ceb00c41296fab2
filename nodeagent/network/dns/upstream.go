package dns

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/miekg/dns"
	"golang.org/x/sync/singleflight"
)

const (
	// tryTimeout is how long one upstream server is waited for, and askTimeout all of them
	// together: less than the 5 s after which clients ask again.
	tryTimeout = 1200 * time.Millisecond
	askTimeout = 4500 * time.Millisecond
	// rounds is how often each is asked.
	rounds = 2
	// shunTime is for how long a server that did not answer is asked after the others.
	shunTime = 10 * time.Second
)

var errNoUpstream = errors.New("there is no upstream server")

// upstream asks other servers, and keeps what they answer.
type upstream struct {
	servers func() []netip.AddrPort
	now     func() time.Time
	cache   *cache
	metrics *metrics
	flight  singleflight.Group

	mu     sync.Mutex // guards failed
	failed map[netip.AddrPort]time.Time
}

func newUpstream(servers func() []netip.AddrPort, now func() time.Time, m *metrics) *upstream {
	return &upstream{servers: servers, now: now, cache: newCache(), metrics: m, failed: map[netip.AddrPort]time.Time{}}
}

// cached returns the reply to a request if the answer is known.
func (u *upstream) cached(r *dns.Msg) (*dns.Msg, bool) {
	m, ok := u.cache.get(keyOf(r), u.now())
	if !ok {
		return nil, false
	}
	return answerTo(r, m), true
}

// ask returns the reply to a request: SERVFAIL if no server answers in time. Requests for the same at
// one time are one.
func (u *upstream) ask(ctx context.Context, r *dns.Msg) *dns.Msg {
	key := keyOf(r)
	id := strings.Join([]string{key.name, dns.Type(key.kind).String(), dns.Class(key.class).String(), flag(key.do), flag(key.cd)}, " ")
	is, _, _ := u.flight.Do(id, func() (any, error) {
		bounded, cancel := context.WithTimeout(ctx, askTimeout)
		defer cancel()
		m, err := u.exchange(bounded, key)
		if err != nil {
			u.metrics.failures.Inc()
			m = &dns.Msg{MsgHdr: dns.MsgHdr{Rcode: dns.RcodeServerFailure}}
		}
		u.cache.put(key, m, u.now())
		u.metrics.cached.Set(float64(u.cache.len()))
		return m, nil
	})
	return answerTo(r, is.(*dns.Msg).Copy())
}

func flag(b bool) string {
	if b {
		return "1"
	}
	return "0"
}

// exchange asks one server after the other.
func (u *upstream) exchange(ctx context.Context, key cacheKey) (*dns.Msg, error) {
	servers := u.order()
	err := errNoUpstream
	failed := false
	for range rounds {
		for _, server := range servers {
			var m *dns.Msg
			begin := u.now()
			m, err = try(ctx, server, key)
			u.metrics.seconds.Observe(u.now().Sub(begin).Seconds())
			switch {
			case ctx.Err() != nil && err != nil:
				u.fail(server)
				return nil, err
			case err != nil:
				u.fail(server)
			case m.Rcode == dns.RcodeServerFailure || m.Rcode == dns.RcodeRefused || m.Rcode == dns.RcodeNotImplemented:
				failed = true // another may know better
			default:
				u.works(server)
				return m, nil
			}
		}
		if failed {
			return &dns.Msg{MsgHdr: dns.MsgHdr{Rcode: dns.RcodeServerFailure}}, nil
		}
	}
	return nil, err
}

// try asks one server, over TCP if the answer is too long for a packet.
func try(ctx context.Context, server netip.AddrPort, key cacheKey) (*dns.Msg, error) {
	ctx, cancel := context.WithTimeout(ctx, tryTimeout)
	defer cancel()
	r := new(dns.Msg)
	r.Id, r.RecursionDesired, r.CheckingDisabled = dns.Id(), true, key.cd
	r.Question = []dns.Question{{Name: key.name, Qtype: key.kind, Qclass: key.class}}
	r.SetEdns0(largestPacket, key.do)
	for _, network := range []string{"udp", "tcp"} {
		client := dns.Client{Net: network, Timeout: tryTimeout, UDPSize: largestPacket}
		m, _, err := client.ExchangeContext(ctx, r, server.String())
		switch {
		case err != nil:
			return nil, err
		case !m.Response || len(m.Question) != 1 || !strings.EqualFold(m.Question[0].Name, key.name) || m.Question[0].Qtype != key.kind || m.Question[0].Qclass != key.class:
			return nil, errors.New("the answer is to another question")
		case !m.Truncated:
			return m, nil
		}
	}
	return nil, errors.New("the answer is truncated, over TCP too")
}

// order returns the servers: those that failed lately last.
func (u *upstream) order() []netip.AddrPort {
	servers := slices.Clone(u.servers())
	now := u.now()
	u.mu.Lock()
	defer u.mu.Unlock()
	for s, at := range u.failed {
		if now.Sub(at) >= shunTime {
			delete(u.failed, s)
		}
	}
	slices.SortStableFunc(servers, func(a, b netip.AddrPort) int {
		return u.failed[a].Compare(u.failed[b]) // zero of those that did not
	})
	return servers
}

func (u *upstream) fail(s netip.AddrPort) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.failed[s] = u.now()
}

func (u *upstream) works(s netip.AddrPort) {
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.failed, s)
}

// answerTo makes m, which nobody else has, the reply to r. The name in it is as the client has typed it.
func answerTo(r, m *dns.Msg) *dns.Msg {
	reply := code(r, m.Rcode)
	reply.RecursionAvailable, reply.AuthenticatedData = true, m.AuthenticatedData
	typed := r.Question[0].Name
	for _, rr := range m.Answer {
		if h := rr.Header(); strings.EqualFold(h.Name, typed) {
			h.Name = typed
		}
	}
	reply.Answer, reply.Ns = m.Answer, m.Ns
	reply.Extra = slices.DeleteFunc(m.Extra, func(rr dns.RR) bool { return rr.Header().Rrtype == dns.TypeOPT })
	return reply
}
