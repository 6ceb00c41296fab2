package dns

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/miekg/dns"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/net/ipv4"
	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/nodeagent/naming"
)

// Port is the port of DNS.
const Port = 53

const (
	// What is done at once, for all clients and for each: queries that wait for upstream servers,
	// and TCP connections.
	mostAsking, mostAskingEach           = 512, 64
	mostConnections, mostConnectionsEach = 256, 16
	// batch is how many packets one system call reads or writes.
	batch = 32
	// idleTimeout is how long a TCP connection is kept without a query.
	idleTimeout = 8 * time.Second
)

// Config is what a server needs.
type Config struct {
	// Cell and Machine are the names of both. The domain comes with the snapshot.
	Cell, Machine string
	// Self are the addresses at which others reach this server, for its own name.
	Self []netip.Addr
	// Snapshot returns what is known now. It is called with each query.
	Snapshot func() *naming.Snapshot
	// Allowed are clients that are answered, beside this machine and the cell's tasks.
	Allowed []netip.Prefix
	// Upstreams returns the servers for all other names, in their order; those at which this
	// server listens are left out. It is called often.
	Upstreams func() []netip.AddrPort
	Metrics   prometheus.Registerer
	Now       func() time.Time
}

// Server answers DNS queries over UDP and TCP. Its methods are safe for concurrent use.
type Server struct {
	cfg         Config
	zone        atomic.Pointer[Zone]
	upstream    *upstream
	metrics     *metrics
	asking      *limit
	connections *limit

	mu        sync.Mutex // guards listening
	listening []netip.AddrPort
}

// NewServer returns a server that listens nowhere yet.
func NewServer(cfg Config) (*Server, error) {
	s := &Server{cfg: cfg, asking: newLimit(mostAsking, mostAskingEach), connections: newLimit(mostConnections, mostConnectionsEach)}
	var err error
	if s.metrics, err = newMetrics(cfg.Metrics); err != nil {
		return nil, err
	}
	s.upstream = newUpstream(s.others, cfg.Now, s.metrics)
	return s, nil
}

// zoneOf returns the zone of a snapshot's cell.
func (s *Server) zoneOf(is *naming.Snapshot) *Zone {
	domain := ""
	if c := is.Cell(); c != nil {
		domain = c.Network.Domain
	}
	z := s.zone.Load()
	if z == nil || z.domain != domain {
		z = NewZone(s.cfg.Cell, domain, s.cfg.Self)
		s.zone.Store(z)
	}
	return z
}

// others returns the upstream servers without this one.
func (s *Server) others() []netip.AddrPort {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(s.cfg.Upstreams()), func(a netip.AddrPort) bool { return slices.Contains(s.listening, a) })
}

// Socket is an address at which the server listens.
type Socket struct {
	packets  *net.UDPConn
	listener net.Listener
	address  netip.AddrPort
	waiting  sync.WaitGroup // for the reader, and for replies that wait for upstream servers
}

// Address returns the address, with the port that was chosen if it was 0.
func (k *Socket) Address() netip.AddrPort { return k.address }

// Close closes a socket that is not served.
func (k *Socket) Close() error {
	err := k.listener.Close()
	if k.packets != nil {
		err = errors.Join(err, k.packets.Close())
	}
	return err
}

// Listen opens an address, for UDP and TCP. It must be one address: replies from a socket for all
// would not always have the address that was asked. The machine need not have it yet.
func Listen(ctx context.Context, at netip.AddrPort) (*Socket, error) {
	if !at.Addr().IsValid() || at.Addr().IsUnspecified() || at.Addr().IsMulticast() {
		return nil, fmt.Errorf("listen for DNS at %s: want the address of one machine", at)
	}
	config := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) error {
		var failed error
		err := raw.Control(func(fd uintptr) { failed = unix.SetsockoptInt(int(fd), unix.SOL_IP, unix.IP_FREEBIND, 1) })
		return errors.Join(err, failed)
	}}
	listener, err := config.Listen(ctx, "tcp", at.String())
	if err != nil {
		return nil, fmt.Errorf("listen for DNS: %w", err)
	}
	k := &Socket{listener: listener, address: netip.AddrPortFrom(at.Addr(), listener.Addr().(*net.TCPAddr).AddrPort().Port())}
	conn, err := config.ListenPacket(ctx, "udp", k.address.String())
	if err != nil {
		return nil, errors.Join(fmt.Errorf("listen for DNS: %w", err), k.Close())
	}
	k.packets = conn.(*net.UDPConn)
	return k, nil
}

// Serve answers queries at a socket until ctx ends. It closes the socket. Several may be served at
// one time.
func (s *Server) Serve(ctx context.Context, k *Socket) error {
	s.mu.Lock()
	s.listening = append(s.listening, k.address)
	s.mu.Unlock()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	tcp := &dns.Server{
		Listener:    &limited{k.listener, s.connections, func(client, server netip.Addr) bool { return s.allowed(s.cfg.Snapshot(), client, server) }},
		Handler:     dns.HandlerFunc(func(w dns.ResponseWriter, r *dns.Msg) { s.serveStream(ctx, w, r) }),
		IdleTimeout: func() time.Duration { return idleTimeout },
	}
	k.waiting.Go(func() { s.servePackets(ctx, k) })
	ended := make(chan error, 1)
	go func() { ended <- tcp.ActivateAndServe() }()
	var err error
	select {
	case <-ctx.Done():
		_ = tcp.Shutdown() // as below
		_ = k.Close()
		_ = <-ended // that it was closed
	case err = <-ended:
		err = fmt.Errorf("serve DNS at %s: %w", k.address, err)
		_ = k.Close()
	}
	cancel()
	k.waiting.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := slices.Index(s.listening, k.address); i >= 0 {
		s.listening = slices.Delete(s.listening, i, i+1)
	}
	return err
}

