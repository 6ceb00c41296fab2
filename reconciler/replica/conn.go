package replica

import (
	"bytes"
	"context"
	"net"
	"sync"

	"github.com/musterhq/muster/schema/linkpb"
)

const chunkBytes = 32 << 10

// chunks is a stream of either end that carries a connection.
type chunks interface {
	Send(m *linkpb.ForwardChunk) error
	Recv() (*linkpb.ForwardChunk, error)
}

// carry copies between a connection and a stream until what comes from the connection has
// ended, or ctx has; then it closes the connection. What comes from the stream ends with
// the call, which is the caller's to end.
func carry(ctx context.Context, c net.Conn, stream chunks) {
	stop := context.AfterFunc(ctx, func() { _ = c.Close() }) // a pipe's never fails
	defer stop()
	go func() {
		for {
			m, err := stream.Recv()
			if err != nil {
				break
			}
			if _, err := c.Write(m.GetData()); err != nil {
				break
			}
		}
		_ = c.Close()
	}()
	buffer := make([]byte, chunkBytes)
	for {
		n, err := c.Read(buffer)
		if n > 0 && stream.Send(&linkpb.ForwardChunk{Data: bytes.Clone(buffer[:n])}) != nil {
			break
		}
		if err != nil {
			break
		}
	}
	_ = c.Close()
}

// listener is a net.Listener of connections that are handed to it.
type listener struct {
	conns  chan net.Conn
	once   sync.Once
	closed chan struct{}
}

func newListener() *listener {
	return &listener{conns: make(chan net.Conn), closed: make(chan struct{})}
}

// hand gives a connection to whoever accepts the next.
func (l *listener) hand(ctx context.Context, c net.Conn) error {
	select {
	case l.conns <- c:
		return nil
	case <-l.closed:
		return net.ErrClosed
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Accept returns the next connection.
func (l *listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// Close ends Accept; connections go on.
func (l *listener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

// Addr names what other masters forward.
func (*listener) Addr() net.Addr { return forwarded{} }

type forwarded struct{}

func (forwarded) Network() string { return "forward" }
func (forwarded) String() string  { return "other masters" }
