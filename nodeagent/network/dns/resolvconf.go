package dns

import (
	"net/netip"
	"sync"
	"time"

	"github.com/miekg/dns"
)

// rereadEvery is how often a resolv.conf is looked at.
const rereadEvery = 30 * time.Second

// ResolvConf is the name servers of a file such as /etc/resolv.conf, which may change.
type ResolvConf struct {
	path string
	now  func() time.Time

	mu      sync.Mutex // guards what follows
	read    time.Time
	servers []netip.AddrPort
}

// NewResolvConf returns those of a file.
func NewResolvConf(path string, now func() time.Time) *ResolvConf {
	return &ResolvConf{path: path, now: now}
}

// Servers returns the name servers that the file has, in its order; none if it cannot be read. It is safe for
// concurrent use, and the list must not be changed.
func (r *ResolvConf) Servers() []netip.AddrPort {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.now()
	if !r.read.IsZero() && now.Sub(r.read) < rereadEvery {
		return r.servers
	}
	r.read, r.servers = now, nil
	c, err := dns.ClientConfigFromFile(r.path)
	if err != nil {
		return nil
	}
	for _, s := range c.Servers {
		if a, err := netip.ParseAddr(s); err == nil {
			r.servers = append(r.servers, netip.AddrPortFrom(a, Port))
		}
	}
	return r.servers
}
