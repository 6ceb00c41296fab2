package web_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/reconciler/web"
	"github.com/musterhq/muster/reconciler/web/client"
	"github.com/musterhq/muster/schema"
	"github.com/musterhq/muster/schema/identity"
	"github.com/musterhq/muster/schema/thread"
)

// everything is each way in, as an honest client asks.
var everything = []struct{ method, path string }{
	{"GET", "/"},
	{"GET", "/v1/status"},
	{"GET", "/v1/jobs"},
	{"GET", "/v1/tasks"},
	{"GET", "/v1/machines"},
	{"GET", "/v1/endpoints"},
	{"GET", "/v1/services"},
	{"GET", "/v1/http_sd"},
	{"GET", "/v1/history"},
	{"GET", "/v1/usage"},
	{"GET", "/v1/why?job=search/web"},
	{"GET", "/v1/why/service?name=search/front"},
	{"GET", "/v1/events"},
	{"GET", "/v1/logs?task=search/web/0"},
	{"GET", "/v1/commit?name=0123456789"},
	{"GET", "/metrics"},
	{"GET", "/nothing"},
	{"POST", "/v1/exec?task=search/web/0&command=id"},
	{"POST", "/v1/reconcile"},
	{"POST", "/v1/suspend?name=all&reason=x"},
	{"POST", "/v1/resume?name=all"},
	{"POST", "/v1/restart?name=search/web&reason=x"},
	{"POST", "/v1/forget?machine=m1&reason=x"},
	{"POST", "/v1/page"},
}

func TestWhoAsks(t *testing.T) {
	t.Parallel()
	cfg := config(newCell(busy()))
	cfg.NoExec = true // its refusal is another's, and comes after this one
	cfg.Local = web.Local{Own: 990, Socket: "/s", Users: []web.LocalUser{
		{First: 1000, Last: 1000, Role: identity.Operator},
		{First: 1001, Last: 1001, Role: identity.ReadOnly},
		{First: 70005, Last: 70006, Role: identity.ReadOnly},
	}}
	h := web.New(cfg).Handler()
	for _, who := range []struct {
		name         string
		as           func(*http.Request) *http.Request
		reads, alone bool // may read; may read alone
		says         string
	}{
		{"root", func(r *http.Request) *http.Request { return web.As(0, r) }, true, false, ""},
		{"the master by its socket", func(r *http.Request) *http.Request { return web.BySocket(990, r) }, true, false, ""},
		{"the master by TCP", func(r *http.Request) *http.Request { return web.As(990, r) }, false, false, "as the master is"},
		{"a user who is named", func(r *http.Request) *http.Request { return web.As(1000, r) }, true, false, ""},
		{"a user who may read", func(r *http.Request) *http.Request { return web.As(1001, r) }, true, true, "needs the role operator"},
		{"another user", func(r *http.Request) *http.Request { return web.As(1002, r) }, false, false, "may not use the API"},
		{"another user by the socket", func(r *http.Request) *http.Request { return web.BySocket(1002, r) }, false, false, "may not use the API"},
		{"a task", func(r *http.Request) *http.Request { return web.As(70001, r) }, false, false, "tasks may not use the API"},
		{"a task by the socket", func(r *http.Request) *http.Request { return web.BySocket(70001, r) }, false, false, "tasks may not use the API"},
		{"a task that may read", func(r *http.Request) *http.Request { return web.As(70006, r) }, true, true, "needs the role operator"},
		{"nobody known", func(r *http.Request) *http.Request { return r }, false, false, "the client cannot be identified"},
	} {
		for _, what := range everything {
			r := httptest.NewRequest(what.method, "http://127.0.0.1:7070"+what.path, nil)
			r.Header.Set("Muster-Request", "1")
			w := httptest.NewRecorder()
			h.ServeHTTP(w, who.as(r))
			body := w.Body.String()
			refused := w.Code == http.StatusUnauthorized || w.Code == http.StatusForbidden && !strings.Contains(body, "no commands beside tasks")
			want := !who.reads || who.alone && what.method == "POST"
			if refused != want {
				t.Errorf("%s: %s %s: %d %s", who.name, what.method, what.path, w.Code, body)
			}
			if refused && (!strings.Contains(body, who.says) || !strings.Contains(body, `"hint":"`) || w.Header().Get("Connection") != "close") {
				t.Errorf("%s: %s %s: says %s", who.name, what.method, what.path, body)
			}
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, who.as(httptest.NewRequest(http.MethodGet, "http://127.0.0.1:7070/healthz", nil)))
		if w.Code != http.StatusOK {
			t.Errorf("%s: /healthz: %d", who.name, w.Code)
		}
	}
}

