package keeper

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestFullDisk: the end is written down on a disk that has no room left, since
// that was kept free for it.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=256k"); err != nil {
		t.Skipf("NOT TESTED: cannot mount a small disk: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	work := t.TempDir()
	h := start(t, dir, testSpec(t, "until [ -e "+work+"/full ]; do sleep 0.01; done; exit 7"))
	ballast, err := os.Create(filepath.Join(dir, "ballast"))
	if err != nil {
		t.Fatal(err)
	}
	for {
		if _, err = ballast.Write(make([]byte, 1<<10)); err != nil {
			break
		}
	}
	if err := errors.Join(ballast.Close(), os.WriteFile(filepath.Join(work, "full"), nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	exit, err := h.Wait()
	if err != nil || exit.Code != 7 || exit.Unseen {
		t.Errorf("exit %+v, %v, want status 7", exit, err)
	}
	if took := time.Since(began); took > writeWait {
		t.Errorf("it took %v: the first attempt was refused", took)
	}
	// Without that room nothing is started, for its end would be lost.
	next := filepath.Join(dir, "next")
	if err := os.Mkdir(next, 0o700); err != nil {
		t.Skipf("no room for a directory: %v", err)
	}
	if err := (&Starting{h: &Handle{dir: next}}).Prepare(testSpec(t, "exit 0")); !errors.Is(err, unix.ENOSPC) {
		t.Errorf("prepared on a full disk: %v", err)
	}
}
