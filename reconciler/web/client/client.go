package client

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/musterhq/muster/reconciler/local"
	"github.com/musterhq/muster/reconciler/status"
	"github.com/musterhq/muster/schema"
	"github.com/musterhq/muster/schema/identity"
)

const (
	dialTimeout = 5 * time.Second
	maxAnswer   = 256 << 20 // a status of 100,000 tasks has some 40 MB
	maxLine     = 1 << 20   // of an event
)

// Error is an answer that is none: what went wrong, and what to do about it.
type Error struct {
	Code    int // the HTTP status; 0 when there was no answer
	Message string
	Hint    string
	Err     error // beneath, may be nil
}

func (e *Error) Error() string { return e.Message }

func (e *Error) Unwrap() error { return e.Err }

// Client speaks to one master.
type Client struct {
	base   *url.URL
	http   *http.Client
	secure *Secure // nil over http
	name   string  // of the master, as it was given
}

// Secure is what a master over https is shown, and believed for. The functions
// are called for each connection, so that files may change meanwhile.
type Secure struct {
	Certificate func() (*tls.Certificate, error)
	Authorities func() []*x509.Certificate
}

// New returns a client of the master at a URL such as http://127.0.0.1:7070, whose
// scheme may be left out, or at a unix socket, unix:/PATH. It does not connect yet.
func New(master string) (*Client, error) { return NewSecure(master, nil) }

// NewSecure is New for a master over https; without a Secure, for one over http.
func NewSecure(master string, secure *Secure) (*Client, error) {
	hint := "give --master or MUSTER_MASTER as muster dev and muster master print it: unix:/PATH, or https://HOST:PORT"
	if master == "" {
		return nil, &Error{Message: "no master is given", Hint: hint}
	}
	if path, ok := strings.CutPrefix(master, "unix:"); ok {
		return newUnix(path, secure, hint)
	}
	given, scheme := master, "http"
	if secure != nil {
		scheme = "https"
	}
	if !strings.Contains(master, "://") {
		master = scheme + "://" + master
	}
	u, err := url.Parse(master)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Port() == "" || strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.User != nil {
		return nil, &Error{Message: fmt.Sprintf("master %q: want unix:/PATH, http://HOST:PORT or https://HOST:PORT", given), Hint: hint, Err: err}
	}
	if u.Scheme == "https" && secure == nil {
		return nil, &Error{
			Message: fmt.Sprintf("master %q requires a client certificate, and none is given", given),
			Hint:    "give --cert or MUSTER_CERT: a file that `muster pki issue` wrote",
		}
	}
	if u.Scheme == "http" && secure != nil {
		return nil, &Error{Message: fmt.Sprintf("master %q: a certificate is given, but http cannot use it", given), Hint: "give the master's address with https://"}
	}
	u.Path = ""
	t := &http.Transport{
		DialContext: dial(secure == nil), // and no proxy, whatever the environment says
		// An answer may be long in coming: a log that is followed, a long poll.
		TLSHandshakeTimeout: dialTimeout,
	}
	if secure != nil {
		t.TLSClientConfig = identity.ClientTLS(identity.Client{
			Host: u.Hostname(), Authorities: secure.Authorities, Certificate: secure.Certificate, Protocols: []string{"http/1.1"},
		})
	}
	return &Client{u, &http.Client{Transport: t}, secure, u.String()}, nil
}

// newUnix returns a client of the master at a unix socket. Its URL has a host for
// the protocol's sake.
func newUnix(path string, secure *Secure, hint string) (*Client, error) {
	if !strings.HasPrefix(path, "/") {
		return nil, &Error{Message: fmt.Sprintf("master %q: want unix:/PATH, the whole path of a socket", "unix:"+path), Hint: hint}
	}
	if secure != nil {
		return nil, &Error{Message: fmt.Sprintf("master %q: a certificate is given, but a unix socket cannot use it", "unix:"+path), Hint: "leave --cert, --key and --ca out: the kernel identifies the user"}
	}
	connect := dial(true)
	t := &http.Transport{
		DialContext:        func(ctx context.Context, _, _ string) (net.Conn, error) { return connect(ctx, "unix", path) },
		DisableCompression: true, // within a machine it costs more than it saves
	}
	return &Client{&url.URL{Scheme: "http", Host: "localhost"}, &http.Client{Transport: t}, nil, "unix:" + path}, nil
}

