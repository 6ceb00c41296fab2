package web_test

import (
	"bufio"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/musterhq/muster/reconciler/status"
)

// TestPageWatches: a browser that watches the page gets its body, and again when the cell
// is another; and the page's own script is the only one that it may run.
func TestPageWatches(t *testing.T) {
	t.Parallel()
	c := newCell(busy())
	_, url, _ := serve(t, c)
	ask := func(path string) *http.Response {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		return answer
	}
	whole := ask("/")
	defer whole.Body.Close()
	var text strings.Builder
	if _, err := bufio.NewReader(whole.Body).WriteTo(&text); err != nil {
		t.Fatal(err)
	}
	_, script, _ := strings.Cut(text.String(), "<script>")
	script, _, _ = strings.Cut(script, "</script>")
	sum := sha256.Sum256([]byte(script))
	if policy := whole.Header.Get("Content-Security-Policy"); script == "" || !strings.Contains(policy, "script-src 'sha256-"+base64.StdEncoding.EncodeToString(sum[:])+"';") {
		t.Errorf("%s is not for the script\n%s", policy, script)
	}

	watched := ask("/?watch=1")
	defer watched.Body.Close()
	lines := bufio.NewScanner(watched.Body)
	lines.Buffer(nil, 1<<20)
	next := func() (body string) {
		t.Helper()
		for lines.Scan() {
			if data, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
				if err := json.Unmarshal([]byte(data), &body); err != nil {
					t.Fatal(err)
				}
				return body
			}
		}
		t.Fatal(lines.Err())
		return ""
	}
	if first := next(); !strings.Contains(text.String(), first) || !strings.Contains(first, "search/web/0") || strings.Contains(first, "<b>1 task") {
		t.Errorf("the body that is watched is not that of the page:\n%s", first)
	}
	c.publish(&status.Status{Cell: "local", Notes: []string{"another note"}})
	if second := next(); !strings.Contains(second, "another note") || strings.Contains(second, "search/web/0") {
		t.Errorf("the next body:\n%s", second)
	}
}

// TestParameters: a parameter that an endpoint does not know is a mistake there, and one
// that is no value has a hint.
func TestParameters(t *testing.T) {
	t.Parallel()
	_, url, _ := serve(t, newCell(busy()))
	for path, want := range map[string]string{
		"/v1/status?watch=maybe":          `{"error":"watch=maybe: want 1 or 0","hint":"give 1 or 0, or leave watch out"}`,
		"/v1/status?version=7":            `{"error":"there is no parameter \"version\"","hint":"/v1/status takes after, most, name, selector, tasks, wait, watch"}`,
		"/v1/events?version=7":            `{"error":"version=7: only a watch begins at a version","hint":"add watch=1, or leave version out"}`,
		"/v1/events?version=7&watch=0":    `{"error":"version=7: only a watch begins at a version","hint":"add watch=1, or leave version out"}`,
		"/v1/jobs?state=running":          `{"error":"there is no parameter \"state\"","hint":"/v1/jobs takes continue, fields, limit, name, selector, version, watch, waiting"}`,
		"/v1/events?limit=0":              `{"error":"limit=0: want a number from 1 to 10000","hint":"give a number from 1 to 10000, or leave limit out"}`,
		"/v1/logs?task=a/b/0&stream=both": `give stdout or stderr`,
		"/healthz?x=1":                    `{"error":"there is no parameter \"x\"","hint":"/healthz takes no parameters"}`,
		"/metrics?x":                      `there is no parameter`,
		"/?x=1":                           `there is no parameter`,
	} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		var b strings.Builder
		_, err = bufio.NewReader(answer.Body).WriteTo(&b)
		if _ = answer.Body.Close(); err != nil || answer.StatusCode != http.StatusBadRequest || !strings.Contains(b.String(), want) {
			t.Errorf("%s: %d, %s: want %s", path, answer.StatusCode, b.String(), want)
		}
	}
}
