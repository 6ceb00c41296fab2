package web_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/musterhq/muster/reconciler/status"
	"github.com/musterhq/muster/reconciler/web"
	"github.com/musterhq/muster/reconciler/web/client"
	"github.com/musterhq/muster/schema"
)

// streamed is an event of a stream.
type streamed struct {
	name, id string
	data     struct {
		Version uint64
		Item    map[string]any
		Code    int
		Error   string
		Message string
	}
}

func (e streamed) String() string {
	return strings.TrimSpace(fmt.Sprintf("%s %v %s", e.name, e.data.Item["name"], e.data.Item["state"]))
}

// watched is a stream that is read.
type watched struct {
	t     *testing.T
	lines *bufio.Scanner
	stop  context.CancelFunc
}

// watch asks for a stream; last is what it goes on from, "" from the beginning.
func watch(t *testing.T, url, last string) *watched {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	if last != "" {
		r.Header.Set("Last-Event-Id", last)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = resp.Body.Close() })
	if kind := resp.Header.Get("Content-Type"); resp.StatusCode != http.StatusOK || kind != "text/event-stream" {
		t.Fatalf("%s: %s, %s", url, resp.Status, kind)
	}
	return &watched{t, bufio.NewScanner(resp.Body), cancel}
}

// next returns the next event, with a name "" when there is none.
func (w *watched) next() (e streamed) {
	w.t.Helper()
	for w.lines.Scan() {
		line := w.lines.Text()
		name, value, _ := strings.Cut(line, ": ")
		switch {
		case line == "" && (e.name != "" || e.id != ""):
			return e
		case name == "event":
			e.name = value
		case name == "id":
			e.id = value
		case name == "data":
			if err := json.Unmarshal([]byte(value), &e.data); err != nil {
				w.t.Errorf("%s: %v", value, err)
			}
		}
	}
	return streamed{}
}

// tasks is a cell of one job with tasks in these states.
func tasks(states ...status.TaskState) *status.Status {
	s := &status.Status{Cell: "local", Jobs: []status.JobStatus{{Name: "u/web", Labels: map[string]string{"tier": "a"}}}, Machines: []status.MachineStatus{{Name: "m1", Health: "up"}}}
	for i, state := range states {
		if state != "" {
			s.Tasks = append(s.Tasks, status.TaskStatus{Name: fmt.Sprintf("u/web/%d", i), State: state, Machine: "m1"})
		}
	}
	return s
}

// TestWatch: from the version of a list on, a watcher is sent what has changed, each item
// with its version, and goes on from the id that it was sent last without a loss.
func TestWatch(t *testing.T) {
	t.Parallel()
	c := newCell(tasks("running", "running", "running"))
	_, url, _ := serve(t, c)
	_, p := list(t, web.New(config(c)).Handler(), "/v1/tasks")
	if names, _ := fetch(t, url+"/v1/tasks"); len(names) != 3 {
		t.Fatalf("the list has %q", names)
	}
	all := watch(t, fmt.Sprintf("%s/v1/tasks?watch=true&version=%d", url, p.Version), "")
	running := watch(t, fmt.Sprintf("%s/v1/tasks?watch=1&version=%d&state=running&fields=name", url, p.Version), "")
	c.publish(tasks("running", "failed", "", "pending"))
	for _, want := range []string{"changed u/web/1 failed", "removed u/web/2 %!s(<nil>)", "added u/web/3 pending"} {
		if e := all.next(); e.String() != want || e.data.Version != 2 || (e.id == "2") != strings.HasPrefix(want, "added") {
			t.Errorf("%s of version %d, id %q; want %s", e, e.data.Version, e.id, want)
		}
	}
	for _, want := range []string{"removed u/web/1", "removed u/web/2"} {
		if e := running.next(); !strings.HasPrefix(e.String(), want) || len(e.data.Item) != 1 {
			t.Errorf("of those that run: %s, want %s", e, want)
		}
	}
	running.stop()
	c.publish(tasks("running", "running", "", "running"))
	for _, want := range []string{"changed u/web/1 running", "changed u/web/3 running"} {
		if e := all.next(); e.String() != want {
			t.Errorf("%s, want %s", e, want)
		}
	}
	again := watch(t, fmt.Sprintf("%s/v1/tasks?watch=1&version=%d&state=running&fields=name", url, p.Version), "2")
	for _, want := range []string{"added u/web/1", "added u/web/3"} {
		if e := again.next(); !strings.HasPrefix(e.String(), want) {
			t.Errorf("again: %s, want %s", e, want)
		}
	}
}

