package compile

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/musterhq/muster/schema"
)

// TestDeepPolicy: a file that nests as deep as it has room ends no process that looks for the
// policies in it, and hides none.
func TestDeepPolicy(t *testing.T) {
	t.Parallel()
	for _, open := range []string{"(", "[", "{a:", "a:", "-", "1+"} {
		data := "package a\n\n_policy: a: " + strings.Repeat(open, (3<<20)/len(open))
		if diff := cmp.Diff(&schema.Position{Line: 3, Column: 1}, findPolicies([]byte(data))); diff != "" {
			t.Errorf("%s: policies at (-want +got):\n%s", open, diff)
		}
	}
}

// TestPolicyLabels: where a large file may have policies, which is not parsed.
func TestPolicyLabels(t *testing.T) {
	t.Parallel()
	rest := "\n// " + strings.Repeat("x", maxParsed) + "\n"
	for text, want := range map[string]*schema.Position{
		"_policy: {}":                     {Line: 1, Column: 1},
		"a: 1, _policy: {}":               {Line: 1, Column: 7},
		"a: 1\n\tX=_policy: {}":           {Line: 2, Column: 4},
		"if a {_policy: {}}":              {Line: 1, Column: 7},
		"_policy?: {}":                    {Line: 1, Column: 1},
		"// _policy: {}":                  nil,
		"a: _policy.b\nb_policy: 1":       nil,
		"a: _policy: {}":                  nil,
		"_policy2: {}\n\"_policy\": {}\n": nil,
	} {
		if diff := cmp.Diff(want, findPolicies([]byte(text+rest))); diff != "" {
			t.Errorf("%q (-want +got):\n%s", text, diff)
		}
	}
}