// TestPagePassword: a password is for the page, and for the user who shows it
// first; for a task it is never.
func TestPagePassword(t *testing.T) {
	t.Parallel()
	cfg := config(newCell(busy()))
	cfg.Local = web.Local{Own: 990, Page: "http://127.0.0.1:7070/"}
	var events []string
	cfg.Audit = func(e schema.Event) { events = append(events, string(e.Kind)+" "+e.Message) }
	s := web.New(cfg)
	h := s.Handler()
	ask := func(uid uint32, method, path, password string) *httptest.ResponseRecorder {
		r := httptest.NewRequest(method, "http://127.0.0.1:7070"+path, nil)
		r.Header.Set("Muster-Request", "1")
		if password != "" {
			r.SetBasicAuth("muster", password)
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, web.As(uid, r))
		return w
	}
	made := ask(0, http.MethodPost, "/v1/page", "").Body.String()
	_, rest, _ := strings.Cut(made, `"url":"`)
	address, _, _ := strings.Cut(rest, `"`)
	u, err := url.Parse(address)
	if err != nil {
		t.Fatalf("%s: %v", made, err)
	}
	password, _ := u.User.Password()
	for _, tt := range []struct {
		uid                    uint32
		method, path, password string
		want                   int
	}{
		{70001, "GET", "/", password, http.StatusForbidden}, // nor does that use it up
		{1000, "GET", "/", "", http.StatusUnauthorized},
		{1000, "GET", "/", "guess", http.StatusUnauthorized},
		{1000, "GET", "/", password, http.StatusOK},
		{1000, "GET", "/", password, http.StatusOK},
		{1001, "GET", "/", password, http.StatusUnauthorized}, // it is the other's
		{1000, "POST", "/", password, http.StatusForbidden},
		{1000, "GET", "/v1/status", password, http.StatusForbidden},
		{1000, "POST", "/v1/suspend?name=all&reason=x", password, http.StatusForbidden},
		{990, "GET", "/", "", http.StatusUnauthorized}, // without root: perhaps a task
	} {
		w := ask(tt.uid, tt.method, tt.path, tt.password)
		if w.Code != tt.want {
			t.Errorf("uid %d: %s %s with %q: %d, want %d: %s", tt.uid, tt.method, tt.path, tt.password, w.Code, tt.want, w.Body)
		}
		if asks := w.Header().Get("WWW-Authenticate") != ""; asks != (tt.want == http.StatusUnauthorized) {
			t.Errorf("uid %d: %s %s: asks for a password: %v", tt.uid, tt.method, tt.path, asks)
		}
	}
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(s.Refusals())
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, m := range families[0].GetMetric() {
		got[m.GetLabel()[0].GetValue()] = m.GetCounter().GetValue()
	}
	want := map[string]float64{"task": 1, "user": 7, "unknown": 0, "role": 0, "origin": 0, "certificate": 0}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("refusals (-want +got):\n%s", d)
	}
	if len(events) != 2 || !strings.HasPrefix(events[0], "refuse request refused (task): you are uid 70001, which is a task's user") || !strings.HasPrefix(events[1], "refuse request refused (user): you are ") {
		t.Errorf("events %q, want one of each reason", events)
	}
}