// TestWatchGroups: what a group picks is watched as it is listed.
func TestWatchGroups(t *testing.T) {
	t.Parallel()
	c := newCell(tasks("running"))
	_, url, _ := serve(t, c)
	streams := map[string]*watched{}
	for _, path := range []string{"/v1/jobs?selector=tier%3Db", "/v1/tasks?selector=tier%3Db", "/v1/tasks?name=m2", "/v1/machines?health=lost", "/v1/jobs?name=u/other"} {
		streams[path] = watch(t, url+path+"&watch=1", "")
		if e := streams[path].next(); e.name != "bookmark" || e.id != "1" {
			t.Errorf("%s begins with %+v", path, e)
		}
	}
	s := tasks("running")
	s.Jobs[0].Labels = map[string]string{"tier": "b"} // its task stays as it was
	s.Machines[0].Health = "lost"
	s.Machines = append(s.Machines, status.MachineStatus{Name: "m2", Health: "up"})
	s.Jobs = append([]status.JobStatus{{Name: "u/other"}}, s.Jobs...)
	s.Tasks = append([]status.TaskStatus{{Name: "u/other/0", Machine: "m2"}}, s.Tasks...)
	c.publish(s)
	for path, want := range map[string]string{
		"/v1/jobs?selector=tier%3Db": "added u/web", "/v1/tasks?selector=tier%3Db": "added u/web/0", "/v1/tasks?name=m2": "added u/other/0",
		"/v1/machines?health=lost": "added m1", "/v1/jobs?name=u/other": "added u/other",
	} {
		if e := streams[path].next(); !strings.HasPrefix(e.String()+" ", want+" ") || e.id != "2" {
			t.Errorf("%s: %s, id %q, want %s", path, e, e.id, want)
		}
	}
}

// TestWatchBegins: without a version, all is sent first, and that it is all.
func TestWatchBegins(t *testing.T) {
	t.Parallel()
	c := newCell(tasks("running", "done"))
	_, url, _ := serve(t, c)
	w := watch(t, url+"/v1/tasks?watch=1", "")
	for _, want := range []string{"added u/web/0 running", "added u/web/1 done", "bookmark"} {
		if e := w.next(); !strings.HasPrefix(e.String(), want) || e.data.Version != 1 {
			t.Errorf("%s of version %d, want %s", e, e.data.Version, want)
		}
	}
}

// TestWatchGone: a version of which nothing is known any more, or that is another
// master's, is not watched from.
func TestWatchGone(t *testing.T) {
	t.Parallel()
	c := newCell(tasks("running"))
	c.version = 5
	h := web.New(config(c)).Handler()
	for target, want := range map[string]int{
		"/v1/tasks?watch=1&version=4":    http.StatusGone,
		"/v1/tasks?watch=1&version=6":    http.StatusGone,
		"/v1/tasks?watch=1&version=x":    http.StatusBadRequest,
		"/v1/jobs?watch=1&name=m1":       http.StatusBadRequest,
		"/v1/status?watch=1&name=u/none": http.StatusNotFound,
		"/v1/events?watch=1&limit=x":     http.StatusBadRequest,
	} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, web.As(0, httptest.NewRequest(http.MethodGet, "http://localhost"+target, nil)))
		if w.Code != want || !strings.Contains(w.Body.String(), `"hint":"`) {
			t.Errorf("%s: %d %s, want %d", target, w.Code, w.Body, want)
		}
	}
}

// slowWriter takes nothing until it is released.
type slowWriter struct {
	*httptest.ResponseRecorder
	begun   chan struct{}
	once    sync.Once
	release chan struct{}
}

func (w *slowWriter) Write(p []byte) (int, error) {
	if strings.Contains(string(p), "added") {
		w.once.Do(func() { close(w.begun) })
		<-w.release
	}
	return w.ResponseRecorder.Write(p)
}

