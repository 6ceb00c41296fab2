package loop_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/musterhq/muster/nodeagent"
	"github.com/musterhq/muster/schema"
	"golang.org/x/sys/unix"
)

// smallDisk mounts an ext4 of its own and returns a state directory on it, and the
// name of its device.
func smallDisk(t *testing.T, bytes int64, args ...string) (dir, device string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("NOT TESTED: needs root to mount a disk")
	}
	top := t.TempDir()
	openToAll(t, top)
	image, disk := filepath.Join(top, "image"), filepath.Join(top, "disk")
	f, err := os.Create(image)
	if err := errors.Join(err, f.Truncate(bytes), f.Close(), os.Mkdir(disk, 0o711)); err != nil {
		t.Fatal(err)
	}
	args = append([]string{"mkfs.ext4", "-q", "-m", "0"}, append(args, image)...)
	for _, args := range [][]string{args, {"mount", "-o", "loop,errors=remount-ro", image, disk}} {
		if out, err := exec.CommandContext(t.Context(), args[0], args[1:]...).CombinedOutput(); err != nil {
			t.Skipf("NOT TESTED: needs a loop device with a file system: %q: %v\n%s", args, err, out)
		}
	}
	t.Cleanup(func() {
		if err := unix.Unmount(disk, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	var s unix.Stat_t
	if err := unix.Stat(disk, &s); err != nil {
		t.Fatal(err)
	}
	device, err = os.Readlink(fmt.Sprintf("/sys/dev/block/%d:%d", unix.Major(s.Dev), unix.Minor(s.Dev)))
	if err != nil {
		t.Fatal(err)
	}
	dir = filepath.Join(disk, "state")
	if err := os.Mkdir(dir, 0o711); err != nil {
		t.Fatal(err)
	}
	return dir, filepath.Base(device)
}

// fillUp leaves no byte, and no inode, on the disk of dir, and returns what takes it
// away again.
func fillUp(t *testing.T, dir string) (undo func()) {
	t.Helper()
	top := filepath.Join(filepath.Dir(dir), "filler")
	if err := os.Mkdir(top, 0o755); err != nil {
		t.Fatal(err)
	}
	f, err := os.Create(filepath.Join(top, "bytes"))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; err == nil; i++ { // in all directories there is a place for more names
		err = os.WriteFile(filepath.Join(top, fmt.Sprint(i)), nil, 0o600)
	}
	for size := 1 << 20; size >= 512; {
		if _, failed := f.Write(make([]byte, size)); failed != nil {
			size /= 2
		}
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if !errors.Is(err, unix.ENOSPC) {
		t.Fatal(err)
	}
	return func() {
		if err := os.RemoveAll(top); err != nil {
			t.Error(err)
		}
	}
}

// has reports whether the machine is in a condition.
func (m *measured) has(kind schema.ConditionKind) bool {
	for _, c := range m.Report().Conditions {
		if c.Kind == kind {
			return true
		}
	}
	return false
}

// TestFullDisk: a machine on which nothing can be written any more obeys and reports:
// tasks stop and ends are known, a view is taken, and what cannot be started says why.
// With ballast the view is on disk.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	for _, ballast := range []int64{0, mib} {
		t.Run(schema.Bytes(ballast), func(t *testing.T) {
			t.Parallel()
			dir, _ := smallDisk(t, 16*mib, "-N", "512")
			done := filepath.Join(dir, "done")
			m := startMeasuredWith(t, dir, "", nodeagent.Limits{}, ballast)
			if ballast > 0 {
				eventually(t, "there is ballast", func() bool { return count(t, filepath.Join(dir, "ballast")) == 16 })
			}
			limit := schema.Resources{CPUMilli: 100, RAMBytes: 64 * mib}
			web := script("web", 1, 200, limit, `exec sleep 1000`)
			batch := script("batch", 2, 200, limit, `exec sleep 1000`)
			m.assign(t, web, batch)
			eventually(t, "both run", func() bool { return m.status(1).State == schema.Running && m.status(2).State == schema.Running })
			undo := fillUp(t, dir)
			if err := os.WriteFile(done, nil, 0o600); !errors.Is(err, unix.ENOSPC) {
				t.Fatalf("%v: the disk is not full", err)
			}
			if err := errors.Join(m.Welcome(7), m.Assign(schema.View{Epoch: 7, Version: 2, Assignments: []schema.Assignment{stopped(web, schema.CauseUpdate), batch, script("late", 3, 200, limit, `exec sleep 1000`)}})); err != nil {
				t.Fatalf("the view is not taken: %v", err)
			}
			eventually(t, "the task stopped", func() bool { return m.status(1).State == schema.Dead })
			if end := m.status(1).End; end.Kind != schema.CauseUpdate {
				t.Errorf("it ended with %v", end)
			}
			if err := unix.Kill(m.status(2).PID, unix.SIGKILL); err != nil {
				t.Fatal(err)
			}
			eventually(t, "the end of the other is known", func() bool { return len(m.status(2).Exits) > 0 })
			if e := m.status(2).Exits[0]; e.Signal != "SIGKILL" {
				t.Errorf("it ended with %+v", e)
			}
			eventually(t, "the new task is refused", func() bool { return m.status(3).State == schema.Dead })
			if end := m.status(3).End; end.Kind != schema.CauseOutOfResources || end.Resource != schema.MachineDisk || !strings.Contains(end.Message, "no space left") {
				t.Errorf("it ended with %v", end)
			}
			if !m.has(schema.DiskPressure) || m.has(schema.BrokenRuntime) {
				t.Errorf("conditions %v", m.Report().Conditions)
			}
			kept := func() bool {
				b, err := os.ReadFile(filepath.Join(dir, "view.json"))
				return err == nil && strings.Contains(string(b), `"version":2`)
			}
			if kept() != (ballast > 0) {
				t.Errorf("the view is on disk: %t, with %d bytes of ballast", kept(), ballast)
			}
			undo()
			eventually(t, "all is written", func() bool {
				_, err := os.Stat(filepath.Join(dir, "tasks/local/u/web/0/1/end.json"))
				return err == nil && kept()
			})
			if ballast > 0 {
				eventually(t, "the ballast is whole again", func() bool { return count(t, filepath.Join(dir, "ballast")) == 16 })
			}
		})
	}
}

func count(t *testing.T, dir string) int {
	t.Helper()
	list, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	return len(list)
}

// TestBrokenDisk: a file system that has become read-only is a condition, tasks stop
// and their ends are known, and an agent starts on it.
func TestBrokenDisk(t *testing.T) {
	t.Parallel()
	dir, device := smallDisk(t, 16*mib)
	m := startMeasured(t, dir, "", nodeagent.Limits{})
	limit := schema.Resources{CPUMilli: 100, RAMBytes: 64 * mib}
	web := script("web", 1, 200, limit, `exec sleep 1000`)
	t.Cleanup(func() { // ends that no disk takes are put aside
		names, _ := filepath.Glob("/dev/shm/muster-exit-*")
		for _, name := range names {
			if b, err := os.ReadFile(name); err == nil && strings.Contains(string(b), dir) {
				if err := os.Remove(name); err != nil {
					t.Error(err)
				}
			}
		}
	})
	m.assign(t, web)
	eventually(t, "it runs", func() bool { return m.status(1).State == schema.Running })
	if err := os.WriteFile("/sys/fs/ext4/"+device+"/trigger_fs_error", []byte("test"), 0); err != nil {
		t.Skipf("NOT TESTED: the kernel cannot be made to find an error: %v", err)
	}
	if err := m.Assign(schema.View{Epoch: 1, Version: 2, Assignments: []schema.Assignment{stopped(web, schema.CauseUpdate), script("late", 2, 200, limit, `exec sleep 1000`)}}); err != nil {
		t.Fatalf("the view is not taken: %v", err)
	}
	eventually(t, "the new task is refused", func() bool { return m.status(2).State == schema.Dead })
	if !m.has(schema.ReadOnlyFS) {
		t.Errorf("conditions %v", m.Report().Conditions)
	}
	eventually(t, "the task stopped", func() bool { return m.status(1).State == schema.Dead })
	if end := m.status(1).End; end.Kind != schema.CauseUpdate {
		t.Errorf("it ended with %v", end)
	}
}

// TestDiskFillers: who takes too much is stopped in whichever way, and his neighbour
// below its limit is not.
func TestDiskFillers(t *testing.T) {
	t.Parallel()
	ways := map[string]string{
		"deleted":   `exec 3>f; rm f; head -c 6291456 /dev/zero >&3; exec sleep 1000`,
		"empty":     `sleep 1; seq 4300 | xargs touch; exec sleep 1000`,
		"deep":      `d=$(printf 'd/%.0s' $(seq 400)); mkdir -p $d; cd $d; head -c 6291456 /dev/zero >f; exec sleep 1000`,
		"allocated": `truncate -s 1G hole; fallocate -l 6291456 f; exec sleep 1000`,
		"temporary": `head -c 6291456 /dev/zero >$TMPDIR/f; exec sleep 1000`,
		"logs":      `head -c 3670016 /dev/zero >f; head -c 6291456 /dev/zero | tr '\0' '\n'; exec sleep 1000`, // which take a quarter of its limit
		"child":     `setsid sh -c 'head -c 6291456 /dev/zero >f; exec 3<f; rm f; exec sleep 1000' & exec sleep 1000`,
		"unread":    `mkdir d; head -c 6291456 /dev/zero >d/f; chmod 0 d; exec sleep 1000`,
	}
	limit := schema.Resources{CPUMilli: 1000, RAMBytes: 64 * mib, DiskBytes: 4 * mib}
	dir := t.TempDir()
	t.Cleanup(func() { // what an ordinary user may not remove as it is
		shut, _ := filepath.Glob(filepath.Join(dir, "tasks/local/u/unread/0/*/work/d"))
		for _, d := range shut {
			if err := os.Chmod(d, 0o700); err != nil {
				t.Error(err)
			}
		}
	})
	m := startMeasured(t, dir, "", nodeagent.Limits{})
	view := []schema.Assignment{
		script("good", 1, 0, limit, `head -c 2097152 /dev/zero >f; for i in $(seq 50); do ln f l$i; done; truncate -s 1G hole; exec sleep 1000`),
	}
	for name, text := range ways {
		view = append(view, script(name, uint64(len(view)+1), 200, limit, text))
	}
	m.assign(t, view...)
	for _, a := range view[1:] {
		// A walk that has met many files is followed by a rest of 100 times as long.
		for end := time.Now().Add(3 * patience); len(m.status(a.Generation).Exits) == 0; time.Sleep(5 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("%s is not stopped, at %+v", a.Task.Job, m.usage(a.Generation))
			}
		}
		if e := m.status(a.Generation).Exits[0]; !strings.HasPrefix(e.Message, "stopped: out of resources: disk: ") {
			t.Errorf("%s ended with %q", a.Task.Job, e.Message)
		}
	}
	eventually(t, "the neighbour is measured", func() bool { return m.usage(1).DiskBytes >= 2*mib })
	if s := m.status(1); s.State != schema.Running || s.Incarnation != 1 {
		t.Errorf("the neighbour is %s, incarnation %d", s.State, s.Incarnation)
	}
}
