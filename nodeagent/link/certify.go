package link

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/musterhq/muster/schema/linkpb"
)

const (
	dialTimeout    = 10 * time.Second
	certifyTimeout = 30 * time.Second // the master stores a join before it answers
	// A renewal that failed is tried again after the least, doubled up to the
	// most, half of it random.
	leastRetry = time.Second
	mostRetry  = 10 * time.Minute
)

// secure returns the configuration of a connection to the master, after a join
// if one is due; nil over a unix socket.
func (c *Client) secure(ctx context.Context) (*tls.Config, error) {
	id := c.cfg.Identity
	if id == nil {
		return nil, nil
	}
	host, _, err := net.SplitHostPort(c.address())
	if err != nil {
		return nil, fmt.Errorf("connect to %q: %w", c.address(), err)
	}
	token, request, err := id.Enroll(c.denied)
	if err != nil {
		return nil, err
	}
	if token != "" {
		if err := c.join(ctx, host, &linkpb.CertifyRequest{Token: token, Request: request}); err != nil {
			var answer interface{ GRPCStatus() *status.Status }
			if _, none := id.Connect(host); none != nil && status.Code(err) == codes.PermissionDenied && errors.As(err, &answer) {
				return nil, fmt.Errorf("%w: %s", ErrNotJoined, answer.GRPCStatus().Message())
			}
			return nil, err
		}
		c.denied = false
	}
	return id.Connect(host)
}

// configOf returns the configuration of a connection to a master with the certificate
// that there is; nil over a unix socket.
func (c *Client) configOf(address string) (*tls.Config, error) {
	if c.cfg.Identity == nil {
		return nil, nil
	}
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, fmt.Errorf("connect to %q: %w", address, err)
	}
	return c.cfg.Identity.Connect(host)
}

// join gets the machine's first certificate.
func (c *Client) join(ctx context.Context, host string, r *linkpb.CertifyRequest) error {
	cfg, err := c.cfg.Identity.Unknown(host, r.GetToken())
	if err != nil {
		return err
	}
	conn, shake, err := newConn(c.address(), cfg)
	if err != nil {
		return fmt.Errorf("connect to %s: %w", c.address(), err)
	}
	defer func() { _ = conn.Close() }() // it errs only when closed before
	if err := c.certify(ctx, linkpb.NewLinkClient(conn), r); err != nil {
		return shake.explain(c.address(), fmt.Errorf("join: %w", err))
	}
	c.cfg.Log.Info("joined the cell", "cell", c.cfg.Cell, "machine", c.cfg.Agent.Info().Name)
	return nil
}

// certify asks for a certificate and keeps it.
func (c *Client) certify(ctx context.Context, l linkpb.LinkClient, r *linkpb.CertifyRequest) error {
	ctx, cancel := context.WithTimeout(ctx, certifyTimeout)
	defer cancel()
	answer, err := l.Certify(ctx, r)
	if err != nil {
		return err
	}
	return c.cfg.Identity.Accept(answer.GetCertificate(), answer.GetAuthorities())
}

// renew keeps the machine's certificate new, over the connection of the session,
// until ctx ends. The session goes on with it.
func (s *session) renew(ctx context.Context) {
	id, log := s.client.cfg.Identity, s.client.cfg.Log.With("machine", s.client.cfg.Agent.Info().Name)
	retry := leastRetry
	for {
		at, request, err := id.Renewal()
		if err == nil {
			if !sleep(ctx, time.Until(at)) {
				return
			}
			err = s.client.certify(ctx, s.link, &linkpb.CertifyRequest{Request: request})
		}
		if err == nil {
			log.Info("certificate renewed")
			retry = leastRetry
			continue
		}
		if ctx.Err() != nil {
			return
		}
		log.Warn("certificate not renewed", "err", err)
		if !sleep(ctx, retry/2+rand.N(retry/2)) {
			return
		}
		retry = min(2*retry, mostRetry)
	}
}

// sleep returns false when ctx ended before.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