// errTask says that a task listens where a master should.
var errTask = errors.New("the process there is a task")

// dial returns what connects. Without TLS it is not to a task, which may have taken
// the port of a master that is away.
func dial(plain bool) func(ctx context.Context, network, address string) (net.Conn, error) {
	d := &net.Dialer{Timeout: dialTimeout}
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := d.DialContext(ctx, network, address)
		if err != nil || !plain {
			return c, err
		}
		// Who has accepted is not known before that has happened: who listens is.
		if uid, err := local.ServerOf(c); err == nil && schema.IsTaskUser(uid) {
			return nil, errors.Join(fmt.Errorf("%w, of uid %d", errTask, uid), c.Close())
		}
		return c, nil
	}
}

// Close closes idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// StatusQuery says which status is wanted. The zero value asks for all of the
// newest.
type StatusQuery struct {
	// While the status has the version After, the master waits up to Wait for
	// another.
	After uint64
	Wait  time.Duration
	Group status.Group
	// Brief leaves the tasks out, which are most of the status of a large cell.
	Brief bool
	// Short leaves out jobs and machines without problems, except the first Most of each,
	// and adds totals.
	Short bool
	Most  int
}

func (q *StatusQuery) values() url.Values {
	v := groupValues(q.Group)
	if q.Wait > 0 {
		v.Set("after", strconv.FormatUint(q.After, 10))
		v.Set("wait", q.Wait.String())
	}
	if q.Brief {
		v.Set("tasks", "0")
	}
	if q.Short {
		v.Set("most", strconv.Itoa(q.Most))
	}
	return v
}

// groupValues returns what names a group in a request.
func groupValues(g status.Group) url.Values {
	v := url.Values{}
	if g.Name != "" {
		v.Set("name", g.Name)
	}
	if !g.Selector.Empty() {
		v.Set("selector", g.Selector.String())
	}
	return v
}

// Usage returns what the tasks and machines of a part of the cell use.
func (c *Client) Usage(ctx context.Context, g status.Group) (*status.Usage, error) {
	return ask[status.Usage](ctx, c, http.MethodGet, "/v1/usage", groupValues(g))
}

// Endpoints returns the endpoints of a part of the cell, by name; with ready those alone
// that are. It asks for them in pages, so that an endpoint that comes or goes meanwhile may be
// there or not.
func (c *Client) Endpoints(ctx context.Context, g status.Group, ready bool) ([]status.Endpoint, error) {
	v := groupValues(g)
	if ready {
		v.Set("ready", "1")
	}
	return pages[status.Endpoint](ctx, c, "/v1/endpoints", v)
}

// Services returns the services of the cell, by name, or with a name that one.
func (c *Client) Services(ctx context.Context, name string) ([]status.Serving, error) {
	return pages[status.Serving](ctx, c, "/v1/services", groupValues(status.Group{Name: name}))
}

// WhyService returns what is behind a service, user/name, and why.
func (c *Client) WhyService(ctx context.Context, name string) (*status.ServiceExplanation, error) {
	return ask[status.ServiceExplanation](ctx, c, http.MethodGet, "/v1/why/service", url.Values{"name": {name}})
}

// pages returns the items of all pages of a list.
func pages[T any](ctx context.Context, c *Client, path string, v url.Values) ([]T, error) {
	v.Set("limit", "1000")
	all := []T{}
	for {
		p, err := ask[struct {
			Items    []T    `json:"items"`
			Continue string `json:"continue"`
		}](ctx, c, http.MethodGet, path, v)
		if err != nil {
			return nil, err
		}
		all = append(all, p.Items...)
		if p.Continue == "" {
			return all, nil
		}
		v.Set("continue", p.Continue)
	}
}

// Status returns the status of the cell, or of the part of it that q names, and
// its version, which is the cell's.
func (c *Client) Status(ctx context.Context, q StatusQuery) (*status.Status, uint64, error) {
	resp, err := c.do(ctx, http.MethodGet, "/v1/status", q.values())
	if err != nil {
		return nil, 0, err
	}
	defer resp.Body.Close()
	version, err := strconv.ParseUint(resp.Header.Get("Muster-Status-Version"), 10, 64)
	if err != nil {
		return nil, 0, c.foreign(err)
	}
	s := new(status.Status)
	if err := c.decode(resp.Body, s); err != nil {
		return nil, 0, err
	}
	return s, version, nil
}

