package replica

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"

	"github.com/musterhq/muster/reconciler/status"
	"github.com/musterhq/muster/schema"
	"github.com/musterhq/muster/schema/identity"
	"github.com/musterhq/muster/schema/linkpb"
)

const (
	// pushEvery is the least time between two changes that are pushed: what happens in
	// between is pushed as one change.
	pushEvery = 200 * time.Millisecond
	// pushShare bounds the processor time for one replica: to describe the cell takes at
	// most one part in so many.
	pushShare = 10
	// aliveEvery is how often an empty message says that nothing has changed.
	aliveEvery = time.Second
	pieceBytes = 1 << 20
	mostEvents = 1000 // in one batch
)

// State is the cell, as package web has it.
type State interface {
	Snapshot(ctx context.Context) (s *status.Snapshot, newer <-chan struct{}, err error)
	// Sources says from where a machine gets an image or a package.
	Sources(ctx context.Context, q schema.SourceQuestion) (schema.SourceAnswer, error)
}

// History is the cell's events.
type History interface {
	Since(q schema.EventQuery) ([]schema.EventRecord, error)
	Wait(ctx context.Context, after uint64) error
	// Above makes ids from now on greater than one of another master's log.
	Above(id uint64)
}

// ServerConfig is what a Server needs.
type ServerConfig struct {
	Cell   string
	State  State
	Events History
	// Join burns a token and returns the certificate for a machine's request; nil where
	// there is no authority. An error that is identity.ErrRefused is final.
	Join func(ctx context.Context, token string, request []byte) (*x509.Certificate, error)
}

// Server is the leader's end, for the other masters of its cell. Only masters may reach it.
type Server struct {
	linkpb.UnimplementedReplicaServer
	cfg      ServerConfig
	forwards *listener

	mu   sync.Mutex      // guards ends
	ends <-chan struct{} // of the term that this master leads; nil while it does not
}

// NewServer returns a Server that does not lead.
func NewServer(cfg ServerConfig) *Server {
	return &Server{cfg: cfg, forwards: newListener()}
}

// Lead says that this master leads until ends is closed.
func (s *Server) Lead(ends <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ends = ends
}

// Forwards is the listener of connections that other masters forward, for an HTTP server.
func (s *Server) Forwards() net.Listener { return s.forwards }

// errLedBefore ends calls when this master no longer leads.
var errLedBefore = errors.New("this master does not lead")

// term returns a context that ends with the term that this master leads, and an error when
// it leads none, or the caller is of another cell.
func (s *Server) term(ctx context.Context, cell string) (during context.Context, end func(), err error) {
	if cell != s.cfg.Cell {
		return nil, nil, grpcstatus.Errorf(codes.FailedPrecondition, "a master of cell %q, and this is cell %q", cell, s.cfg.Cell)
	}
	s.mu.Lock()
	ends := s.ends
	s.mu.Unlock()
	if ends == nil {
		return nil, nil, grpcstatus.Error(codes.Unavailable, errLedBefore.Error())
	}
	ctx, cancel := context.WithCancelCause(ctx)
	go func() {
		select {
		case <-ends:
			cancel(grpcstatus.Error(codes.Unavailable, errLedBefore.Error()))
		case <-ctx.Done():
		}
	}()
	return ctx, func() { cancel(nil) }, nil
}

// Follow sends the state, and what changes in it.
func (s *Server) Follow(r *linkpb.FollowRequest, stream linkpb.Replica_FollowServer) error {
	ctx, end, err := s.term(stream.Context(), r.GetCell())
	if err != nil {
		return err
	}
	defer end()
	var sent *status.Snapshot
	for {
		began := time.Now()
		now, newer, err := s.cfg.State.Snapshot(ctx)
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil:
			return grpcstatus.Error(codes.Unavailable, err.Error())
		case now.Brief().Master != nil || now.Brief().Replica != nil:
			return grpcstatus.Error(codes.Unavailable, errLedBefore.Error())
		}
		if err := send(stream, sent, now); err != nil {
			return err
		}
		sent = now
		if err := sleep(ctx, max(pushEvery, pushShare*time.Since(began))); err != nil {
			return err
		}
		alive := time.NewTimer(aliveEvery)
		select {
		case <-newer:
		case <-alive.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		alive.Stop()
	}
}

