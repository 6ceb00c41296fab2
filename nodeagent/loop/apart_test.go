package loop_test

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/schema"
)

// TestGenerationsLieApart: each generation has a place of its own on the disk, where the file system can
// be asked for that.
func TestGenerationsLieApart(t *testing.T) {
	bubble(t, func(s *story) {
		s.assign(assignment("web", 0, 1, schema.Service))
		s.until("u/web/0 g1 running")
		list, err := filepath.Glob(filepath.Join(s.dir, "tasks/*/*/*/*/1"))
		if err != nil || len(list) != 1 {
			t.Fatalf("directories %v, %v; want one", list, err)
		}
		f, err := os.Open(filepath.Dir(list[0]))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		var is unix.Statfs_t
		if err := unix.Fstatfs(int(f.Fd()), &is); err != nil || is.Type != unix.EXT4_SUPER_MAGIC {
			t.Logf("file system %#x, %v: cannot be asked", is.Type, err)
			return
		}
		const topDirectory = 0x20000 // the T of chattr(1)
		if flags, err := unix.IoctlGetUint32(int(f.Fd()), unix.FS_IOC_GETFLAGS); err != nil || flags&topDirectory == 0 {
			t.Errorf("bits %#x, %v; want T", flags, err)
		}
	})
}
