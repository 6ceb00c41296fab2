package binaries

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
)

// module is where the commands are.
const module = "github.com/musterhq/muster/cmd/"

// made is the directory once build has made it; Main reads it after the tests.
var made string

var build = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "muster-binaries-")
	if err != nil {
		return "", err
	}
	made = dir
	if err := os.Chmod(dir, 0o755); err != nil { //nolint:gosec // tasks of any user run what is in it
		return dir, err
	}
	for _, name := range []string{"muster", "muster-agent", "muster-keeper"} {
		cmd := exec.Command("go", "build", "-trimpath", "-o", filepath.Join(dir, name), module+name)
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			return dir, fmt.Errorf("go build %s: %w\n%s", name, err, out)
		}
	}
	return dir, nil
})

// Dir returns the directory of the binaries, which are built at the first call
// of the test process.
func Dir(t testing.TB) string {
	t.Helper()
	dir, err := build()
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// Main runs the tests of a package and removes the binaries. It is the body of
// that package's TestMain, and returns the exit code.
func Main(m *testing.M) int {
	code := m.Run()
	if err := os.RemoveAll(made); made != "" && err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}
