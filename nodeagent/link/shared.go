package link

import (
	"crypto/tls"
	"fmt"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
)

// Shared is a connection that the clients of several machines in one process use
// together, each with a session of its own on it. It is for machines that are not
// there: what each of them costs the master is then the session, and not a socket.
// It is over a unix socket: a certificate is one machine's. The zero Shared is ready
// for use, from any goroutine.
type Shared struct {
	mu   sync.Mutex             // guards what follows
	open map[string]*connection // by address: that the next session is on
}

// connection is one connection to a master.
type connection struct {
	*grpc.ClientConn
	address    string
	handshakes *handshakes
	users      int // sessions on it
}

// dial returns a connection to the master for one session, and what that is to
// call at its end.
func (c *Client) dial(cfg *tls.Config) (conn *connection, release func(), err error) {
	if c.cfg.Shared != nil {
		return c.cfg.Shared.take(c.address())
	}
	conn, err = connectTo(c.address(), cfg)
	return conn, func() { _ = conn.Close() }, err // it errs only when closed before
}

func connectTo(address string, cfg *tls.Config) (*connection, error) {
	conn, shake, err := newConn(address, cfg)
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", address, err)
	}
	return &connection{ClientConn: conn, address: address, handshakes: shake}, nil
}

func (s *Shared) take(address string) (conn *connection, release func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if conn = s.open[address]; conn == nil {
		if conn, err = connectTo(address, nil); err != nil {
			return nil, nil, err
		}
		if s.open == nil {
			s.open = map[string]*connection{}
		}
		s.open[address] = conn
	}
	conn.users++
	return conn, func() { s.release(conn) }, nil
}

// release gives up one session's use of a connection. One that has failed gets no
// more sessions: it would be made again by gRPC, whose back-off is not Run's.
func (s *Shared) release(conn *connection) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if conn.users--; conn.users == 0 {
		_ = conn.Close() // it errs only when closed before
	}
	if s.open[conn.address] == conn && (conn.users == 0 || conn.GetState() != connectivity.Ready) {
		delete(s.open, conn.address)
	}
}
