package dns

import (
	"container/list"
	"strings"
	"sync"
	"time"

	"github.com/miekg/dns"
)

const (
	// mostCached is how many answers of upstream servers are kept, and largestCached how
	// large each may be, in bytes: 40 MiB, if all are.
	mostCached    = 10_000
	largestCached = 4096
	// longestTTL and longestNegativeTTL bound for how long they are kept, whatever they say.
	longestTTL         = time.Hour
	longestNegativeTTL = 5 * time.Minute
	// failureTTL is for how long it is kept that no upstream server has answered.
	failureTTL = time.Second
)

// cacheKey is what an answer depends on.
type cacheKey struct {
	name        string // lower case
	kind, class uint16
	do, cd      bool // with signatures, and unchecked ones
}

func keyOf(r *dns.Msg) cacheKey {
	q := r.Question[0]
	opt := r.IsEdns0()
	return cacheKey{strings.ToLower(q.Name), q.Qtype, q.Qclass, opt != nil && opt.Do(), r.CheckingDisabled}
}

// cache keeps answers, and drops those that were not used for the longest time.
type cache struct {
	mu      sync.Mutex // guards all
	entries map[cacheKey]*list.Element
	recent  *list.List // of *cached, the last used first
}

// cached is an answer as it was packed.
type cached struct {
	key       cacheKey
	message   []byte
	from, end time.Time
}

func newCache() *cache {
	return &cache{entries: map[cacheKey]*list.Element{}, recent: list.New()}
}

// get returns an answer, with what is left of its TTLs.
func (c *cache) get(key cacheKey, now time.Time) (*dns.Msg, bool) {
	c.mu.Lock()
	e, ok := c.entries[key]
	if !ok {
		c.mu.Unlock()
		return nil, false
	}
	is := e.Value.(*cached)
	if !now.Before(is.end) {
		c.drop(e)
		c.mu.Unlock()
		return nil, false
	}
	c.recent.MoveToFront(e)
	c.mu.Unlock()
	m := new(dns.Msg)
	if m.Unpack(is.message) != nil {
		return nil, false
	}
	age := uint32(max(0, now.Sub(is.from)) / time.Second)
	for _, records := range [][]dns.RR{m.Answer, m.Ns, m.Extra} {
		for _, rr := range records {
			if h := rr.Header(); h.Rrtype != dns.TypeOPT {
				h.Ttl -= min(h.Ttl, age)
			}
		}
	}
	return m, true
}

// put keeps an answer for as long as it says.
func (c *cache) put(key cacheKey, m *dns.Msg, now time.Time) {
	ttl := ttlOf(m)
	if ttl <= 0 {
		return
	}
	b, err := m.Pack()
	if err != nil || len(b) > largestCached {
		return
	}
	is := &cached{key, b, now, now.Add(ttl)}
	c.mu.Lock()
	defer c.mu.Unlock()
	if e, ok := c.entries[key]; ok {
		c.drop(e)
	}
	c.entries[key] = c.recent.PushFront(is)
	if c.recent.Len() > mostCached {
		c.drop(c.recent.Back())
	}
}

// drop is called with the lock held.
func (c *cache) drop(e *list.Element) {
	delete(c.entries, e.Value.(*cached).key)
	c.recent.Remove(e)
}

func (c *cache) len() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.recent.Len()
}

// ttlOf returns for how long an answer may be kept; 0 if not at all.
func ttlOf(m *dns.Msg) time.Duration {
	if m.Truncated {
		return 0
	}
	negative := m.Rcode == dns.RcodeNameError || len(m.Answer) == 0
	switch {
	case m.Rcode == dns.RcodeServerFailure:
		return failureTTL
	case m.Rcode != dns.RcodeSuccess && m.Rcode != dns.RcodeNameError:
		return 0
	}
	least, soa := longestTTL, false
	if negative {
		least = longestNegativeTTL
	}
	for _, records := range [][]dns.RR{m.Answer, m.Ns, m.Extra} {
		for _, rr := range records {
			ttl := rr.Header().Ttl
			switch rr := rr.(type) {
			case *dns.OPT:
				continue
			case *dns.SOA:
				soa = true
				if negative {
					ttl = min(ttl, rr.Minttl) // RFC 2308
				}
			}
			least = min(least, time.Duration(ttl)*time.Second)
		}
	}
	if negative && !soa {
		return 0
	}
	return least
}
