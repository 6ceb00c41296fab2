package reference

import (
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

func TestReplace(t *testing.T) {
	t.Parallel()
	const page = "# P\n<!-- generated: a -->\nold\n<!-- end: a -->\nrest\n"
	got, err := replace(page, "a", "new\n")
	if want := "# P\n<!-- generated: a -->\n\nnew\n\n<!-- end: a -->\nrest\n"; err != nil || got != want {
		t.Errorf("%q, %v", got, err)
	}
	if again, err := replace(got, "a", "new"); err != nil || again != got {
		t.Errorf("again: %q, %v", again, err)
	}
	if _, err := replace(page, "b", "new"); err == nil {
		t.Error("a part that is not there was replaced")
	}
}

func TestHiddenIsLeftOut(t *testing.T) {
	t.Parallel()
	root := &cobra.Command{Use: "root", Short: "all"}
	run := func(*cobra.Command, []string) {}
	seen := &cobra.Command{Use: "seen", Short: "a | b", Run: run}
	seen.Flags().IntP("number", "n", 7, "how many")
	root.AddCommand(seen, &cobra.Command{Use: "unseen", Short: "none", Hidden: true, Run: run})
	got := Commands(root)
	for _, want := range []string{"## root seen\n", `| a \| b |`, "| `-n, --number int` | `7` | how many |"} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in:\n%s", want, got)
		}
	}
	if strings.Contains(got, "unseen") {
		t.Errorf("a hidden command in:\n%s", got)
	}
}
