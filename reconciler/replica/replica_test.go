package replica_test

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"

	"github.com/musterhq/muster/reconciler/replica"
	"github.com/musterhq/muster/reconciler/status"
	"github.com/musterhq/muster/schema"
	"github.com/musterhq/muster/schema/identity"
	"github.com/musterhq/muster/schema/linkpb"
)

const patience = time.Minute // far more than anything here takes

// cell is a fake of a leader's.
type cell struct {
	mu     sync.Mutex // guards all
	status status.Status
	newer  chan struct{}
	events []schema.EventRecord
	more   chan struct{}
	above  uint64
}

func newCell(version uint64, jobs ...string) *cell {
	c := &cell{newer: make(chan struct{}), more: make(chan struct{})}
	c.publish(version, jobs...)
	return c
}

func (c *cell) publish(version uint64, jobs ...string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.status = status.Status{Cell: "c", Version: version, At: time.Unix(int64(version), 0).UTC()} //nolint:gosec // small
	for _, j := range jobs {
		c.status.Jobs = append(c.status.Jobs, status.JobStatus{Name: j})
		c.status.Tasks = append(c.status.Tasks, status.TaskStatus{Name: j + "/0"})
	}
	close(c.newer)
	c.newer = make(chan struct{})
}

func (*cell) Sources(_ context.Context, q schema.SourceQuestion) (schema.SourceAnswer, error) {
	return schema.SourceAnswer{Registry: true, Peers: []schema.SourcePeer{{Machine: q.Machine, Address: string(q.Content), Holds: true}}}, nil
}

func (c *cell) Snapshot(context.Context) (*status.Snapshot, <-chan struct{}, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.status
	return status.SnapshotOf(&s), c.newer, nil
}

func (c *cell) record(ids ...uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, id := range ids {
		c.events = append(c.events, schema.EventRecord{ID: id, Event: schema.Event{Message: fmt.Sprint(id)}})
	}
	close(c.more)
	c.more = make(chan struct{})
}

func (c *cell) Since(q schema.EventQuery) ([]schema.EventRecord, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(c.events), func(r schema.EventRecord) bool { return r.ID <= q.After }), nil
}

func (c *cell) Wait(ctx context.Context, after uint64) error {
	for {
		c.mu.Lock()
		more, n := c.more, len(c.events)
		newest := n > 0 && c.events[n-1].ID > after
		c.mu.Unlock()
		if newest {
			return nil
		}
		select {
		case <-more:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (c *cell) Above(id uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.above = id
}

// history is a fake of the other master's log.
type history struct {
	mu   sync.Mutex // guards all
	kept []uint64
}

func (h *history) Last() uint64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.kept) == 0 {
		return 0
	}
	return h.kept[len(h.kept)-1]
}

func (h *history) Keep(records []schema.EventRecord) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, r := range records {
		h.kept = append(h.kept, r.ID)
	}
}

// pair is a leader and another master.
type pair struct {
	t      *testing.T
	leads  *cell
	server *replica.Server
	copy   *replica.Copy
	log    *history
	part   func() // ends what the copy follows, and waits for that
}