// TestWatchSlow: a watcher that does not keep up gets an error, and that is all: what is kept
// is bounded, and those that keep up go on.
func TestWatchSlow(t *testing.T) {
	t.Parallel()
	c := newCell(tasks("running"))
	h := web.New(config(c)).Handler()
	_, p := list(t, h, "/v1/tasks")
	w := &slowWriter{ResponseRecorder: httptest.NewRecorder(), begun: make(chan struct{}), release: make(chan struct{})}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		h.ServeHTTP(w, web.As(0, httptest.NewRequest(http.MethodGet, fmt.Sprintf("http://localhost/v1/tasks?watch=1&version=%d", p.Version), nil)))
	}()
	c.publish(tasks("running", "running"))
	<-w.begun
	for i := range 2000 {
		c.publish(tasks("running", []status.TaskState{"running", "failed"}[i%2]))
		_, p = list(t, h, "/v1/tasks")
	}
	close(w.release)
	<-ended
	body := w.Body.String()
	if i := strings.LastIndex(body, "event: "); i < 0 || !strings.HasPrefix(body[i:], "event: error\n") || !strings.Contains(body[i:], `"code":410`) || strings.Count(body, "event:") > 2 {
		t.Errorf("it was sent %.500s", body)
	}
	recorder := httptest.NewRecorder()
	h.ServeHTTP(recorder, web.As(0, httptest.NewRequest(http.MethodGet, "http://localhost/v1/tasks?watch=1&version=2", nil)))
	if recorder.Code != http.StatusGone {
		t.Errorf("an old version: %d", recorder.Code)
	}
}

// TestWatchMany: there is a bound to how many watch at once, and leaving makes room.
func TestWatchMany(t *testing.T) {
	t.Parallel()
	c := newCell(tasks("running"))
	cfg := config(c)
	h := web.New(cfg).Handler()
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	ask := func() *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, web.As(0, httptest.NewRequest(http.MethodGet, "http://localhost/v1/tasks?watch=1", nil).WithContext(ctx)))
		return w
	}
	refused := make(chan *httptest.ResponseRecorder, 1)
	for range web.MaxWatches + 1 {
		all.Go(func() {
			if w := ask(); w.Code != http.StatusOK {
				refused <- w
			}
		})
	}
	if w := <-refused; w.Code != http.StatusServiceUnavailable {
		t.Errorf("one too many: %d %s", w.Code, w.Body)
	}
	cancel()
	all.Wait()
	if w := ask(); w.Code != http.StatusOK {
		t.Errorf("when the others have left: %d %s", w.Code, w.Body)
	}
}

// patient is a watch of a test.
func patient(t *testing.T, say func(string)) client.Watch {
	t.Helper()
	return client.Watch{Patience: 1 << 40, Say: say}
}

// TestStatusChanges: a client gets each other status, also of a master that takes the
// place of one that has ended.
func TestStatusChanges(t *testing.T) {
	t.Parallel()
	c := newCell(tasks("running"))
	first := httptest.NewUnstartedServer(web.New(config(c)).Handler())
	first.Config.ConnContext = web.WithPeer
	first.Start()
	cl, err := client.New(first.URL)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	var said []string
	var second *httptest.Server
	var seen []string
	for s, err := range cl.StatusChanges(t.Context(), client.StatusQuery{Group: status.Group{Name: "u/web"}}, patient(t, func(text string) { said = append(said, text) })) {
		if err != nil {
			t.Fatal(err)
		}
		state := "none"
		if len(s.Tasks) > 0 {
			state = string(s.Tasks[0].State)
		}
		switch seen = append(seen, state); len(seen) {
		case 1:
			c.publish(tasks("failed"))
		case 2: // another process takes its place
			first.CloseClientConnections()
			first.Close()
			l, err := net.Listen("tcp", first.Listener.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			second = httptest.NewUnstartedServer(web.New(config(newCell(tasks("done")))).Handler())
			second.Config.ConnContext = web.WithPeer
			_ = second.Listener.Close()
			second.Listener = l
			second.Start()
		}
		if len(seen) == 3 {
			break
		}
	}
	if second != nil {
		second.CloseClientConnections()
		second.Close()
	}
	if got := strings.Join(seen, " "); got != "running failed done" || len(said) != 1 || !strings.Contains(said[0], "it goes on as soon as") {
		t.Errorf("seen: %s, said %q", got, said)
	}
}

// TestStatusChangesOfNone: what the cell does not have, or has no more, is an error.
func TestStatusChangesOfNone(t *testing.T) {
	t.Parallel()
	c := newCell(tasks("running"))
	cl, _, _ := serve(t, c)
	n := 0
	var answer *client.Error
	for _, err := range cl.StatusChanges(t.Context(), client.StatusQuery{Group: status.Group{Name: "u/web"}}, patient(t, func(string) {})) {
		if n++; n == 1 {
			c.publish(&status.Status{Cell: "local"})
			continue
		}
		if !errors.As(err, &answer) || answer.Code != http.StatusNotFound || answer.Hint == "" {
			t.Errorf("the job is gone: %v", err)
		}
	}
	if n != 2 {
		t.Errorf("%d values", n)
	}
}

// TestOlderMaster: one that cannot be watched is polled, which is said once.
func TestOlderMaster(t *testing.T) {
	t.Parallel()
	c := newCell(tasks("running"))
	c.record(schema.Event{Kind: schema.EventStart, Message: "one"})
	h := web.New(config(c)).Handler()
	older := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		v := r.URL.Query()
		v.Del("watch")
		r.URL.RawQuery = v.Encode()
		h.ServeHTTP(w, r)
	}))
	older.Config.ConnContext = web.WithPeer
	older.Start()
	t.Cleanup(older.Close)
	cl, err := client.New(older.URL)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	var said []string
	say := func(text string) { said = append(said, text) }
	n := 0
	for s, err := range cl.StatusChanges(t.Context(), client.StatusQuery{}, patient(t, say)) {
		if err != nil || s.Version != uint64(n+1) {
			t.Fatalf("version %v, %v", s, err)
		}
		if n++; n == 2 {
			break
		}
		c.publish(tasks("failed"))
	}
	n = 0
	for e, err := range cl.EventChanges(t.Context(), client.EventQuery{}, patient(t, say)) {
		if err != nil || e.ID != uint64(n+1) {
			t.Fatalf("event %v, %v", e, err)
		}
		if n++; n == 2 {
			break
		}
		c.record(schema.Event{Kind: schema.EventStart, Message: "two"})
	}
	if len(said) != 2 || !strings.Contains(said[0], "cannot be watched") {
		t.Errorf("said %q", said)
	}
}

