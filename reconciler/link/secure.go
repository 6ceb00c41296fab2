package link

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/musterhq/muster/schema/identity"
	"github.com/musterhq/muster/schema/linkpb"
)

const (
	handshakeTimeout = 10 * time.Second
	// A connection without a certificate is there to join, which takes one
	// small request.
	joinTimeout = 30 * time.Second
	joinBytes   = 64 << 10
	maxJoining  = 64          // such connections at once: each costs a signature
	admitEvery  = time.Second // how often all peers are checked again
)

// Authority says which machines may be here. An error that is
// identity.ErrRefused is final.
type Authority interface {
	// Join burns a token and returns the certificate for a machine's request.
	Join(ctx context.Context, token string, request []byte) (*x509.Certificate, error)
	// Renew returns a new certificate for a machine's request.
	Renew(p *identity.Peer, request []byte) (*x509.Certificate, error)
	// Admit errs when a peer is not welcome any more. It must not block.
	Admit(p *identity.Peer) error
	// Authorities returns what a machine is to trust.
	Authorities() []*x509.Certificate
}

// secured is the peer of a connection over TLS.
type secured struct {
	credentials.CommonAuthInfo
	raw net.Conn // below TLS: closing it never waits for the peer

	mu   sync.Mutex // guards the peer's Expires
	peer *identity.Peer
}

// AuthType names how the peer was checked.
func (*secured) AuthType() string { return "tls" }

// current returns the peer as its newest certificate has it; nil when it has
// shown none.
func (s *secured) current() *identity.Peer {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.peer == nil {
		return nil
	}
	p := *s.peer
	return &p
}

// renewed takes the new certificate of the peer into account, which it got over
// this very connection: what runs over it goes on.
func (s *secured) renewed(c *x509.Certificate) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.peer.Issued, s.peer.Expires = identity.Issued(c), c.NotAfter
}

// handshake makes a connection over TCP one over TLS.
func (p *peers) handshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	if p.tls == nil {
		return nil, nil, fmt.Errorf("connection over %s: this master has no certificate", raw.LocalAddr().Network())
	}
	c := tls.Server(raw, p.tls)
	ctx, cancel := context.WithTimeout(context.Background(), handshakeTimeout)
	defer cancel()
	if err := c.HandshakeContext(ctx); err != nil {
		return nil, nil, fmt.Errorf("connection from %s: %w", raw.RemoteAddr(), err)
	}
	state := c.ConnectionState()
	who, err := identity.PeerOf(&state, p.cell)
	if err != nil {
		return nil, nil, fmt.Errorf("connection from %s: %w", raw.RemoteAddr(), err)
	}
	s := &secured{CommonAuthInfo: credentials.CommonAuthInfo{SecurityLevel: credentials.PrivacyAndIntegrity}, raw: raw, peer: who}
	if !p.add(s) {
		return nil, nil, fmt.Errorf("connection from %s: %d others without a certificate are open", raw.RemoteAddr(), maxJoining)
	}
	forget := &forgottenConn{Conn: c, closed: func() { p.remove(s) }}
	if who != nil {
		return forget, s, nil
	}
	joining := &joiningConn{Conn: forget, left: joinBytes}
	joining.timer = time.AfterFunc(joinTimeout, func() { _ = raw.Close() })
	return joining, s, nil
}

// joiningConn is a connection without a certificate: it ends soon, and carries
// little.
type joiningConn struct {
	net.Conn
	left  int // read by one goroutine
	timer *time.Timer
}

func (c *joiningConn) Read(b []byte) (int, error) {
	if c.left <= 0 {
		return 0, errors.New("too much was sent over a connection without a certificate")
	}
	n, err := c.Conn.Read(b[:min(len(b), c.left)])
	c.left -= n
	return n, err
}

func (c *joiningConn) Close() error {
	c.timer.Stop()
	return c.Conn.Close()
}

// forgottenConn is a connection that is remembered until it is closed.
type forgottenConn struct {
	net.Conn
	closed func()
}

func (c *forgottenConn) Close() error {
	c.closed()
	return c.Conn.Close()
}

// add remembers a connection; false when there are too many of its kind.
func (p *peers) add(s *secured) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if s.peer != nil {
		p.open[s] = true
		return true
	}
	if len(p.joining) == maxJoining {
		return false
	}
	p.joining[s] = true
	return true
}

func (p *peers) remove(s *secured) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.open, s)
	delete(p.joining, s)
}

