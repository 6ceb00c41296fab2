package link

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/musterhq/muster/schema"
	"github.com/musterhq/muster/schema/linkpb"
)

// ErrNoExec says that a machine's agent is of a version that does not know exec.
var ErrNoExec = errors.New("its agent is of a version without exec")

// execChunk is how much is sent to an agent at once.
const execChunk = 32 << 10

// pendingExec is a session that an agent was asked for and has not opened yet.
type pendingExec struct {
	machine  string
	attached chan *execConn // holds one
}

// execConn is what Exec returns.
type execConn struct {
	*io.PipeReader
	*io.PipeWriter
	closed context.CancelFunc // tells the handler that nobody is there any more
}

// Close ends the session; the agent is told, and kills what runs.
func (c *execConn) Close() error {
	c.closed()
	return errors.Join(c.PipeReader.Close(), c.PipeWriter.Close()) // they never fail
}

// Exec asks the agent of the machine for a session, and returns what carries its
// frames, to be closed: of a schema.ExecFrames when read, and as
// AppendExecFrame makes them when written to. Whoever is slow on one end slows
// the other. The error is ErrNotConnected when the machine has no session, and
// ErrNoExec when its agent is too old.
func (s *Server) Exec(ctx context.Context, machine string, r schema.ExecRequest) (io.ReadWriteCloser, error) {
	id := rand.Text()
	p := &pendingExec{machine: machine, attached: make(chan *execConn, 1)}
	s.mu.Lock()
	c := s.sessions[machine]
	if c != nil && c.exec {
		s.execs[id] = p
	}
	s.mu.Unlock()
	if c == nil {
		return nil, fmt.Errorf("machine %s: %w", machine, ErrNotConnected)
	}
	if !c.exec {
		return nil, fmt.Errorf("machine %s: %w", machine, ErrNoExec)
	}
	conn, err := p.wait(ctx, c, &linkpb.MasterMessage{Message: &linkpb.MasterMessage_OpenExec{OpenExec: linkpb.EncodeExecRequest(id, &r)}})
	s.mu.Lock()
	delete(s.execs, id)
	s.mu.Unlock()
	if err == nil {
		return conn, nil
	}
	select {
	case conn := <-p.attached: // just then
		err = errors.Join(err, conn.Close())
	default:
	}
	return nil, fmt.Errorf("exec beside task %s on machine %s: %w", r.Task.Short(), machine, err)
}

// wait asks for the session and waits until the agent has opened it.
func (p *pendingExec) wait(ctx context.Context, c *session, m *linkpb.MasterMessage) (*execConn, error) {
	timeout := time.NewTimer(attachTimeout)
	defer timeout.Stop()
	send := c.open
	for {
		select {
		case send <- m:
			send = nil
		case conn := <-p.attached:
			return conn, nil
		case <-c.done:
			return nil, ErrNotConnected
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-timeout.C:
			return nil, fmt.Errorf("the agent did not open it within %v", attachTimeout)
		}
	}
}

// attachExec hands conn to whoever asked the caller for the session with that
// id; a caller of "" may be any machine.
func (s *Server) attachExec(id, caller string, conn *execConn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.execs[id]
	if p == nil || caller != "" && caller != p.machine {
		return false
	}
	delete(s.execs, id)
	p.attached <- conn
	return true
}

// Exec carries one session.
func (g service) Exec(stream linkpb.Link_ExecServer) error {
	ctx, end := g.server.lifetime(stream.Context())
	defer end(nil)
	first, err := stream.Recv()
	if err != nil {
		return closed(err)
	}
	fromAgent, toClient := io.Pipe()
	fromClient, toAgent := io.Pipe()
	left, leave := context.WithCancel(context.Background())
	defer leave()
	if !g.server.attachExec(first.GetId(), caller(stream.Context()), &execConn{fromAgent, toAgent, leave}) {
		return status.Error(codes.NotFound, "nobody waits for this session")
	}
	// The pipes outlive the call: what waits at them is let go.
	cut := func(cause error) { _, _ = toClient.CloseWithError(cause), fromClient.CloseWithError(cause) }
	if err := stream.Send(&linkpb.ExecChunk{}); err != nil {
		cut(err)
		return err
	}
	received := make(chan error, 1)
	go func() { received <- receiveExec(toClient, stream) }()
	go func() { fromClient.CloseWithError(sendExec(stream, fromClient)) }() // which returns when this call does
	select {
	case err := <-received:
		cut(err)
		return closed(err)
	case <-left.Done():
		cut(io.ErrClosedPipe)
		return nil
	case <-ctx.Done():
		cut(context.Cause(ctx))
		return context.Cause(ctx)
	}
}

// receiveExec writes what the agent sends; the error is io.EOF when that is all.
func receiveExec(w io.Writer, stream linkpb.Link_ExecServer) error {
	for {
		m, err := stream.Recv()
		if err != nil {
			return err
		}
		if _, err := w.Write(m.GetData()); err != nil {
			return err
		}
	}
}

// sendExec sends what is read from r.
func sendExec(stream linkpb.Link_ExecServer, r io.Reader) error {
	buffer := make([]byte, execChunk)
	for {
		n, err := r.Read(buffer)
		if err != nil {
			return err
		}
		if err := stream.Send(&linkpb.ExecChunk{Data: bytes.Clone(buffer[:n])}); err != nil {
			return err
		}
	}
}