// TestEventChanges: events that match are sent once each, and those that follow.
func TestEventChanges(t *testing.T) {
	t.Parallel()
	c := newCell(tasks("running"))
	for i := range 3 {
		c.record(schema.Event{Kind: schema.EventStart, Message: fmt.Sprint(i)})
	}
	cl, url, _ := serve(t, c)
	var got []string
	for e, err := range cl.EventChanges(t.Context(), client.EventQuery{EventQuery: schema.EventQuery{Newest: true, Limit: 2}}, patient(t, func(string) {})) {
		if err != nil {
			t.Fatal(err)
		}
		if got = append(got, e.Message); len(got) == 2 {
			c.record(schema.Event{Kind: schema.EventStart, Message: "3"})
		}
		if len(got) == 3 {
			break
		}
	}
	if strings.Join(got, " ") != "1 2 3" {
		t.Errorf("got %q", got)
	}
	if e := watch(t, url+"/v1/events?watch=1", "2").next(); e.id != "3" || e.data.Message != "2" {
		t.Errorf("after 2 comes %+v", e)
	}
}

// fetch returns the names of a list over the network.
func fetch(t *testing.T, url string) (names []string, p listPage) {
	t.Helper()
	resp, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(resp.Body).Decode(&p); err != nil {
		t.Fatal(err)
	}
	for _, x := range p.Items {
		names = append(names, fmt.Sprint(x["name"]))
	}
	return names, p
}

// heldWriter takes nothing until it is released.
type heldWriter struct {
	*httptest.ResponseRecorder
	begun, release chan struct{}
}

func (w *heldWriter) Write(p []byte) (int, error) {
	w.begun <- struct{}{}
	<-w.release
	return w.ResponseRecorder.Write(p)
}

// TestWholeAnswers: answers as large as the cell are made few at once, however many ask
// for them, and nothing else waits for that.
func TestWholeAnswers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := web.New(config(newCell(tasks("running")))).Handler()
		begun, release := make(chan struct{}, 2*web.MaxWhole), make(chan struct{})
		var all sync.WaitGroup
		for range 2 * web.MaxWhole {
			all.Go(func() {
				w := &heldWriter{httptest.NewRecorder(), begun, release}
				h.ServeHTTP(w, web.As(0, httptest.NewRequest(http.MethodGet, "http://localhost/v1/status", nil)))
				if w.Code != http.StatusOK {
					t.Errorf("%d %s", w.Code, w.Body)
				}
			})
		}
		synctest.Wait()
		if n := len(begun); n != web.MaxWhole {
			t.Errorf("%d are being made, want %d", n, web.MaxWhole)
		}
		for _, target := range []string{"/v1/tasks", "/v1/jobs", "/v1/machines"} {
			list(t, h, target)
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, web.As(0, httptest.NewRequest(http.MethodGet, "http://localhost/v1/status?tasks=0&most=30", nil)))
		if w.Code != http.StatusOK {
			t.Errorf("a short status: %d %s", w.Code, w.Body)
		}
		close(release)
		all.Wait()
	})
}