// WhyQuery says what is to be explained.
type WhyQuery struct {
	Job     string // user/job; "" to have Machine explained
	Index   int    // of one of its tasks; less than 0: the job
	Machine string // to ask about, for a task, or to explain; "" for none
}

// Why returns why a job, one of its tasks or a machine is as it is.
func (c *Client) Why(ctx context.Context, q WhyQuery) (*status.Explanation, error) {
	v := url.Values{}
	if q.Job != "" {
		v.Set("job", q.Job)
	}
	if q.Job != "" && q.Index >= 0 {
		v.Set("index", strconv.Itoa(q.Index))
	}
	if q.Machine != "" {
		v.Set("machine", q.Machine)
	}
	return ask[status.Explanation](ctx, c, http.MethodGet, "/v1/why", v)
}

// EventQuery says which events are wanted.
type EventQuery struct {
	schema.EventQuery // AnyJob is not asked for
	// Selector picks events of jobs by the labels that the jobs have now.
	Selector schema.Selector
}

func (q *EventQuery) values() url.Values {
	v := url.Values{"after": {strconv.FormatUint(q.After, 10)}, "newest": {strconv.FormatBool(q.Newest)}}
	if q.Limit > 0 {
		v.Set("limit", strconv.Itoa(q.Limit))
	}
	for name, value := range map[string]string{"job": q.Job, "task": q.Task, "machine": q.Machine, "kind": string(q.Kind), "selector": q.Selector.String()} {
		if value != "" {
			v.Set(name, value)
		}
	}
	return v
}

// Events returns the events that match; with none, the master waits up to wait
// for the first. The ID of the last is the cursor to go on from.
func (c *Client) Events(ctx context.Context, q EventQuery, wait time.Duration) ([]schema.EventRecord, error) {
	v := q.values()
	v.Set("wait", wait.String())
	resp, err := c.do(ctx, http.MethodGet, "/v1/events", v)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	var records []schema.EventRecord
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, maxLine)
	for lines.Scan() {
		var r schema.EventRecord
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			return nil, c.foreign(err)
		}
		records = append(records, r)
	}
	if err := lines.Err(); err != nil {
		return nil, c.cut(err)
	}
	return records, nil
}

// Logs returns a log as it comes, to be closed; task is user/job/index. The
// task's name in r is not used.
func (c *Client) Logs(ctx context.Context, task string, r schema.LogRequest) (io.ReadCloser, error) {
	v := url.Values{"task": {task}, "stream": {string(r.Stream)}}
	if r.Generation > 0 {
		v.Set("generation", strconv.FormatUint(r.Generation, 10))
	}
	if r.Incarnation > 0 {
		v.Set("incarnation", strconv.Itoa(r.Incarnation))
	}
	if r.Follow {
		v.Set("follow", "1")
	}
	if r.Tail >= 0 {
		v.Set("tail", strconv.Itoa(r.Tail))
	}
	if r.Previous {
		v.Set("previous", "1")
	}
	if !r.Since.IsZero() {
		v.Set("since", r.Since.Format(time.RFC3339Nano))
	}
	if r.From != nil {
		v.Set("from", r.From.String())
	}
	if r.Framed {
		v.Set("framed", "1")
	}
	resp, err := c.do(ctx, http.MethodGet, "/v1/logs", v) //nolint:bodyclose // streamBody closes it
	if err != nil {
		return nil, err
	}
	return &streamBody{c, resp, "", "the log ends here; try again to go on"}, nil
}

// streamBody reads what the master sends as it comes; the error that ended it is in the
// trailer, and is said after what, with a hint.
type streamBody struct {
	client     *Client
	response   *http.Response
	what, hint string
}

func (b *streamBody) Read(p []byte) (int, error) {
	n, err := b.response.Body.Read(p)
	switch {
	case err == nil:
	case errors.Is(err, io.EOF):
		if text := b.response.Trailer.Get("Muster-Error"); text != "" {
			return n, &Error{Code: http.StatusBadGateway, Message: b.what + text, Hint: b.hint}
		}
	default:
		return n, b.client.cut(err)
	}
	return n, err
}

func (b *streamBody) Close() error { return b.response.Body.Close() }

