package peer

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/musterhq/muster/nodeagent/image"
	"github.com/musterhq/muster/schema"
)

// A machine that is gone costs who asks it as long as dialTimeout, and one that hangs as long as
// answerTimeout.
const (
	dialTimeout   = 3 * time.Second
	answerTimeout = waitFor + 3*time.Second
)

// Asker asks the master where something is to be had.
type Asker interface {
	Sources(ctx context.Context, q schema.SourceQuestion) (schema.SourceAnswer, error)
}

// Client asks other machines for blobs. It is the Peers of a store of images.
type Client struct {
	Asker

	transport *http.Transport
}

// NewClient returns a client that shows others the identity.
func NewClient(master Asker, id Identity) *Client {
	dialer := net.Dialer{Timeout: dialTimeout}
	return &Client{Asker: master, transport: &http.Transport{
		// The host of a URL is the name of a machine, so that a connection is used again for
		// that one only; its address goes with the request.
		DialTLSContext: func(ctx context.Context, network, host string) (net.Conn, error) {
			machine, _, err := net.SplitHostPort(host)
			if err != nil {
				return nil, err
			}
			address, _ := ctx.Value(addressKey{}).(string)
			raw, err := dialer.DialContext(ctx, network, address)
			if err != nil {
				return nil, err
			}
			conn := tls.Client(raw, id.Peer(machine))
			ctx, cancel := context.WithTimeout(ctx, dialTimeout)
			defer cancel()
			if err := conn.HandshakeContext(ctx); err != nil {
				return nil, errors.Join(err, raw.Close())
			}
			return conn, nil
		},
		ResponseHeaderTimeout: answerTimeout, DisableCompression: true,
		MaxIdleConnsPerHost: Most, IdleConnTimeout: idleTimeout / 2, MaxResponseHeaderBytes: headerBytes,
	}}
}

// addressKey is the key of a machine's address in a context.
type addressKey struct{}

// Get asks a machine for a blob. It implements the method of image.Peers.
func (c *Client) Get(ctx context.Context, p schema.SourcePeer, b image.PeerBlob) (image.PeerAnswer, error) {
	if err := schema.CheckName(p.Machine); err != nil {
		return image.PeerAnswer{}, err
	}
	url := "https://" + p.Machine + pathPrefix + string(b.Sum)
	if b.Wait {
		url += "?" + waitQuery
	}
	r, err := http.NewRequestWithContext(context.WithValue(ctx, addressKey{}, p.Address), http.MethodGet, url, nil)
	if err != nil {
		return image.PeerAnswer{}, err
	}
	if b.Offset > 0 {
		r.Header.Set("Range", fmt.Sprintf("bytes=%d-", b.Offset))
	}
	res, err := c.transport.RoundTrip(r)
	if err != nil {
		return image.PeerAnswer{}, fmt.Errorf("machine %s: %w", p.Machine, err)
	}
	if res.StatusCode == http.StatusOK && b.Offset == 0 && res.ContentLength >= 0 {
		return image.PeerAnswer{Body: res.Body, Size: res.ContentLength}, nil
	}
	var first, last, size int64
	if n, _ := fmt.Sscanf(res.Header.Get("Content-Range"), "bytes %d-%d/%d", &first, &last, &size); res.StatusCode == http.StatusPartialContent && n == 3 && first == b.Offset {
		return image.PeerAnswer{Body: res.Body, Size: size}, nil
	}
	_, _ = io.CopyN(io.Discard, res.Body, headerBytes) // so that the connection can be used again
	_ = res.Body.Close()                               // nothing follows
	switch res.StatusCode {
	case http.StatusNotFound:
		return image.PeerAnswer{}, nil
	case http.StatusServiceUnavailable:
		moved, _ := strconv.ParseInt(res.Header.Get(movedHeader), 10, 64) // 0: nobody knows
		return image.PeerAnswer{Later: true, Moved: moved}, nil
	}
	return image.PeerAnswer{}, fmt.Errorf("machine %s: status %d", p.Machine, res.StatusCode)
}

// Close closes the connections that nobody uses.
func (c *Client) Close() { c.transport.CloseIdleConnections() }
