package link

import (
	"bytes"
	"context"
	"fmt"
	"io"

	"github.com/musterhq/muster/schema"
	"github.com/musterhq/muster/schema/linkpb"
)

// openExec carries one session of exec, on a stream of its own.
func (s *session) openExec(ctx context.Context, m *linkpb.OpenExec) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := s.link.Exec(ctx)
	if err != nil {
		return // the connection is gone, and whoever asked knows
	}
	if stream.Send(&linkpb.ExecChunk{Id: m.GetId()}) != nil {
		return
	}
	if _, err := stream.Recv(); err != nil {
		return // it has no reader any more
	}
	conn := &execConn{stream: stream, chunks: make(chan []byte)}
	s.logs.Go(func() { conn.receive(ctx) })
	if err := s.exec(ctx, m, conn); err != nil {
		_, _ = conn.Write(schema.AppendExecFrame(nil, schema.ExecFailure, []byte(err.Error())))
	}
	_ = stream.CloseSend() // it never fails
	for range conn.chunks {
	} // until the master has it all
}

func (s *session) exec(ctx context.Context, m *linkpb.OpenExec, conn *execConn) error {
	select {
	case s.running <- struct{}{}:
		defer func() { <-s.running }()
	default:
		return fmt.Errorf("%d sessions of this machine are open already", maxExecs)
	}
	r, err := linkpb.DecodeExecRequest(m)
	if err != nil {
		return err
	}
	s.client.cfg.Agent.Exec(ctx, r, conn)
	return nil
}

// execConn is a stream as bytes. One goroutine may read while another writes,
// and a Read may be in progress when the session is over.
type execConn struct {
	stream linkpb.Link_ExecClient
	chunks chan []byte // closed at the end
	rest   []byte      // of the one that is being read
}

// receive delivers what comes, until the stream ends or ctx does.
func (c *execConn) receive(ctx context.Context) {
	defer close(c.chunks)
	for {
		m, err := c.stream.Recv()
		if err != nil {
			return
		}
		select {
		case c.chunks <- m.GetData():
		case <-ctx.Done():
			return
		}
	}
}

func (c *execConn) Read(p []byte) (int, error) {
	for len(c.rest) == 0 {
		rest, ok := <-c.chunks
		if !ok {
			return 0, io.EOF
		}
		c.rest = rest
	}
	n := copy(p, c.rest)
	c.rest = c.rest[n:]
	return n, nil
}

func (c *execConn) Write(p []byte) (int, error) {
	for n := 0; n < len(p); n += logChunk {
		// A copy, since gRPC may look at the message after Send returns.
		if err := c.stream.Send(&linkpb.ExecChunk{Data: bytes.Clone(p[n:min(n+logChunk, len(p))])}); err != nil {
			return n, fmt.Errorf("nobody is there any more: %w", err)
		}
	}
	return len(p), nil
}
