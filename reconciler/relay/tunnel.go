package relay

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/musterhq/muster/schema/linkpb"
)

const (
	openTimeout = 15 * time.Second // for a replica to open a tunnel: its agent has 10 s
	tunnelChunk = 32 << 10
)

// tunnels are those that replicas were asked for and have not opened yet. Its methods
// may be called at any time from anywhere.
type tunnels struct {
	mu  sync.Mutex // guards all
	all map[string]chan *tunnel
}

// tunnel carries bytes both ways between whoever asked for a log or a session at the
// leader and the link server that has the machine.
type tunnel struct {
	*io.PipeReader
	*io.PipeWriter
	closed context.CancelFunc // ends the call when nobody reads any more
}

// Close ends the tunnel, also for the other end.
func (t *tunnel) Close() error {
	t.closed()
	return errors.Join(t.PipeReader.Close(), t.PipeWriter.Close()) // they never fail
}

// open asks a replica for a tunnel, by the message that is made of its id, and waits for
// it.
func (t *tunnels) open(ctx context.Context, gone <-chan struct{}, send func(id string)) (*tunnel, error) {
	id, opened := rand.Text(), make(chan *tunnel, 1)
	t.mu.Lock()
	if t.all == nil {
		t.all = map[string]chan *tunnel{}
	}
	t.all[id] = opened
	t.mu.Unlock()
	send(id)
	timeout := time.NewTimer(openTimeout)
	defer timeout.Stop()
	var err error
	select {
	case c := <-opened:
		return c, nil
	case <-gone:
		err = ErrNotConnected
	case <-ctx.Done():
		err = context.Cause(ctx)
	case <-timeout.C:
		err = fmt.Errorf("the master that has its session did not open it within %v", openTimeout)
	}
	t.mu.Lock()
	delete(t.all, id)
	t.mu.Unlock()
	select {
	case late := <-opened:
		_ = late.Close() // nobody has seen it
	default:
	}
	return nil, err
}

// Tunnel carries one log or session.
func (s *Service) Tunnel(stream linkpb.Relay_TunnelServer) error {
	first, err := stream.Recv()
	if err != nil {
		return err
	}
	s.tunnels.mu.Lock()
	opened := s.tunnels.all[first.GetId()]
	delete(s.tunnels.all, first.GetId())
	s.tunnels.mu.Unlock()
	if opened == nil {
		return status.Error(codes.NotFound, "nobody has asked for this")
	}
	fromShard, toClient := io.Pipe()
	fromClient, toShard := io.Pipe()
	left, leave := context.WithCancel(context.Background())
	defer leave()
	opened <- &tunnel{fromShard, toShard, leave}
	received := make(chan error, 1)
	go func() { received <- receiveTunnel(toClient, stream.Recv) }()
	go func() { _ = fromClient.CloseWithError(sendTunnel(stream.Send, fromClient)) }()
	select {
	case err = <-received:
	case <-left.Done():
		err = io.ErrClosedPipe
	case <-stream.Context().Done():
		err = context.Cause(stream.Context())
	}
	_, _ = toClient.CloseWithError(err), fromClient.CloseWithError(err) // what waits at the pipes is let go
	return nil
}

// receiveTunnel writes what comes to w, and returns how it ended: io.EOF when all came.
func receiveTunnel(w io.Writer, recv func() (*linkpb.TunnelChunk, error)) error {
	for {
		m, err := recv()
		if err != nil {
			return err
		}
		if len(m.GetData()) > 0 {
			if _, err := w.Write(m.GetData()); err != nil {
				return err
			}
		}
		if end := m.GetEnd(); end != nil {
			switch {
			case end.GetNotFound():
				return &missing{end.GetError()}
			case end.GetError() != "":
				return errors.New(end.GetError())
			}
			return io.EOF
		}
	}
}

// sendTunnel sends what is read from r, until that ends.
func sendTunnel(send func(*linkpb.TunnelChunk) error, r io.Reader) error {
	buffer := make([]byte, tunnelChunk)
	for {
		n, err := r.Read(buffer)
		if n > 0 {
			if err := send(&linkpb.TunnelChunk{Data: bytes.Clone(buffer[:n])}); err != nil {
				return err
			}
		}
		if err != nil {
			return err
		}
	}
}

// missing is the end of a log that there is not.
type missing struct{ text string }

func (e *missing) Error() string { return e.text }

// Is makes it fs.ErrNotExist.
func (*missing) Is(target error) bool { return target == fs.ErrNotExist }

// tunnelEnd says how a tunnel ended.
func tunnelEnd(err error) *linkpb.TunnelChunk {
	end := &linkpb.LogEnd{}
	if err != nil && !errors.Is(err, io.EOF) {
		end.Error, end.NotFound = err.Error(), errors.Is(err, fs.ErrNotExist)
	}
	return &linkpb.TunnelChunk{End: end}
}
