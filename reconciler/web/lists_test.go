package web_test

import (
	"compress/gzip"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/musterhq/muster/reconciler/status"
	"github.com/musterhq/muster/reconciler/web"
)

type listPage struct {
	Version  uint64
	Total    int
	Items    []map[string]any
	Continue string
}

// list asks for a list, and returns its names and what the next page is asked for with.
func list(t *testing.T, h http.Handler, target string) (names []string, p listPage) {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, web.As(0, httptest.NewRequest(http.MethodGet, "http://localhost"+target, nil)))
	if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil || w.Code != http.StatusOK {
		t.Fatalf("%s: %d %v: %.200s", target, w.Code, err, w.Body)
	}
	for _, x := range p.Items {
		names = append(names, fmt.Sprint(x["name"]))
	}
	return names, p
}

func TestLists(t *testing.T) {
	t.Parallel()
	h := web.New(config(newCell(busy()))).Handler()
	for target, want := range map[string]string{
		"/v1/jobs":                                     "search/index search/web",
		"/v1/jobs?waiting=1":                           "search/web",
		"/v1/jobs?name=search/index":                   "search/index",
		"/v1/tasks":                                    "search/index/0 search/web/0 search/web/1",
		"/v1/tasks?state=running,starting":             "search/web/0 search/web/1",
		"/v1/tasks?state=running&name=m1&fields=name":  "search/web/0",
		"/v1/tasks?continue=search/web/0":              "search/web/1",
		"/v1/machines":                                 "m1 m2",
		"/v1/machines?health=silent,lost":              "m2",
		"/v1/machines?health=up&fields=name,capacity":  "m1",
		"/v1/tasks?continue=search/web/9":              "",
		"/v1/tasks?name=search/web&continue=search/ix": "search/web/0 search/web/1",
		"/v1/endpoints":                                "search/web/0",
		"/v1/endpoints?name=search/index":              "",
		"/v1/endpoints?ready=1":                        "", // its machine has no address
	} {
		if names, p := list(t, h, target); strings.Join(names, " ") != want || p.Version != 1 {
			t.Errorf("%s: %q of version %d, want %q", target, names, p.Version, want)
		}
	}
	if _, p := list(t, h, "/v1/tasks?fields=name,state&limit=1"); len(p.Items[0]) != 2 || p.Items[0]["state"] != "done" || p.Total != 3 {
		t.Errorf("two fields are %v, of %d", p.Items, p.Total)
	}
	for target, want := range map[string]string{
		"/v1/tasks?limit=0":         "a number from 1 to 1000",
		"/v1/jobs?limit=1001":       "a number from 1 to 1000",
		"/v1/tasks?state=sleeping":  "pending starting running",
		"/v1/machines?health=ill":   "up silent lost",
		"/v1/jobs?fields=name,nice": "name labels",
		"/v1/jobs?name=search/none": "no job",
		"/v1/jobs?selector=a%20b":   "a b",
		"/v1/endpoints?ready=maybe": "maybe",
		"/v1/http_sd?name=no/such":  "no job",
		"/v1/http_sd?ready=1":       "ready",
	} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, web.As(0, httptest.NewRequest(http.MethodGet, "http://localhost"+target, nil)))
		if w.Code < 400 || w.Code >= 500 || !strings.Contains(w.Body.String(), want) {
			t.Errorf("%s: %d %s, want %q", target, w.Code, w.Body, want)
		}
	}
}

// TestListPages: the pages of a list have each item once, whatever comes and goes
// between two of them.
func TestListPages(t *testing.T) {
	t.Parallel()
	s := &status.Status{Cell: "local"}
	for i := range 25 {
		s.Tasks = append(s.Tasks, status.TaskStatus{Name: fmt.Sprintf("u/web/%d", i), State: "running"})
	}
	c := newCell(s)
	h := web.New(config(c)).Handler()
	var all []string
	target := "/v1/tasks?limit=10"
	for pages := 1; ; pages++ {
		names, p := list(t, h, target)
		all = append(all, names...)
		if p.Continue == "" {
			if pages != 3 {
				t.Errorf("%d pages", pages)
			}
			break
		}
		less := *s // the last task of the page ends, another comes before
		less.Tasks = slices.DeleteFunc(slices.Clone(s.Tasks), func(x status.TaskStatus) bool { return x.Name == p.Continue })
		less.Tasks = append([]status.TaskStatus{{Name: "a/web/0"}}, less.Tasks...)
		c.publish(&less)
		target = "/v1/tasks?limit=10&continue=" + p.Continue
	}
	for i, name := range all {
		if want := fmt.Sprintf("u/web/%d", i); name != want {
			t.Fatalf("item %d is %s, want %s", i, name, want)
		}
	}
	if len(all) != 25 {
		t.Errorf("%d items", len(all))
	}
}

// TestCompressed: a large answer is compressed for who takes that.
func TestCompressed(t *testing.T) {
	t.Parallel()
	s := &status.Status{Cell: "local"}
	for i := range 1000 {
		s.Tasks = append(s.Tasks, status.TaskStatus{Name: fmt.Sprintf("u/web/%d", i), State: "running"})
	}
	h := web.New(config(newCell(s))).Handler()
	r := web.As(0, httptest.NewRequest(http.MethodGet, "http://localhost/v1/tasks?limit=1000", nil))
	plain := httptest.NewRecorder()
	h.ServeHTTP(plain, r)
	r.Header.Set("Accept-Encoding", "gzip")
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	small := w.Body.Len()
	z, err := gzip.NewReader(w.Body)
	if err != nil {
		t.Fatalf("%v: %v", w.Header(), err)
	}
	var p listPage
	if err := json.NewDecoder(z).Decode(&p); err != nil || len(p.Items) != 1000 {
		t.Errorf("%d items, %v", len(p.Items), err)
	}
	if small*5 > plain.Body.Len() {
		t.Errorf("%d bytes of %d", small, plain.Body.Len())
	}
}
