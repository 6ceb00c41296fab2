package e2e_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestSlowDisk gives the master a disk that takes 3 to 7 s for a sync of its
// embedded etcd, while commits come. Whether the master leads on or has to begin
// again: what it was asked for is applied, nothing is lost, and no task notices.
func TestSlowDisk(t *testing.T) {
	t.Parallel()
	c := prepare(t)
	c.initRepo()
	disk := ownDisk(c)
	c.begin()
	commits := 0
	next := func() string {
		commits++
		return c.commitVersion(commits, commits, "update: {maxParallel: 2, minHealthySeconds: 0}")
	}
	before := c.journalsOf(c.converge(next()))

	b := slowDown(t, disk, c.master.cmd.Process.Pid)
	for range 3 {
		next()
		time.Sleep(5 * time.Second) // the length is the scenario
	}
	c.must(b.release())
	journals := c.journalsOf(c.converge(next()))

	log, err := os.ReadFile(c.path("master.log"))
	c.must(err)
	if !strings.Contains(string(log), "slow fdatasync") {
		t.Errorf("the disk was not slow:\n%s", log)
	}
	for name, b := range journals {
		if b.doubles > 0 || b.dones > 1 {
			t.Errorf("%s: %+v", name, b)
		}
		if strings.HasPrefix(name, "steady.") && b.last() != before[name].last() {
			t.Errorf("%s has ended while the disk was slow", name)
		}
		b.checkRise(t, name)
	}
}

// ownDisk gives the master's data directory a disk of its own, so that nobody else
// has to wait for it, and returns its number.
func ownDisk(c *cell) (device string) {
	c.t.Helper()
	if os.Geteuid() != 0 {
		c.t.Skip("needs root: it mounts a disk and slows it down")
	}
	if _, err := os.Stat(filepath.Join(blkio, limitFile)); err != nil {
		c.t.Skipf("needs the blkio controller of cgroup v1: %v", err)
	}
	image, dir := c.path("disk"), c.path("master")
	c.must(os.Mkdir(dir, 0o700))
	f, err := os.Create(image)
	c.must(err)
	c.must(errors.Join(f.Truncate(1<<30), f.Close()))
	for _, args := range [][]string{{"mkfs.ext4", "-q", image}, {"mount", "-o", "loop", image, dir}} {
		if out, err := exec.CommandContext(c.t.Context(), args[0], args[1:]...).CombinedOutput(); err != nil {
			c.t.Skipf("needs a loop device with a file system: %q: %v\n%s", args, err, out)
		}
	}
	c.t.Cleanup(func() { c.unmountMaster(dir) })
	var s unix.Stat_t
	c.must(unix.Stat(dir, &s))
	return fmt.Sprintf("%d:%d", unix.Major(s.Dev), unix.Minor(s.Dev))
}

// brake is a cgroup whose process may begin one write of a second to the disk.
type brake struct {
	dir, device string
	pid         int
}

const (
	blkio     = "/sys/fs/cgroup/blkio"
	limitFile = "blkio.throttle.write_iops_device"
)

// slowDown slows a process down, for what it writes to a disk, until the test ends
// if release is not called before.
func slowDown(t *testing.T, device string, pid int) *brake {
	t.Helper()
	b := &brake{filepath.Join(blkio, fmt.Sprintf("muster-e2e-%d", pid)), device, pid}
	if err := os.Mkdir(b.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.release(); err != nil {
			t.Error(err)
		}
	})
	if err := errors.Join(b.limit(1), join(b.dir, pid)); err != nil {
		t.Fatal(err)
	}
	return b
}

// limit says how many writes the process may begin in a second, 0 for no bound.
func (b *brake) limit(writes int) error {
	return os.WriteFile(filepath.Join(b.dir, limitFile), fmt.Appendf(nil, "%s %d", b.device, writes), 0o644)
}

func join(cgroup string, pid int) error {
	return os.WriteFile(filepath.Join(cgroup, "cgroup.procs"), []byte(strconv.Itoa(pid)), 0o644)
}

// release ends it all. It may be called again. A child that the process has started meanwhile
// is in the cgroup too, until it ends.
func (b *brake) release() error {
	if b.pid == 0 {
		return nil
	}
	pid := b.pid
	b.pid = 0
	return errors.Join(b.limit(0), join(blkio, pid), eventually(func() error { return os.Remove(b.dir) }))
}
