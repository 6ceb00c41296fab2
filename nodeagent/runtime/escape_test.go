package runtime_test

import (
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	goruntime "runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/musterhq/muster/nodeagent/host"
	"github.com/musterhq/muster/nodeagent/keeper"
	"github.com/musterhq/muster/nodeagent/runtime"
	"github.com/musterhq/muster/schema"
	"golang.org/x/sys/unix"
)

// attemptArg as the first argument makes the test binary a task that tries to
// escape: the second names how, the rest is whom to harm.
const attemptArg = "attempt"

// attempts return nil if they have escaped.
var attempts = map[string]func(args []string) error{
	"hoard":  hoard,
	"pile":   pile,
	"cork":   cork,
	"watch":  watch,
	"signal": func(a []string) error { return unix.Kill(number(a[0]), 0) },
	"ptrace": func(a []string) error {
		goruntime.LockOSThread()
		if err := unix.PtraceAttach(number(a[0])); err != nil {
			return err
		}
		if _, err := unix.Wait4(number(a[0]), nil, unix.WALL, nil); err != nil {
			return err
		}
		return unix.PtraceDetach(number(a[0]))
	},
	"peek": func(a []string) error {
		b := make([]byte, 8)
		_, err := unix.ProcessVMReadv(number(a[0]), []unix.Iovec{{Base: &b[0], Len: 8}}, []unix.RemoteIovec{{Base: 0, Len: 8}}, 0)
		if errors.Is(err, unix.EFAULT) { // it was looked for
			return nil
		}
		return err
	},
	"read": func(a []string) error {
		_, err := os.ReadFile(a[0])
		return err
	},
	"list": func(a []string) error {
		_, err := os.Stat(a[0])
		return err
	},
	"write": func(a []string) error {
		f, err := os.OpenFile(a[0], os.O_WRONLY, 0)
		if err != nil {
			return err
		}
		return f.Close()
	},
	"connect": func(a []string) error {
		c, err := net.Dial("unix", a[0])
		if err != nil {
			return err
		}
		return c.Close()
	},
	"meet": func(a []string) error { // of its own
		l, err := net.Listen("unix", a[0])
		if err != nil {
			return err
		}
		c := exec.Command("/proc/self/exe", attemptArg, "connect", a[0])
		out, err := c.CombinedOutput()
		if err == nil && !bytes.Contains(out, []byte(escaped)) {
			err = fmt.Errorf("%s", out)
		}
		return errors.Join(err, l.Close())
	},
	"bind": bindAttempt,
	"dial": dialAttempt,
	"unshare": func([]string) error {
		goruntime.LockOSThread()
		if err := unix.Unshare(unix.CLONE_NEWUSER | unix.CLONE_NEWNS | unix.CLONE_FS); !errors.Is(err, unix.EINVAL) { // EINVAL: several threads, but no guard
			return err
		}
		return nil
	},
	"clone": func([]string) error {
		// A new user namespace gives all capabilities in it, to mount and
		// to change the root directory with.
		c := exec.Command("/proc/self/exe", attemptArg, "mount", os.TempDir())
		c.SysProcAttr = &syscall.SysProcAttr{
			Cloneflags:  unix.CLONE_NEWUSER | unix.CLONE_NEWNS,
			UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
		}
		out, err := c.CombinedOutput()
		if err == nil && !bytes.Contains(out, []byte(escaped)) {
			err = fmt.Errorf("%s", out)
		}
		return err
	},
	"mount": func(a []string) error {
		return errors.Join(unix.Mount("none", a[0], "tmpfs", 0, ""), unix.Chroot(a[0]))
	},
	"capabilities": func([]string) error {
		status, err := os.ReadFile("/proc/self/status")
		if err != nil {
			return nil // so that it is looked into
		}
		for line := range strings.Lines(string(status)) {
			if name, set, _ := strings.Cut(line, ":"); strings.HasPrefix(name, "Cap") && strings.Trim(strings.TrimSpace(set), "0") != "" {
				return nil
			}
		}
		return errors.New("there are none")
	},
	"trace": traceNew,
	"huge":  hugePages,
	"keyring": func([]string) error {
		_, err := unix.KeyctlGetKeyringID(unix.KEY_SPEC_PROCESS_KEYRING, true)
		return err
	},
}

