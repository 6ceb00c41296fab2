package status

import (
	"testing"

	"github.com/musterhq/muster/reconciler/model"
	"github.com/musterhq/muster/schema"
)

// TestLookPending: what is still being compiled is not said to be stale.
func TestLookPending(t *testing.T) {
	t.Parallel()
	of := func(rule schema.Rule) StalePackage {
		return StalePackage{Diagnostics: []schema.Diagnostic{{Severity: schema.Error, Rule: rule}}}
	}
	after := &Status{Commit: "b", Applied: "b", Stale: []StalePackage{of(schema.RuleSyntax), of(schema.RulePending), of(schema.RulePending)}}
	const want = "found b (was a), 1 directory of it is stale, 2 directories to follow when all is compiled"
	if got := LookOf(&Status{Commit: "a"}, after, model.Seen{Commit: "b"}); got.String() != want || got.Stale != 1 || got.Pending != 2 {
		t.Errorf("%+v: %s, want %s", *got, got, want)
	}
}
