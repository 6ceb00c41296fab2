package web

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"syscall"
	"time"

	"github.com/klauspost/compress/gzhttp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/musterhq/muster/reconciler/denied"
	"github.com/musterhq/muster/reconciler/status"
	"github.com/musterhq/muster/schema"
)

const (
	headerTimeout = 10 * time.Second
	idleTimeout   = 2 * time.Minute
	stopTimeout   = 2 * time.Second // for requests to end before they are cut
	maxHeader     = 64 << 10
)

// Cell is the state of the cell. Errors mean that its owner has stopped, or
// ctx.
type Cell interface {
	// Snapshot returns the cell at this moment, and a channel that is closed when
	// there is a newer version.
	Snapshot(ctx context.Context) (s *status.Snapshot, newer <-chan struct{}, err error)
	// Why explains user/job or user/job/index; false when there is none. machine
	// is one to ask about a task, or ""; with no name it is explained.
	Why(ctx context.Context, name, machine string) (why status.Explanation, known bool, err error)
	// Usages returns what machines and tasks use, as they said last; it is the
	// caller's.
	Usages(ctx context.Context) (*status.Usage, error)
	// JobUsages returns the sums of Usages by job, see status.SumUsage.
	JobUsages(ctx context.Context) ([]status.JobUsage, error)
	// Locate returns the machine that ran a task last, also when that run has
	// ended; "" when it was never on one. If from is not 0, it is the machine that
	// ran the oldest generation from that one on.
	Locate(ctx context.Context, task schema.TaskName, from uint64) (machine string, err error)
}

// Logs reads the logs of tasks.
type Logs interface {
	// Logs returns a log of a task on a machine, to be closed. An error of
	// Read is fs.ErrNotExist when the machine has no such log.
	Logs(ctx context.Context, machine string, r schema.LogRequest) (io.ReadCloser, error)
}

// Exec runs commands beside tasks.
type Exec interface {
	// Exec returns what carries the frames of a command beside a task on a
	// machine, to be closed; whoever is slow slows the command.
	Exec(ctx context.Context, machine string, r schema.ExecRequest) (io.ReadWriteCloser, error)
}

// Events is the cell's history.
type Events interface {
	Since(q schema.EventQuery) ([]schema.EventRecord, error)
	// Wait returns nil when there is a record after the cursor.
	Wait(ctx context.Context, after uint64) error
}

// Config is what a Server needs; all of it.
type Config struct {
	Name        string // of the cell
	Cell        Cell
	Logs        Logs
	Events      Events
	Repository  Repository
	Suspensions Suspensions
	Restarts    Restarts
	Machines    Machines
	Checkpoints Checkpoints
	History     History
	// Exec runs commands beside tasks, and NoExec refuses them. Audit gets an event for
	// each before it is run, and for requests that are refused because of who makes
	// them. It must not block.
	Exec   Exec
	NoExec bool
	Audit  func(schema.Event)
	// Behind, if set, returns since when machines have not acknowledged what has changed of
	// the directory, of those that may lack an entry with one of some keys.
	Behind  func(lacks func(key string) bool) map[string]time.Time
	Metrics prometheus.Gatherer
	Log     *slog.Logger
	// Secure makes the API over TCP one over TLS; nil is for loopback alone.
	Secure *Secure
	// Local is who comes without TLS.
	Local Local
	// Leader is for a master that may not lead; nil for one that is alone.
	Leader Leader
}

// Server serves the API of one cell.
type Server struct {
	cfg      Config
	refusals *denied.Log
	pages    pages
	whole    slots
	tasks    taskConns

	watches *watches
}

// New returns a server.
func New(cfg Config) *Server {
	s := &Server{cfg: cfg, refusals: newRefusals(cfg.Log, cfg.Audit), whole: make(slots, maxWhole)}
	s.watches = newWatches(func(ctx context.Context) (*status.Snapshot, <-chan struct{}, error) { return cfg.Cell.Snapshot(ctx) }, s.whole)
	return s
}

// Refusals counts requests that were refused, to be registered once.
func (s *Server) Refusals() prometheus.Collector { return s.refusals }

// Listen listens on a loopback address such as 127.0.0.1:0. It refuses every
// other. The error ends in a hint on a line of its own.
func Listen(addr string) (net.Listener, error) { return listen(addr, false) }

// ListenSecure is Listen for any address, for a server with a Secure.
func ListenSecure(addr string) (net.Listener, error) { return listen(addr, true) }

func listen(addr string, secure bool) (net.Listener, error) {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, schema.Hintf("such as 127.0.0.1:0", "listen on %q: want HOST:PORT: %w", addr, err)
	}
	if !secure && !loopback(host) {
		return nil, schema.Hintf(fmt.Sprintf("give a loopback address such as 127.0.0.1:%s, or set TLS up with `muster pki init` and --pki", port), "listen on %q: other addresses than loopback need TLS", addr)
	}
	l, err := net.Listen("tcp", addr)
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, schema.Hintf("choose another, or 0 for any that is free", "listen on %q: the port is taken: %w", addr, err)
	}
	if err != nil {
		return nil, schema.Hintf("give an address of this machine, such as 127.0.0.1:0", "listen on %q: %w", addr, err)
	}
	if !secure && !loopback(l.Addr().(*net.TCPAddr).IP.String()) { // "localhost" is what the host's files say
		return nil, errors.Join(schema.Hintf("give a loopback address such as 127.0.0.1:"+port, "listen on %q: it is %s, which is not loopback", addr, l.Addr()), l.Close())
	}
	return l, nil
}