// servePackets answers what comes to a UDP socket until it is closed. One goroutine reads and answers: what is known takes
// some microseconds, and system calls, which are most of it, are for several packets.
func (s *Server) servePackets(ctx context.Context, k *Socket) {
	c := ipv4.NewPacketConn(k.packets) // as good for IPv6: it only reads and writes
	in, out := make([]ipv4.Message, batch), make([]ipv4.Message, 0, batch)
	buffers := make([][]byte, batch) // for replies
	for i := range in {
		in[i].Buffers = [][]byte{make([]byte, dns.DefaultMsgSize)}
		buffers[i] = make([]byte, largestPacket)
	}
	for {
		n, err := c.ReadBatch(in, 0)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // an earlier reply was refused, as ICMP said
			continue
		}
		out = out[:0]
		for i := range in[:n] {
			m := &in[i]
			if reply := s.packet(ctx, k, m.Buffers[0][:m.N], m.Addr, buffers[i]); reply != nil {
				out = append(out, ipv4.Message{Buffers: [][]byte{reply}, Addr: m.Addr})
			}
		}
		for rest := out; len(rest) > 0; {
			n, err := c.WriteBatch(rest, 0)
			if err != nil {
				n = 1 // lost, and asked for again
			}
			rest = rest[max(n, 1):]
		}
	}
}

// packet returns the reply to a packet, in a buffer if it has room; nil if there is none, or if it comes later.
func (s *Server) packet(ctx context.Context, k *Socket, data []byte, from net.Addr, buffer []byte) []byte {
	const header, response = 12, 0x80
	if len(data) < header || data[2]&response != 0 {
		s.metrics.dropped.Inc()
		return nil
	}
	r := new(dns.Msg)
	if err := r.Unpack(data); err != nil {
		r.Question, r.Answer, r.Ns, r.Extra = nil, nil, nil, nil
		return s.pack(code(r, dns.RcodeFormatError), r, fromNowhere, buffer)
	}
	m, source, wait := s.reply(r, false, addrOf(from), k.address.Addr().Unmap())
	if wait == nil {
		return s.pack(m, r, source, buffer)
	}
	k.waiting.Go(func() {
		if reply := s.pack(wait(ctx), r, fromUpstream, nil); reply != nil {
			_, _ = k.packets.WriteTo(reply, from) // a lost reply is asked for again
		}
	})
	return nil
}

// pack returns a reply as it is sent over UDP.
func (s *Server) pack(m, r *dns.Msg, from source, out []byte) []byte {
	Fit(m, r, false)
	b, err := m.PackBuffer(out)
	if err != nil {
		m = code(r, dns.RcodeServerFailure)
		if b, err = m.PackBuffer(out); err != nil {
			s.metrics.dropped.Inc()
			return nil
		}
	}
	s.metrics.count(from, m.Rcode)
	return b
}

// serveStream answers a query that came over TCP.
func (s *Server) serveStream(ctx context.Context, w dns.ResponseWriter, r *dns.Msg) {
	m, from, wait := s.reply(r, true, addrOf(w.RemoteAddr()), addrOf(w.LocalAddr()))
	if wait != nil {
		m, from = wait(ctx), fromUpstream
	}
	Fit(m, r, true)
	s.metrics.count(from, m.Rcode)
	_ = w.WriteMsg(m) // a client that has gone needs none
}

// reply returns the reply to a request, or, if upstream servers are to be asked, what waits for them.
func (s *Server) reply(r *dns.Msg, stream bool, client, server netip.Addr) (*dns.Msg, source, func(context.Context) *dns.Msg) {
	is := s.cfg.Snapshot()
	if !s.allowed(is, client, server) {
		return code(r, dns.RcodeRefused), fromNowhere, nil
	}
	how := Question{Seed: rand.Uint64(), Stream: stream}
	if m, ok := Reply(s.zoneOf(is), is, r, how); ok {
		if !m.Authoritative {
			return m, fromNowhere, nil
		}
		return m, fromCell, nil
	}
	if !r.RecursionDesired {
		return code(r, dns.RcodeRefused), fromNowhere, nil
	}
	if m, ok := s.upstream.cached(r); ok {
		return m, fromCache, nil
	}
	if !s.asking.take(client) {
		return code(r, dns.RcodeServerFailure), fromNowhere, nil
	}
	return nil, fromUpstream, func(ctx context.Context) *dns.Msg {
		defer s.asking.give(client)
		return s.upstream.ask(ctx, r)
	}
}

// allowed reports whether a client is answered that has asked at an address of this server: the machine itself, the
// tasks of the cell, and those that the configuration allows.
func (s *Server) allowed(is *naming.Snapshot, client, server netip.Addr) bool {
	contains := func(p netip.Prefix) bool { return p.Contains(client) }
	if client.IsLoopback() || client == server || slices.ContainsFunc(s.cfg.Allowed, contains) {
		return true
	}
	if c := is.Cell(); c != nil && (c.Network.Range.Contains(client) || c.Network.Range6.Contains(client)) {
		return true
	}
	m, ok := is.Machine(s.cfg.Machine)
	return ok && (client == m.Address || slices.ContainsFunc(m.Subnets, contains))
}
