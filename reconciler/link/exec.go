package link

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/musterhq/muster/schema"
	"github.com/musterhq/muster/schema/linkpb"
)

// ErrNoExec says that a machine's agent is of a version that does not know exec.
var ErrNoExec = errors.New("its agent is of a version without exec")

// ErrNoCopy says that it knows exec, and no copies.
var ErrNoCopy = errors.New("its agent is of a version without muster cp")

// execChunk is how much is sent to an agent at once.
const execChunk = 32 << 10

// execConn is what Exec returns.
type execConn struct {
	*io.PipeReader
	*io.PipeWriter
	closed context.CancelFunc // ends the handler when nobody is there any more
}

// Close ends the session, also at the agent, which kills what runs.
func (c *execConn) Close() error {
	c.closed()
	return errors.Join(c.PipeReader.Close(), c.PipeWriter.Close()) // they never fail
}

// Exec asks the agent of the machine for a session, and returns what carries its
// frames, to be closed: of a schema.ExecFrames when read, and as
// AppendExecFrame makes them when written to. Whoever is slow on one end slows
// the other. The error is ErrNotConnected when the machine has no session, and
// ErrNoExec or ErrNoCopy when its agent is too old.
func (s *Server) Exec(ctx context.Context, machine string, r schema.ExecRequest) (io.ReadWriteCloser, error) {
	c := s.session(machine)
	if c == nil {
		return nil, fmt.Errorf("machine %s: %w", machine, ErrNotConnected)
	}
	if !c.knows.exec {
		return nil, fmt.Errorf("machine %s: %w", machine, ErrNoExec)
	}
	if r.Copy != nil && !c.knows.copy {
		return nil, fmt.Errorf("machine %s: %w", machine, ErrNoCopy)
	}
	conn, err := s.execs.ask(ctx, c, func(id string) *linkpb.MasterMessage {
		return &linkpb.MasterMessage{Message: &linkpb.MasterMessage_OpenExec{OpenExec: linkpb.EncodeExecRequest(id, &r)}}
	})
	if err != nil {
		return nil, fmt.Errorf("exec beside task %s on machine %s: %w", r.Task.Short(), machine, err)
	}
	return conn, nil
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
	if _, ok := g.server.execs.attach(first.GetId(), caller(stream.Context()), &execConn{fromAgent, toAgent, leave}); !ok {
		return status.Error(codes.NotFound, "no request for this session is open")
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