// loopback returns whether a host, without a port, is this machine alone.
func loopback(host string) bool {
	if strings.EqualFold(host, "localhost") {
		return true
	}
	ip, err := netip.ParseAddr(strings.Trim(host, "[]"))
	return err == nil && ip.IsLoopback()
}

// Serve answers requests until ctx ends; then it ends those that wait or stream,
// closes the listeners and returns nil. With a Secure those over TCP speak TLS.
func (s *Server) Serve(ctx context.Context, listeners ...net.Listener) error {
	h := &http.Server{Handler: s.Handler(), ConnContext: s.tasks.accept, ConnState: s.tasks.changed}
	if s.cfg.Secure != nil {
		h.TLSConfig = s.cfg.Secure.TLS
	}
	return s.serve(ctx, h, func(h *http.Server) (all []func() error) {
		for _, l := range listeners {
			serve := h.Serve
			if s.cfg.Secure != nil && l.Addr().Network() != "unix" {
				serve = func(l net.Listener) error { return h.ServeTLS(l, "", "") }
			}
			all = append(all, func() error { return fmt.Errorf("serve the API on %s: %w", l.Addr(), serve(l)) })
		}
		return all
	})
}

// ServeForwarded answers requests that other masters forward, which have checked who
// makes them, until ctx ends; then it closes the listener.
func (s *Server) ServeForwarded(ctx context.Context, l net.Listener) error {
	routes := s.routes()
	return s.serve(ctx, &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			caller := r.Header.Get(headerCaller)
			routes.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), callerKey{}, caller)))
		}),
	}, func(h *http.Server) []func() error { return []func() error{func() error { return h.Serve(l) }} })
}

// serve runs what a server does until ctx ends; then it ends requests that wait or stream.
func (s *Server) serve(ctx context.Context, h *http.Server, of func(*http.Server) []func() error) error {
	requests, stop := context.WithCancel(context.Background())
	defer stop()
	h.ReadHeaderTimeout, h.IdleTimeout, h.MaxHeaderBytes = headerTimeout, idleTimeout, maxHeader
	h.BaseContext = func(net.Listener) context.Context { return requests }
	h.ErrorLog = slog.NewLogLogger(s.cfg.Log.Handler(), slog.LevelDebug)
	all := of(h)
	served := make(chan error, len(all))
	for _, f := range all {
		go func() { served <- f() }()
	}
	select {
	case err := <-served:
		_ = h.Close()
		return err
	case <-ctx.Done():
	}
	stop()
	patience, cancel := context.WithTimeout(context.Background(), stopTimeout)
	defer cancel()
	if h.Shutdown(patience) != nil {
		_ = h.Close() // the listeners are closed; the rest is cut
	}
	for range all {
		_ = <-served // what ended it is our own doing
	}
	return nil
}

// Handler returns the API, for a server of the caller's.
func (s *Server) Handler() http.Handler {
	routes := s.routes()
	secured, locally := s.secured(routes), s.locally(routes)
	return s.guard(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.cfg.Secure != nil && !peerOf(r).unix {
			secured.ServeHTTP(w, r)
		} else {
			locally.ServeHTTP(w, r)
		}
	}))
}

// metricsPage answers with the metrics.
func metricsPage(of prometheus.Gatherer, log *slog.Logger) handler {
	metrics := promhttp.HandlerFor(of, promhttp.HandlerOpts{ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelError)})
	return func(w http.ResponseWriter, r *http.Request) error {
		metrics.ServeHTTP(w, r)
		return nil
	}
}

