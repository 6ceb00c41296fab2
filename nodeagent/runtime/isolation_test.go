package runtime_test

import (
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/musterhq/muster/nodeagent/keeper"
	"github.com/musterhq/muster/schema"
	"golang.org/x/sys/unix"
)

func TestSurroundings(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	a := shell(0, `
		echo "cwd=$(pwd) home=$HOME tmp=$TMPDIR path=$PATH greeting=$GREETING"
		echo "mode=$(stat -c %a . tmp | tr '\n' ' ')"
		read pid comm state ppid pgrp session rest < /proc/$$/stat
		[ $pid = $$ ] && [ $pgrp = $$ ] && [ $session = $$ ] && echo own session
		grep NoNewPrivs /proc/$$/status
		umask
		echo >/dev/stderr written`)
	a.Job.Task.Env = map[string]string{"GREETING": "hello $(MUSTER_TASK_INDEX)", "MUSTER_TASK_DIR": "/"}
	p, dir := m.start(a)
	wait(t, p)
	work := filepath.Join(filepath.Dir(dir), "work")
	out := said(t, dir)
	for _, want := range []string{
		"cwd=" + work + " home=" + work + " tmp=" + m.tmp(work) + " path=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin greeting=hello 0\n",
		"mode=700 700 \n", "own session\n", "NoNewPrivs:\t1\n", "0022\n",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("output has no %q:\n%s", want, out)
		}
	}
	if b, err := os.ReadFile(filepath.Join(dir, "stderr")); err != nil || string(b) != "written\n" {
		t.Errorf("stderr %q, %v", b, err)
	}
	for name, want := range map[string]os.FileMode{
		"stdout": 0o640, "stderr": 0o640, "spec.json": 0o600, "state.json": 0o600, "exit.json": 0o600, "lock": 0o600, ".": os.ModeDir | 0o711,
	} {
		if s, err := os.Stat(filepath.Join(dir, name)); err != nil || s.Mode() != want {
			t.Errorf("%s: %v, %v, want %v", name, s.Mode(), err, want)
		}
	}
}

// TestInherited: what the agent has open by mistake stays the agent's.
func TestInherited(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if _, err := unix.FcntlInt(w.Fd(), unix.F_SETFD, 0); err != nil {
		t.Fatal(err)
	}
	p, dir := m.start(assignment(0, "ls", "-l", "/proc/self/fd"))
	wait(t, p)
	if out := said(t, dir); strings.Count(out, "pipe:") > 2 || strings.Count(out, " -> ") > 4 { // with its outputs, and that of the directory
		t.Errorf("the task has open:\n%s", out)
	}
	_, _ = m.start(assignment(1, "sleep", "1000"))
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := r.SetReadDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("read of a pipe that no one should have open: %v, want EOF", err)
	}
}

func TestOwnUsers(t *testing.T) {
	t.Parallel()
	needRoot(t)
	m := newMachine(t)
	script := `id -u; id -g; id -G
		for f in ../1/spec.json ../1/state.json ../1/exit.json ../1/lock; do (echo x > $f) 2>/dev/null && echo wrote $f; (cat $f) 2>/dev/null && echo read $f; done
		rm ../1/state.json 2>/dev/null && echo removed
		ls .. 2>/dev/null | grep -vx work
		ls ../1 >/dev/null 2>&1 && echo listed ../1
		cat /proc/$PPID/environ >/dev/null 2>&1 && echo read the keeper
		kill -0 $PPID 2>/dev/null && echo signalled the keeper
		touch mine && echo made mine`
	ids := map[string]string{}
	for i, user := range []string{"ada", "bob", "ada"} {
		a := shell(i, script)
		a.Task.User, a.Job.User = user, user
		p, dir := m.start(a)
		if e := wait(t, p); e.Code != 0 {
			t.Errorf("exit %v", e)
		}
		lines := strings.Split(strings.TrimSpace(said(t, dir)), "\n")
		if len(lines) != 4 || lines[3] != "made mine" || lines[1] != lines[0] || lines[2] != lines[0] || len(lines[0]) != 5 {
			t.Errorf("output %q: want user, group, groups of one number, and nothing but its own file", lines)
		}
		if before, ok := ids[user]; ok && before != lines[0] {
			t.Errorf("user of %s was %s, is %s", user, before, lines[0])
		}
		ids[user] = lines[0]
	}
	if ids["ada"] == ids["bob"] {
		t.Errorf("two owners have one user: %v", ids)
	}
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
	m.open()
	a := shell(9, "id -u")
	p, dir := m.start(a)
	wait(t, p)
	if got := strings.TrimSpace(said(t, dir)); got != ids["ada"] {
		t.Errorf("user after a restart %s, want %s", got, ids["ada"])
	}
}

