package link

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/musterhq/muster/schema"
	"github.com/musterhq/muster/schema/linkpb"
)

// ErrNotConnected says that a machine has no session.
var ErrNotConnected = errors.New("not connected to the master")

// pendingLog is a log that an agent was asked for and has not opened yet.
type pendingLog struct {
	machine  string
	request  schema.LogRequest
	attached chan *logReader // holds one
}

// logReader is what Logs returns.
type logReader struct {
	*io.PipeReader
	stop   func() bool
	closed context.CancelFunc // tells the handler that nobody reads any more
}

// Close ends the log; the agent is told.
func (r *logReader) Close() error {
	r.stop()
	r.abandon(nil)
	return nil
}

// abandon lets the handler go, whether it waits for the agent or the reader.
func (r *logReader) abandon(cause error) {
	_ = r.PipeReader.CloseWithError(cause) // it never fails
	r.closed()
}

// Logs asks the agent of the machine for a log and returns it as it comes, until
// it ends, ctx ends or it is closed; it must be closed. A reader that is slow
// slows the agent's reading of the file, nothing else. The error is
// ErrNotConnected when the machine has no session. What the agent found wrong
// is returned by Read: fs.ErrNotExist when it has no such log.
func (s *Server) Logs(ctx context.Context, machine string, r schema.LogRequest) (io.ReadCloser, error) {
	id := rand.Text()
	p := &pendingLog{machine: machine, request: r, attached: make(chan *logReader, 1)}
	s.mu.Lock()
	c := s.sessions[machine]
	if c != nil {
		s.logs[id] = p
	}
	s.mu.Unlock()
	if c == nil {
		return nil, fmt.Errorf("machine %s: %w", machine, ErrNotConnected)
	}
	reader, err := p.wait(ctx, id, c)
	if err != nil {
		s.withdraw(id, p)
		return nil, fmt.Errorf("log of task %s on machine %s: %w", r.Task.Short(), machine, err)
	}
	reader.stop = context.AfterFunc(ctx, func() { reader.abandon(context.Cause(ctx)) })
	return reader, nil
}

// wait asks for the log and waits until the agent has opened it.
func (p *pendingLog) wait(ctx context.Context, id string, c *session) (*logReader, error) {
	timeout := time.NewTimer(attachTimeout)
	defer timeout.Stop()
	send := c.open
	for {
		select {
		case send <- &linkpb.MasterMessage{Message: &linkpb.MasterMessage_OpenLogs{OpenLogs: linkpb.EncodeLogRequest(id, &p.request)}}:
			send = nil
		case reader := <-p.attached:
			return reader, nil
		case <-c.done:
			return nil, ErrNotConnected
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-timeout.C:
			return nil, fmt.Errorf("the agent did not open it within %v", attachTimeout)
		}
	}
}

// withdraw forgets a log that nobody waits for any more; if the agent has just
// opened it, it is closed.
func (s *Server) withdraw(id string, p *pendingLog) {
	s.mu.Lock()
	delete(s.logs, id)
	s.mu.Unlock()
	select {
	case reader := <-p.attached:
		reader.abandon(nil)
	default:
	}
}

// attach hands a reader to whoever asked the caller for the log with that id;
// a caller of "" may be any machine.
func (s *Server) attach(id, caller string, reader *logReader) (machine string, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.logs[id]
	if p == nil || caller != "" && caller != p.machine {
		return "", false
	}
	delete(s.logs, id)
	p.attached <- reader
	return p.machine, true
}

// Logs carries one log.
func (g service) Logs(stream linkpb.Link_LogsServer) error {
	s := g.server
	ctx, end := s.lifetime(stream.Context())
	defer end(nil)
	first, err := stream.Recv()
	if err != nil {
		return closed(err)
	}
	read, write := io.Pipe()
	unread, closed := context.WithCancel(context.Background())
	defer closed()
	machine, ok := s.attach(first.GetId(), caller(stream.Context()), &logReader{PipeReader: read, closed: closed})
	if !ok {
		return status.Error(codes.NotFound, "nobody waits for this log")
	}
	if err := stream.Send(&linkpb.LogAck{}); err != nil {
		_ = write.CloseWithError(fmt.Errorf("log of machine %s: %w", machine, err))
		return err
	}
	copied := make(chan struct{})
	go func() {
		defer close(copied)
		_ = write.CloseWithError(copyLog(write, stream, machine)) // it never fails
	}()
	select {
	case <-copied:
		return nil
	case <-unread.Done():
		return nil
	case <-ctx.Done():
		_ = write.CloseWithError(fmt.Errorf("log of machine %s: %w", machine, context.Cause(ctx)))
		return context.Cause(ctx)
	}
}

// copyLog writes what the agent sends, and returns how the log ended: nil when
// it was sent whole.
func copyLog(w io.Writer, stream linkpb.Link_LogsServer, machine string) error {
	for {
		m, err := stream.Recv()
		if err != nil {
			return fmt.Errorf("log of machine %s was cut off: %w", machine, err)
		}
		if len(m.GetData()) > 0 {
			if _, err := w.Write(m.GetData()); err != nil {
				return err // the reader closed it
			}
		}
		if end := m.GetEnd(); end != nil {
			if end.GetError() == "" {
				return nil
			}
			return &logError{fmt.Sprintf("machine %s: %s", machine, end.GetError()), end.GetNotFound()}
		}
	}
}

// logError is an agent's word on why a log ended.
type logError struct {
	text     string
	notFound bool
}

func (e *logError) Error() string { return e.text }

// Is makes a missing log fs.ErrNotExist.
func (e *logError) Is(target error) bool { return e.notFound && target == fs.ErrNotExist }
