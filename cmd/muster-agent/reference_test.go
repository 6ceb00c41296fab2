package main

import (
	"flag"
	"testing"

	"github.com/musterhq/muster/cmd/internal/reference"
)

//go:generate go test -count=1 -run ^TestReference$ . -update

var update = flag.Bool("update", false, "write docs/reference/cli.md")

// TestReference holds docs/reference/cli.md to the commands.
func TestReference(t *testing.T) {
	t.Parallel()
	reference.Section(t, "../../docs/reference/cli.md", "muster-agent", reference.Commands(command()), *update)
}
