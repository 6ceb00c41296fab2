package web_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"github.com/musterhq/muster/reconciler/quota"
	"github.com/musterhq/muster/reconciler/status"
	"github.com/musterhq/muster/reconciler/web"
	"github.com/musterhq/muster/schema"
)

var update = flag.Bool("update", false, "write the golden files")

// golden compares got with a file of testdata.
func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, got, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s (go test -update writes it):\n%s", name, diff)
	}
}

// TestAPI runs the requests of testdata/api. Arguments are headers; "host" sets
// the Host.
func TestAPI(t *testing.T) {
	t.Parallel()
	c := newCell(&status.Status{
		Cell: "local", At: at, Commit: head, Applied: head, Converged: true,
		Waiting: []string{}, Waits: []status.Wait{}, Behind: status.Behind{Stale: []status.StalePackage{}, Pending: []status.PendingPackage{}}, Rejected: []status.Rejection{}, Warnings: []quota.Warning{},
		Machines: []status.MachineStatus{}, Jobs: []status.JobStatus{}, Tasks: []status.TaskStatus{}, Notes: []string{},
	})
	c.record(schema.Event{At: at, Kind: schema.EventApply, Commit: head, Message: "applied <all>"})
	c.record(schema.Event{At: at, Kind: schema.EventStart, Job: "search/web", Task: "search/web/1", Machine: "m1", Message: "started"})
	h := web.New(config(c)).Handler()
	datadriven.RunTest(t, "testdata/api", func(t *testing.T, d *datadriven.TestData) string {
		r := web.As(0, httptest.NewRequest(d.Cmd, "http://127.0.0.1:7070"+d.Input, nil))
		for _, a := range d.CmdArgs {
			if a.Key == "host" {
				r.Host = a.Vals[0]
			} else {
				r.Header.Set(a.Key, a.Vals[0])
			}
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		var b strings.Builder
		fmt.Fprintf(&b, "%d %s", w.Code, w.Header().Get("Content-Type"))
		for _, name := range []string{"Allow", "Muster-Status-Version"} {
			if v := w.Header().Get(name); v != "" {
				fmt.Fprintf(&b, " %s=%s", name, v)
			}
		}
		return b.String() + "\n" + w.Body.String()
	})
}

func TestStatusPage(t *testing.T) {
	t.Parallel()
	for name, s := range map[string]*status.Status{
		"page.golden.html":       busy(),
		"page.empty.golden.html": {Cell: "local", At: at, Converged: true},
	} {
		w := httptest.NewRecorder()
		web.New(config(newCell(s))).Handler().ServeHTTP(w, web.As(0, httptest.NewRequest(http.MethodGet, "http://localhost/", nil)))
		if w.Code != http.StatusOK || w.Header().Get("Content-Security-Policy") == "" {
			t.Fatalf("%s: %d %v", name, w.Code, w.Header())
		}
		golden(t, name, w.Body.Bytes())
	}
}

func TestStatusPageIsBounded(t *testing.T) {
	t.Parallel()
	s := &status.Status{Cell: "local"}
	for i := range 5000 {
		s.Tasks = append(s.Tasks, status.TaskStatus{Name: fmt.Sprintf("u/web/%d", i), State: "running"})
	}
	s.Tasks[4321].State = "failed"
	w := httptest.NewRecorder()
	web.New(config(newCell(s))).Handler().ServeHTTP(w, web.As(0, httptest.NewRequest(http.MethodGet, "http://localhost/", nil)))
	if b := w.Body.String(); !strings.Contains(b, "u/web/4321<") || !strings.Contains(b, "4800 more rows") || len(b) > 100_000 {
		t.Errorf("a page of %d bytes", len(b))
	}
}

func TestMetrics(t *testing.T) {
	t.Parallel()
	m := web.NewMetrics(newCell(busy()))
	m.CommitRunning(700 * time.Millisecond)
	m.CommitRunning(3 * time.Second)
	r := prometheus.NewPedanticRegistry()
	r.MustRegister(m)
	cfg := config(newCell(busy()))
	cfg.Metrics = r
	w := httptest.NewRecorder()
	web.New(cfg).Handler().ServeHTTP(w, web.As(0, httptest.NewRequest(http.MethodGet, "http://localhost/metrics", nil)))
	golden(t, "metrics.golden.txt", w.Body.Bytes())
	problems, err := promlint.New(w.Body).Lint()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
}

// TestOwnerHasStopped asks for all that needs the cell's owner.
func TestOwnerHasStopped(t *testing.T) {
	t.Parallel()
	c := newCell(nil)
	c.trouble = errors.New("the master is no longer the leader")
	h := web.New(config(c)).Handler()
	for _, path := range []string{"/", "/v1/status", "/v1/why?job=search/web", "/v1/logs?task=search/web/0", "/metrics"} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, web.As(0, httptest.NewRequest(http.MethodGet, "http://localhost"+path, nil)))
		want := http.StatusServiceUnavailable
		if path == "/metrics" {
			want = http.StatusInternalServerError // promhttp's
		}
		if w.Code != want || !strings.Contains(w.Body.String(), c.trouble.Error()) {
			t.Errorf("%s: %d %s", path, w.Code, w.Body)
		}
	}
}

func TestListen(t *testing.T) {
	t.Parallel()
	for _, addr := range []string{":0", "0.0.0.0:0", "[::]:0", "192.0.2.1:0", "example.com:80", "127.0.0.1.example.com:0"} {
		l, err := web.Listen(addr)
		if err == nil {
			_ = l.Close()
		}
		if err == nil || !strings.Contains(err.Error(), "other addresses than loopback need TLS") {
			t.Errorf("%s: %v", addr, err)
		}
	}
	if _, err := web.Listen("127.0.0.1"); err == nil || !strings.Contains(err.Error(), "want HOST:PORT") {
		t.Errorf("no port: %v", err)
	}
	l, err := web.Listen("localhost:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if _, err := web.Listen(l.Addr().String()); err == nil || !strings.Contains(err.Error(), "the port is taken") {
		t.Errorf("a port that is taken: %v", err)
	}
}

func TestStatusJSONIsStable(t *testing.T) {
	t.Parallel()
	w := httptest.NewRecorder()
	web.New(config(newCell(busy()))).Handler().ServeHTTP(w, web.As(0, httptest.NewRequest(http.MethodGet, "http://[::1]:7070/v1/status", nil)))
	var b bytes.Buffer
	if err := json.Indent(&b, w.Body.Bytes(), "", "  "); err != nil {
		t.Fatal(err)
	}
	golden(t, "status.golden.json", b.Bytes())
}