func newPair(t *testing.T, leads *cell, lead bool) *pair {
	t.Helper()
	p := &pair{t: t, leads: leads, log: new(history)}
	p.server = replica.NewServer(replica.ServerConfig{Cell: "c", State: leads, Events: leads, Join: func(_ context.Context, token string, _ []byte) (*x509.Certificate, error) {
		if token == "used" {
			return nil, fmt.Errorf("%w: the token was used", identity.ErrRefused)
		}
		return nil, errors.New("the store is slow")
	}})
	if lead {
		p.server.Lead(make(chan struct{}))
	}
	at := bufconn.Listen(1 << 16)
	g := grpc.NewServer()
	linkpb.RegisterReplicaServer(g, p.server)
	served := make(chan error, 1)
	go func() { served <- g.Serve(at) }()
	conn, err := grpc.NewClient("passthrough:///leader", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return at.DialContext(ctx) }))
	if err != nil {
		t.Fatal(err)
	}
	p.copy = replica.NewCopy(replica.CopyConfig{Cell: "c", Events: p.log, Log: slog.New(slog.DiscardHandler)})
	ctx, cancel := context.WithCancel(t.Context())
	followed := make(chan struct{})
	go func() {
		defer close(followed)
		p.copy.Follow(ctx, conn)
	}()
	p.part = func() { cancel(); <-followed }
	t.Cleanup(func() {
		p.part()
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
		g.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return p
}

// await waits until what was pushed is as wanted.
func (p *pair) await(what string, ok func(replica.Pushed) bool) replica.Pushed {
	p.t.Helper()
	timeout := time.After(patience)
	for {
		s := p.copy.State()
		if ok(s) {
			return s
		}
		select {
		case <-s.Newer:
		case <-timeout:
			p.t.Fatalf("not within %v: %s", patience, what)
		}
	}
}

func jobs(s *status.Snapshot) string {
	if s == nil {
		return "none"
	}
	var out []string
	for t := range s.Tasks() {
		out = append(out, t.Name)
	}
	return strings.Join(out, " ")
}

// TestStateIsPushed: another master has the leader's state, and each other one that
// follows; it has none when it does not reach the leader, and numbers never go back.
func TestStateIsPushed(t *testing.T) {
	t.Parallel()
	leads := newCell(7, "u/a", "u/b")
	p := newPair(t, leads, true)
	first := p.await("the state", func(s replica.Pushed) bool { return jobs(s.Snapshot) == "u/a/0 u/b/0" })
	if v := first.Snapshot.Brief().Version; v != 7 {
		t.Errorf("its version is %d", v)
	}
	leads.publish(8, "u/b", "u/c")
	second := p.await("the next", func(s replica.Pushed) bool { return jobs(s.Snapshot) == "u/b/0 u/c/0" })
	if second.Number <= first.Number || second.ConfirmedAt.Before(first.ConfirmedAt) {
		t.Errorf("first %+v, then %+v", first, second)
	}
	// Nothing changes: the leader says so all the same.
	for deadline := time.Now().Add(patience); !p.copy.State().ConfirmedAt.After(second.ConfirmedAt); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the leader does not say that nothing has changed")
		}
	}
	if got := p.copy.State().Number; got != second.Number {
		t.Errorf("number %d of a state that is the same as %d", got, second.Number)
	}
	p.part()
	if last := p.copy.State(); last.Snapshot != nil || last.Number <= second.Number {
		t.Errorf("without a leader: %+v", last)
	}
	if err := p.copy.CatchUp(t.Context()); err == nil {
		t.Error("it has caught up with nobody")
	}
}

// TestLeadsNoMore: a master that does not lead pushes nothing, and one whose term ends
// pushes no more.
func TestLeadsNoMore(t *testing.T) {
	t.Parallel()
	p := newPair(t, newCell(1, "u/a"), false)
	if r, err := p.copy.Transport().RoundTrip(request(t, http.MethodGet, "http://leader/x")); err == nil {
		_ = r.Body.Close()
		t.Error("a request was forwarded to a master that does not lead")
	}
	if s := p.copy.State(); s.Snapshot != nil {
		t.Error("a master that does not lead has pushed its state")
	}
	ends := make(chan struct{})
	p.server.Lead(ends)
	p.await("the state", func(s replica.Pushed) bool { return s.Snapshot != nil })
	p.server.Lead(nil)
	close(ends)
	p.await("no state", func(s replica.Pushed) bool { return s.Snapshot == nil })
}

