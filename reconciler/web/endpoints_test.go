package web_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/musterhq/muster/reconciler/status"
	"github.com/musterhq/muster/reconciler/web"
	"github.com/musterhq/muster/schema"
)

// serving is a cell with a job of two tasks that have ports.
func serving(change func(*status.TaskStatus)) *status.Status {
	s := &status.Status{Cell: "local", Jobs: []status.JobStatus{{Name: "u/web", Labels: map[string]string{"tier": "a", "x.y/z": "1", schema.LabelUser: "u"}}}, Machines: []status.MachineStatus{{Name: "m1", Health: "up"}}}
	for i := range 2 {
		s.Tasks = append(s.Tasks, status.TaskStatus{
			Name: fmt.Sprintf("u/web/%d", i), State: status.TaskRunning, Machine: "m1", Address: "2001:db8::7", Ports: schema.PortsOf(map[string]int{"http": 20001 + i, "admin": 30001 + i}),
		})
	}
	change(&s.Tasks[0])
	return s
}

// TestWatchEndpoints: who watches the endpoints that are ready is sent that one is not any
// more, and nothing of what changes of its task beside that.
func TestWatchEndpoints(t *testing.T) {
	t.Parallel()
	c := newCell(serving(func(*status.TaskStatus) {}))
	_, url, _ := serve(t, c)
	ready, all := watch(t, url+"/v1/endpoints?watch=1&ready=1", ""), watch(t, url+"/v1/endpoints?watch=1&selector=tier%3Da", "")
	for _, w := range []*watched{ready, all} {
		for _, want := range []string{"added", "added", "bookmark"} {
			if e := w.next(); e.name != want {
				t.Fatalf("it begins with %s, want %s", e.name, want)
			}
		}
	}
	c.publish(serving(func(task *status.TaskStatus) { task.Restarts, task.PID = 1, 7 })) // nothing that is sent
	for _, x := range []struct {
		change     func(*status.TaskStatus)
		ready, all string
		reason     any
	}{
		{func(task *status.TaskStatus) { task.State, task.Reason = status.TaskStopping, "update" }, "removed", "changed", "update"},
		{func(*status.TaskStatus) {}, "added", "changed", ""},
		{func(task *status.TaskStatus) { task.Health, task.Reason = schema.Unhealthy, "its health check fails" }, "removed", "changed", "its health check fails"},
		{func(task *status.TaskStatus) { task.Health = schema.Healthy }, "added", "changed", ""},
		{func(task *status.TaskStatus) { task.State, task.Reason = status.TaskUnknown, "" }, "removed", "changed", "it is unknown"},
	} {
		c.publish(serving(x.change))
		if e := ready.next(); e.name != x.ready || e.data.Item["name"] != "u/web/0" {
			t.Errorf("of those that are ready: %s %v, want %s", e.name, e.data.Item, x.ready)
		}
		if e := all.next(); e.name != x.all || e.data.Item["reason"] != x.reason {
			t.Errorf("of all: %s %v, want %s for %q", e.name, e.data.Item, x.all, x.reason)
		}
	}
	c.publish(serving(func(task *status.TaskStatus) { task.State, task.Machine = status.TaskPending, "" }))
	if e := all.next(); e.name != "removed" {
		t.Errorf("%s of a task without a machine, want removed", e.name)
	}
}

// TestTargets: Prometheus is answered in the form of its HTTP service discovery.
func TestTargets(t *testing.T) {
	t.Parallel()
	s := serving(func(task *status.TaskStatus) { task.State = status.TaskStarting })
	h := web.New(config(newCell(s))).Handler()
	get := func(target string) string {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, web.As(0, httptest.NewRequest(http.MethodGet, "http://localhost"+target, nil)))
		if kind := w.Header().Get("Content-Type"); kind != "application/json" || w.Code != http.StatusOK {
			t.Errorf("%s: %d %s", target, w.Code, kind)
		}
		return w.Body.String()
	}
	want := `[{"targets":["[2001:db8::7]:20001"],"labels":{"__meta_muster_cell":"local","__meta_muster_job":"web","__meta_muster_label_tier":"a","__meta_muster_label_x_y_z":"1","__meta_muster_machine":"m1","__meta_muster_port":"http","__meta_muster_ready":"false","__meta_muster_task":"u/web/0","__meta_muster_user":"u"}}]` + "\n"
	if got := get("/v1/http_sd?port=http&name=u/web/0"); got != want {
		t.Errorf("got %s want %s", got, want)
	}
	if got := get("/v1/http_sd?port=none"); got != "[]\n" {
		t.Errorf("of no port: %s", got)
	}
}