// hugePages asks for huge pages in each way there is. It errs with EPERM if all are refused,
// whether or not the machine has any.
func hugePages([]string) error {
	_, mapped := unix.Mmap(-1, 0, 2<<20, unix.PROT_READ, unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_HUGETLB)
	_, shared := unix.SysvShmGet(unix.IPC_PRIVATE, 2<<20, 0o4000|unix.IPC_CREAT|0o600)
	_, file := unix.MemfdCreate("huge", unix.MFD_HUGETLB)
	for _, err := range []error{mapped, shared, file} {
		if !errors.Is(err, unix.EPERM) {
			return nil
		}
	}
	return file
}

func number(s string) int {
	n, err := strconv.Atoi(s)
	if err != nil {
		panic(err)
	}
	return n
}

const escaped = "ESCAPED"

// attempt is the task.
func attempt(args []string) int {
	if err := attempts[args[0]](args[1:]); err != nil {
		fmt.Println("held:", err)
		return 0
	}
	fmt.Println(escaped)
	return 0
}

// victims are what a task may not reach.
type victims struct {
	m         *machine
	exe       string // the test binary, where tasks see it
	neighbour int    // pid of a task of the same owner
	keeper    int
	secret    string // a file of that task
	dir       string // of its keeper
	socket    string // of the agent
	marker    string // a file in the machine's /tmp
}

func newVictims(t *testing.T, without ...runtime.Guard) *victims {
	t.Helper()
	return newVictimsOf(t, "", without...)
}

// newVictimsOf makes victims of tasks that are containers by a runtime, or processes without one.
func newVictimsOf(t *testing.T, by schema.ContainerRuntime, without ...runtime.Guard) *victims {
	t.Helper()
	v := &victims{exe: installSelf(t), marker: mark(t)}
	sockets := filepath.Join(filepath.Dir(v.exe), "link")
	if err := os.Mkdir(sockets, 0o711); err != nil {
		t.Fatal(err)
	}
	v.socket = filepath.Join(sockets, "agent.sock")
	l, err := net.Listen("unix", v.socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	if err := os.Chmod(v.socket, 0o777); err != nil { // that it is hidden must do
		t.Fatal(err)
	}
	hide := func(c *config) { c.Hide = []string{sockets} }
	switch by {
	case "":
		v.m = newMachine(t, hide)
	case schema.Runsc:
		v.m = newRunscMachine(t, hide, withLayer(t, v.exe))
	default:
		v.m = newContainerMachine(t, hide, withLayer(t, v.exe))
		if v.m.Attributes()[by.Attribute()] != "true" {
			t.Skipf("NOT TESTED: needs %s: %v", by, v.m.Notes())
		}
	}
	if by != "" {
		v.m.contained, v.m.user, v.m.by = true, "0", by
	}
	v.m.needNamespaces(t)
	v.m.Without(without...)
	p, dir := v.m.start(shell(100, "echo secret >secret; chmod 644 secret; chmod 711 .; echo up; sleep 1000"))
	says(t, dir, "up")
	v.neighbour, v.keeper = p.State().PID, keeperOf(t, dir)
	v.dir, v.secret = dir, filepath.Join(filepath.Dir(dir), "work", "secret")
	return v
}

// needStatic skips a test that runs this test in an image, where no C library is.
func needStatic(t testing.TB, exe string) {
	t.Helper()
	f, err := elf.Open(exe)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if f.Section(".interp") != nil {
		t.Skip("NOT TESTED: needs a static test program (CGO_ENABLED=0)")
	}
}

// mark puts a file that all may read in the machine's /tmp.
func mark(t *testing.T) string {
	t.Helper()
	f, err := os.CreateTemp("/tmp", "muster-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.Remove(f.Name()); err != nil {
			t.Error(err)
		}
	})
	if err := errors.Join(f.Chmod(0o644), f.Close()); err != nil {
		t.Fatal(err)
	}
	return f.Name()
}

// installSelf puts the test binary where tasks see it.
func installSelf(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/var/lib", "muster-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	if err := os.Chmod(dir, 0o711); err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(dir, "attempt")
	if err := copyProgram("/proc/self/exe", name); err != nil {
		t.Fatal(err)
	}
	return name
}

// copyProgram copies a file that can be executed.
func copyProgram(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY, 0o755)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}

// try runs an attempt as task index and returns what it says.
func (v *victims) try(t *testing.T, index int, how string, whom ...string) string {
	t.Helper()
	p, dir := v.m.start(assignment(index, append([]string{v.exe, attemptArg, how}, whom...)...))
	if e := wait(t, p); e.Code != 0 {
		t.Errorf("%s %q: %v", how, whom, e)
	}
	return strings.TrimSpace(said(t, dir))
}