// routes returns what answers requests of whoever may make them.
func (s *Server) routes() http.Handler {
	mux := http.NewServeMux()
	other := &forwarder{s.cfg.Leader, s.caller, s.fail, s.cfg.Log}
	answer := func(method string, f handler, takes []string) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			err := allow(method, w, r)
			if err == nil {
				err = known(r, takes)
			}
			if err == nil {
				err = f(w, r)
			}
			if err != nil {
				s.fail(w, err)
			}
		})
	}
	// here handles what each master answers, from the state that it has; read, of that
	// what may be large; and led what only the master that leads can. Each takes the
	// parameters that are named, and no others.
	here := func(method, path string, f handler, takes ...string) {
		mux.Handle(path, other.aged(answer(method, f, takes)))
	}
	read := func(path string, f handler, takes ...string) {
		mux.Handle(path, other.aged(compressed(answer(http.MethodGet, f, takes))))
	}
	led := func(method, path string, f handler, takes ...string) {
		mux.Handle(path, other.byLeader(answer(method, f, takes)))
	}
	here(http.MethodGet, "/{$}", s.page, "watch")
	here(http.MethodGet, "/healthz", healthz)
	here(http.MethodPost, "/v1/page", s.pageAddress)
	here(http.MethodGet, "/v1/events", s.events, "after", "job", "kind", "limit", "machine", "newest", "selector", "task", "version", "wait", "watch")
	read("/v1/status", s.status, "after", "most", "name", "selector", "tasks", "wait", "watch")
	for path, f := range lists(s.watches) {
		read(path, f, append([]string{"continue", "fields", "limit", "name", "selector", "version", "watch"}, filters[path]...)...)
	}
	read("/v1/http_sd", targets(s.watches.feed.cell), "name", "port", "selector")
	mux.Handle("/v1/usage", other.byLeader(compressed(answer(http.MethodGet, s.usage, []string{"name", "selector"}))))
	read("/v1/services", services(s.watches.feed.cell), "continue", "limit", "name")
	led(http.MethodGet, "/v1/why", s.why, "index", "job", "machine")
	led(http.MethodGet, "/v1/why/service", whyService(s.watches.feed.cell, s.cfg.Behind), "name")
	led(http.MethodGet, "/v1/logs", s.logs, "follow", "framed", "from", "generation", "incarnation", "previous", "since", "stream", "tail", "task")
	led(http.MethodGet, "/v1/commit", s.commit, "name")
	led(http.MethodGet, pathCheckpoint, checkpoint(s, false))
	led(http.MethodPost, "/v1/checkpoint/values", checkpoint(s, true))
	mux.Handle("/v1/history", other.byLeader(compressed(answer(http.MethodGet, history(s.cfg.History), []string{"commit", "limit"}))))
	led(http.MethodPost, "/v1/reconcile", s.reconcile)
	led(http.MethodPost, "/v1/exec", s.exec, "columns", "command", "copy", "name", "path", "rows", "task", "term", "tty")
	led(http.MethodPost, "/v1/suspend", s.suspend, "for", "name", "reason")
	led(http.MethodPost, "/v1/resume", s.resume, "name")
	led(http.MethodPost, "/v1/restart", s.restart, "cancel", "name", "reason")
	led(http.MethodPost, "/v1/forget", s.forget, "dry", "machine", "reason")
	here(http.MethodGet, "/metrics", metricsPage(s.cfg.Metrics, s.cfg.Log))
	here("", "/", func(_ http.ResponseWriter, r *http.Request) error {
		return &failure{http.StatusNotFound, fmt.Sprintf("there is no %s", r.URL.Path), "the API is /v1/status, jobs, tasks, machines, endpoints, services, http_sd, usage, why, events, logs, commit, checkpoint, history, exec, reconcile, suspend, resume, restart, forget and page"}
	})
	return mux
}

// Reader returns the API without a question of who asks: for one who looks at it in this
// process.
func (s *Server) Reader() http.Handler { return s.routes() }

// compressed compresses answers, but for the streams of those who watch.
func compressed(plain http.Handler) http.Handler {
	small := gzhttp.GzipHandler(plain)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Has("watch") {
			plain.ServeHTTP(w, r)
		} else {
			small.ServeHTTP(w, r)
		}
	})
}

// guard refuses requests that a page on the web may have caused.
func (s *Server) guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Cache-Control", "no-store")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		if err := s.foreign(r); err != nil {
			s.refused(w, r, err)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// foreign errs when a page elsewhere may have caused the request: one whose name
// was made to mean this machine, or one that a browser names as its origin. What
// comes by a unix socket comes from no browser.
func (s *Server) foreign(r *http.Request) error {
	p := peerOf(r)
	host := r.Host
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	// Over TLS the browser has held the name against the certificate.
	if s.cfg.Secure == nil && !p.unix && !loopback(host) {
		return refuse(refusedOrigin, "use http://127.0.0.1 or http://localhost", "host %.100q is not loopback", r.Host)
	}
	origin := r.Header.Get("Origin")
	if u, err := url.Parse(origin); origin != "" && (err != nil || u.Host != r.Host) {
		return refuse(refusedOrigin, "open the page by its own address", "the request comes from a page of %.100q", origin)
	}
	return nil
}

// allow errs unless the request has the method; "" allows all.
func allow(method string, w http.ResponseWriter, r *http.Request) error {
	read := method == http.MethodGet && (r.Method == http.MethodGet || r.Method == http.MethodHead)
	switch {
	case method == "" || read:
		return nil
	case r.Method != method:
		w.Header().Set("Allow", method)
		return &failure{http.StatusMethodNotAllowed, fmt.Sprintf("%s does not take %s", r.URL.Path, r.Method), "use " + method}
	case r.Header.Get("Muster-Request") != "1":
		return &failure{http.StatusForbidden, "the header Muster-Request is missing", "send Muster-Request: 1"}
	}
	return nil
}

func healthz(w http.ResponseWriter, _ *http.Request) error {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, err := io.WriteString(w, "ok\n")
	return err
}