// watch closes connections of peers that are not welcome any more, until ctx
// ends. So nothing that runs over one outlasts its certificate: sessions, logs,
// and whatever comes.
func (p *peers) watch(ctx context.Context, admit func(*identity.Peer) error) {
	tick := time.NewTicker(admitEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		for _, s := range p.certified() {
			if err := admit(s.current()); err != nil {
				p.log.Warn("connection closed", "from", s.raw.RemoteAddr(), "err", err)
				_ = s.raw.Close()
			}
		}
	}
}

func (p *peers) certified() []*secured {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := make([]*secured, 0, len(p.open))
	for s := range p.open {
		out = append(out, s)
	}
	return out
}

// callerOf returns who calls, if that has the role: the name in its certificate. It is ""
// for a process of this user or root on this machine, which may speak for any.
func (s *Server) callerOf(ctx context.Context, role identity.Role) (name string, err error) {
	from, ok := peer.FromContext(ctx)
	if !ok {
		return "", status.Error(codes.Unauthenticated, "a call without a connection")
	}
	conn, ok := from.AuthInfo.(*secured)
	if !ok {
		return "", nil // the kernel's word: see peerCredentials
	}
	p := conn.current()
	if p == nil {
		return "", status.Error(codes.Unauthenticated, "no certificate: join with a token of `muster pki token` first")
	}
	if err := s.cfg.Secure.Authority.Admit(p); err != nil {
		return "", status.Error(codes.PermissionDenied, err.Error())
	}
	if p.Role != role {
		return "", status.Errorf(codes.PermissionDenied, "%s is no %s: this is for a %[2]s", p, role)
	}
	return p.Name.Name, nil
}

// callerKey is the key of the calling machine in a context.
type callerKey struct{}

// caller returns the machine that calls, "" for any. Each stream on which a
// machine answers for itself has to be held against it: see Session and attach.
func caller(ctx context.Context) string {
	machine, _ := ctx.Value(callerKey{}).(string)
	return machine
}

// checkStream refuses streams of peers that are no machine of the cell; all
// others know their caller. What is served to masters is for masters in the same way,
// and ends with Serve.
func (s *Server) checkStream() grpc.StreamServerInterceptor {
	return func(srv any, stream grpc.ServerStream, call *grpc.StreamServerInfo, next grpc.StreamHandler) error {
		role := identity.Master
		if strings.HasPrefix(call.FullMethod, "/"+linkpb.Link_ServiceDesc.ServiceName+"/") {
			role = identity.Machine
		}
		name, err := s.callerOf(stream.Context(), role)
		if err != nil {
			return s.refusals.caller(stream.Context(), err)
		}
		ctx := stream.Context()
		if role == identity.Master {
			var end context.CancelCauseFunc
			ctx, end = s.lifetime(ctx)
			defer end(nil)
		}
		return next(srv, &calledStream{stream, context.WithValue(ctx, callerKey{}, name)})
	}
}

// calledStream is a stream that knows its caller.
type calledStream struct {
	grpc.ServerStream
	ctx context.Context //nolint:containedctx // gRPC asks for it
}

func (c *calledStream) Context() context.Context { return c.ctx }

// Certify gives a machine a certificate. It is the one call that needs none.
func (g service) Certify(ctx context.Context, r *linkpb.CertifyRequest) (*linkpb.CertifyResponse, error) {
	from, ok := peer.FromContext(ctx)
	if !ok {
		return nil, status.Error(codes.Unauthenticated, "a call without a connection")
	}
	conn, ok := from.AuthInfo.(*secured)
	if !ok {
		return nil, status.Error(codes.FailedPrecondition, "certificates are for connections over TLS")
	}
	authority, who := g.server.cfg.Secure.Authority, conn.current()
	var c *x509.Certificate
	var err error
	if r.GetToken() != "" || who == nil {
		c, err = authority.Join(ctx, r.GetToken(), r.GetRequest())
	} else if c, err = authority.Renew(who, r.GetRequest()); err == nil {
		conn.renewed(c)
	}
	if err != nil {
		if errors.Is(err, identity.ErrRefused) {
			g.server.refusals.Refused(refusedToken, fmt.Errorf("certificate for %s: %w", conn.raw.RemoteAddr(), err), time.Now())
			return nil, status.Error(codes.PermissionDenied, err.Error())
		}
		g.server.cfg.Log.Warn("no certificate given", "from", conn.raw.RemoteAddr().String(), "err", err)
		return nil, status.Error(codes.Unavailable, err.Error())
	}
	g.server.cfg.Log.Info("certificate given", "name", c.Subject.CommonName, "from", conn.raw.RemoteAddr().String(),
		"expires", c.NotAfter, "joined", r.GetToken() != "")
	response := &linkpb.CertifyResponse{Certificate: c.Raw}
	for _, a := range authority.Authorities() {
		response.Authorities = append(response.Authorities, a.Raw)
	}
	return response, nil
}
