package git

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-git/go-git/v5/plumbing/transport"
	githttp "github.com/go-git/go-git/v5/plumbing/transport/http"
)

// statusError is an answer that is none.
type statusError struct {
	code  int
	after time.Duration // that the server wants to be left alone for; 0: it did not say
}

func (e *statusError) Error() string {
	return fmt.Sprintf("the server answers %d %s", e.code, http.StatusText(e.code))
}

// redirectError is a redirect that is not followed.
type redirectError struct{ to string }

func (e *redirectError) Error() string { return "the server redirects to " + e.to }

// contentError is an answer that is not git's.
type contentError struct{ kind string }

func (e *contentError) Error() string {
	return fmt.Sprintf("the server answers with %q, which is not git's protocol", e.kind)
}

// web is how a remote is asked over http and https.
type web struct {
	remote *remote

	mu        sync.Mutex // guards all below
	transport *http.Transport
	roots     []byte // of transport
}

// open begins a conversation. It reads the files that Auth names.
func (s *web) open(ctx context.Context, w *wire) (session, error) {
	m := s.remote
	token, err := m.auth.token()
	if err != nil {
		return nil, err
	}
	roots, err := m.auth.roots()
	if err != nil {
		return nil, err
	}
	trip := &tripper{
		next: s.use(roots), wire: w, ctx: ctx, origin: m.protocol + "://" + m.address(),
		user: cmp.Or(m.user, m.auth.User, tokenUser), token: token, bearer: m.auth.Bearer,
	}
	ep, err := transport.NewEndpoint(m.url)
	if err != nil {
		return nil, err
	}
	return githttp.NewClient(&http.Client{Transport: trip}).NewUploadPackSession(ep, nil)
}

// use returns a transport that trusts the certificates in roots, or those of the
// system.
func (s *web) use(roots []byte) *http.Transport {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.transport != nil {
		if bytes.Equal(roots, s.roots) {
			return s.transport
		}
		s.transport.CloseIdleConnections()
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if roots != nil {
		config.RootCAs = x509.NewCertPool()
		config.RootCAs.AppendCertsFromPEM(roots)
	}
	s.roots = roots
	s.transport = &http.Transport{
		Proxy: http.ProxyFromEnvironment, TLSClientConfig: config,
		MaxIdleConnsPerHost: 1, IdleConnTimeout: 2 * time.Minute,
	}
	return s.transport
}

func (s *web) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.transport != nil {
		s.transport.CloseIdleConnections()
	}
}

// tripper sends one conversation's requests: it adds the credentials, for their origin
// only, cancels requests that stall, refuses redirects to other hosts, and rejects answers
// that are not git's.
type tripper struct {
	next   http.RoundTripper
	wire   *wire
	ctx    context.Context //nolint:containedctx // ends when the wire stalls; a request brings its own
	origin string
	user   string
	token  string
	bearer bool
}

// RoundTrip implements http.RoundTripper.
func (t *tripper) RoundTrip(req *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancelCause(req.Context())
	stop := context.AfterFunc(t.ctx, func() { cancel(context.Cause(t.ctx)) })
	req = req.Clone(ctx)
	if t.token != "" && origin(req.URL) == t.origin {
		if t.bearer {
			req.Header.Set("Authorization", "Bearer "+t.token)
		} else {
			req.SetBasicAuth(t.user, t.token)
		}
	}
	resp, err := t.next.RoundTrip(req)
	if err == nil {
		err = refuse(req, resp)
		if err != nil {
			resp.Body.Close()
		}
	}
	if err != nil {
		stop()
		cancel(nil)
		return nil, t.wire.fail(err)
	}
	resp.Body = &body{t.wire.reader(resp.Body), func() { stop(); cancel(nil) }}
	return resp, nil
}

// refuse returns what is wrong with an answer before its body is read.
func refuse(req *http.Request, resp *http.Response) error {
	if to, err := resp.Location(); err == nil && resp.StatusCode < 400 {
		if origin(to) != origin(req.URL) {
			return &redirectError{(&url.URL{Scheme: to.Scheme, Host: to.Host, Path: strings.TrimSuffix(to.Path, "/info/refs")}).String()}
		}
		return nil // it is followed
	}
	if resp.StatusCode != http.StatusOK {
		e := &statusError{code: resp.StatusCode}
		if n, err := strconv.Atoi(resp.Header.Get("Retry-After")); err == nil && n > 0 {
			e.after = time.Duration(min(n, int(maxBackOff/time.Second))) * time.Second
		}
		return e
	}
	want := "application/x-git-upload-pack-advertisement"
	if req.Method == http.MethodPost {
		want = "application/x-git-upload-pack-result"
	}
	got := resp.Header.Get("Content-Type")
	if kind, _, err := mime.ParseMediaType(got); err != nil || kind != want {
		return &contentError{got[:min(len(got), 100)]}
	}
	return nil
}

// origin returns scheme, host and port of u, the port always.
func origin(u *url.URL) string {
	port := u.Port()
	if port == "" {
		port = defaultPorts[u.Scheme]
	}
	return u.Scheme + "://" + net.JoinHostPort(strings.ToLower(u.Hostname()), port)
}

// body releases its request's context when it is closed.
type body struct {
	io.ReadCloser
	release func()
}

func (b *body) Close() error {
	defer b.release()
	return b.ReadCloser.Close()
}

// loopback says whether host is this machine, by its name alone.
func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}
