package web_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/musterhq/muster/reconciler/status"
	"github.com/musterhq/muster/reconciler/web"
	"github.com/musterhq/muster/schema"
)

// TestServices: services come in pages, or by name, and are explained with the machines that are behind.
func TestServices(t *testing.T) {
	t.Parallel()
	c := newCell(busy())
	for i := range 3 {
		c.services = append(c.services, &status.ServiceStatus{DirectoryService: schema.DirectoryService{ServiceSpec: schema.ServiceSpec{
			User: "search", Name: fmt.Sprint("front", i), Cell: "local", Selector: "muster/job=web", Ports: map[string]schema.ServicePort{"http": {Port: 80}},
		}}})
	}
	h := web.New(config(c)).Handler()
	for target, want := range map[string]string{
		"/v1/services":         "search/front0 search/front1 search/front2",
		"/v1/services?limit=2": "search/front0 search/front1",
		"/v1/services?limit=2&continue=search/front1":      "search/front2",
		"/v1/services?name=search/front1":                  "search/front1",
		"/v1/services?name=search/front1&continue=search/": "search/front1",
	} {
		names, p := list(t, h, target)
		if strings.Join(names, " ") != want || (p.Continue != "") != (target == "/v1/services?limit=2") {
			t.Errorf("%s: %q, want %q; continues at %q", target, names, want, p.Continue)
		}
	}
	cl, _, stop := serve(t, c)
	defer stop()
	if all, err := cl.Services(t.Context(), ""); err != nil || len(all) != 3 || all[2].Name != "search/front2" {
		t.Errorf("%v: %v", err, all)
	}
	if _, err := cl.WhyService(t.Context(), "search/none"); err == nil || !strings.Contains(err.Error(), `no service "search/none"`) {
		t.Errorf("of a service that is not there: %v", err)
	}
	why, err := cl.WhyService(t.Context(), "search/front0")
	if err != nil || why.Name != "search/front0" || len(why.Machines) == 0 {
		t.Errorf("%v: %+v", err, why)
	}
}

// TestServicesBehind: the explanation has since when machines have not acknowledged what has changed.
func TestServicesBehind(t *testing.T) {
	t.Parallel()
	s := busy()
	c := newCell(s)
	for i := range s.Machines {
		s.Machines[i].Health, s.Machines[i].Attributes = "up", map[string]string{schema.HasServices: "true"}
	}
	c.services = []*status.ServiceStatus{{DirectoryService: schema.DirectoryService{ServiceSpec: schema.ServiceSpec{User: "search", Name: "front", Cell: "local", Selector: "muster/job=web"}}}}
	cfg := config(c)
	cfg.Behind = func(lacks func(key string) bool) map[string]time.Time {
		if !lacks("service/search/front") || lacks("service/search/other") || lacks("machine/m2") {
			return nil
		}
		return map[string]time.Time{"m2": time.Now().Add(-time.Hour)}
	}
	var why status.ServiceExplanation
	w := httptest.NewRecorder()
	web.New(cfg).Handler().ServeHTTP(w, web.As(0, httptest.NewRequest(http.MethodGet, "http://localhost/v1/why/service?name=search/front", nil)))
	if err := json.Unmarshal(w.Body.Bytes(), &why); err != nil {
		t.Fatalf("%d: %v", w.Code, err)
	}
	if !slices.ContainsFunc(why.Machines, func(m status.Unserving) bool { return m.Machine == "m2" && strings.Contains(m.Reason, "1h0m") }) || len(why.Machines) != 1 {
		t.Errorf("%+v", why.Machines)
	}
}
