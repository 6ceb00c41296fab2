package main

import (
	"flag"
	"fmt"
	"strings"
	"testing"

	"github.com/musterhq/muster/cmd/internal/reference"
	"github.com/musterhq/muster/schema"
)

//go:generate go test -count=1 -run ^TestReference$ . -update

var update = flag.Bool("update", false, "write docs/reference/cli.md and diagnostics.md")

// TestReference holds docs/reference/cli.md to the commands, and diagnostics.md to the
// rules.
func TestReference(t *testing.T) {
	t.Parallel()
	reference.Section(t, "../../docs/reference/cli.md", "muster", reference.Commands(newRoot(stdio{})), *update)
	table := "| rule | stands for |\n|---|---|\n"
	var b strings.Builder
	for _, r := range schema.Rules() {
		fmt.Fprintf(&b, "| `%s` | %s |\n", r.Rule, r.Short)
	}
	reference.Section(t, "../../docs/reference/diagnostics.md", "rules", table+b.String(), *update)
}
