package web_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/musterhq/muster/reconciler/status"
	"github.com/musterhq/muster/reconciler/web/client"
	"github.com/musterhq/muster/schema"
)

const patience = 30 * time.Second

func TestStatusLongPoll(t *testing.T) {
	t.Parallel()
	c := newCell(busy())
	cl, _, _ := serve(t, c)
	s, version, err := cl.Status(t.Context(), client.StatusQuery{})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(busy(), s); diff != "" || version != 1 {
		t.Errorf("version %d: %s", version, diff)
	}
	if s, _, err := cl.Status(t.Context(), client.StatusQuery{Brief: true}); err != nil || len(s.Tasks) > 0 || len(s.Jobs) != len(busy().Jobs) {
		t.Errorf("without tasks: %d tasks, %d jobs, %v", len(s.Tasks), len(s.Jobs), err)
	}
	got := make(chan uint64)
	go func() {
		_, v, err := cl.Status(t.Context(), client.StatusQuery{After: version, Wait: time.Minute})
		if err != nil {
			t.Error(err)
		}
		got <- v
	}()
	select {
	case <-got:
		t.Fatal("answered before there was anything new")
	case <-time.After(20 * time.Millisecond): // it is likely to wait by now
	}
	c.publish(&status.Status{Cell: "local"})
	if v := <-got; v != 2 {
		t.Errorf("version %d: want 2", v)
	}
	// The version of a master before this one does not wait.
	if _, v, err := cl.Status(t.Context(), client.StatusQuery{After: 99, Wait: time.Minute}); err != nil || v != 2 {
		t.Errorf("version %d, %v", v, err)
	}
}

func TestServeEndsWaitingRequests(t *testing.T) {
	t.Parallel()
	c := newCell(busy())
	c.logs = func(ctx context.Context, w io.Writer) error {
		_, _ = io.WriteString(w, "x")
		<-ctx.Done()
		return ctx.Err()
	}
	cl, _, stop := serve(t, c)
	log, err := cl.Logs(t.Context(), "search/web/0", schema.LogRequest{Follow: true, Tail: -1})
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	polled := make(chan error)
	go func() {
		_, _, err := cl.Status(t.Context(), client.StatusQuery{After: 1, Wait: time.Minute})
		polled <- err
	}()
	if _, err := io.ReadFull(log, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	stop()
	<-polled // with the status or with a cut: both are an end
	if _, err := io.ReadAll(log); err == nil {
		t.Error("the log ended as if it was whole")
	}
	if d := time.Since(start); d > patience {
		t.Errorf("stopping took %v", d)
	}
}

func TestEventsThroughClient(t *testing.T) {
	t.Parallel()
	c := newCell(busy())
	c.record(schema.Event{At: at, Kind: schema.EventStart, Task: "search/web/0", Message: "one"})
	cl, _, _ := serve(t, c)
	got, err := cl.Events(t.Context(), client.EventQuery{EventQuery: schema.EventQuery{Limit: 5}}, 0)
	if err != nil || len(got) != 1 || got[0].Message != "one" {
		t.Fatalf("%+v, %v", got, err)
	}
	answer := make(chan []schema.EventRecord)
	go func() {
		r, err := cl.Events(t.Context(), client.EventQuery{EventQuery: schema.EventQuery{After: 1, Task: "search/web/1", Kind: schema.EventFail, Job: "search/web", Machine: "m1"}}, time.Minute)
		if err != nil {
			t.Error(err)
		}
		answer <- r
	}()
	c.record(schema.Event{At: at, Task: "search/web/0", Message: "another task"})
	c.record(schema.Event{At: at, Kind: schema.EventFail, Task: "search/web/1", Machine: "m1", Message: "two"})
	if r := <-answer; len(r) != 1 || r[0].ID != 3 {
		t.Errorf("%+v", r)
	}
}

func TestLogsThroughClient(t *testing.T) {
	t.Parallel()
	next := make(chan string)
	c := newCell(busy())
	c.logs = func(ctx context.Context, w io.Writer) error {
		for s := range next {
			if strings.HasPrefix(s, "!") {
				return errors.New(s)
			}
			if _, err := io.WriteString(w, s); err != nil {
				return err
			}
		}
		return nil
	}
	cl, _, _ := serve(t, c)
	want := schema.LogRequest{
		Stream: schema.Stderr, Follow: true, Tail: 5, Generation: 9, Incarnation: 2,
		Previous: true, Since: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), From: &schema.LogPosition{Generation: 9, Incarnation: 2, Offset: 77}, Framed: true,
	}
	opened := make(chan io.ReadCloser)
	go func() {
		log, err := cl.Logs(t.Context(), "search/web/1", want)
		if err != nil {
			t.Error(err)
		}
		opened <- log
	}()
	next <- "first\n"
	log := <-opened
	defer log.Close()
	for _, line := range []string{"first\n", "second\n"} { // each comes at once
		if line != "first\n" {
			next <- line
		}
		got := make([]byte, len(line))
		if _, err := io.ReadFull(log, got); err != nil || string(got) != line {
			t.Fatalf("%q, %v", got, err)
		}
	}
	next <- "!the machine\nwent away"
	var e *client.Error
	if _, err := io.ReadAll(log); !errors.As(err, &e) || e.Message != "!the machine went away" {
		t.Errorf("got %v", err)
	}
	close(next)
	empty, err := cl.Logs(t.Context(), "search/web/0", schema.LogRequest{Tail: -1})
	if err != nil {
		t.Fatal(err)
	}
	defer empty.Close()
	if b, err := io.ReadAll(empty); len(b) != 0 || err != nil {
		t.Errorf("an empty log: %q, %v", b, err)
	}
	wantOpened := []string{
		"m1 {Task:local/search/web/1 Generation:9 Incarnation:2 Previous:true Stream:stderr Follow:true Tail:5 Since:2026-01-02 03:04:05 +0000 UTC From:9/2/77 Framed:true}",
		"m1 {Task:local/search/web/0 Generation:0 Incarnation:0 Previous:false Stream:stdout Follow:false Tail:-1 Since:0001-01-01 00:00:00 +0000 UTC From:<nil> Framed:false}",
	}
	if diff := cmp.Diff(wantOpened, c.opened); diff != "" {
		t.Error(diff)
	}
}

