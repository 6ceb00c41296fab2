package peer

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/musterhq/muster/schema"
	"github.com/musterhq/muster/schema/lazyregexp"
)

// Most is how many blobs a machine sends at once.
const Most = 3

const (
	mostWaiting   = 256              // requests that wait at once
	waitFor       = 2 * time.Second  // how long a request waits at most
	headerTimeout = 5 * time.Second  // for a request
	idleTimeout   = time.Minute      // of a connection
	slowReader    = 30 * time.Second // for what was written last to be taken
	headerBytes   = 8 << 10
)

// The requests: GET PathPrefix+DIGEST, with waitQuery if the client wants to wait. The answer to
// one that gets nothing now, and may soon, is 503 with movedHeader.
const (
	pathPrefix = "/v1/blobs/"
	waitQuery  = "wait"
	// movedHeader is how many bytes of the blob the machine has so far; of one that it has,
	// how many it has sent of all blobs.
	movedHeader = "Muster-Moved"
)

var digestForm = lazyregexp.New(`^sha256:[0-9a-f]{64}$`)

// Store has copies of blobs: see Store.Copy of package image.
type Store interface {
	Copy(sum schema.Digest) (file *os.File, came int64, done <-chan struct{})
}

// Identity is what the machine shows others, and how it knows them.
type Identity interface {
	// Serve returns the configuration of a server, and Welcome which machine of the cell a
	// client of it is; it errs if that is none.
	Serve() *tls.Config
	Welcome(state *tls.ConnectionState) (machine string, err error)
	// Peer returns the configuration of a connection to a machine of the cell.
	Peer(machine string) *tls.Config
}

// Server gives blobs to other machines.
type Server struct {
	store    Store
	identity Identity
	log      *slog.Logger

	uploads chan struct{} // has a token for each
	waiting chan struct{} // likewise
	sent    atomic.Int64
	most    atomic.Int64
}

// NewServer returns a server that serves nobody yet.
func NewServer(store Store, id Identity, log *slog.Logger) *Server {
	return &Server{store: store, identity: id, log: log, uploads: make(chan struct{}, Most), waiting: make(chan struct{}, mostWaiting)}
}

// Sent returns how many bytes of blobs were sent, and how many uploads there were at most at once.
func (s *Server) Sent() (bytes, most int64) { return s.sent.Load(), s.most.Load() }

// Serve serves the machines that connect to l, until ctx ends; then it closes l and returns nil.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	server := &http.Server{
		Handler: s, TLSConfig: s.identity.Serve(), MaxHeaderBytes: headerBytes,
		ReadHeaderTimeout: headerTimeout, IdleTimeout: idleTimeout, ErrorLog: slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
		TLSNextProto: map[string]func(*http.Server, *tls.Conn, http.Handler){}, // HTTP/1.1: an upload has its connection
	}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	if err := server.ServeTLS(l, "", ""); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve other machines on %s: %w", l.Addr(), err)
	}
	return nil
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	control := http.NewResponseController(w)
	_ = control.SetWriteDeadline(time.Now().Add(waitFor + slowReader)) // its connections have one
	machine, err := s.identity.Welcome(r.TLS)
	if err != nil {
		s.log.Warn("another machine asks for a blob and is refused", "from", r.RemoteAddr, "err", err)
		http.Error(w, err.Error(), http.StatusForbidden)
		return
	}
	sum, ok := strings.CutPrefix(r.URL.Path, pathPrefix)
	if r.Method != http.MethodGet || !ok || !digestForm.MatchString(sum) {
		http.Error(w, "want GET "+pathPrefix+"DIGEST", http.StatusBadRequest)
		return
	}
	var timeout <-chan time.Time // nil: it does not wait
	if r.URL.Query().Has(waitQuery) {
		select {
		case s.waiting <- struct{}{}:
			defer func() { <-s.waiting }()
			timer := time.NewTimer(waitFor)
			defer timer.Stop()
			timeout = timer.C
		default:
		}
	}
	s.give(w, r, upload{machine, schema.Digest(sum), timeout, control})
}

// upload is a request that is welcome.
type upload struct {
	machine string
	sum     schema.Digest
	timeout <-chan time.Time // when it waits no longer; nil: not at all
	control *http.ResponseController
}

// give answers with the blob, or with what there is instead.
func (s *Server) give(w http.ResponseWriter, r *http.Request, u upload) {
	file, came, done := s.store.Copy(u.sum)
	if file == nil && done != nil && u.timeout != nil {
		select {
		case <-done:
			file, came, done = s.store.Copy(u.sum)
		case <-u.timeout:
		case <-r.Context().Done():
		}
	}
	switch {
	case file != nil:
		defer func() { _ = file.Close() }() // it was read
	case done != nil:
		later(w, came)
		return
	default:
		http.Error(w, "it is not here", http.StatusNotFound)
		return
	}
	if !s.take(r.Context(), u.timeout) {
		later(w, s.sent.Load())
		return
	}
	defer func() { <-s.uploads }()
	for n := int64(len(s.uploads)); ; {
		most := s.most.Load()
		if n <= most || s.most.CompareAndSwap(most, n) {
			break
		}
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	http.ServeContent(w, r, "", time.Time{}, &sending{file, func(n int) {
		s.sent.Add(int64(n))
		_ = u.control.SetWriteDeadline(time.Now().Add(slowReader)) // as above
	}})
	s.log.Debug("blob sent", "to", u.machine, "blob", u.sum)
}

// take takes a token of uploads, if there is one, or is one before the timeout.
func (s *Server) take(ctx context.Context, timeout <-chan time.Time) bool {
	select {
	case s.uploads <- struct{}{}:
		return true
	default:
	}
	if timeout == nil {
		return false
	}
	select {
	case s.uploads <- struct{}{}:
		return true
	case <-timeout:
	case <-ctx.Done():
	}
	return false
}

// later sends a client away that may come again.
func later(w http.ResponseWriter, moved int64) {
	w.Header().Set(movedHeader, strconv.FormatInt(moved, 10))
	http.Error(w, "not now", http.StatusServiceUnavailable)
}

// sending is a file that is sent, piece by piece.
type sending struct {
	io.ReadSeeker
	next func(n int) // before a piece is written
}

// Read implements io.Reader.
func (s *sending) Read(p []byte) (int, error) {
	n, err := s.ReadSeeker.Read(p)
	s.next(n)
	return n, err
}
