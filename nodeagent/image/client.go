package image

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// client reads from registries (the OCI distribution specification, of which Docker's
// is a form). It may be used from any goroutine.
type client struct {
	transport   http.RoundTripper
	credentials func(registry string) (user, password string, ok bool)
	insecure    map[string]bool
	loopback    bool // registries on a loopback address are insecure, too
	mirrors     map[string][]string
	stall       time.Duration
	floor       int64 // as Config
	window      time.Duration
	now         func() time.Time
	traffic     atomic.Int64 // bytes of blobs

	mu     sync.Mutex // guards what follows
	grants map[grantKey]grant
}

// newClient returns a client as the fields of cfg say that are about registries.
func newClient(cfg *Config) *client {
	c := &client{
		transport: cfg.Transport, credentials: cfg.Credentials, insecure: map[string]bool{}, loopback: cfg.InsecureLoopback,
		mirrors: cfg.Mirrors, stall: cmp.Or(cfg.Stall, defaultStall), floor: cmp.Or(cfg.Floor, defaultFloor), window: cmp.Or(cfg.Window, defaultWindow),
		now: cfg.Now, grants: map[grantKey]grant{},
	}
	if c.transport == nil {
		c.transport = http.DefaultTransport
	}
	if c.credentials == nil {
		c.credentials = func(string) (string, string, bool) { return "", "", false }
	}
	if c.now == nil {
		c.now = time.Now
	}
	for _, name := range cfg.Insecure {
		c.insecure[name] = true
	}
	return c
}

// host is one that may have an image.
type host struct {
	registry string // as it is configured: its credentials are for it alone
	url      string // scheme and address
	insecure bool   // http is good enough
	floor    int64  // bytes a second; with less it is slow
	logins   []Login
}

// hosts returns who may have the images of a registry, in the order in which they are
// asked: its mirrors, and itself.
func (c *client) hosts(registry string, by Access) []host {
	mirrors := c.mirrors[registry]
	if len(mirrors) == 0 {
		mirrors = by.Mirrors[registry]
	}
	var out []host
	for i, name := range append(append([]string{}, mirrors...), registry) {
		h := host{registry: name, insecure: c.plain(name), floor: c.floor, logins: by.Logins[name]}
		if i < len(mirrors) {
			h.floor *= quickFloor
		}
		scheme, address := "https", name
		if h.insecure {
			scheme = "http"
		}
		if name == dockerHub {
			address = dockerHubHost
		}
		h.url = scheme + "://" + address
		out = append(out, h)
	}
	return out
}

// request is one GET or HEAD, with the redirects that follow.
type request struct {
	method   string // "" is GET
	of       string // for errors
	url      *url.URL
	header   http.Header
	insecure bool
	floor    int64
}

// mostRedirects bounds how often one request is sent elsewhere.
const mostRedirects = 5

// errStalled is the cause with which a request is cancelled that makes no progress.
var errStalled = errors.New("nothing came for a while")

// follow sends a request and those to which it is redirected. The header Authorization
// goes to the first scheme, host and port only. Errors are ErrUnavailable, ErrSlow and
// the context's.
func (c *client) follow(ctx context.Context, r request) (*http.Response, error) {
	at := r.url
	for range mostRedirects + 1 {
		next := r
		next.url, next.header = at, r.header.Clone()
		if at.Scheme != r.url.Scheme || at.Host != r.url.Host {
			next.header.Del("Authorization")
		}
		res, err := c.send(ctx, next)
		if err != nil {
			return nil, err
		}
		switch res.StatusCode {
		case http.StatusMovedPermanently, http.StatusFound, http.StatusSeeOther, http.StatusTemporaryRedirect, http.StatusPermanentRedirect:
		default:
			return res, nil
		}
		_ = res.Body.Close()
		to, err := at.Parse(res.Header.Get("Location"))
		if err != nil || to.Host == "" {
			return nil, fail(ErrUnavailable, r.of, "%s redirects to %.200q, which is no URL", at.Host, res.Header.Get("Location"))
		}
		if to.Scheme != "https" && (to.Scheme != "http" || !r.insecure) {
			return nil, fail(ErrUnavailable, r.of, "%s redirects to %.200q, which is not https", at.Host, to.Redacted())
		}
		at = to
	}
	return nil, fail(ErrUnavailable, r.of, "it redirects more than %d times", mostRedirects)
}

