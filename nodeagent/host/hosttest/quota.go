package hosttest

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// quotaImage names the variable with a file system that has project quotas, for where
// none can be made.
const quotaImage = "MUSTER_TEST_QUOTA_IMAGE"

// QuotaDisk mounts a file system with project quotas, and returns where. Where there
// can be none, the test is skipped.
func QuotaDisk(t *testing.T) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("NOT TESTED: needs root to mount a disk")
	}
	top := t.TempDir()
	image, disk := filepath.Join(top, "image"), filepath.Join(top, "disk")
	f, err := os.Create(image)
	if err := errors.Join(err, os.Mkdir(disk, 0o755)); err != nil {
		t.Fatal(err)
	}
	if ready := os.Getenv(quotaImage); ready != "" {
		from, err := os.Open(ready)
		if err == nil {
			_, err = io.Copy(f, from)
		}
		if err := errors.Join(err, from.Close(), f.Close()); err != nil {
			t.Fatal(err)
		}
	} else {
		err := errors.Join(f.Truncate(48<<20), f.Close())
		out, failed := exec.CommandContext(t.Context(), "mkfs.ext4", "-q", "-O", "quota,project", "-E", "quotatype=prjquota", image).CombinedOutput()
		if err = errors.Join(err, failed); err != nil {
			t.Skipf("NOT TESTED: no file system with project quotas can be made: %v\n%s", err, out)
		}
	}
	if out, err := exec.CommandContext(t.Context(), "mount", "-o", "loop,prjquota", image, disk).CombinedOutput(); err != nil {
		t.Skipf("NOT TESTED: project quotas, which this kernel has not: %v\n%s", err, out)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(disk, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	for _, dir := range []string{filepath.Dir(top), top, disk} {
		if err := os.Chmod(dir, 0o711); err != nil {
			t.Fatal(err)
		}
	}
	return disk
}
