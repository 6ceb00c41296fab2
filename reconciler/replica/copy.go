package replica

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"

	"github.com/musterhq/muster/reconciler/status"
	"github.com/musterhq/muster/schema"
	"github.com/musterhq/muster/schema/identity"
	"github.com/musterhq/muster/schema/linkpb"
)

const (
	// silentAfter is how long a leader may send nothing before its state is no longer used
	// for answers.
	silentAfter = 5 * time.Second
	retryEvery  = 200 * time.Millisecond
	joinTimeout = 30 * time.Second
)

// ErrNoLeader says that no master can be reached that leads.
var ErrNoLeader = errors.New("this master does not reach one that leads")

// Log keeps the history.
type Log interface {
	// Last returns the id of the newest record.
	Last() uint64
	// Keep adds records of another log, which have higher ids, in order.
	Keep(records []schema.EventRecord)
}

// CopyConfig is what a Copy needs.
type CopyConfig struct {
	Cell   string
	Events Log
	Log    *slog.Logger
}

// Copy is the state of the cell at a master that does not lead.
type Copy struct {
	cfg       CopyConfig
	transport *http.Transport

	mu     sync.Mutex // guards what follows
	leader linkpb.ReplicaClient
	during context.Context //nolint:containedctx // of the connection to the leader, for those that are forwarded over it
	state  Pushed
}

// Pushed is the state that was pushed last.
type Pushed struct {
	// Snapshot is nil while no leader is followed.
	Snapshot *status.Snapshot
	// ConfirmedAt is when the leader confirmed it last, by the clock of this machine.
	ConfirmedAt time.Time
	// Number grows with each new Snapshot, and when there is none any more.
	Number uint64
	// Newer is closed with the next one.
	Newer <-chan struct{}

	newer chan struct{}
}

// NewCopy returns a Copy that follows no leader.
func NewCopy(cfg CopyConfig) *Copy {
	c := &Copy{cfg: cfg}
	c.state.renew()
	c.transport = &http.Transport{
		DialContext:        func(context.Context, string, string) (net.Conn, error) { return c.dial() },
		DisableCompression: true, MaxIdleConnsPerHost: 16, IdleConnTimeout: time.Minute,
	}
	return c
}

func (p *Pushed) renew() {
	p.newer = make(chan struct{})
	p.Newer = p.newer
}

// State returns the state as it was pushed last.
func (c *Copy) State() Pushed {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.state
}

// Notify wakes those who wait for a newer state.
func (c *Copy) Notify() {
	c.mu.Lock()
	defer c.mu.Unlock()
	close(c.state.newer)
	c.state.renew()
}

// Follow follows the leader at the other end of a connection until ctx ends.
func (c *Copy) Follow(ctx context.Context, conn grpc.ClientConnInterface) {
	leader := linkpb.NewReplicaClient(conn)
	c.mu.Lock()
	c.leader, c.during = leader, ctx
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		c.leader, c.during = nil, nil
		c.mu.Unlock()
		c.transport.CloseIdleConnections()
	}()
	var both sync.WaitGroup
	both.Go(func() { c.again(ctx, "state", func() error { return c.follow(ctx, leader) }) })
	both.Go(func() { c.again(ctx, "history", func() error { return c.events(ctx, leader) }) })
	both.Wait()
}

// again calls f until ctx ends, or the leader turns out to be of a release that does not
// know what is asked.
func (c *Copy) again(ctx context.Context, what string, f func() error) {
	for ctx.Err() == nil {
		err := f()
		if grpcstatus.Code(err) == codes.Unimplemented {
			c.cfg.Log.Warn("the master that leads is of an earlier release: its "+what+" is not followed", "cell", c.cfg.Cell)
			return
		}
		c.cfg.Log.Debug("not following the "+what, "cell", c.cfg.Cell, "err", err)
		_ = sleep(ctx, retryEvery) // the loop says so
	}
}

// follow takes the state until the stream ends or the leader is silent for too long.
func (c *Copy) follow(ctx context.Context, leader linkpb.ReplicaClient) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := leader.Follow(ctx, &linkpb.FollowRequest{Cell: c.cfg.Cell})
	if err != nil {
		return err
	}
	silent := time.AfterFunc(silentAfter, cancel)
	defer silent.Stop()
	defer c.lose()
	var now *status.Snapshot
	var pieces []byte
	for {
		m, err := stream.Recv()
		if err != nil {
			return err
		}
		silent.Reset(silentAfter)
		if len(m.GetData()) > 0 {
			if pieces = append(pieces, m.GetData()...); !m.GetLast() {
				continue
			}
			change := new(status.Change)
			if err := json.Unmarshal(pieces, change); err != nil {
				return fmt.Errorf("state of the leader: %w", err)
			}
			pieces = nil
			if now, err = now.Changed(change); err != nil {
				return fmt.Errorf("state of the leader: %w", err)
			}
		}
		if now != nil {
			c.take(now)
		}
	}
}