// send sends one request. The body of the answer ends with ErrSlow when nothing comes
// for c.stall while it is read, or less than the floor of r.
func (c *client) send(ctx context.Context, r request) (*http.Response, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	timer := time.AfterFunc(c.stall, func() { cancel(errStalled) })
	req, err := http.NewRequestWithContext(ctx, r.method, r.url.String(), nil)
	if err != nil {
		timer.Stop()
		cancel(nil)
		return nil, fail(ErrUnavailable, r.of, "%w", err)
	}
	req.Header = r.header
	req.Header.Set("Accept-Encoding", "identity") // the digest is of the bytes as they are stored
	req.Header.Set("User-Agent", "muster-agent")
	res, err := c.transport.RoundTrip(req)
	timer.Stop()
	if err != nil {
		err = c.network(ctx, r.of, err)
		cancel(nil)
		return nil, err
	}
	res.Request = req
	res.Body = &body{of: r.of, body: res.Body, client: c, timer: timer, pace: pace{floor: r.floor, window: c.window}, cause: func() error { return context.Cause(ctx) }, cancel: func() { cancel(nil) }}
	return res, nil
}

// network says what an error of a connection means.
func (c *client) network(ctx context.Context, of string, err error) error {
	return c.connection(of, err, context.Cause(ctx))
}

func (c *client) connection(of string, err, cause error) error {
	switch {
	case errors.Is(cause, errStalled):
		return fail(ErrSlow, of, "nothing came for %v", c.stall)
	case cause != nil:
		return cause
	case errors.Is(err, io.EOF): // which is the end of nothing here
		err = io.ErrUnexpectedEOF
	}
	return fail(ErrUnavailable, of, "%w", err)
}

// body is the body of an answer, which must make progress while it is read.
type body struct {
	of     string
	body   io.ReadCloser
	client *client
	timer  *time.Timer
	pace   pace
	cause  func() error
	cancel func()
}

// Read implements io.Reader.
func (b *body) Read(p []byte) (int, error) {
	b.timer.Reset(b.client.stall)
	began := b.client.now()
	n, err := b.body.Read(p)
	b.timer.Stop()
	rate, slow := b.pace.add(n, b.client.now().Sub(began))
	switch {
	case err != nil && !errors.Is(err, io.EOF):
		err = b.client.connection(b.of, err, b.cause())
	case err == nil && slow:
		err = &failure{kind: ErrSlow, of: b.of, why: &slowError{rate, b.pace.floor, b.client.window}}
	}
	return n, err
}

// slowError is that of a connection that brings less than it must.
type slowError struct {
	rate, floor int64 // bytes a second
	window      time.Duration
}

// Error implements error.
func (e *slowError) Error() string {
	return fmt.Sprintf("%d bytes a second for %v, less than %d", e.rate, e.window, e.floor)
}

// Close implements io.Closer.
func (b *body) Close() error {
	b.timer.Stop()
	b.cancel()
	return b.body.Close()
}

// ask is what a host is asked for.
type ask struct {
	method string // "" is GET
	repo   string
	path   string // below the repository
	header http.Header
	exact  *url.URL // if set, what is asked for, and no path of a registry
}

// get asks a host for something of a repository. The answer's status is 200 or 206.
func (c *client) get(ctx context.Context, h host, a ask) (*http.Response, error) {
	logins := c.loginsOf(h)
	var refused []string
	for i := range logins {
		res, err := c.getAs(ctx, h, a, &logins[i])
		if i == len(logins)-1 || !errors.Is(err, ErrUnauthorized) {
			return res, after(refused, err)
		}
		refused = append(refused, err.Error())
	}
	return nil, nil // there is at least one
}

// loginsOf returns the logins for a host, in the order in which they are tried; one of
// nobody if there are none.
func (c *client) loginsOf(h host) []Login {
	if user, password, ok := c.credentials(h.registry); ok {
		return []Login{{User: user, Password: password}}
	}
	if len(h.logins) > 0 {
		return h.logins
	}
	return []Login{{}}
}

