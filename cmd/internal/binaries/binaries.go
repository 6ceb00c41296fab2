package binaries

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// module is where the commands are.
const module = "github.com/musterhq/muster/cmd/"

var (
	mu   sync.Mutex // guards made
	made = map[string]*build{}
)

// build is a directory of binaries, or why there is none.
type build struct {
	once sync.Once
	dir  string
	err  error
}

// Dir returns the directory of the binaries, which are built at the first call
// of the test process.
func Dir(t testing.TB) string {
	t.Helper()
	return Of(t, ".")
}

// Of returns the directory of the binaries of the module that source is a directory of,
// built with further flags of go build, such as -tags; once in the test process.
func Of(t testing.TB, source string, flags ...string) string {
	t.Helper()
	key := strings.Join(append([]string{source}, flags...), " ")
	mu.Lock()
	b := made[key]
	if b == nil {
		b = new(build)
		made[key] = b
	}
	mu.Unlock()
	b.once.Do(func() { b.make(context.WithoutCancel(t.Context()), source, flags) })
	if b.err != nil {
		t.Fatal(b.err)
	}
	return b.dir
}

// At returns the directory of the binaries of another commit of this repository, as Of
// does. Where there is no such commit, as in a clone without its history, the test is
// skipped.
func At(t testing.TB, commit string, flags ...string) string {
	t.Helper()
	if out, err := exec.CommandContext(t.Context(), "git", "cat-file", "-e", commit+"^{commit}").CombinedOutput(); err != nil {
		t.Skipf("needs commit %s, and so a clone with all history: %v: %s", commit, err, out)
	}
	top, err := exec.CommandContext(t.Context(), "git", "rev-parse", "--show-toplevel").Output()
	if err != nil {
		t.Fatal(err)
	}
	tree := t.TempDir()
	unpack := exec.CommandContext(t.Context(), "sh", "-c", `git -C "$0" archive "$1" | tar -x -C "$2"`, strings.TrimSpace(string(top)), commit, tree)
	if out, err := unpack.CombinedOutput(); err != nil {
		t.Fatalf("commit %s: %v\n%s", commit, err, out)
	}
	return Of(t, tree, append([]string{"-buildvcs=false"}, flags...)...)
}

func (b *build) make(ctx context.Context, source string, flags []string) {
	if b.dir, b.err = os.MkdirTemp("", "muster-binaries-"); b.err != nil {
		return
	}
	if b.err = os.Chmod(b.dir, 0o755); b.err != nil { //nolint:gosec // tasks of any user run what is in it
		return
	}
	// Debug information is a quarter of the work of the linker.
	args := append([]string{"build", "-trimpath", "-ldflags=-s -w", "-o", b.dir + string(filepath.Separator)}, flags...)
	for _, name := range []string{"muster", "muster-agent", "muster-keeper"} {
		args = append(args, module+name)
	}
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = source
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		b.err = fmt.Errorf("go build: %w\n%s", err, out)
	}
}

// Main runs the tests of a package and removes the binaries. It is the body of
// that package's TestMain, and returns the exit code.
func Main(m *testing.M) int {
	code := m.Run()
	mu.Lock()
	defer mu.Unlock()
	for _, b := range made {
		if b.dir == "" {
			continue
		}
		if err := os.RemoveAll(b.dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	return code
}
