package web_test

import (
	"net/http"
	"net/http/httptest"
	"os/user"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/musterhq/muster/reconciler/web"
	"github.com/musterhq/muster/schema"
	"github.com/musterhq/muster/schema/identity"
)

// Who asks over loopback is the user whose socket it is.
func TestSuspend(t *testing.T) {
	t.Parallel()
	c := newCell(busy())
	cl, _, _ := serve(t, c)
	who := "somebody on the master's machine"
	if runtime.GOOS == "linux" {
		u, err := user.Current()
		if err != nil {
			t.Fatal(err)
		}
		who = u.Username
	}
	x, err := cl.Suspend(t.Context(), schema.Suspension{Name: "search/web", Reason: "why & how"}, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	want := schema.Suspension{Name: "search/web", Reason: "why & how", By: who, Since: at, Until: at.Add(time.Hour)}
	if diff := cmp.Diff(want, *x); diff != "" {
		t.Error(diff)
	}
	r, err := cl.Resume(t.Context(), "search/web")
	if err != nil {
		t.Fatal(err)
	}
	// The fake's status says for ever that both are suspended.
	if diff := cmp.Diff(schema.Resumed{Was: &want, Still: []string{"all", "search/web"}}, *r); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"search/web by " + who}, c.resumed); diff != "" {
		t.Error(diff)
	}
}

func TestSuspendRefuses(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", schema.MaxReason+1)
	for _, tc := range []struct {
		path string
		code int
		want string
	}{
		{"/v1/suspend?name=search/web", 400, "suspend search/web: no reason is given"},
		{"/v1/suspend?name=search/web&reason=%20", 400, "no reason is given"},
		{"/v1/suspend?name=search/web&reason=a%0Ab", 400, `the reason \"a\\nb\" is not one line of text`},
		{"/v1/suspend?name=search/web&reason=" + long, 400, "the reason has 501 bytes: want at most 500"},
		{"/v1/suspend?name=search/web&reason=x&for=5", 400, "for=5: want a duration of at least 1s, such as 2h"},
		{"/v1/suspend?name=search/web&reason=x&for=-2h", 400, "want a duration of at least 1s"},
		{"/v1/suspend?reason=x", 400, `job \"\": want user/job`},
		{"/v1/suspend?name=search/web/0&reason=x", 404, "is not of this cell"},
		{"/v1/suspend?name=search/none&reason=x", 404, `has no job \"search/none\"`},
		{"/v1/resume?name=web", 400, `job \"web\": want user/job`},
	} {
		t.Run(tc.path[:min(len(tc.path), 60)], func(t *testing.T) {
			t.Parallel()
			code, body := post(t, tc.path, "1")
			if code != tc.code || !strings.Contains(body, tc.want) {
				t.Errorf("got %d %s, want %d with %s", code, body, tc.code, tc.want)
			}
		})
	}
	for _, path := range []string{"/v1/suspend?name=all&reason=x", "/v1/resume?name=all"} {
		if code, body := post(t, path, ""); code != http.StatusForbidden { // as a form of a web page would
			t.Errorf("%s without its header: got %d %s", path, code, body)
		}
		w := httptest.NewRecorder()
		web.New(config(newCell(busy()))).Handler().ServeHTTP(w, web.As(0, httptest.NewRequest(http.MethodGet, "http://127.0.0.1"+path, nil)))
		if w.Code != http.StatusMethodNotAllowed {
			t.Errorf("GET %s: got %d", path, w.Code)
		}
	}
}

// post asks as a client does, with or without the header that no form can send.
func post(t *testing.T, path, header string) (code int, body string) {
	t.Helper()
	r := web.As(0, httptest.NewRequest(http.MethodPost, "http://127.0.0.1"+path, nil))
	if header != "" {
		r.Header.Set("Muster-Request", header)
	}
	w := httptest.NewRecorder()
	web.New(config(newCell(busy()))).Handler().ServeHTTP(w, r)
	return w.Code, w.Body.String()
}

// Over TLS it is for operators, and their certificate says who they are.
func TestSuspendOverTLS(t *testing.T) {
	t.Parallel()
	a := newSecureAPI(t)
	reader := a.client(identity.ReadOnly, "eve")
	_, err := reader.Suspend(t.Context(), schema.Suspension{Name: schema.AllJobs, Reason: "x"}, 0)
	wantClientError(t, err, http.StatusForbidden, "suspend needs the role operator; you are read-only/eve")
	_, err = reader.Resume(t.Context(), schema.AllJobs)
	wantClientError(t, err, http.StatusForbidden, "resume needs the role operator; you are read-only/eve")
	x, err := a.client(identity.Operator, "anna").Suspend(t.Context(), schema.Suspension{Name: schema.AllJobs, Reason: "x"}, 0)
	if err != nil || x.By != "operator/anna" {
		t.Errorf("an operator: %v, %v", x, err)
	}
	if len(a.cell.suspensions) != 1 || len(a.cell.resumed) != 0 {
		t.Errorf("suspended %v, resumed %v", a.cell.suspensions, a.cell.resumed)
	}
}
