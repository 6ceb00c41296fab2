package host

import (
	"bufio"
	"context"
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/nodeagent"
	"github.com/musterhq/muster/nodeagent/strike"
	"github.com/musterhq/muster/nodeagent/trash"
	"github.com/musterhq/muster/schema/thread"
)

// fill writes n bytes that take room on the disk.
func fill(t *testing.T, name string, n int) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	f, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Write(make([]byte, n)); err != nil {
		t.Fatal(err)
	}
	if err := f.Sync(); err != nil { // some file systems give blocks late
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestMeasure(t *testing.T) {
	t.Parallel()
	dir, outside := t.TempDir(), t.TempDir()
	const mib = 1 << 20
	empty := measure(t, dir)
	fill(t, filepath.Join(dir, "work/a/b/file"), mib)
	fill(t, filepath.Join(dir, "1/stdout"), mib)
	fill(t, filepath.Join(outside, "big"), 8*mib)
	for link, target := range map[string]string{"work/out": outside, "work/file": filepath.Join(outside, "big"), "work/loop": "."} {
		if err := os.Symlink(target, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Link(filepath.Join(dir, "work/a/b/file"), filepath.Join(dir, "work/again")); err != nil {
		t.Fatal(err)
	}
	sparse, err := os.Create(filepath.Join(dir, "work/sparse"))
	if err != nil {
		t.Fatal(err)
	}
	defer sparse.Close()
	if err := sparse.Truncate(1 << 30); err != nil {
		t.Fatal(err)
	}
	got := measure(t, dir)
	if used := got.Bytes - empty.Bytes; used < 2*mib || used > 2*mib+256<<10 {
		t.Errorf("two files of 1 MiB, one of them with two names, links and a hole take %d bytes", used)
	}
	if got.Note != "" {
		t.Errorf("note %q", got.Note)
	}
}

func measure(t *testing.T, dir string) nodeagent.DiskUse {
	t.Helper()
	use, err := Measure([]string{dir}, nodeagent.Processes{}, 0)
	if err != nil {
		t.Fatal(err)
	}
	return use
}

// What lies deeper than any path reaches, or than there are descriptors, counts.
func TestMeasureDeep(t *testing.T) {
	t.Parallel()
	const levels, siblings = 1000, 3
	dir := t.TempDir()
	t.Cleanup(func() { removeDeep(t, dir) })
	fd, err := unix.Open(dir, openDirFlags, 0)
	if err != nil {
		t.Fatal(err)
	}
	for i := range levels {
		name := []string{"a", "d", "z"}[i%3] // the next one is first, last, and between
		for _, other := range []string{"a", "d", "z"} {
			if err := unix.Mkdirat(fd, other, 0o755); err != nil {
				t.Fatal(err)
			}
		}
		next, err := unix.Openat(fd, name, openDirFlags, 0)
		if err != nil {
			t.Fatal(err)
		}
		_ = unix.Close(fd)
		fd = next
	}
	file, err := unix.Openat(fd, "file", unix.O_WRONLY|unix.O_CREAT|unix.O_CLOEXEC, 0o600)
	if err == nil {
		err = unix.Fallocate(file, 0, 0, 1<<20)
	}
	if err != nil {
		t.Fatal(err)
	}
	_, _ = unix.Close(file), unix.Close(fd)
	got := measure(t, dir)
	// Where each processor is emulated it takes longer than a count may.
	slow := os.Getenv("MUSTER_TEST_SLOW") != "" && strings.Contains(got.Note, "counting took more than")
	if want := int64(1 + levels*siblings + 1); got.Inodes != want || got.Bytes < 1<<20 || got.Note != "" && !slow {
		t.Errorf("%+v, want %d inodes, 1 MiB and more", got, want)
	}
}

// removeDeep empties a directory that os.RemoveAll cannot hold open.
func removeDeep(t *testing.T, dir string) {
	bin, err := trash.Open(trash.Config{Dir: filepath.Join(t.TempDir(), "bin"), Log: slog.Default(), Emptied: func() {}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { bin.Run(ctx); close(done) }()
	for _, name := range []string{"a", "d", "z"} {
		if err := bin.Put(filepath.Join(dir, name)); err != nil {
			t.Error(err)
		}
	}
	for busy, _ := bin.Status(); busy; busy, _ = bin.Status() {
		time.Sleep(10 * time.Millisecond)
	}
	cancel()
	<-done
}

// A task that moves its directories about while they are counted hides nothing that
// stays where it is, leads the walk nowhere else, and does not stop it.
func TestMeasureWhileMoved(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	deep := filepath.Join(dir, "x", strings.Repeat("d/", 3*maxOpen))
	if err := os.MkdirAll(deep, 0o755); err != nil {
		t.Fatal(err)
	}
	fill(t, filepath.Join(dir, "still/file"), 1<<20)
	outside := t.TempDir()
	fill(t, filepath.Join(outside, "big"), 64<<20)
	if err := unix.Mkfifo(filepath.Join(dir, "fifo"), 0o600); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	var mover sync.WaitGroup
	mover.Go(func() {
		from, to := filepath.Join(dir, "x/d/d"), filepath.Join(dir, "y")
		for {
			select {
			case <-done:
				return
			default:
			}
			_ = os.Rename(from, to)
			_ = os.Symlink(outside, from)
			_ = os.Remove(from)
			_ = os.Rename(to, from)
		}
	})
	for range 20 {
		if got := measure(t, dir); got.Bytes < 1<<20 || got.Bytes >= 64<<20 {
			t.Errorf("%+v of what takes something above 1 MiB", got)
		}
	}
	close(done)
	mover.Wait()
}

// Files that are deleted and still open, or mapped, count once, whoever of the task
// has them.
func TestMeasureDeleted(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	before := measure(t, dir)
	const text = `exec 3>held; head -c 1048576 /dev/zero >&3; sync held; rm held
		head -c 2097152 /dev/zero >mapped; sync mapped
		(sleep 1000; :) & echo up; wait`
	c := exec.CommandContext(t.Context(), "/bin/sh", "-c", text)
	c.Dir, c.SysProcAttr = dir, &syscall.SysProcAttr{Setpgid: true}
	out, err := c.StdoutPipe()
	if err == nil {
		err = c.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = syscall.Kill(-c.Process.Pid, syscall.SIGKILL)
		_ = c.Wait()
	})
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || line != "up\n" {
		t.Fatalf("%q, %v", line, err)
	}
	f, err := os.OpenFile(filepath.Join(dir, "mapped"), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	memory, err := unix.Mmap(int(f.Fd()), 0, 2<<20, unix.PROT_READ, unix.MAP_SHARED)
	if err := errors.Join(err, f.Close(), os.Remove(filepath.Join(dir, "mapped"))); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Munmap(memory) })
	of := nodeagent.Processes{UID: os.Geteuid()}
	for _, p := range readProcesses()[c.Process.Pid] {
		of.PIDs = append(of.PIDs, p.pid)
	}
	if len(of.PIDs) == 0 {
		t.Fatal("the shell has no child")
	}
	of.PIDs = append(of.PIDs, c.Process.Pid)
	got, err := Measure([]string{dir}, of, 0)
	if err != nil || got.Bytes-before.Bytes < 1<<20 || got.Bytes-before.Bytes > 1<<20+64<<10 || got.Inodes != before.Inodes+1 {
		t.Errorf("%+v, %v: want one file of 1 MiB more than %+v", got, err, before)
	}
	of.UID++
	if got, err := Measure([]string{dir}, of, 0); err != nil || got.Inodes != before.Inodes {
		t.Errorf("%+v, %v with files of another user, want %+v", got, err, before)
	}
	if os.Geteuid() != 0 { // see proc_pid_map_files(5)
		t.Log("NOT TESTED: files that are mapped, which the kernel shows to root only")
		return
	}
	of = nodeagent.Processes{UID: os.Geteuid(), PIDs: []int{os.Getpid()}}
	if got, err := Measure([]string{dir}, of, 0); err != nil || got.Bytes-before.Bytes < 2<<20 {
		t.Errorf("%+v, %v: want the mapped file of 2 MiB, more than %+v", got, err, before)
	}
}

// bare is a program of x86-64 that unmaps its file, says so, and waits: it goes on in its
// stack.
var bare = []byte{
	0x7f, 'E', 'L', 'F', 2, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 62, 0, 1, 0, 0, 0, // for execve
	0xb0, 0, 0x40, 0, 0, 0, 0, 0, 64, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, // entry, program headers
	0, 0, 0, 0, 64, 0, 56, 0, 2, 0, 0, 0, 0, 0, 0, 0,
	1, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x40, 0, 0, 0, 0, 0, // a page of the file at 0x400000
	0, 0, 0x40, 0, 0, 0, 0, 0, 0, 0x10, 0, 0, 0, 0, 0, 0, 0, 0x10, 0, 0, 0, 0, 0, 0, 0, 0x10, 0, 0, 0, 0, 0, 0,
	0x51, 0xe5, 0x74, 0x64, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, // a stack with code
	0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 16, 0, 0, 0, 0, 0, 0, 0,
	0x48, 0x8d, 0x35, 0x13, 0, 0, 0, // lea rest(%rip), %rsi
	0x48, 0x81, 0xec, 0, 1, 0, 0, // sub $256, %rsp
	0x48, 0x89, 0xe7, 0xb9, 64, 0, 0, 0, 0xf3, 0xa4, 0xff, 0xe4, // mov %rsp, %rdi; mov $64, %ecx; rep movsb; jmp *%rsp
	0xbf, 0, 0, 0x40, 0, 0xbe, 0, 0x10, 0, 0, 0xb8, 11, 0, 0, 0, 0x0f, 0x05, // rest: munmap(0x400000, 4096)
	0xbf, 1, 0, 0, 0, 0x48, 0x89, 0xe6, 0xba, 1, 0, 0, 0, 0xb8, 1, 0, 0, 0, 0x0f, 0x05, // write(1, %rsp, 1)
	0xb8, 34, 0, 0, 0, 0x0f, 0x05, 0xeb, 0xf7, // pause(), for ever
}

// A program that is deleted counts while it runs, though nothing of it is mapped.
func TestMeasureDeletedProgram(t *testing.T) {
	t.Parallel()
	if runtime.GOARCH != "amd64" {
		t.Skip("NOT TESTED: the program is for amd64")
	}
	dir := t.TempDir()
	before := measure(t, dir)
	name := filepath.Join(dir, "program")
	if err := strike.Program(t.Context(), name, append(slices.Clip(bare), make([]byte, 1<<20)...)); err != nil {
		t.Fatal(err)
	}
	c := exec.CommandContext(t.Context(), name)
	out, err := c.StdoutPipe()
	if err == nil {
		err = c.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = errors.Join(c.Process.Kill(), c.Wait()) }()
	if _, err := out.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(name); err != nil {
		t.Fatal(err)
	}
	got, err := Measure([]string{dir}, nodeagent.Processes{UID: os.Geteuid(), PIDs: []int{c.Process.Pid}}, 0)
	if err != nil || got.Bytes-before.Bytes < 1<<20 || got.Inodes != before.Inodes+1 {
		t.Errorf("%+v, %v: want one file of 1 MiB more than %+v", got, err, before)
	}
}

// A file that is deleted counts also when only a thread that shares its descriptors
// with no other has it.
func TestMeasureDeletedByThread(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	before := measure(t, dir)
	up, end := make(chan error), make(chan struct{})
	hold := func() error {
		up <- func() error {
			if err := unix.Unshare(unix.CLONE_FILES); err != nil {
				return err
			}
			name := filepath.Join(dir, "held")
			fd, err := unix.Open(name, unix.O_CREAT|unix.O_WRONLY|unix.O_CLOEXEC, 0o600)
			if err != nil {
				return err
			}
			_, err = unix.Write(fd, make([]byte, 1<<20))
			return errors.Join(err, unix.Fsync(fd), unix.Unlink(name))
		}()
		<-end
		return nil
	}
	go func() { _ = thread.Run(hold) }() // its errors come over up
	if err := <-up; err != nil {
		t.Fatal(err)
	}
	defer close(end)
	got, err := Measure([]string{dir}, nodeagent.Processes{UID: os.Geteuid(), PIDs: []int{os.Getpid()}}, 0)
	if err != nil || got.Bytes-before.Bytes < 1<<20 {
		t.Errorf("%+v, %v: want 1 MiB more than %+v", got, err, before)
	}
}

// Counting ends when the inodes are too many.
func TestMeasureManyFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for i := range 10 {
		sub := filepath.Join(dir, strconv.Itoa(i))
		if err := os.Mkdir(sub, 0o755); err != nil {
			t.Fatal(err)
		}
		for j := range 450 {
			if err := os.Symlink("x", filepath.Join(sub, strconv.Itoa(j))); err != nil {
				t.Fatal(err)
			}
		}
	}
	if got := measure(t, dir); got.Inodes != 1+10*451 || got.Note != "" {
		t.Errorf("%+v, want %d inodes", got, 1+10*451)
	}
	got, err := Measure([]string{dir}, nodeagent.Processes{}, 1)
	if err != nil || got.Inodes <= 4096 || got.Inodes > 4096+450 || got.Note == "" {
		t.Errorf("%+v, %v: want a little more than the 4096 that a small limit allows, and a note", got, err)
	}
}

func TestMeasureLeavesOut(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if got := measure(t, filepath.Join(dir, "none")); got != (nodeagent.DiskUse{}) {
		t.Errorf("%+v of what is not there", got)
	}
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	if _, err := Measure([]string{link}, nodeagent.Processes{}, 0); err == nil {
		t.Error("a link was followed")
	}
	hidden := filepath.Join(dir, "hidden")
	fill(t, filepath.Join(hidden, "file"), 1<<20)
	if err := os.Chmod(hidden, 0); err != nil {
		t.Fatal(err)
	}
	got := measure(t, dir)
	info, err := os.Stat(hidden)
	if err != nil || got.Bytes < 1<<20 || got.Note != "" || info.Mode().Perm() != 0 {
		t.Errorf("%+v, %v, mode %v: want the file behind a directory that cannot be read, and its mode as it was", got, err, info.Mode())
	}
	if err := os.Chmod(hidden, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount(dir, hidden, "", unix.MS_BIND, ""); err != nil {
		t.Logf("NOT TESTED: a mount of the same file system: %v", err)
		return
	}
	t.Cleanup(func() {
		if err := unix.Unmount(hidden, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	if got := measure(t, dir); got.Bytes >= 1<<20 {
		t.Errorf("%+v: a mount was entered", got)
	}
}