// escapes are what a task may not do, and what keeps it from that.
var escapes = []struct {
	name   string
	guards []runtime.Guard
	how    string
	whom   func(v *victims, own string) string
}{
	{"kill a neighbour", []runtime.Guard{runtime.Namespaces}, "signal", func(v *victims, _ string) string { return strconv.Itoa(v.neighbour) }},
	{"kill the keeper", []runtime.Guard{runtime.Namespaces, runtime.Users}, "signal", func(v *victims, _ string) string { return strconv.Itoa(v.keeper) }},
	{"kill the agent", []runtime.Guard{runtime.Namespaces, runtime.Users}, "signal", func(*victims, string) string { return strconv.Itoa(os.Getpid()) }},
	{"trace a neighbour", []runtime.Guard{runtime.Namespaces, runtime.Seccomp, runtime.Scope}, "ptrace", func(v *victims, _ string) string { return strconv.Itoa(v.neighbour) }},
	{"read a neighbour's memory", []runtime.Guard{runtime.Namespaces, runtime.Seccomp, runtime.Scope}, "peek", func(v *victims, _ string) string { return strconv.Itoa(v.neighbour) }},
	{"read a neighbour's environment", []runtime.Guard{runtime.Namespaces, runtime.Scope}, "read", func(v *victims, _ string) string { return fmt.Sprintf("/proc/%d/environ", v.neighbour) }},
	{"read a neighbour's file", []runtime.Guard{runtime.Namespaces}, "read", func(v *victims, _ string) string { return v.secret }},
	{"find the agent's files", []runtime.Guard{runtime.Namespaces}, "list", func(v *victims, _ string) string { return filepath.Join(v.m.dir, "users.json") }},
	{"write the keeper's state", []runtime.Guard{runtime.Namespaces, runtime.Users}, "write", func(v *victims, _ string) string { return filepath.Join(v.dir, keeper.StateFile) }},
	{"write the keeper's lock", []runtime.Guard{runtime.Namespaces, runtime.Users}, "write", func(_ *victims, own string) string { return filepath.Join(own, keeper.LockFile) }},
	{"connect to the agent's socket", []runtime.Guard{runtime.Namespaces}, "connect", func(v *victims, _ string) string { return v.socket }},
	{"leave its user namespace", []runtime.Guard{runtime.Seccomp}, "unshare", nil},
	{"mount and chroot in a new user namespace", []runtime.Guard{runtime.Seccomp}, "clone", nil},
	{"read the kernel's keys", []runtime.Guard{runtime.Seccomp}, "keyring", nil},
	{"take huge pages", []runtime.Guard{runtime.Seccomp}, "huge", nil},
	{"find the machine's /tmp", []runtime.Guard{runtime.Namespaces}, "list", func(v *victims, _ string) string { return v.marker }},
}

// TestEscapes: what a task may not do it cannot; and could, were it not for the
// guards that are named, so that each attempt is known to be one.
func TestEscapes(t *testing.T) {
	t.Parallel()
	needRoot(t)
	for i, c := range escapes {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			for _, without := range [][]runtime.Guard{nil, c.guards} {
				v := newVictims(t, without...)
				var whom []string
				if c.whom != nil {
					own := place(t, v.m.dir, assignment(i), 1)
					whom = []string{c.whom(v, own)}
				}
				said := v.try(t, i, c.how, whom...)
				if got := said == escaped; got != (without != nil) {
					t.Errorf("without guards %v: %q", without, said)
				}
			}
		})
	}
}

// TestAbstractSockets: neither a task nor its checks reach an abstract unix socket that is
// not its own, though the machine's network is its own, too; it reaches those that are.
func TestAbstractSockets(t *testing.T) {
	t.Parallel()
	if !keeper.CanScope() {
		t.Skip("NOT TESTED: no Landlock with scopes (Linux 6.12)")
	}
	for _, without := range [][]runtime.Guard{nil, {runtime.Scope}} {
		m := newMachine(t)
		m.needNamespaces(t)
		m.Without(without...)
		if got := m.Attributes()["isolation.scope"]; got != "true" {
			t.Errorf("the machine says %q", got)
		}
		name := "@" + m.dir
		l, err := net.Listen("unix", name)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		p, dir := m.start(shell(1, `until [ -x attempt ]; do sleep 0.01; done; ./attempt attempt connect `+name+`; ./attempt attempt meet `+name+`/own; echo up; exec sleep 1000`))
		putSelf(t, dir)
		says(t, dir, "up")
		checked, err := p.Run(t.Context(), []string{"./attempt", attemptArg, "connect", name}, patience)
		if err != nil {
			t.Error(err)
		}
		lines := strings.Split(said(t, dir), "\n")
		for what, said := range map[string]string{"the task": lines[0], "its check": strings.TrimSpace(checked)} {
			if got := said == escaped; got != (without != nil) || !got && !strings.Contains(said, "operation not permitted") {
				t.Errorf("without guards %v, %s: %q", without, what, said)
			}
		}
		if lines[1] != escaped {
			t.Errorf("without guards %v, its own: %q", without, lines[1])
		}
	}
}