// Reconcile has the master look at its repository now, and returns what it found. A
// status that is asked for afterwards knows of it.
func (c *Client) Reconcile(ctx context.Context) (*status.Look, error) {
	return ask[status.Look](ctx, c, http.MethodPost, "/v1/reconcile", nil)
}

// Standing returns how a commit, a hash or the beginning of one, stands to the head.
func (c *Client) Standing(ctx context.Context, commit string) (*status.Standing, error) {
	return ask[status.Standing](ctx, c, http.MethodGet, "/v1/commit", url.Values{"name": {commit}})
}

// Suspend leaves a job, user/job, or with schema.AllJobs the cell, as it is; lasts
// is for how long, 0 without an end.
func (c *Client) Suspend(ctx context.Context, x schema.Suspension, lasts time.Duration) (*schema.Suspension, error) {
	v := url.Values{"name": {x.Name}, "reason": {x.Reason}}
	if lasts > 0 {
		v.Set("for", lasts.String())
	}
	return ask[schema.Suspension](ctx, c, http.MethodPost, "/v1/suspend", v)
}

// Resume ends the suspension of a job, user/job, or of schema.AllJobs.
func (c *Client) Resume(ctx context.Context, name string) (*schema.Resumed, error) {
	return ask[schema.Resumed](ctx, c, http.MethodPost, "/v1/resume", url.Values{"name": {name}})
}

// Restart restarts the tasks of a job, user/job, that run, or one, user/job/index.
func (c *Client) Restart(ctx context.Context, name, reason string) (*schema.Restarting, error) {
	return c.restart(ctx, url.Values{"name": {name}, "reason": {reason}})
}

// CancelRestart ends the restart of a job, or a task, where it is.
func (c *Client) CancelRestart(ctx context.Context, name string) (*schema.Restarting, error) {
	return c.restart(ctx, url.Values{"name": {name}, "cancel": {"1"}})
}

func (c *Client) restart(ctx context.Context, v url.Values) (*schema.Restarting, error) {
	return ask[schema.Restarting](ctx, c, http.MethodPost, "/v1/restart", v)
}

// Page returns an address at which a browser of any user of the master's machine
// sees the status page.
func (c *Client) Page(ctx context.Context) (*PageAddress, error) {
	if c.secure != nil {
		return nil, &Error{Message: fmt.Sprintf("the page at %s is shown to whoever has a certificate", c.name), Hint: "import one of `muster pki issue --role read-only` into the browser, and open that address"}
	}
	return ask[PageAddress](ctx, c, http.MethodPost, "/v1/page", nil)
}

// PageAddress is where a browser sees the status page.
type PageAddress struct {
	URL   string    `json:"url"` // with a password
	Until time.Time `json:"until"`
}

// Forget has a machine forgotten that is not connected; with dry it only says what
// that would do.
func (c *Client) Forget(ctx context.Context, machine, reason string, dry bool) (*schema.Forgetting, error) {
	v := url.Values{"machine": {machine}, "reason": {reason}}
	if dry {
		v.Set("dry", "1")
	}
	return ask[schema.Forgetting](ctx, c, http.MethodPost, "/v1/forget", v)
}

// Exec runs a command beside a task, user/job/index, and returns what carries
// its frames, to be closed. The task's name in r is not used.
func (c *Client) Exec(ctx context.Context, task string, r schema.ExecRequest) (io.ReadWriteCloser, error) {
	v := url.Values{"task": {task}, "command": r.Command}
	if r.TTY {
		v.Set("tty", "1")
		v.Set("rows", strconv.Itoa(r.Rows))
		v.Set("columns", strconv.Itoa(r.Columns))
		v.Set("term", r.Term)
	}
	if r.Copy != nil {
		v.Set("copy", string(r.Copy.Direction))
		v.Set("path", r.Copy.Path)
		v.Set("name", r.Copy.Name)
	}
	resp, err := c.send(ctx, http.MethodPost, "/v1/exec", v, http.Header{"Connection": {"Upgrade"}, "Upgrade": {"muster-exec"}})
	if err != nil {
		return nil, err
	}
	conn, ok := resp.Body.(io.ReadWriteCloser)
	if !ok || resp.StatusCode != http.StatusSwitchingProtocols {
		return nil, errors.Join(c.foreign(fmt.Errorf("status %s to an upgrade", resp.Status)), resp.Body.Close())
	}
	return conn, nil
}