// getAs is get with one login.
func (c *client) getAs(ctx context.Context, h host, a ask, l *Login) (*http.Response, error) {
	u, of := a.exact, a.repo
	if u == nil {
		var err error
		u, err = url.Parse(h.url + "/v2/" + a.repo + "/" + a.path)
		of = h.registry + "/" + a.repo + ", " + a.path
		if err != nil {
			return nil, fail(ErrReference, of, "%w", err)
		}
	}
	who := asking{a.repo, l}
	g := c.granted(h, who)
	for fresh := false; ; fresh = true {
		sent := a.header.Clone()
		if g.header != "" {
			sent.Set("Authorization", g.header)
		}
		res, err := c.follow(ctx, request{method: a.method, of: of, url: u, header: sent, insecure: h.insecure, floor: h.floor})
		if err != nil {
			return nil, err
		}
		if res.StatusCode == http.StatusUnauthorized && !fresh && res.Request.URL.Host == u.Host {
			_ = res.Body.Close()
			if g, err = c.authorize(ctx, h, who, res.Header); err != nil {
				return nil, err
			}
			continue
		}
		if fresh && res.StatusCode != http.StatusUnauthorized {
			// Not before: others could use up one that is good for a few requests.
			c.grant(h, who, g)
		}
		if err := c.refused(of, l, res); err != nil {
			_ = res.Body.Close()
			return nil, err
		}
		return res, nil
	}
}

// longestRefusal bounds what is read of an answer that refuses, in bytes.
const longestRefusal = 4096

// refused returns what a status means that gives nothing, and nil for one that does; as is who
// has asked.
func (c *client) refused(of string, as *Login, res *http.Response) error {
	if res.StatusCode == http.StatusOK || res.StatusCode == http.StatusPartialContent {
		return nil
	}
	f := &failure{kind: ErrUnavailable, of: of, after: c.retryAfter(res.Header.Get("Retry-After"))}
	switch res.StatusCode {
	case http.StatusUnauthorized, http.StatusForbidden:
		f.kind = ErrUnauthorized
	case http.StatusNotFound, http.StatusGone:
		f.kind = ErrNotFound
	}
	b, _ := io.ReadAll(io.LimitReader(res.Body, longestRefusal)) // the status says enough
	f.why = fmt.Errorf("status %d%s", res.StatusCode, said(b))
	if errors.Is(f.kind, ErrUnauthorized) && as.User != "" {
		f.why = fmt.Errorf("it refuses the credentials of %q%s: %w", as.User, as.name(), f.why)
	}
	if !f.after.IsZero() {
		f.why = fmt.Errorf("%w; it wants to be asked again at %s", f.why, f.after.UTC().Format(time.RFC3339))
	}
	return f
}

// said returns the reason that a registry gives for a refusal, if it gives one.
func said(b []byte) string {
	var r struct {
		Errors []struct {
			Code    string `json:"code"`
			Message string `json:"message"`
		} `json:"errors"`
	}
	if json.Unmarshal(b, &r) != nil || len(r.Errors) == 0 {
		return ""
	}
	return fmt.Sprintf(": %.60q %.200q", r.Errors[0].Code, r.Errors[0].Message)
}

// longestRetry bounds what is believed of Retry-After.
const longestRetry = 24 * time.Hour

// retryAfter reads the header Retry-After: seconds, or a time.
func (c *client) retryAfter(s string) time.Time {
	if s = strings.TrimSpace(s); s == "" {
		return time.Time{}
	}
	now := c.now()
	if seconds, err := strconv.ParseInt(s, 10, 64); err == nil && seconds >= 0 {
		return now.Add(time.Duration(min(seconds, int64(longestRetry/time.Second))) * time.Second)
	}
	at, err := http.ParseTime(s)
	if err != nil || at.Before(now) {
		return time.Time{}
	}
	if last := now.Add(longestRetry); at.After(last) {
		return last
	}
	return at
}

// plain reports whether a host may be asked by http.
func (c *client) plain(host string) bool { return c.insecure[host] || c.loopback && onLoopback(host) }

// onLoopback reports whether a registry is on this machine, where nobody listens in
// between: such a one needs no TLS, as is the rule of other tools.
func onLoopback(registry string) bool {
	name, _, err := net.SplitHostPort(registry)
	if err != nil {
		name = registry
	}
	ip := net.ParseIP(strings.Trim(name, "[]"))
	return name == "localhost" || ip != nil && ip.IsLoopback()
}