// take keeps the state that the leader has sent.
func (c *Copy) take(now *status.Snapshot) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := &c.state
	same := s.Snapshot != nil && s.Snapshot.Brief().Version == now.Brief().Version
	s.Snapshot, s.ConfirmedAt = now, time.Now()
	if !same {
		s.Number++
		close(s.newer)
		s.renew()
	}
}

// lose drops the state: no leader is followed.
func (c *Copy) lose() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.state.Snapshot == nil {
		return
	}
	c.state.Snapshot = nil
	c.state.Number++
	close(c.state.newer)
	c.state.renew()
}

// events takes the history.
func (c *Copy) events(ctx context.Context, leader linkpb.ReplicaClient) error {
	stream, err := leader.Events(ctx, &linkpb.EventsRequest{Cell: c.cfg.Cell, After: c.cfg.Events.Last()})
	if err != nil {
		return err
	}
	for {
		m, err := stream.Recv()
		if err != nil {
			return err
		}
		records := make([]schema.EventRecord, len(m.GetRecords()))
		for i, b := range m.GetRecords() {
			if err := json.Unmarshal(b, &records[i]); err != nil {
				return fmt.Errorf("event of the leader: %w", err)
			}
		}
		c.cfg.Events.Keep(records)
	}
}

// present returns the leader, and a context that ends with the connection to it.
func (c *Copy) present() (linkpb.ReplicaClient, context.Context, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.leader == nil {
		return nil, nil, ErrNoLeader
	}
	return c.leader, c.during, nil
}

// dial returns a connection to the leader's API.
func (c *Copy) dial() (net.Conn, error) {
	leader, ctx, err := c.present()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	stream, err := leader.Forward(ctx)
	if err != nil {
		cancel()
		return nil, err
	}
	here, there := net.Pipe()
	go func() {
		defer cancel()
		carry(ctx, there, stream)
	}()
	return here, nil
}

// Transport carries requests to the leader's API, whatever host they have. It errs while no
// leader can be reached.
func (c *Copy) Transport() http.RoundTripper { return c.transport }

// Join gets a machine its certificate from the leader.
func (c *Copy) Join(ctx context.Context, token string, request []byte) (*x509.Certificate, error) {
	leader, during, err := c.present()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, joinTimeout)
	defer cancel()
	stop := context.AfterFunc(during, cancel)
	defer stop()
	stream, err := leader.Certify(ctx, &linkpb.CertifyRequest{Token: token, Request: request})
	if err != nil {
		return nil, err
	}
	m, err := stream.Recv()
	if grpcstatus.Code(err) == codes.PermissionDenied {
		return nil, fmt.Errorf("%w: %s", identity.ErrRefused, grpcstatus.Convert(err).Message())
	}
	if err != nil {
		return nil, fmt.Errorf("the master that leads: %s", grpcstatus.Convert(err).Message())
	}
	return x509.ParseCertificate(m.GetCertificate())
}

// Sources asks the leader from where a machine gets an image or a package.
func (c *Copy) Sources(ctx context.Context, q schema.SourceQuestion) (schema.SourceAnswer, error) {
	leader, during, err := c.present()
	if err != nil {
		return schema.SourceAnswer{}, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := context.AfterFunc(during, cancel)
	defer stop()
	stream, err := leader.Sources(ctx, linkpb.EncodeQuestion(&q))
	if err != nil {
		return schema.SourceAnswer{}, err
	}
	m, err := stream.Recv()
	if err != nil {
		return schema.SourceAnswer{}, fmt.Errorf("the master that leads: %s", grpcstatus.Convert(err).Message())
	}
	return linkpb.DecodeAnswer(m), nil
}

// CatchUp waits until the state is at least as new as the leader's is now, so that a client
// that has changed something sees the change here; until ctx ends, or the leader changes.
func (c *Copy) CatchUp(ctx context.Context) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodHead, "http://leader/v1/status?tasks=0&most=0", nil)
	if err != nil {
		return err
	}
	answer, err := c.transport.RoundTrip(r)
	if err != nil {
		return err
	}
	_ = answer.Body.Close() // there is none
	version, err := strconv.ParseUint(answer.Header.Get("Muster-Status-Version"), 10, 64)
	if err != nil {
		return fmt.Errorf("version of the leader's state: %w", err)
	}
	for {
		s := c.State()
		if s.Snapshot == nil {
			return ErrNoLeader
		}
		if s.Snapshot.Brief().Version >= version {
			return nil
		}
		select {
		case <-s.Newer:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
