package link

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/musterhq/muster/schema"
	"github.com/musterhq/muster/schema/linkpb"
)

// ErrNotConnected says that a machine has no session.
var ErrNotConnected = errors.New("not connected to the master")

// openLog is a log that an agent sends.
type openLog struct {
	*io.PipeReader
	closed context.CancelFunc // ends the handler when nobody reads any more
}

// Close ends the log, also at the agent.
func (r *openLog) Close() error {
	r.abandon(nil)
	return nil
}

// abandon lets the handler go, whether it waits for the agent or the reader.
func (r *openLog) abandon(cause error) {
	_ = r.CloseWithError(cause) // it never fails
	r.closed()
}

// logReader is what Logs returns.
type logReader struct {
	*openLog
	stop func() bool // no more ends with the context of Logs
}

// Close ends the log, also at the agent.
func (r *logReader) Close() error {
	r.stop()
	return r.openLog.Close()
}

// Logs asks the agent of the machine for a log and returns it as it comes, until
// it ends, ctx ends or it is closed; it must be closed. A reader that is slow
// slows the agent's reading of the file, nothing else. The error is
// ErrNotConnected when the machine has no session. What the agent found wrong
// is returned by Read: fs.ErrNotExist when it has no such log.
func (s *Server) Logs(ctx context.Context, machine string, r schema.LogRequest) (io.ReadCloser, error) {
	c := s.session(machine)
	if c == nil {
		return nil, fmt.Errorf("machine %s: %w", machine, ErrNotConnected)
	}
	log, err := s.logs.ask(ctx, c, func(id string) *linkpb.MasterMessage {
		return &linkpb.MasterMessage{Message: &linkpb.MasterMessage_OpenLogs{OpenLogs: linkpb.EncodeLogRequest(id, &r)}}
	})
	if err != nil {
		return nil, fmt.Errorf("log of task %s on machine %s: %w", r.Task.Short(), machine, err)
	}
	return &logReader{log, context.AfterFunc(ctx, func() { log.abandon(context.Cause(ctx)) })}, nil
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
	machine, ok := s.logs.attach(first.GetId(), caller(stream.Context()), &openLog{read, closed})
	if !ok {
		return status.Error(codes.NotFound, "no request for this log is open")
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
			return &logError{fmt.Sprintf("machine %s: %s", machine, linkpb.Text(end.GetError())), end.GetNotFound()}
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
