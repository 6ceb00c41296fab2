package readme

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// TestReadme types what the README says, with binaries that it builds.
func TestReadme(t *testing.T) {
	t.Parallel()
	dir := shortDir(t)
	bin, home := filepath.Join(dir, "bin"), filepath.Join(dir, "home")
	for _, d := range []string{bin, home} {
		if err := os.Mkdir(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	c := exec.CommandContext(t.Context(), "go", "build", "-o", bin, "./cmd/muster", "./cmd/muster-agent", "./cmd/muster-keeper")
	c.Dir = root
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", c, err, out)
	}
	tours := map[string][]block{}
	for _, b := range readme(t) {
		if b.tour != "" {
			tours[b.tour] = append(tours[b.tour], b)
		}
	}
	if len(tours) == 0 {
		t.Fatal("README.md has no tour")
	}
	for name, blocks := range tours {
		t.Run(name, func(t *testing.T) {
			if err := (&tour{dir: dir, home: home}).run(t.Context(), blocks); err != nil {
				t.Errorf("README.md: %v", err)
			}
		})
	}
}

// shortDir returns a new directory with a short name, since sockets lie below
// it, that others may pass, since tasks run as other users.
func shortDir(t *testing.T) string {
	t.Helper()
	base := "/var/lib" // tasks see it: each has a /tmp of its own
	if os.Geteuid() != 0 {
		var err error
		if base, err = os.UserHomeDir(); err != nil {
			t.Fatal(err)
		}
	}
	dir, err := os.MkdirTemp(base, "muster-readme-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	if err := os.Chmod(dir, 0o711); err != nil {
		t.Fatal(err)
	}
	return dir
}
