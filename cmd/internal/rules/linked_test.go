package rules

import (
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "rewrite the golden lists of linked packages")

// binary is a command whose linked packages are held by a golden list, so that
// one more is a decision that a reviewer sees.
type binary struct {
	dir string
	// never lists prefixes of packages that it must not link, and reason
	// says why; the golden list alone could be updated without a thought. but
	// are packages below one of the prefixes that it may link all the same.
	never  []string
	but    []string
	reason string
	// standard includes the standard library in the list.
	standard bool
}

var binaries = []binary{
	{
		dir:    "cmd/muster-agent",
		never:  []string{"cuelang.org/", "github.com/go-git/", "go.etcd.io/", module + "/reconciler"},
		reason: "an agent runs on every machine: CUE, go-git and etcd would make it 26 MiB at start",
	},
	{
		dir:      "cmd/muster-keeper",
		never:    []string{"net/http", "google.golang.org/", "log/slog", module + "/schema"},
		but:      []string{module + "/schema/archive", module + "/schema/atomicfile", module + "/schema/filelock"}, // which know no word of the schema
		reason:   "one keeper runs per task and must stay under 3 MiB",
		standard: true,
	},
}

// linked returns the import paths of what the command in dir links, sorted.
func linked(t *testing.T, dir string, std bool) []string {
	t.Helper()
	c := exec.CommandContext(t.Context(), "go", "list", "-deps", "-f", "{{.Standard}} {{.ImportPath}}", "./"+dir)
	c.Dir = root
	c.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH=amd64")
	c.Stderr = t.Output()
	b, err := c.Output()
	if err != nil {
		t.Fatalf("%s: %v", c, err)
	}
	var out []string
	for line := range strings.Lines(string(b)) {
		isStd, p, _ := strings.Cut(strings.TrimSpace(line), " ")
		inner := strings.HasPrefix(p, "internal/") || strings.HasPrefix(p, "vendor/") || strings.Contains(p, "/internal/")
		if isStd == "true" && (!std || inner) {
			continue // how the standard library is cut up is not our decision
		}
		out = append(out, p)
	}
	slices.Sort(out)
	return out
}

// TestLinked holds the packages that the small binaries link to their lists.
func TestLinked(t *testing.T) {
	t.Parallel()
	for _, b := range binaries {
		t.Run(b.dir, func(t *testing.T) {
			t.Parallel()
			if _, err := os.Stat(filepath.Join(root, b.dir)); err != nil {
				t.Fatal(err)
			}
			got := linked(t, b.dir, b.standard)
			for _, f := range forbidden(b, got) {
				t.Error(f)
			}
			text := strings.Join(got, "\n") + "\n"
			golden := filepath.Join("testdata", filepath.Base(b.dir)+".linked")
			if *update {
				if err := os.MkdirAll("testdata", 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(golden, []byte(text), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatalf("%v (make generate writes it)", err)
			}
			if d := cmp.Diff(string(want), text); d != "" {
				t.Errorf("%s links other packages than %s says; if that is meant, run make generate (-want +got):\n%s", b.dir, golden, d)
			}
		})
	}
}

// forbidden returns a fault for each package that b must not link.
func forbidden(b binary, packages []string) []fault {
	var out []fault
	for _, p := range packages {
		for _, n := range b.never {
			if strings.HasPrefix(p, n) && !slices.Contains(b.but, p) {
				out = append(out, fault{b.dir, "links " + p + ": " + b.reason})
			}
		}
	}
	return out
}

// TestForbidden proves that a forbidden package is found.
func TestForbidden(t *testing.T) {
	t.Parallel()
	for _, b := range binaries {
		for _, n := range b.never {
			if len(forbidden(b, []string{n + "x"})) == 0 {
				t.Errorf("%s: %s was let pass", b.dir, n)
			}
		}
	}
}