func TestLimits(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.needGroups(t, "memory")
	p, dir := m.start(assignment(0, "sleep", "1000"))
	b, err := os.ReadFile(filepath.Join(dir, keeper.SpecFile))
	if err != nil {
		t.Fatal(err)
	}
	var spec keeper.Spec
	if err := json.Unmarshal(b, &spec); err != nil {
		t.Fatal(err)
	}
	want := map[string]string{ // v1 and v2
		"memory.limit_in_bytes": "67108864", "cpu.shares": "102", "pids.max": "4096",
		"memory.max": "67108864", "cpu.weight": "10",
	}
	found := 0
	for _, d := range spec.Cgroups {
		for file, value := range want {
			b, err := os.ReadFile(filepath.Join(d, file))
			if err != nil {
				continue
			}
			found++
			if got := strings.TrimSpace(string(b)); got != value && file != "cpu.weight" {
				t.Errorf("%s/%s is %s, want %s", d, file, got, value)
			}
		}
		procs, err := os.ReadFile(filepath.Join(d, "cgroup.procs"))
		if err != nil || len(strings.Fields(string(procs))) != 1 {
			t.Errorf("%s has %q, %v, want one process", d, procs, err)
		}
	}
	if found != 3 {
		t.Errorf("%d limits in %v, want 3", found, spec.Cgroups)
	}
	end(t, p)
	for _, d := range spec.Cgroups {
		if _, err := os.Stat(d); err == nil {
			t.Errorf("%s is left", d)
		}
	}
}

func TestNotes(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	a := m.Attributes()
	notes := strings.Join(m.Notes(), "\n")
	if own := a["isolation.users"] == "true"; own == strings.Contains(notes, "tasks run as user") {
		t.Errorf("isolation.users %t, notes %q", own, notes)
	}
	if none := a["isolation.cgroups"] == "none"; none != strings.Contains(notes, "no cgroups") {
		t.Errorf("isolation.cgroups %s, notes %q", a["isolation.cgroups"], notes)
	}
	if c := m.host.Capacity(); c.CPUMilli < 1000 || c.RAMBytes < 64<<20 || c.DiskBytes <= 0 {
		t.Errorf("capacity %+v", c)
	}
	p, _ := m.start(shell(0, "exit"))
	if note := p.State().Note; (note == "") != (notes == "") {
		t.Errorf("note %q with notes %q", note, notes)
	}
}

// TestIsolationOnFullDisk: a disk without room takes nothing of it away.
func TestIsolationOnFullDisk(t *testing.T) {
	t.Parallel()
	needRoot(t)
	want := newMachine(t).Attributes()
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=64k"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	h, r, err := openDir(dir, func(c *config) { c.Log = slog.New(slog.DiscardHandler) })
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	defer r.Close()
	for _, name := range []string{"isolation.namespaces", "isolation.network", "isolation.seccomp"} {
		if got := r.Attributes()[name]; got != want[name] {
			t.Errorf("%s is %q on a full disk, want %q", name, got, want[name])
		}
	}
}

// TestWritablePlaces: a task writes to its own directories and nowhere else, however
// open the machine's are, but for those that were given to tasks.
func TestWritablePlaces(t *testing.T) {
	t.Parallel()
	needRoot(t)
	open := func() string {
		dir, err := os.MkdirTemp("/run", "muster-test-")
		if err == nil {
			err = os.Chmod(dir, 0o1777)
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := os.RemoveAll(dir); err != nil {
				t.Error(err)
			}
		})
		return dir
	}
	closed, given := open(), open()
	m := newMachine(t, func(c *config) { c.Writable = []string{given} })
	if m.Attributes()[schema.HasNamespaces] != "true" {
		t.Skipf("NOT TESTED: no namespaces: %v", m.Notes())
	}
	script := `for d in ` + closed + ` /run/lock /var/crash /var/lib ` + given + ` /tmp /var/tmp /dev/shm .; do
			(: >$d/left) 2>/dev/null && echo $d
		done
		echo x >/dev/null && echo null
		find / -maxdepth 3 \( -path /proc -o -path /sys -o -path /dev \) -prune -o -type d -writable -print 2>/dev/null`
	for _, user := range []bool{false, true} {
		a := shell(map[bool]int{true: 1}[user], script)
		if user {
			a.Job.Task.Isolation = &schema.Isolation{User: true}
			if m.Attributes()[schema.HasUser] != "true" {
				t.Logf("NOT TESTED: no user namespaces: %v", m.Notes())
				continue
			}
		}
		p, dir := m.start(a)
		wait(t, p)
		lines := strings.Fields(said(t, dir))
		want := []string{given, "/tmp", "/var/tmp", "/dev/shm", ".", "null"}
		if _, err := os.Stat("/var/tmp"); err != nil {
			want = slices.Delete(want, 2, 3)
		}
		if len(lines) < len(want) || !slices.Equal(lines[:len(want)], want) {
			t.Errorf("with user namespace %t, it writes to %v, want %v", user, lines, want)
		}
		for _, found := range lines[min(len(lines), len(want)):] {
			if own := slices.ContainsFunc([]string{"/tmp", "/var/tmp", given, filepath.Dir(dir)}, func(top string) bool { return found == top || strings.HasPrefix(found, top+"/") }); !own {
				t.Errorf("with user namespace %t, it can write to %s", user, found)
			}
		}
		if names, err := os.ReadDir(closed); err != nil || len(names) > 0 {
			t.Errorf("%v, %v is left in %s", names, err, closed)
		}
	}
	_, _, err := openDir(t.TempDir(), func(c *config) { c.Writable = []string{"/tmp"} })
	if err == nil || !strings.Contains(err.Error(), "tasks do not see") {
		t.Errorf("%v: the state directory is for tasks to write to", err)
	}
}