func TestLogsErrorsThroughClient(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		logs func(context.Context, io.Writer) error
		code int
	}{
		"no agent": {nil, http.StatusBadGateway},
		"no log": {func(context.Context, io.Writer) error {
			return fmt.Errorf("machine m1: no such log: %w", fs.ErrNotExist)
		}, http.StatusNotFound},
		"trouble": {func(context.Context, io.Writer) error { return errors.New("machine m1: I/O error") }, http.StatusBadGateway},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCell(busy())
			c.logs = tc.logs
			cl, _, _ := serve(t, c)
			_, err := cl.Logs(t.Context(), "search/web/0", schema.LogRequest{Tail: -1})
			var e *client.Error
			if !errors.As(err, &e) || e.Code != tc.code || e.Hint == "" || !strings.HasPrefix(e.Message, "machine m1: ") {
				t.Errorf("got %+v", err)
			}
		})
	}
}

func TestWhyAndReconcileThroughClient(t *testing.T) {
	t.Parallel()
	c := newCell(busy())
	cl, _, _ := serve(t, c)
	for index, want := range map[int]string{-1: "search/web", 4: "search/web/4"} {
		if why, err := cl.Why(t.Context(), client.WhyQuery{Job: "search/web", Index: index}); err != nil || why.Name != want {
			t.Errorf("%+v, %v", why, err)
		}
	}
	var e *client.Error
	if _, err := cl.Why(t.Context(), client.WhyQuery{Job: "search/db", Index: -1}); !errors.As(err, &e) || e.Code != http.StatusNotFound || e.Hint == "" {
		t.Errorf("got %v", err)
	}
	if why, err := cl.Why(t.Context(), client.WhyQuery{Job: "search/web", Index: 4, Machine: "m1"}); err != nil || why.Placement.Verdict.Reason == "" {
		t.Errorf("asked of m1: %+v, %v", why, err)
	}
	if why, err := cl.Why(t.Context(), client.WhyQuery{Index: -1, Machine: "m1"}); err != nil || why.Machine == nil || why.Machine.Name != "m1" {
		t.Errorf("of m1: %+v, %v", why, err)
	}
	for _, q := range []client.WhyQuery{{Index: -1, Machine: "m9"}, {Index: -1}, {Job: "search/web", Index: -1, Machine: "m1"}, {Job: "search/web", Index: 4, Machine: "m9"}} {
		if _, err := cl.Why(t.Context(), q); !errors.As(err, &e) || e.Code >= 500 || e.Hint == "" {
			t.Errorf("%+v: got %v", q, err)
		}
	}
	if l, err := cl.Reconcile(t.Context()); err != nil || c.looked != 1 || l.String() != "found 2 (was 1), applying" {
		t.Errorf("looked %d times: %v, %v", c.looked, l, err)
	}
	c.away = &status.SourceError{Message: "it is away", Hint: "wait"}
	_, err := cl.Reconcile(t.Context())
	wantClientError(t, err, http.StatusBadGateway, "it is away")
	if s, err := cl.Standing(t.Context(), "0"); err != nil || s.Is != status.StandsContained {
		t.Errorf("%+v, %v", s, err)
	}
	if _, err := cl.Standing(t.Context(), "main"); err == nil {
		t.Error("a branch was taken for a commit")
	}
}

func TestClientWithoutAMaster(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	free := l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	other := httptest.NewServer(http.NotFoundHandler())
	defer other.Close()
	html := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "<html>") }))
	defer html.Close()
	for master, want := range map[string]string{
		free:                         "no answer from the master at http://" + free + ": dial tcp " + free + ": connect: connection refused",
		other.URL:                    "the server at " + other.URL + " is not a muster master: status 404 Not Found",
		html.URL:                     "the server at " + html.URL + " is not a muster master",
		"":                           "no master is given",
		"ftp://127.0.0.1:1":          `master "ftp://127.0.0.1:1": want unix:/PATH, http://HOST:PORT or https://HOST:PORT`,
		"127.0.0.1":                  `master "127.0.0.1": want unix:/PATH, http://HOST:PORT`,
		"http://127.0.0.1:1/v1":      `want unix:/PATH, http://HOST:PORT`,
		"http://user@127.0.0.1:1234": `want unix:/PATH, http://HOST:PORT`,
		"http://127.0.0.1:x":         `want unix:/PATH, http://HOST:PORT`,
	} {
		cl, err := client.New(master)
		if err == nil {
			_, _, err = cl.Status(t.Context(), client.StatusQuery{})
			cl.Close()
		}
		var e *client.Error
		if !errors.As(err, &e) || !strings.Contains(e.Message, want) || !strings.Contains(e.Hint, "MUSTER_MASTER") {
			t.Errorf("%s: %v", master, err)
		}
	}
	cl, err := client.New(free)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := cl.Reconcile(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("interrupted: %v", err)
	}
}
