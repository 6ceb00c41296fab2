package host

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/musterhq/muster/nodeagent/host/hosttest"
	"golang.org/x/sys/unix"
)

// as runs a script in dir as a user to whom quotas apply, and returns what it says.
func as(t *testing.T, dir, script string) string {
	t.Helper()
	c := exec.CommandContext(t.Context(), "/bin/sh", "-c", script)
	c.Dir, c.SysProcAttr = dir, &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 70000, Gid: 70000}}
	out, _ := c.CombinedOutput() // most scripts fail
	return string(out)
}

// TestQuotas: the kernel refuses what is more than a directory may have, in bytes and
// in inodes, and of files without a name, too; limits change; a project whose
// directory is gone is used again.
func TestQuotas(t *testing.T) {
	t.Parallel()
	disk := hosttest.QuotaDisk(t)
	q, err := findQuotas(disk)
	if err != nil || q == nil {
		t.Fatalf("%v, %v: the disk has quotas", q, err)
	}
	held := func(name string, bytes int64) string {
		dir := filepath.Join(disk, name)
		if err := errors.Join(os.Mkdir(dir, 0o700), os.Chown(dir, 70000, 70000), q.hold(dir, bytes)); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	refused := func(what, out string) {
		if !strings.Contains(out, "uota exceeded") && !strings.Contains(out, "No space") {
			t.Errorf("%s: %q, want it to be refused", what, out)
		}
	}
	a, b := held("a", 4<<20), held("b", 8<<20)
	refused("8 MiB in a place for 4", as(t, a, "dd if=/dev/zero of=f bs=1048576 count=8"))
	if bytes, inodes := q.use(a); bytes < 3<<20 || bytes > 4<<20 || inodes != 2 {
		t.Errorf("%d bytes and %d inodes are counted", bytes, inodes)
	}
	refused("a deleted file of 8 MiB", as(t, a, "rm f; exec 3>g; rm g; dd if=/dev/zero bs=1048576 count=8 >&3"))
	refused("5000 files", as(t, a, "i=0; while [ $i -lt 5000 ]; do : >f$i || exit; i=$((i+1)); done"))
	if bytes, inodes := q.use(a); inodes != 4096 {
		t.Errorf("%d bytes and %d inodes are counted", bytes, inodes)
	}
	if out := as(t, b, "dd if=/dev/zero of=f bs=1048576 count=6 2>/dev/null; sync; ls"); out != "f\n" {
		t.Errorf("its neighbour: %q", out)
	}
	if err := q.hold(b, 4<<20); err != nil {
		t.Fatal(err)
	}
	refused("another byte, of what has too much by now", as(t, b, "dd if=/dev/zero of=g bs=4096 count=1"))
	if err := q.hold(b, 16<<20); err != nil {
		t.Fatal(err)
	}
	if out := as(t, b, "dd if=/dev/zero of=g bs=1048576 count=8 2>/dev/null && echo done"); out != "done\n" {
		t.Errorf("with a higher limit: %q", out)
	}
	// It can be taken away, as it is when its task has ended.
	if err := errors.Join(os.Mkdir(filepath.Join(disk, "bin"), 0o700), os.Rename(a, filepath.Join(disk, "bin", "1")), os.RemoveAll(filepath.Join(disk, "bin", "1"))); err != nil {
		t.Fatal(err)
	}
	q.next = 0
	c := held("c", 4<<20)
	if out := as(t, c, "dd if=/dev/zero of=f bs=1048576 count=2 2>/dev/null && echo done"); out != "done\n" {
		t.Errorf("in the next directory: %q", out)
	}
	f, err := os.Open(c)
	if err != nil {
		t.Fatal(err)
	}
	if project, err := q.project(int(f.Fd())); err != nil || project != q.first {
		t.Errorf("project %d, %v, want %d again", project, err, q.first)
	}
	// What was there before is left alone, and so is what needs no limit.
	old := filepath.Join(disk, "old")
	if err := errors.Join(os.MkdirAll(filepath.Join(old, "x"), 0o700), q.hold(old, 1<<20)); err != nil {
		t.Fatal(err)
	}
	if bytes, inodes := q.use(old); bytes != 0 || inodes != 0 {
		t.Errorf("%d bytes and %d inodes of what was there before", bytes, inodes)
	}
	// Where they only count, there are none.
	if err := errors.Join(f.Close(), unix.Unmount(disk, 0)); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), "mount", "-o", "loop", filepath.Join(filepath.Dir(disk), "image"), disk).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if off, err := findQuotas(disk); err != nil || off != nil {
		t.Errorf("%v, %v: nothing is refused there", off, err)
	}
}

// A disk without quotas is one where nothing is held.
func TestNoQuotas(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	q, err := findQuotas("/proc")
	if err != nil || q != nil {
		t.Errorf("%v, %v for a file system that has none", q, err)
	}
	if err := q.hold(dir, 1); err != nil {
		t.Error(err)
	}
	if bytes, inodes := q.use(dir); bytes != 0 || inodes != 0 {
		t.Errorf("%s bytes and %d inodes", strconv.FormatInt(bytes, 10), inodes)
	}
}
