package web_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/musterhq/muster/schema"
	"github.com/musterhq/muster/schema/identity"
)

// Restarts are for operators, and their certificate says who they are.
func TestRestartOverTLS(t *testing.T) {
	t.Parallel()
	a := newSecureAPI(t)
	reader, operator := a.client(identity.ReadOnly, "eve"), a.client(identity.Operator, "anna")
	_, err := reader.Restart(t.Context(), "search/web", "x")
	wantClientError(t, err, http.StatusForbidden, "restart needs the role operator; you are read-only/eve")
	_, err = reader.CancelRestart(t.Context(), "search/web")
	wantClientError(t, err, http.StatusForbidden, "needs the role operator")
	if len(a.cell.restarts) != 0 {
		t.Errorf("restarted %v", a.cell.restarts)
	}
	got, err := operator.Restart(t.Context(), "search/web/2", "why & how")
	if err != nil {
		t.Fatal(err)
	}
	want := schema.RestartRequest{Name: "search/web/2", Reason: "why & how", By: "operator/anna", At: at, After: 7, Tasks: 3}
	if diff := cmp.Diff(&schema.Restarting{Now: &want, Was: []schema.RestartRequest{}, AtOnce: 1}, got); diff != "" {
		t.Error(diff)
	}
	got, err = operator.CancelRestart(t.Context(), "search/web")
	if err != nil || len(got.Was) != 1 || got.Was[0].By != "operator/anna" || got.Was[0].Name != "search/web" {
		t.Errorf("cancel: %v, %v", got, err)
	}
}

func TestRestartRefuses(t *testing.T) {
	t.Parallel()
	for path, want := range map[string]string{
		"/v1/restart?name=search/web":                    "no reason is given",
		"/v1/restart?reason=x":                           `job \"\": want user/job`,
		"/v1/restart?name=all&reason=x":                  `job \"all\": want user/job`,
		"/v1/restart?name=search/web/x&reason=x":         "want a number from 0",
		"/v1/restart?name=search/web&reason=x&cancel=ja": "cancel=ja: want 1 or 0",
		"/v1/restart?name=search/none&cancel=1":          `has no job \"search/none\"`,
	} {
		if code, body := post(t, path, "1"); code < 400 || code >= 500 || !strings.Contains(body, want) {
			t.Errorf("%s: got %d %s, want %s", path, code, body, want)
		}
	}
}
