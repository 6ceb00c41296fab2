package runtime_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/nodeagent"
	"github.com/musterhq/muster/nodeagent/image"
	"github.com/musterhq/muster/nodeagent/runtime"
	"github.com/musterhq/muster/schema"
)

// hostile returns the image of contained tasks with one more layer, which fill makes.
func hostile(t *testing.T, fill func(layer string) error) image.Image {
	t.Helper()
	layer := filepath.Join(t.TempDir(), "layer")
	if err := errors.Join(os.Mkdir(layer, 0o755), fill(layer)); err != nil {
		t.Fatal(err)
	}
	c := &config{}
	withImages(t)(c)
	i := c.Images.(images)[busyboxImage]
	i.Layers = append([]string{}, append(i.Layers, layer)...)
	return i
}

// root is an assignment whose script is run by root of a container of an image.
func root(index int, reference, script string) *schema.Assignment {
	a := contained(shell(index, script))
	a.Job.Task.Container.Image, a.Job.Task.Container.User, a.Job.Task.Container.Workdir = reference, "0", ""
	return a
}

// TestHostileImage: whatever an image has where something is mounted, that comes to lie
// there, and nothing which the task has written is taken for it.
func TestHostileImage(t *testing.T) {
	t.Parallel()
	needRoot(t)
	all := images{}
	for _, at := range []string{"dev", "proc", "sys", "tmp", "muster", "muster/work", "etc/hosts", "etc/resolv.conf"} {
		for _, to := range []string{"muster/work", "../..", "/dev"} {
			all["test/"+at+" -> "+to] = hostile(t, func(layer string) error {
				link := filepath.Join(layer, at)
				return errors.Join(os.MkdirAll(filepath.Dir(link), 0o755), os.Symlink(to, link))
			})
		}
		all["test/fifo "+at] = hostile(t, func(layer string) error {
			fifo := filepath.Join(layer, at)
			return errors.Join(os.MkdirAll(filepath.Dir(fifo), 0o755), unix.Mkfifo(fifo, 0o666))
		})
	}
	all["test/fifo etc/passwd"] = hostile(t, func(layer string) error {
		return errors.Join(os.Mkdir(filepath.Join(layer, "etc"), 0o755), unix.Mkfifo(filepath.Join(layer, "etc/passwd"), 0o666))
	})
	m := newContainerMachine(t, func(c *config) { c.Images = all }, func(c *config) { c.Images.(images)[busyboxImage] = hostile(t, func(string) error { return nil }) })
	user, err := m.host.User("ada")
	if err != nil {
		t.Fatal(err)
	}
	index := 0
	for reference := range all {
		index++
		a := root(index, reference, `ls -d /dev/.muster-init /proc/1/cmdline /sys/kernel; : >/tmp/t && [ -x /muster/work/.muster-init ] && [ ! -e /tmp/exe ] && echo whole`)
		work := filepath.Join(filepath.Dir(place(t, m.dir, a, 1)), "work")
		program := []byte("#!/bin/sh\necho " + escaped + "\n")
		err := errors.Join(os.MkdirAll(filepath.Join(work, "self"), 0o755), os.Chown(work, user.UID, user.GID))
		for _, name := range []string{".muster-init", "self/exe", "exe"} {
			err = errors.Join(err, os.WriteFile(filepath.Join(work, name), program, 0o755))
		}
		if err != nil {
			t.Fatal(err)
		}
		p, dir := m.start(a)
		wait(t, p)
		if out, want := said(t, dir), "/dev/.muster-init\n/proc/1/cmdline\n/sys/kernel\nwhole\n"; out != want {
			t.Errorf("%s: %q, want %q", reference, out, want)
		}
	}
}

// TestHostileWorkdir: a container's working directory is no way to what is open of the
// machine in who starts its main process, and its checks.
func TestHostileWorkdir(t *testing.T) {
	t.Parallel()
	needRoot(t)
	m := newContainerMachine(t, func(c *config) {
		c.Images.(images)["test/closed"] = hostile(t, func(layer string) error {
			dir := filepath.Join(layer, "closed") // to all users of the container
			return errors.Join(os.Mkdir(dir, 0o700), os.Chown(dir, 4_000_000, 4_000_000))
		})
	})
	start := func(index int, reference, workdir string) {
		a := root(index, reference, "pwd")
		a.Job.Task.Container.Workdir = workdir
		p, err := m.Start(t.Context(), place(t, m.dir, a, 1), a)
		if err == nil {
			end(t, p)
		}
		if !errors.Is(err, runtime.ErrCommand) {
			t.Errorf("%s: %v, want %v", workdir, err, runtime.ErrCommand)
		}
	}
	const descriptors = 30 // more than are open
	for fd := range descriptors {
		start(1+fd, busyboxImage, fmt.Sprint("/proc/self/fd/", fd))
	}
	start(200, busyboxImage, "/proc/self/fd/6/made")
	start(201, "test/closed", "/closed")
	start(202, busyboxImage, "/etc/passwd")

	a := root(300, busyboxImage, "echo up; sleep 1000")
	a.Job.Task.Container.Workdir = "/muster/work/dir"
	p, dir := m.start(a)
	says(t, dir, "up")
	workdir := filepath.Join(filepath.Dir(dir), "work", "dir")
	for fd := range descriptors {
		if err := errors.Join(os.RemoveAll(workdir), os.Symlink(fmt.Sprint("/proc/self/fd/", fd), workdir)); err != nil {
			t.Fatal(err)
		}
		if out, err := p.Run(t.Context(), []string{"/bin/echo", escaped}, patience); !errors.Is(err, nodeagent.ErrNotRun) || strings.Contains(out, escaped) {
			t.Errorf("a check at descriptor %d: %q, %v", fd, out, err)
		}
	}
}

// TestHostileRoot: as root of a container, too, a task can neither have the kernel watch
// what processes wait for, nor write to what runs it.
func TestHostileRoot(t *testing.T) {
	t.Parallel()
	needRoot(t)
	m := newContainerMachine(t)
	p, dir := m.start(root(1, busyboxImage, `for f in /proc/pressure/* /proc/1/exe /dev/.muster-init /proc/1/mem; do (exec 9<>$f) 2>/dev/null && echo `+escaped+` $f; done
		for s in KILL STOP SEGV USR1 TERM; do kill -$s 1; done; /dev/.muster-init init /x 2>&1; echo end`))
	wait(t, p)
	if out := said(t, dir); strings.Contains(out, escaped) || strings.Contains(out, "panic") || !strings.HasSuffix(out, "end\n") {
		t.Errorf("%q", out)
	}
}

// TestHostileWatches: the inotify instances of a container are its owner's, and not those
// that root of the machine has.
func TestHostileWatches(t *testing.T) {
	t.Parallel()
	needRoot(t)
	exe := installSelf(t)
	m := newContainerMachine(t, withLayer(t, exe))
	a := contained(assignment(1, exe, attemptArg, "watch"))
	a.Job.Task.Container.User = "0"
	a.Task.User, a.Job.User = "watcher", "watcher" // no other test's
	_, dir := m.start(a)
	says(t, dir, "all")
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC)
	if err != nil {
		t.Fatalf("root of the machine: %v", err)
	}
	_ = unix.Close(fd)
}

// watch takes all inotify instances there are, and keeps them.
func watch([]string) error {
	for {
		if _, err := unix.InotifyInit1(unix.IN_CLOEXEC); err != nil {
			fmt.Println("all:", err)
			_ = unix.Pause()
		}
	}
}
