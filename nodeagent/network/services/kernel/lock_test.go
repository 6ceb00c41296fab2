package kernel_test

import (
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/musterhq/muster/nodeagent/network/services/kernel"
	"github.com/musterhq/muster/schema/filelock"
)

// TestLock: who is refused the lock learns which process has it, if that is known; one that is given back leaves no
// file.
func TestLock(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	lock, err := kernel.Lock(dir, "one")
	if err != nil {
		t.Fatal(err)
	}
	files, err := os.ReadDir(dir)
	if err != nil || len(files) != 1 {
		t.Fatalf("%v, %v", files, err)
	}
	refused := func(want string) {
		t.Helper()
		if _, err := kernel.Lock(dir, "one"); err == nil || !strings.HasSuffix(err.Error(), want) {
			t.Errorf("%v, want %q at the end", err, want)
		}
	}
	refused("programs services here (pid " + strconv.Itoa(os.Getpid()) + ")")
	if err := lock.Close(); err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
	other, err := filelock.Take(filelock.Config{Dir: dir, File: files[0].Name()})
	if err != nil {
		t.Fatal(err)
	}
	refused("programs services here")
	if err := other.Close(); err != nil {
		t.Error(err)
	}
}
