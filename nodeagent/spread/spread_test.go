package spread_test

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/nodeagent/spread"
)

// The bits of chattr(1).
const (
	noDump       = 0x40    // d
	topDirectory = 0x20000 // T
)

// TestApart: on ext4 the directory has the bit afterwards, and those that it had; elsewhere nothing
// happens to it.
func TestApart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	f, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var is unix.Statfs_t
	if err := unix.Fstatfs(int(f.Fd()), &is); err != nil {
		t.Fatal(err)
	}
	ext4 := is.Type == unix.EXT4_SUPER_MAGIC
	if ext4 {
		if err := unix.IoctlSetPointerInt(int(f.Fd()), unix.FS_IOC_SETFLAGS, noDump); err != nil {
			t.Fatal(err)
		}
	}
	before, berr := unix.IoctlGetUint32(int(f.Fd()), unix.FS_IOC_GETFLAGS)
	for range 2 {
		spread.Apart(dir)
	}
	after, aerr := unix.IoctlGetUint32(int(f.Fd()), unix.FS_IOC_GETFLAGS)
	want := before
	if ext4 {
		want |= topDirectory
	}
	if after != want || (berr == nil) != (aerr == nil) || ext4 && before&noDump == 0 {
		t.Errorf("bits %#x, %v; want %#x after %#x, %v", after, aerr, want, before, berr)
	}
	spread.Apart(filepath.Join(dir, "none"))
	if list, err := os.ReadDir(dir); err != nil || len(list) > 0 {
		t.Errorf("made %v, %v", list, err)
	}
}
