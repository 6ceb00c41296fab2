package valid_test

import (
	"strings"
	"testing"

	"github.com/musterhq/muster/schema"
	"github.com/musterhq/muster/schema/valid"
)

// Each form of secret is found, and left out of what is printed, wherever it stands; its first
// word alone is none.
func TestWellKnownSecrets(t *testing.T) {
	t.Parallel()
	n := strings.Repeat
	for begins, what := range map[string][2]string{
		"AGE-SECRET-KEY-": {"1" + n("A", 20), "an age identity"},
		"-----BEGIN":      {" RSA PRIVATE KEY-----", "a private key"},
		"ghp_":            {n("a", 36), "a token of GitHub"},
		"gho_":            {n("a", 36), "a token of GitHub"},
		"ghs_":            {n("a", 36), "a token of GitHub"},
		"github_pat_":     {n("a", 36), "a token of GitHub"},
		"glpat-":          {n("a", 20), "a token of GitLab"},
		"AKIA":            {n("A", 16), "an access key of AWS"},
		"AIza":            {n("a", 35), "a key of Google's APIs"},
		"xox":             {"b-" + n("1", 10) + "-" + n("1", 10), "a token of Slack"},
		"sk_live_":        {n("a", 24), "a key of Stripe"},
		"npm_":            {n("a", 36), "a token of npm"},
	} {

		found := func(s string) (messages []string) {
			_, problems := valid.Object(schema.KindJob, "web", map[string]any{"labels": map[string]any{"x": "a " + s}})
			for _, p := range problems {
				if p.Rule == schema.RuleSecret {
					messages = append(messages, p.Message)
				}
			}
			return messages
		}
		if got := found(begins + what[0]); len(got) != 1 || got[0] != "contains "+what[1]+" in clear" {
			t.Errorf("%s: found %q, want %s", begins, got, what[1])
		}
		for _, s := range []string{begins + what[0], begins + what[0][:len(what[0])-1] + "…"} {
			if got := valid.Concealed(`is "a ` + s + `" here`); what[1] != "a private key" && got != `is "a …" here` {
				t.Errorf("%s: %s is left", s, got)
			}
		}
		if got := valid.Concealed(`is "a ` + begins + `" here`); got != `is "a `+begins+`" here` {
			t.Errorf("%s alone: %s is left", begins, got)
		}
		if got := found(begins); len(got) != 0 {
			t.Errorf("%s alone: found %q", begins, got)
		}
	}
}

// Of a private key nothing is left, whether the text ends with it or not.
func TestConcealedKey(t *testing.T) {
	t.Parallel()
	const text = `is 7 here and "-----BEGIN RSA PRIVATE KEY-----\nMIIE%s" at a.cue:1:1`
	for _, end := range []string{"\n", "…"} {
		if got, want := valid.Concealed(strings.Replace(text, "%s", end, 1)), `is 7 here and "…" at a.cue:1:1`; got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}