// ask sends a request and returns its answer, which is one JSON value.
func ask[T any](ctx context.Context, c *Client, method, path string, v url.Values) (*T, error) {
	resp, err := c.do(ctx, method, path, v)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	answer := new(T)
	if err := c.decode(resp.Body, answer); err != nil {
		return nil, err
	}
	return answer, nil
}

// do sends a request and returns the answer if it is a good one.
func (c *Client) do(ctx context.Context, method, path string, v url.Values) (*http.Response, error) {
	return c.send(ctx, method, path, v, nil)
}

// send is do with further headers.
func (c *Client) send(ctx context.Context, method, path string, v url.Values, header http.Header) (*http.Response, error) {
	u := *c.base
	u.Path, u.RawQuery = path, v.Encode()
	req, err := http.NewRequestWithContext(ctx, method, u.String(), nil)
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", method, u.String(), err)
	}
	req.Header.Set("Muster-Request", "1")
	maps.Copy(req.Header, header)
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, c.unreachable(ctx, err)
	}
	if resp.StatusCode < 300 {
		return resp, nil
	}
	defer resp.Body.Close()
	var answer struct{ Error, Hint string }
	b, err := io.ReadAll(io.LimitReader(resp.Body, maxLine))
	if strings.HasPrefix(string(b), plainToTLS) {
		return nil, &Error{
			Message: fmt.Sprintf("the master at %s speaks https", c.base.Host),
			Hint:    "give its address with https://, and --cert with a file that `muster pki issue` wrote",
		}
	}
	if err = errors.Join(err, json.Unmarshal(b, &answer)); err != nil || answer.Error == "" {
		return nil, c.foreign(fmt.Errorf("status %s: %w", resp.Status, err))
	}
	return nil, &Error{Code: resp.StatusCode, Message: answer.Error, Hint: answer.Hint}
}

// unreachable says that there was no answer.
func (c *Client) unreachable(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	var inner *url.Error
	if errors.As(err, &inner) {
		err = inner.Err // without the URL again
	}
	hint := "is it running? muster dev and muster master print their address; --master or MUSTER_MASTER names another"
	var network *net.OpError
	switch {
	case errors.Is(err, errTask):
		return c.foreign(err)
	case errors.As(err, &network) && network.Op == tlsRefused:
		return &Error{
			Message: fmt.Sprintf("the master at %s rejects the certificate%s: %v", c.name, c.shown(), network.Err), Err: err,
			Hint: "issue a new one with `muster pki issue`, with the authority of this cell",
		}
	case c.base.Scheme == "https" && !errors.As(err, &network):
		hint = "is it the right master, and --ca its authority?"
	}
	return &Error{Message: fmt.Sprintf("no answer from the master at %s: %v", c.name, err), Err: err, Hint: hint}
}

// tlsRefused is the Op of an error by which the other side ends a handshake, as
// package tls makes them.
const tlsRefused = "remote error"

// shown says whose certificate is shown, and until when it is good.
func (c *Client) shown() string {
	if c.secure == nil {
		return ""
	}
	shown, err := c.secure.Certificate()
	if err != nil || shown.Leaf == nil {
		return ""
	}
	return fmt.Sprintf(" of %s, which is valid until %s; this machine's time is %s", shown.Leaf.Subject.CommonName,
		shown.Leaf.NotAfter.UTC().Format(time.RFC3339), time.Now().UTC().Format(time.RFC3339))
}

// plainToTLS is what net/http answers to a request that is not over TLS.
const plainToTLS = "Client sent an HTTP request to an HTTPS server"

// foreign says that the answer is not a master's.
func (c *Client) foreign(err error) error {
	return &Error{
		Message: fmt.Sprintf("the server at %s is not a muster master: %v", c.name, err), Err: err,
		Hint: "check --master and MUSTER_MASTER: the port may be another program's now",
	}
}

// cut says that the answer broke off.
func (c *Client) cut(err error) error {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return &Error{
		Message: fmt.Sprintf("the connection to the master at %s was lost: %v", c.name, err), Err: err,
		Hint: "it may have been stopped; try again",
	}
}

func (c *Client) decode(r io.Reader, v any) error {
	b, err := io.ReadAll(io.LimitReader(r, maxAnswer))
	if err != nil {
		return c.cut(err)
	}
	if err := json.Unmarshal(b, v); err != nil {
		return c.foreign(err)
	}
	return nil
}