// TestPressure: a task can read what processes wait for, and not have the kernel watch it:
// that takes time and memory which nobody is charged with, and minutes to end.
func TestPressure(t *testing.T) {
	t.Parallel()
	needRoot(t)
	const file = "/proc/pressure/memory"
	want := "read-only file system"
	if _, err := os.Stat(file); err != nil { // nothing to watch
		want = "no such file or directory"
	}
	m := newMachine(t)
	m.needNamespaces(t)
	exe := installSelf(t)
	for i, root := range []string{"", "/"} {
		a := assignment(i, exe, attemptArg, "write", file)
		a.Job.Task.Process.Root = root
		p, dir := m.start(a)
		wait(t, p)
		if out := said(t, dir); !strings.Contains(out, want) {
			t.Errorf("with root %q: %q, want %q", root, out, want)
		}
	}
}

// TestOwnCgroup: a task cannot lift its own limits.
func TestOwnCgroup(t *testing.T) {
	t.Parallel()
	needRoot(t)
	for _, without := range [][]runtime.Guard{nil, {runtime.Namespaces, runtime.Users}} {
		v := newVictims(t, without...)
		v.m.needGroups(t, "pids")
		script := `for f in $(find /sys/fs/cgroup -path "*$1*" -name "$2" 2>/dev/null); do (exec 9>$f) 2>/dev/null && echo ` + escaped + `; done; echo end`
		name := host.GroupsName(v.m.dir)
		p, dir := v.m.start(assignment(3, "/bin/sh", "-c", strings.ReplaceAll(script, "$", "$$"), "sh", name, "pids.max"))
		wait(t, p)
		if out := said(t, dir); strings.Contains(out, escaped) != (without != nil) || !strings.Contains(out, "end") {
			t.Errorf("without guards %v: %q", without, out)
		}
	}
}

// TestCgroupsOfOthers: a task sees its own cgroup, and neither the names of other
// owners' tasks nor what they use.
func TestCgroupsOfOthers(t *testing.T) {
	t.Parallel()
	needRoot(t)
	m := newMachine(t)
	m.needGroups(t, "memory")
	hers := shell(1, "echo up; sleep 1000")
	hers.Task.User, hers.Job.User = "alice", "alice"
	_, dir := m.start(hers)
	says(t, dir, "up")
	script := `for d in $(find /sys/fs/cgroup -path "*/$1" 2>/dev/null); do
		ls $d/ 2>/dev/null | grep -q alice && echo listed $d
		for f in $d/` + host.TaskGroup(dir, hers) + `/*; do cat $f >/dev/null 2>&1 && echo read $f; done
		ls -d $d/$2/cgroup.procs >/dev/null 2>&1 && echo own
	done; echo end`
	a := assignment(3)
	own := host.TaskGroup(place(t, m.dir, a, 1), a)
	a.Job.Task.Process.Command = []string{"/bin/sh", "-c", strings.ReplaceAll(script, "$", "$$"), "sh", host.GroupsName(m.dir), own}
	p, dir := m.start(a)
	wait(t, p)
	if out := said(t, dir); strings.Contains(out, "listed") || strings.Contains(out, "read") || !strings.Contains(out, "own\n") || !strings.HasSuffix(out, "end\n") {
		t.Errorf("%q", out)
	}
}

// TestNoCapabilities: none is left in any set, and a program with set-user-ID
// gives none.
func TestNoCapabilities(t *testing.T) {
	t.Parallel()
	needRoot(t)
	for _, without := range [][]runtime.Guard{nil, {runtime.Users}, {runtime.Namespaces, runtime.Users, runtime.Seccomp}} {
		v := newVictims(t, without...)
		for i, how := range []string{"capabilities", "mount"} {
			if said := v.try(t, i, how, "/mnt"); said == escaped {
				t.Errorf("without guards %v: %s has worked", without, how)
			}
		}
	}
}
