package schema_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/musterhq/muster/schema"
)

// TestRules: the table has each constant once, in the order of the source, with the
// constant's comment; an id is a word that needs no quotes anywhere.
func TestRules(t *testing.T) {
	t.Parallel()
	file, err := parser.ParseFile(token.NewFileSet(), "rule.go", nil, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	var want []schema.RuleText
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok || len(spec.Values) != 1 {
			return true
		}
		id, err := strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value)
		if err != nil {
			t.Fatal(err)
		}
		want = append(want, schema.RuleText{Rule: schema.Rule(id), Short: strings.TrimSpace(spec.Comment.Text())})
		return true
	})
	if diff := cmp.Diff(want, schema.Rules()); diff != "" {
		t.Errorf("(-constants +table)\n%s", diff)
	}
	seen := map[schema.Rule]bool{}
	for _, r := range schema.Rules() {
		if seen[r.Rule] || !regexp.MustCompile(`^[a-z]+(-[a-z]+)*$`).MatchString(string(r.Rule)) {
			t.Errorf("%q is a rule twice, or no id", r.Rule)
		}
		seen[r.Rule] = true
	}
}