// TestOrigin: what a page elsewhere caused in the browser of a user who may ask is
// not answered.
func TestOrigin(t *testing.T) {
	t.Parallel()
	h := web.New(config(newCell(busy()))).Handler()
	for origin, want := range map[string]int{
		"":                        http.StatusOK,
		"http://127.0.0.1:7070":   http.StatusOK,
		"http://127.0.0.1:31005":  http.StatusForbidden, // a task of this machine
		"http://attacker.example": http.StatusForbidden,
		"null":                    http.StatusForbidden,
	} {
		r := httptest.NewRequest(http.MethodGet, "http://127.0.0.1:7070/v1/status", nil)
		r.Header.Set("Origin", origin)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, web.As(0, r))
		if w.Code != want {
			t.Errorf("%q: %d, want %d", origin, w.Code, want)
		}
	}
}

// TestTasksConnections: however many connections tasks make and leave open, few are
// kept, and others are served.
func TestTasksConnections(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("needs root: the user of a task")
	}
	cl, url, _ := serve(t, newCell(busy()))
	address := strings.TrimPrefix(url, "http://")
	const many = web.MaxTaskConns + 20
	var all []net.Conn
	err := thread.Run(func() error {
		// Of this thread alone, which package syscall would not do.
		if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, schema.FirstTaskUser, schema.FirstTaskUser, schema.FirstTaskUser); errno != 0 {
			return errno
		}
		for range many {
			if c, err := net.Dial("tcp", address); err == nil {
				all = append(all, c)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(all) != many {
		t.Fatalf("%d connections, want %d", len(all), many)
	}
	if _, _, err := cl.Status(t.Context(), client.StatusQuery{}); err != nil {
		t.Errorf("meanwhile: %v", err)
	}
	var closed sync.WaitGroup
	var n atomic.Int64
	for _, c := range all {
		closed.Go(func() {
			if _, err := c.Read(make([]byte, 1)); errors.Is(err, io.EOF) || errors.Is(err, unix.ECONNRESET) {
				n.Add(1)
			}
			if n.Load() == many-web.MaxTaskConns { // the others wait for us
				for _, c := range all {
					_ = c.Close()
				}
			}
		})
	}
	closed.Wait()
	if n.Load() != many-web.MaxTaskConns {
		t.Errorf("%d were closed by the server, want %d", n.Load(), many-web.MaxTaskConns)
	}
}

// TestPlanRole: who has the role plan gets a checkpoint without values, and nothing else.
func TestPlanRole(t *testing.T) {
	t.Parallel()
	cfg := config(newCell(busy()))
	cfg.Checkpoints = emptyCheckpoint{}
	cfg.Local = web.Local{Own: 990, Users: []web.LocalUser{{First: 1002, Last: 1002, Role: identity.Plan}}}
	h := web.New(cfg).Handler()
	ask := func(method, path string) *httptest.ResponseRecorder {
		r := web.As(1002, httptest.NewRequest(method, "http://127.0.0.1:7070"+path, nil))
		r.Header.Set("Muster-Request", "1")
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w
	}
	if w := ask("GET", "/v1/checkpoint"); w.Code != http.StatusOK || w.Body.String() != "values: false" {
		t.Errorf("checkpoint: %d %s", w.Code, w.Body)
	}
	for _, e := range append(everything, struct{ method, path string }{"POST", "/v1/checkpoint/values"}) {
		if w := ask(e.method, e.path); w.Code != http.StatusForbidden || !strings.Contains(w.Body.String(), "needs the role ") || !strings.Contains(w.Body.String(), ":plan") {
			t.Errorf("%s %s: %d %s", e.method, e.path, w.Code, w.Body)
		}
	}
}

// emptyCheckpoint says only whether values were asked for.
type emptyCheckpoint struct{}

func (emptyCheckpoint) Checkpoint(_ context.Context, values bool) (func(io.Writer) error, error) {
	return func(w io.Writer) error {
		_, err := fmt.Fprintf(w, "values: %v", values)
		return err
	}, nil
}