// TestHistoryIsKept: the other master gets the history from where it stands, and what
// follows; the leader then gives no id that it has.
func TestHistoryIsKept(t *testing.T) {
	t.Parallel()
	leads := newCell(1)
	leads.record(3, 4)
	p := newPair(t, leads, true)
	await := func(want ...uint64) {
		t.Helper()
		for deadline := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
			p.log.mu.Lock()
			got := slices.Clone(p.log.kept)
			p.log.mu.Unlock()
			if slices.Equal(got, want) {
				return
			}
			if time.Now().After(deadline) {
				t.Fatalf("kept %v: want %v", got, want)
			}
		}
	}
	await(3, 4)
	leads.record(9)
	await(3, 4, 9)

	// Again from where it stands: the leader gives no id that it has.
	next := newCell(1)
	next.record(5, 12)
	q := newPair(t, next, false)
	q.log.Keep([]schema.EventRecord{{ID: 3}, {ID: 4}, {ID: 9}})
	q.server.Lead(make(chan struct{}))
	p.log = q.log
	await(3, 4, 9, 12)
	next.mu.Lock()
	defer next.mu.Unlock()
	if next.above != 9 {
		t.Errorf("ids are above %d: want 9", next.above)
	}
}

// TestForward: requests reach the leader's API, and its answers come as they are made;
// who has changed something there sees it here.
func TestForward(t *testing.T) {
	t.Parallel()
	leads := newCell(1, "u/a")
	p := newPair(t, leads, true)
	proceed := make(chan struct{})
	mux := http.NewServeMux()
	mux.HandleFunc("/v1/status", func(w http.ResponseWriter, _ *http.Request) {
		leads.mu.Lock()
		defer leads.mu.Unlock()
		w.Header().Set("Muster-Status-Version", strconv.FormatUint(leads.status.Version, 10))
	})
	mux.HandleFunc("/stream", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "first\n")
		_ = http.NewResponseController(w).Flush()
		<-proceed
		_, _ = io.WriteString(w, "second\n")
	})
	h := &http.Server{Handler: mux, ReadHeaderTimeout: patience}
	served := make(chan error, 1)
	go func() { served <- h.Serve(p.server.Forwards()) }()
	defer func() {
		_ = h.Close()
		if err := <-served; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	}()
	p.await("the state", func(s replica.Pushed) bool { return s.Snapshot != nil })

	r, err := p.copy.Transport().RoundTrip(request(t, http.MethodGet, "http://leader/stream"))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	buffer := make([]byte, 6)
	if _, err := io.ReadFull(r.Body, buffer); err != nil || string(buffer) != "first\n" {
		t.Errorf("%q, %v before the answer has ended", buffer, err)
	}
	close(proceed)
	if rest, err := io.ReadAll(r.Body); err != nil || string(rest) != "second\n" {
		dump, _ := httputil.DumpResponse(r, false)
		t.Errorf("%q, %v: %s", rest, err, dump)
	}

	leads.publish(2, "u/b")
	if err := p.copy.CatchUp(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := jobs(p.copy.State().Snapshot); got != "u/b/0" {
		t.Errorf("after it has caught up it has %s", got)
	}
}

// TestJoinElsewhere: a refusal is final, and what else goes wrong is not.
func TestJoinElsewhere(t *testing.T) {
	t.Parallel()
	p := newPair(t, newCell(1), true)
	p.await("the state", func(s replica.Pushed) bool { return s.Snapshot != nil })
	if _, err := p.copy.Join(t.Context(), "used", nil); !errors.Is(err, identity.ErrRefused) {
		t.Errorf("a token that was used: %v", err)
	}
	if _, err := p.copy.Join(t.Context(), "new", nil); err == nil || errors.Is(err, identity.ErrRefused) || !strings.Contains(err.Error(), "the store is slow") {
		t.Errorf("a store that is slow: %v", err)
	}
	p.part()
	if _, err := p.copy.Join(t.Context(), "new", nil); !errors.Is(err, replica.ErrNoLeader) {
		t.Errorf("without a leader: %v", err)
	}
}

func request(t *testing.T, method, url string) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	return r
}
