package web_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/musterhq/muster/reconciler/status"
	"github.com/musterhq/muster/reconciler/web"
	"github.com/musterhq/muster/schema"
)

// leader is the way to a master that leads.
type leader struct {
	to       *http.Transport
	followed atomic.Bool
	caught   atomic.Int32
}

func (l *leader) Followed() (status.Replica, bool) {
	return status.Replica{Leader: "https://one:7420", AgeSeconds: 0.25}, l.followed.Load()
}

func (l *leader) Transport() http.RoundTripper { return l.to }

func (l *leader) CatchUp(context.Context) error {
	l.caught.Add(1)
	return nil
}

// replicate runs the APIs of a master that leads, and of another one, and returns a way
// to ask the second.
func replicate(t *testing.T, leads, other *cell) (*leader, func(method, path string, header ...string) (int, http.Header, string)) {
	t.Helper()
	forwards, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := &leader{to: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "tcp", forwards.Addr().String())
	}}}
	l.followed.Store(true)
	at, err := web.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 2)
	go func() { done <- web.New(config(leads)).ServeForwarded(ctx, forwards) }()
	replica := config(other)
	replica.Leader = l
	go func() { done <- web.New(replica).Serve(ctx, at) }()
	t.Cleanup(func() {
		cancel()
		l.to.CloseIdleConnections()
		if err := errors.Join(<-done, <-done); err != nil {
			t.Error(err)
		}
	})
	return l, func(method, path string, header ...string) (int, http.Header, string) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), method, "http://"+at.Addr().String()+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Muster-Request", "1")
		for i := 0; i < len(header); i += 2 {
			r.Header.Set(header[i], header[i+1])
		}
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		b, err := io.ReadAll(answer.Body)
		if err != nil {
			t.Fatal(err)
		}
		return answer.StatusCode, answer.Header, string(b)
	}
}

// TestReplica: a master that does not lead answers what it has the state of, and says how
// old that is; what only the leader can answer it forwards, as the one who asks.
func TestReplica(t *testing.T) {
	t.Parallel()
	leads, other := newCell(busy()), newCell(&status.Status{Cell: "local", MasterStatus: status.MasterStatus{Replica: &status.Replica{Leader: "https://one:7420", AgeSeconds: 0.25}}})
	l, ask := replicate(t, leads, other)
	for _, path := range []string{"/v1/status", "/v1/jobs", "/v1/tasks", "/v1/machines", "/v1/events", "/", "/metrics"} {
		code, header, body := ask(http.MethodGet, path)
		if code != http.StatusOK || header.Get("Muster-Leader") != "https://one:7420" || header.Get("Muster-State-Age") != "0.250" {
			t.Errorf("%s: %d, %v", path, code, header)
		}
		if strings.Contains(body, "search/web") {
			t.Errorf("%s was forwarded: %s", path, body)
		}
		if has := strings.Contains(body, `"replica":{"leader":"https://one:7420","ageSeconds":0.25}`); has != strings.HasPrefix(path, "/v1/") && path != "/v1/events" {
			t.Errorf("%s names the leader: %v", path, has)
		}
	}
	if code, header, body := ask(http.MethodGet, "/v1/why?job=search/web"); code != http.StatusOK || !strings.Contains(body, "search/web") || header.Get("Muster-Leader") == "" {
		t.Errorf("why: %d, %s", code, body)
	}
	if code, _, body := ask(http.MethodGet, "/v1/usage"); code != http.StatusOK || !strings.Contains(body, "search/web/0") {
		t.Errorf("usage: %d, %s", code, body)
	}
	if code, header, _ := ask(http.MethodGet, "/v1/why?job=none"); code != http.StatusBadRequest || len(header.Values("Cache-Control")) > 1 {
		t.Errorf("a mistake at the leader: %d, %v", code, header)
	}
	if l.caught.Load() != 0 {
		t.Error("a request that changes nothing waited for the state")
	}

	code, _, body := ask(http.MethodPost, "/v1/suspend?name=search/web&reason=r", "Muster-Caller", "root")
	if code != http.StatusOK || l.caught.Load() != 1 {
		t.Errorf("suspend: %d, %s; waited %d times", code, body, l.caught.Load())
	}
	leads.mu.Lock()
	if n := len(leads.suspensions); n != 1 || leads.suspensions[0].By != me(t) {
		t.Errorf("suspended: %+v", leads.suspensions)
	}
	leads.mu.Unlock()
	if code, _, _ := ask(http.MethodPost, "/v1/suspend?name=search/none&reason=r"); code != http.StatusNotFound || l.caught.Load() != 1 {
		t.Errorf("a change that was refused: %d; waited %d times", code, l.caught.Load())
	}
}

// TestReplicaWithoutLeader: a leader that does not answer is reported; without one
// this master answers as it can.
func TestReplicaWithoutLeader(t *testing.T) {
	t.Parallel()
	l, ask := replicate(t, newCell(busy()), newCell(busy()))
	l.to.DialContext = func(context.Context, string, string) (net.Conn, error) { return nil, io.ErrUnexpectedEOF }
	if code, _, body := ask(http.MethodGet, "/v1/why?job=search/web"); code != http.StatusServiceUnavailable || !strings.Contains(body, "https://one:7420, did not answer") || !strings.Contains(body, `"hint":"try again`) {
		t.Errorf("a question: %d, %s", code, body)
	}
	if code, _, body := ask(http.MethodPost, "/v1/resume?name=all"); code != http.StatusServiceUnavailable || !strings.Contains(body, "it may have been done") {
		t.Errorf("a change: %d, %s", code, body)
	}
	l.followed.Store(false)
	if code, header, body := ask(http.MethodGet, "/v1/why?job=search/web"); code != http.StatusOK || header.Get("Muster-Leader") != "" {
		t.Errorf("without a leader: %d, %s", code, body)
	}
}

// TestCallerOfForwarded: who asks a master itself does not say who he is.
func TestCallerOfForwarded(t *testing.T) {
	t.Parallel()
	c := newCell(busy())
	cl, url, _ := serve(t, c)
	if _, err := cl.Suspend(t.Context(), schema.Suspension{Name: "search/web", Reason: "r"}, 0); err != nil {
		t.Fatal(err)
	}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+"/v1/suspend?name=all&reason=r", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Muster-Request", "1")
	r.Header.Set("Muster-Caller", "somebody else")
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	c.mu.Lock()
	defer c.mu.Unlock()
	if n := len(c.suspensions); n != 2 || c.suspensions[0].By != c.suspensions[1].By {
		t.Errorf("suspended: %+v", c.suspensions)
	}
}

// me returns how the API names whoever runs the test.
func me(t *testing.T) string {
	t.Helper()
	c := newCell(busy())
	cl, _, _ := serve(t, c)
	x, err := cl.Suspend(t.Context(), schema.Suspension{Name: "search/web", Reason: "r"}, 0)
	if err != nil {
		t.Fatal(err)
	}
	return x.By
}
