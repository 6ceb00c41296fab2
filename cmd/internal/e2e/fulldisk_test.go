package e2e_test

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestFullDisk fills the file system of the master's data directory while commits
// come. The master ends, each time that it is started, in words that say which
// file system is full and what to do. When there is room again, it goes on:
// nothing that was stored is lost, and no task notices.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("needs root: it mounts a small file system")
	}
	c := prepare(t)
	c.initRepo()
	disk := c.path("master")
	c.must(os.Mkdir(disk, 0o700))
	c.must(unix.Mount("muster-e2e", disk, "tmpfs", 0, "size=200m,mode=700"))
	t.Cleanup(func() { c.unmountMaster(disk) })
	c.begin()
	commits := 0
	next := func() string {
		commits++
		// Each is larger than what the store may have free within its file.
		pad := make([]byte, 32<<10)
		_, _ = rand.Read(pad) // never fails
		return c.commitVersion(commits, commits%3, fmt.Sprintf("task: env: PAD: %q", hex.EncodeToString(pad)))
	}
	next()
	s := c.converge(next())
	before := c.journalsOf(s)

	filler := c.path("master", "filler")
	c.must(fill(filler))
	hash := c.untilEnded(next)
	for range 2 { // as a supervisor does
		c.startMaster()
		hash = c.untilEnded(next)
	}
	t.Logf("%d commits came while the disk was full", commits-2)
	c.checkFullDisk(disk)
	for i := range 3 {
		if p := before[fmt.Sprintf("steady.%d", i)].last(); !p.same() {
			t.Errorf("steady/%d has ended while the master was gone", i)
		}
	}

	c.must(os.Remove(filler))
	c.startMaster()
	s = c.converge(hash)
	for name, b := range c.journalsOf(s) {
		job, _, _ := strings.Cut(name, ".")
		switch {
		case b.doubles > 0 || b.dones > commits:
			t.Errorf("%s: %+v", name, b)
		case job == "steady" && len(b.starts) != 1:
			t.Errorf("%s was started %d times", name, len(b.starts))
		}
		b.checkRise(t, name)
	}
}

// unmountMaster ends the master and takes the file system of its data directory away.
func (c *cell) unmountMaster(dir string) {
	c.t.Helper()
	if c.master != nil {
		c.check(c.master.end(syscall.SIGTERM, bound))
	}
	c.check(unix.Unmount(dir, 0))
}

// fill writes a file until the disk is full.
func fill(name string) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	defer f.Close()
	for size := 1 << 20; size > 0; {
		if _, err := f.Write(make([]byte, size)); errors.Is(err, syscall.ENOSPC) {
			size /= 2
		} else if err != nil {
			return err
		}
	}
	return nil
}

// untilEnded commits until the master has ended, and returns the newest commit.
func (c *cell) untilEnded(next func() string) (hash string) {
	c.t.Helper()
	limit := time.After(3 * bound)
	for {
		hash = next()
		select {
		case <-c.master.done:
			if code := c.master.cmd.ProcessState.ExitCode(); code != 3 {
				c.t.Errorf("the master has ended with %s, want exit status 3", c.master.cmd.ProcessState)
			}
			if c.api != nil {
				c.api.Close()
				c.api = nil
			}
			c.master = nil
			return hash
		case <-limit:
			c.t.Fatal("the master still runs")
		case <-time.After(time.Second): // the pace of the commits: one that comes sooner has the one before begun for nothing
		}
	}
}

// checkFullDisk reads what the masters have said.
func (c *cell) checkFullDisk(disk string) {
	c.t.Helper()
	log, err := os.ReadFile(c.path("master.log"))
	c.must(err)
	ends := 0
	for line := range strings.Lines(string(log)) {
		if strings.HasPrefix(line, "hint: ") {
			ends++
			if want := "make room in the file system mounted at " + disk + " (0 of 200 MiB are free), then start the master again"; !strings.Contains(line, want) {
				c.t.Errorf("hint %q, want %q", line, want)
			}
		}
	}
	if ends != 3 || strings.Count(string(log), "muster: ") != 3 || strings.Contains(string(log), "goroutine ") {
		c.t.Errorf("%d clear errors of 3:\n%s", ends, log)
	}
}
