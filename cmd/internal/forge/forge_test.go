package forge_test

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/musterhq/muster/cmd/internal/forge"
	"github.com/musterhq/muster/cmd/internal/forge/forgetest"
)

// thread is the pull request of a forge.
func thread(t *testing.T, kind forge.Kind, f *forgetest.Forge) *forge.Thread {
	t.Helper()
	s := httptest.NewServer(f)
	t.Cleanup(s.Close)
	event := filepath.Join(t.TempDir(), "event.json")
	if err := os.WriteFile(event, []byte(forgetest.Event()), 0o600); err != nil {
		t.Fatal(err)
	}
	env := f.Env(s.URL, event)
	env[forge.TokenVariable] = forgetest.Token
	th, has, err := forge.From(kind, "", func(name string) string { return env[name] })
	if err != nil || !has {
		t.Fatalf("no thread: %v", err)
	}
	return th
}

// TestPut: on each forge there is one comment of a name, whatever others write.
func TestPut(t *testing.T) {
	t.Parallel()
	for _, kind := range forge.Kinds() {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			f := forgetest.New(string(kind))
			f.Add("eve", "<!-- muster: plan -->\nnothing happens, merge it")
			f.Add("", "<!-- muster: other -->\nof another name")
			for range 120 { // more than a page
				f.Add("ada", "looks good")
			}
			th := thread(t, kind, f)
			put := func(text string, want bool) {
				t.Helper()
				if made, err := th.Put(t.Context(), "plan", text); err != nil || made != want {
					t.Fatalf("%q: made %v, %v", text, made, err)
				}
			}
			put("one", true)
			put("two", false)
			put("two", false)
			all, writes := f.Comments()
			if len(all) != 123 || writes != 2 || all[122].Body != "<!-- muster: plan -->\ntwo" || !strings.Contains(all[0].Body, "merge it") || all[1].Body != "<!-- muster: other -->\nof another name" {
				t.Errorf("%d comments, %d writes; the last is %+v", len(all), writes, all[len(all)-1])
			}
			if m := f.Mistakes(); len(m) > 0 {
				t.Errorf("mistakes: %v", m)
			}
			f.Deny()
			if _, err := th.Put(t.Context(), "plan", "three"); err == nil || !strings.Contains(err.Error(), "403 Forbidden Resource not accessible") || !strings.Contains(err.Error(), "hint: ") {
				t.Errorf("denied: %v", err)
			}
		})
	}
}

// TestPutAtOnce: two jobs that find no comment leave one, of that which was later, and no other
// comment is touched.
func TestPutAtOnce(t *testing.T) {
	t.Parallel()
	for _, kind := range forge.Kinds() {
		f := forgetest.New(string(kind))
		f.Add("eve", "<!-- muster: plan -->\nmerge it")
		f.Add("", "<!-- muster: other -->\nof another name")
		f.Race("<!-- muster: plan -->\nof the other job")
		made, err := thread(t, kind, f).Put(t.Context(), "plan", "one")
		all, _ := f.Comments()
		if err != nil || !made || len(all) != 3 || all[0].Author != "eve" || !strings.HasSuffix(all[1].Body, "of another name") || all[2].Body != "<!-- muster: plan -->\none" {
			t.Errorf("%s: made %v, %v, and there is %+v", kind, made, err, all)
		}
		if m := f.Mistakes(); len(m) > 0 {
			t.Errorf("%s: mistakes: %v", kind, m)
		}
	}
}

// TestRedirect: a token is sent to no other place than its forge.
func TestRedirect(t *testing.T) {
	t.Parallel()
	asked := false
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked = true }))
	t.Cleanup(other.Close)
	s := httptest.NewServer(http.RedirectHandler(other.URL, http.StatusFound))
	t.Cleanup(s.Close)
	env := forgetest.New("gitlab").Env(s.URL, "")
	env[forge.TokenVariable] = forgetest.Token
	th, _, err := forge.From(forge.GitLab, "", func(name string) string { return env[name] })
	if err != nil {
		t.Fatal(err)
	}
	if _, err := th.Put(t.Context(), "plan", "x"); err == nil || asked {
		t.Errorf("asked the other place: %v; %v", asked, err)
	}
}

// TestFrom: what a job's environment lacks is said, and a job for no pull request is none.
func TestFrom(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	push := filepath.Join(dir, "push.json")
	if err := os.WriteFile(push, []byte(`{"ref":"refs/heads/main","number":3}`), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		kind forge.Kind
		env  map[string]string
		says string // "" for no pull request
	}{
		"a push":          {forge.GitHub, map[string]string{"GITHUB_EVENT_PATH": push}, ""},
		"a branch":        {forge.GitLab, map[string]string{"CI_PROJECT_ID": "1"}, ""},
		"no token":        {forge.GitLab, map[string]string{"CI_API_V4_URL": "https://f/api/v4", "CI_PROJECT_ID": "1", "CI_MERGE_REQUEST_IID": "2"}, "MUSTER_COMMENT_TOKEN is not set"},
		"no address":      {forge.GitLab, map[string]string{"CI_PROJECT_ID": "1", "CI_MERGE_REQUEST_IID": "2"}, "does not say which repository"},
		"no number":       {forge.GitLab, map[string]string{"CI_MERGE_REQUEST_IID": "x"}, "invalid syntax"},
		"no event":        {forge.Gitea, map[string]string{"GITHUB_EVENT_PATH": filepath.Join(dir, "none")}, "no such file"},
		"of no such kind": {"svn", nil, `forge "svn": want one of [github gitea forgejo gitlab]`},
	} {
		_, has, err := forge.From(tc.kind, "", func(name string) string { return tc.env[name] })
		if has || (err != nil) != (tc.says != "") || err != nil && !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%s: %v, %v", name, has, err)
		}
	}
}
