package link

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"

	"github.com/musterhq/muster/schema/linkpb"
)

// openLog sends one log to the master, on a stream of its own.
func (s *session) openLog(ctx context.Context, m *linkpb.OpenLogs) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := s.link.Logs(ctx)
	if err != nil {
		return // the connection is gone, and the reader knows
	}
	if stream.Send(&linkpb.LogChunk{Id: m.GetId()}) != nil {
		return
	}
	if _, err := stream.Recv(); err != nil {
		return // it has no reader any more
	}
	over := make(chan struct{})
	go func() {
		defer close(over)
		_, _ = stream.Recv() // returns when the reader has left or has it all
		cancel()
	}()
	end := &linkpb.LogEnd{}
	if err := s.writeLog(ctx, m, stream); err != nil {
		end.Error, end.NotFound = err.Error(), errors.Is(err, fs.ErrNotExist)
	}
	if stream.Send(&linkpb.LogChunk{End: end}) == nil {
		_ = stream.CloseSend() // it never fails
		<-over
		return
	}
	cancel()
	<-over
}

// writeLog asks the agent for the log and sends what it writes.
func (s *session) writeLog(ctx context.Context, m *linkpb.OpenLogs, stream linkpb.Link_LogsClient) error {
	select {
	case s.reading <- struct{}{}:
		defer func() { <-s.reading }()
	default:
		return fmt.Errorf("%d logs of this machine are open already", maxLogs)
	}
	r, err := linkpb.DecodeLogRequest(m)
	if err != nil {
		return err
	}
	return s.client.cfg.Agent.Logs(ctx, r, chunkWriter{stream})
}

// chunkWriter sends what is written to it. It blocks while the reader is slow.
type chunkWriter struct {
	stream linkpb.Link_LogsClient
}

func (w chunkWriter) Write(p []byte) (int, error) {
	for n := 0; n < len(p); n += logChunk {
		piece := p[n:min(n+logChunk, len(p))]
		// A copy, since gRPC may look at the message after Send returns.
		if err := w.stream.Send(&linkpb.LogChunk{Data: bytes.Clone(piece)}); err != nil {
			return n, fmt.Errorf("the reader has left: %w", err)
		}
	}
	return len(p), nil
}
