package runtime_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/musterhq/muster/nodeagent"
	"github.com/musterhq/muster/nodeagent/keeper"
	"github.com/musterhq/muster/nodeagent/strike"
	"github.com/musterhq/muster/schema"
)

func TestFiles(t *testing.T) {
	t.Parallel()
	testFiles(t, newMachine(t))
}

func testFiles(t *testing.T, m *machine) {
	t.Helper()
	a := shell(0, `
		stat -c '%n %a' etc/app.conf run.sh
		cat etc/app.conf run.sh
		(echo x >run.sh) 2>/dev/null && echo wrote run.sh
		echo changed >etc/app.conf; cat etc/app.conf`)
	a.Ports = schema.PortsOf(map[string]int{"http": 8080})
	a.Job.Task.Files = map[string]schema.TaskFile{
		"etc/app.conf": {Content: "listen $(MUSTER_PORT_HTTP), $$(X)\n", Expand: true, Writable: true},
		"run.sh":       {Content: "echo $(date)\n"},
	}
	outside := filepath.Join(t.TempDir(), "outside")
	if err := os.WriteFile(outside, []byte("untouched"), 0o666); err != nil {
		t.Fatal(err)
	}
	want := "etc/app.conf 644\nrun.sh 444\nlisten 8080, $(X)\necho $(date)\nchanged\n"
	for n := range 2 {
		dir := place(t, m.dir, a, n+1)
		p, err := m.Start(t.Context(), dir, a)
		if err != nil {
			t.Fatal(err)
		}
		wait(t, p)
		if got := said(t, dir); got != want {
			t.Errorf("start %d: says %q, want %q", n+1, got, want)
		}
		// What a task may do with the places of its files.
		work := filepath.Join(filepath.Dir(dir), "work")
		for _, f := range []string{"run.sh", "etc"} {
			if err := os.RemoveAll(filepath.Join(work, f)); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.Symlink(outside, filepath.Join(work, "run.sh")); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(filepath.Dir(outside), filepath.Join(work, "etc")); err != nil {
			t.Fatal(err)
		}
	}
	if b, err := os.ReadFile(outside); err != nil || string(b) != "untouched" {
		t.Errorf("outside: %q, %v", b, err)
	}
	if _, err := os.Stat(filepath.Join(filepath.Dir(outside), "app.conf")); err == nil {
		t.Error("a file was written through a link of the task's")
	}
}

func TestSticky(t *testing.T) {
	t.Parallel()
	testSticky(t, newMachine(t))
}

func testSticky(t *testing.T, m *machine) {
	t.Helper()
	for n, want := range []string{"", "1\n", "1\n2\n"} {
		a := shell(0, `cat $(MUSTER_STICKY_DIR)/log 2>/dev/null; echo $N >>$MUSTER_STICKY_DIR/log; stat -c %a $MUSTER_STICKY_DIR >&2`)
		a.Job.Task.Process.Command[2] = strings.ReplaceAll(a.Job.Task.Process.Command[2], "$$(M", "$(M")
		a.Job.Task.Sticky, a.Generation = schema.StickyHere, uint64(n+1)
		a.Job.Task.Env = map[string]string{"N": string(rune('1' + n))}
		p, dir := m.start(a)
		if e := wait(t, p); e.Code != 0 {
			t.Errorf("exit %v", e)
		}
		if got := said(t, dir); got != want {
			t.Errorf("generation %d: says %q, want %q", n+1, got, want)
		}
		if b, err := os.ReadFile(filepath.Join(dir, "stderr")); err != nil || string(b) != "700\n" {
			t.Errorf("mode %q, %v", b, err)
		}
	}
	// Another task, of the same owner too, has its own.
	a := shell(1, `ls $MUSTER_STICKY_DIR ../../../../job/0 2>/dev/null; ls $MUSTER_STICKY_DIR/../../0/data 2>/dev/null`)
	a.Job.Task.Sticky = schema.StickyHere
	p, dir := m.start(a)
	wait(t, p)
	if got := said(t, dir); m.Attributes()["isolation.namespaces"] == "true" && strings.Contains(got, "log") {
		t.Errorf("another task sees %q", got)
	}
}

// TestRoot: the task sees its own root directory, in which it can write to no
// more than what is its own.
func TestRoot(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.needNamespaces(t)
	script := `
		pwd; echo $HOME $TMPDIR; cat etc/f
		echo x >here && echo x >/tmp/there && cat ../../tmp/there
		ls -A /muster /dev | tr '\n' ' '
		for d in / /etc /dev /muster /proc/sys/kernel/core_pattern /sys/fs/cgroup /usr; do
			(echo x >$d/new) 2>/dev/null && echo wrote to $d
		done
		[ $(id -u) = 0 ] || exit 0
		touch /etc/new 2>&1 | grep -o Read-only`
	a := shell(0, script)
	a.Job.Task.Process.Root = "/"
	a.Job.Task.Files = map[string]schema.TaskFile{"etc/f": {Content: "a file\n"}}
	p, dir := m.start(a)
	wait(t, p)
	want := "/muster/work\n/muster/work /tmp\na file\nx\n/dev: fd full mqueue null ptmx pts random shm stderr stdin stdout tty urandom zero  /muster: work "
	if got := said(t, dir); got != want {
		t.Errorf("says %q, want %q", got, want)
	}
	if filepath.Base(keeperExe) != "muster-keeper" {
		t.Skip("NOT TESTED: needs a static program, such as the real muster-keeper")
	}
	root := t.TempDir()
	for _, d := range []string{root, filepath.Dir(root)} {
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	program, err := os.ReadFile(keeperExe)
	if err != nil {
		t.Fatal(err)
	}
	if err := strike.Program(t.Context(), filepath.Join(root, "program"), program); err != nil {
		t.Fatal(err)
	}
	a = assignment(1, "/program")
	a.Job.Task.Process.Root = root
	p, dir = m.start(a)
	if e := wait(t, p); e.Code != 2 {
		t.Errorf("exit %v, want status 2", e)
	}
	if b, err := os.ReadFile(filepath.Join(dir, "stderr")); err != nil || !strings.Contains(string(b), keeper.Usage) {
		t.Errorf("stderr %q, %v", b, err)
	}
}

func TestRootRefused(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.needNamespaces(t)
	hole := filepath.Join(t.TempDir(), "hole")
	if err := os.Symlink(m.dir, hole); err != nil {
		t.Fatal(err)
	}
	for i, c := range []struct{ root, want string }{
		{"/no/such", "task.process.root: lstat /no: no such file or directory: it must be on the machine before the task is"},
		{"/etc/passwd", "task.process.root: /etc/passwd is not a directory"},
		{m.dir, "is hidden from tasks"},
		{hole, "is hidden from tasks"},
		{"/proc", "/proc shows what the kernel knows of the machine"},
		{"/proc/self/task", "shows what the kernel knows of the machine"},
		{"/sys/kernel", "shows what the kernel knows of the machine"},
		{"/dev", "shows what the kernel knows of the machine"},
	} {
		a := assignment(i, "/bin/true")
		a.Job.Task.Process.Root = c.root
		if _, err := m.Start(t.Context(), place(t, m.dir, a, 1), a); !errors.Is(err, nodeagent.ErrTask) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("root %s: %v, want ErrTask with %q", c.root, err, c.want)
		}
	}
}

// TestNetwork: without a network there is lo, which is up, and no more.
func TestNetwork(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	if m.Attributes()[schema.HasNetwork] != "true" {
		t.Skipf("NOT TESTED: needs network namespaces: %v", m.Notes())
	}
	a := shell(0, `sed 1,2d /proc/net/dev | cut -d: -f1; cat /proc/net/route | sed 1d; grep -c 127.0.0.1 /proc/net/fib_trie`)
	a.Job.Task.Isolation = &schema.Isolation{Network: schema.NoNetwork}
	p, dir := m.start(a)
	wait(t, p)
	f := strings.Fields(said(t, dir))
	if len(f) != 2 || f[0] != "lo" || f[1] == "0" { // its address is there when it is up
		t.Errorf("says %q, want lo with its address", f)
	}
}

// TestUserNamespace: there is the task's own user, and none beside.
func TestUserNamespace(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	if m.Attributes()[schema.HasUser] != "true" {
		t.Skipf("NOT TESTED: needs user namespaces: %v", m.Notes())
	}
	script := `id -u; cat /proc/self/uid_map | tr -s ' '; stat -c %u /etc; touch mine $MUSTER_STICKY_DIR/mine && stat -c %u mine; ls -A ..; trap "" TERM INT HUP; for s in TERM INT HUP USR1 KILL; do kill -$s 1 2>/dev/null; kill -$s -1 2>/dev/null; sleep 0.05; done; exit 3`
	a := shell(0, script)
	a.Job.Task.Isolation, a.Job.Task.Sticky = &schema.Isolation{User: true, Network: schema.HostNetwork}, schema.StickyHere
	p, dir := m.start(a)
	if e := wait(t, p); e.Code != 3 {
		t.Errorf("exit %v, want status 3", e)
	}
	info, err := os.Stat(filepath.Join(filepath.Dir(dir), "work"))
	if err != nil {
		t.Fatal(err)
	}
	id := strconv.Itoa(int(info.Sys().(*syscall.Stat_t).Uid))
	want := id + "\n " + id + " " + id + " 1\n65534\n" + id + "\nwork\n"
	if got := said(t, dir); got != want {
		t.Errorf("says %q, want %q", got, want)
	}
}

// TestUserNamespaceHides: a task that is root of nothing but its namespace hides
// what lies behind a directory that it may not enter, such as a master's.
func TestUserNamespaceHides(t *testing.T) {
	t.Parallel()
	parent := "/var/lib" // of which tasks see what the machine does
	if os.Geteuid() != 0 {
		parent = filepath.Dir(newMachine(t).dir)
	}
	master, err := os.MkdirTemp(parent, "master") // mode 0700
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(master) })
	for _, name := range []string{"link", "other"} {
		if err := os.Mkdir(filepath.Join(master, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(master, "link", "socket"), nil, 0o666); err != nil {
		t.Fatal(err)
	}
	m := newMachine(t, func(c *config) {
		c.Hide = []string{filepath.Join(master, "link"), filepath.Join(master, "other")}
	})
	if m.Attributes()[schema.HasUser] != "true" {
		t.Skipf("NOT TESTED: needs user namespaces: %v", m.Notes())
	}
	for i, root := range []string{"", "/"} {
		a := shell(i, "ls "+filepath.Join(master, "link", "socket")+" 2>/dev/null; touch mine && exit 3")
		a.Job.Task.Isolation, a.Job.Task.Process.Root = &schema.Isolation{User: true, Network: schema.HostNetwork}, root
		p, dir := m.start(a)
		if e := wait(t, p); e.Code != 3 || said(t, dir) != "" {
			t.Errorf("root %q: exit %v, sees %q", root, e, said(t, dir))
		}
	}
}

// TestSignalsToFirst: the first process of a task's namespaces outlives what a task
// with its user sends it as its first act, also on a busy machine.
func TestSignalsToFirst(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	if m.Attributes()[schema.HasUser] != "true" {
		t.Skipf("NOT TESTED: needs user namespaces: %v", m.Notes())
	}
	for i := range 30 {
		a := shell(i, `trap "" TERM; kill -TERM 1; exit 3`)
		a.Job.Task.Isolation = &schema.Isolation{User: true, Network: schema.HostNetwork}
		p, _ := m.start(a)
		t.Cleanup(func() {
			if e := wait(t, p); e.Code != 3 {
				t.Errorf("exit %v, want status 3", e)
			}
		})
	}
}

// TestSignalsWakeNobody: signals from within do not wake the first process, whose time
// is not the task's.
func TestSignalsWakeNobody(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	if m.Attributes()[schema.HasUser] != "true" {
		t.Skipf("NOT TESTED: needs user namespaces: %v", m.Notes())
	}
	const count = 20_000
	a := shell(0, fmt.Sprintf(`i=0; while [ $i -lt %d ]; do kill -USR1 1 || exit 1; i=$((i+1)); done; echo sent; exec sleep 1000`, count))
	a.Job.Task.Isolation = &schema.Isolation{User: true, Network: schema.HostNetwork}
	p, dir := m.start(a)
	says(t, dir, "sent")
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.State().PID))
	if err != nil {
		t.Fatal(err)
	}
	first := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))[1]
	threads, err := filepath.Glob("/proc/" + first + "/task/*/status")
	if err != nil || len(threads) == 0 {
		t.Fatalf("threads %v of process %s, %v", threads, first, err)
	}
	woken := int64(0)
	for _, status := range threads {
		b, err := os.ReadFile(status)
		if err != nil {
			t.Fatal(err)
		}
		_, rest, _ := strings.Cut(string(b), "\nvoluntary_ctxt_switches:")
		woken += parsed(t, strings.Fields(rest)[0])
	}
	if woken > count/10 {
		t.Errorf("%d signals have woken it %d times", count, woken)
	}
}

// TestUnable: what the machine has not is no silent loss.
func TestUnable(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	a := shell(0, "exit 0")
	a.Job.Task.Isolation = &schema.Isolation{Require: true, Network: schema.HostNetwork}
	able := true
	for _, attribute := range schema.IsolationOf(&a.Job.Task) {
		able = able && m.Attributes()[attribute] == "true"
	}
	p, err := m.Start(t.Context(), place(t, m.dir, a, 1), a)
	if err == nil {
		wait(t, p)
	}
	if able != (err == nil) || err != nil && !strings.Contains(err.Error(), "which this machine does not have") {
		t.Errorf("started with attributes %v: %v", m.Attributes(), err)
	}
}
