package dns

import (
	"net"
	"net/netip"
	"sync"
)

// limit bounds how much is done at once: for all clients, and for each, so that one
// leaves room for the others.
type limit struct {
	all, each int

	mu sync.Mutex // guards what follows
	n  int
	by map[netip.Addr]int
}

func newLimit(all, each int) *limit { return &limit{all: all, each: each, by: map[netip.Addr]int{}} }

// take reports whether there is room for one more of a client; give is called when it ends.
func (l *limit) take(client netip.Addr) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.n >= l.all || l.by[client] >= l.each {
		return false
	}
	l.n++
	l.by[client]++
	return true
}

func (l *limit) give(client netip.Addr) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.n--
	if l.by[client]--; l.by[client] == 0 {
		delete(l.by, client)
	}
}

// limited is a listener whose connections are counted. Those above the limit, and those that
// may not ask, are closed.
type limited struct {
	net.Listener
	limit   *limit
	allowed func(client, server netip.Addr) bool
}

// Accept returns the next connection.
func (l *limited) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		from := addrOf(c.RemoteAddr())
		if l.allowed(from, addrOf(c.LocalAddr())) && l.limit.take(from) {
			return &counted{Conn: c, end: sync.OnceFunc(func() { l.limit.give(from) })}, nil
		}
		_ = c.Close() // it was not used
	}
}

// counted is a connection that is given back with its end.
type counted struct {
	net.Conn
	end func()
}

// Close closes the connection.
func (c *counted) Close() error {
	c.end()
	return c.Conn.Close()
}

// addrOf returns the IP address of a TCP or UDP address.
func addrOf(a net.Addr) netip.Addr {
	switch a := a.(type) {
	case *net.TCPAddr:
		return a.AddrPort().Addr().Unmap()
	case *net.UDPAddr:
		return a.AddrPort().Addr().Unmap()
	}
	return netip.Addr{}
}