// sleep waits for a while, or errs with why ctx has ended.
func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// send sends what has changed, in pieces.
func send(stream linkpb.Replica_FollowServer, was, is *status.Snapshot) error {
	if was != nil && was.Brief().Version == is.Brief().Version && was.Brief().At.Equal(is.Brief().At) {
		return stream.Send(&linkpb.StatePiece{})
	}
	b, err := json.Marshal(status.ChangeOf(was, is))
	if err != nil {
		return grpcstatus.Errorf(codes.Internal, "state of the cell: %v", err)
	}
	for len(b) > 0 {
		n := min(len(b), pieceBytes)
		if err := stream.Send(&linkpb.StatePiece{Data: b[:n], Last: n == len(b)}); err != nil {
			return err
		}
		b = b[n:]
	}
	return nil
}

// Events sends the history.
func (s *Server) Events(r *linkpb.EventsRequest, stream linkpb.Replica_EventsServer) error {
	ctx, end, err := s.term(stream.Context(), r.GetCell())
	if err != nil {
		return err
	}
	defer end()
	after := r.GetAfter()
	s.cfg.Events.Above(after) // the store may have been put back, and terms count from there
	for {
		records, err := s.cfg.Events.Since(schema.EventQuery{After: after, Limit: mostEvents})
		if err != nil {
			return grpcstatus.Error(codes.Unavailable, err.Error())
		}
		if len(records) > 0 {
			after = records[len(records)-1].ID
			batch, err := encodeEvents(records)
			if err != nil {
				return grpcstatus.Error(codes.Internal, err.Error())
			}
			if err := stream.Send(batch); err != nil {
				return err
			}
			continue
		}
		if s.cfg.Events.Wait(ctx, after) != nil {
			return context.Cause(ctx)
		}
		if err := sleep(ctx, pushEvery); err != nil { // more is coming: a round says all it has done
			return err
		}
	}
}

func encodeEvents(records []schema.EventRecord) (*linkpb.EventBatch, error) {
	m := &linkpb.EventBatch{}
	for i := range records {
		b, err := json.Marshal(&records[i])
		if err != nil {
			return nil, fmt.Errorf("event %d: %w", records[i].ID, err)
		}
		m.Records = append(m.Records, b)
	}
	return m, nil
}

// Sources says from where a machine of another master gets an image or a package.
func (s *Server) Sources(r *linkpb.SourcesRequest, stream linkpb.Replica_SourcesServer) error {
	ctx, end, err := s.term(stream.Context(), s.cfg.Cell)
	if err != nil {
		return err
	}
	defer end()
	q, err := linkpb.DecodeQuestion(r)
	if err != nil {
		return grpcstatus.Error(codes.InvalidArgument, err.Error())
	}
	a, err := s.cfg.State.Sources(ctx, q)
	if err != nil {
		return grpcstatus.Error(codes.Unavailable, err.Error())
	}
	return stream.Send(linkpb.EncodeAnswer(&a))
}

// Certify gives a machine that joins at another master its certificate.
func (s *Server) Certify(r *linkpb.CertifyRequest, stream linkpb.Replica_CertifyServer) error {
	ctx, end, err := s.term(stream.Context(), s.cfg.Cell)
	if err != nil {
		return err
	}
	defer end()
	if s.cfg.Join == nil {
		return grpcstatus.Error(codes.FailedPrecondition, "this master has no authority")
	}
	c, err := s.cfg.Join(ctx, r.GetToken(), r.GetRequest())
	switch {
	case errors.Is(err, identity.ErrRefused):
		return grpcstatus.Error(codes.PermissionDenied, err.Error())
	case err != nil:
		return grpcstatus.Error(codes.Unavailable, err.Error())
	}
	return stream.Send(&linkpb.CertifyResponse{Certificate: c.Raw})
}

// Forward carries one connection to the API.
func (s *Server) Forward(stream linkpb.Replica_ForwardServer) error {
	ctx, end, err := s.term(stream.Context(), s.cfg.Cell)
	if err != nil {
		return err
	}
	defer end()
	here, api := net.Pipe()
	if err := s.forwards.hand(ctx, api); err != nil {
		return grpcstatus.Error(codes.Unavailable, errors.Join(err, here.Close(), api.Close()).Error())
	}
	carry(ctx, here, stream)
	return nil
}
