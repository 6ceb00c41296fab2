package compile_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/musterhq/muster/schema/scaffold"
)

// TestCueCommand runs the real cue command, as users and their editors do, on
// what `muster init` writes.
func TestCueCommand(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("builds the cue command")
	}
	dir := t.TempDir()
	cue := filepath.Join(dir, "cue")
	if out, err := exec.Command("go", "build", "-o", cue, "cuelang.org/go/cmd/cue").CombinedOutput(); err != nil {
		t.Fatalf("build cue: %v\n%s", err, out)
	}
	repo := filepath.Join(dir, "repo")
	files, err := scaffold.Files(scaffold.DefaultModule, "local")
	if err != nil {
		t.Fatal(err)
	}
	for name, b := range files {
		p := filepath.Join(repo, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	run := func(args ...string) (string, error) {
		cmd := exec.Command(cue, args...)
		cmd.Dir = repo
		cmd.Env = append(os.Environ(), "CUE_REGISTRY=none", "CUE_CACHE_DIR="+filepath.Join(dir, "cache"))
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	for _, args := range [][]string{{"vet", "-c", "./..."}, {"fmt", "--check", "--files", "."}} {
		if out, err := run(args...); err != nil {
			t.Errorf("cue %v: %v\n%s", args, err, out)
		}
	}
	// The definitions must be in force there too.
	bad := "package bad\n\nimport \"example.com/config/muster\"\n\njob: web: muster.#Job & {tsks: 3}\n"
	if err := os.MkdirAll(filepath.Join(repo, "bad"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(repo, "bad", "bad.cue"), []byte(bad), 0o644); err != nil {
		t.Fatal(err)
	}
	if out, err := run("vet", "-c", "./..."); err == nil {
		t.Errorf("cue vet accepts an unknown field: %s", out)
	}
}
