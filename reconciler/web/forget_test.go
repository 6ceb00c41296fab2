package web_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/musterhq/muster/schema"
	"github.com/musterhq/muster/schema/identity"
)

// Machines are forgotten by operators, and their certificate says who they are.
func TestForgetOverTLS(t *testing.T) {
	t.Parallel()
	a := newSecureAPI(t)
	reader, operator := a.client(identity.ReadOnly, "eve"), a.client(identity.Operator, "anna")
	for _, dry := range []bool{true, false} {
		_, err := reader.Forget(t.Context(), "m1", "x", dry)
		wantClientError(t, err, http.StatusForbidden, "forget needs the role operator; you are read-only/eve")
	}
	for _, dry := range []bool{true, false} {
		got, err := operator.Forget(t.Context(), "m1", "why & how", dry)
		want := &schema.Forgetting{Machine: "m1", Tasks: []string{"search/web/0"}, NeverTwice: []string{}, Done: !dry}
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Error(diff, err)
		}
	}
	if diff := cmp.Diff([]schema.Forgotten{{By: "operator/anna", Reason: "why & how"}}, a.cell.forgotten); diff != "" {
		t.Error(diff)
	}
}

func TestForgetRefuses(t *testing.T) {
	t.Parallel()
	for path, want := range map[string]string{
		"/v1/forget?machine=m1":                  "no reason is given",
		"/v1/forget?reason=x":                    "machine: ",
		"/v1/forget?machine=m1&reason=x&dry=ja":  "dry=ja: want 1 or 0",
		"/v1/forget?machine=none&reason=x":       `has no machine \"none\"`,
		"/v1/forget?machine=here&reason=x&dry=1": "machine here is connected (host h, no id): it would join again at once",
	} {
		if code, body := post(t, path, "1"); code < 400 || code >= 500 || !strings.Contains(body, want) {
			t.Errorf("%s: got %d %s, want %s", path, code, body, want)
		}
	}
}
