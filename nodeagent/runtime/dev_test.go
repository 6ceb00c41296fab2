package runtime_test

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/musterhq/muster/nodeagent/host"
	"github.com/musterhq/muster/schema"
	"golang.org/x/sys/unix"
)

// TestOwnDev: a task finds a small /dev of its own, with a root directory of its
// own or without, and nothing of the machine's.
func TestOwnDev(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.needNamespaces(t)
	const want = "fd full mqueue null ptmx pts random shm stderr stdin stdout tty urandom zero "
	for i, root := range []string{"", "/"} {
		a := shell(i, `ls -A /dev | tr '\n' ' '; ls -A /dev/pts /dev/shm; for f in null zero shm/x; do echo x >/dev/$f; done; head -c 1 /dev/zero /dev/urandom >/dev/null && echo; (: >/dev/new) 2>/dev/null && echo made; exit 0`)
		a.Job.Task.Process.Root = root
		p, dir := m.start(a)
		if e := wait(t, p); e.Code != 0 {
			t.Errorf("root %q: exit %v, %s", root, e, saidErr(t, dir))
		}
		if got := said(t, dir); got != want+"/dev/pts:\nptmx\n\n/dev/shm:\n\n" {
			t.Errorf("root %q: /dev is %q, want %q", root, got, want)
		}
	}
}

// TestTerminals: whoever opens terminals without end has soon none, and takes none
// from the machine or from another task.
func TestTerminals(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.needNamespaces(t)
	const open = `n=0; while [ $n -lt 100 ]; do n=$((n+1)); (exec 9<>/dev/ptmx && echo $n && exec sleep 1000) 2>/dev/null & done; sleep 1000`
	_, hog := m.start(shell(0, open))
	opened := func() int { return len(strings.Fields(said(t, hog))) }
	eventually(t, "as many terminals as there are", func() bool { return opened() >= 64 })
	p, other := m.start(shell(1, `exec 9<>/dev/ptmx && echo has one; ls /dev/pts`))
	if e := wait(t, p); e.Code != 0 || said(t, other) != "has one\n0\nptmx\n" {
		t.Errorf("another task: %v, %q, %s", e, said(t, other), saidErr(t, other))
	}
	if n := opened(); n != 64 {
		t.Errorf("%d terminals, want 64", n)
	}
}

// TestExecTerminalName: the terminal of a command beside a task is one of the
// task's, where it has a name.
func TestExecTerminalName(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.needNamespaces(t)
	p, _ := m.start(assignment(0, "sleep", "1000"))
	c := newCaller()
	ended := make(chan error, 1)
	go func() {
		ended <- p.Exec(t.Context(), schema.ExecRequest{Command: []string{"sh", "-c", "tty; : >/dev/tty && : >$(tty) && echo opened"}, TTY: true, Rows: 3, Columns: 9}, c)
	}()
	c.until(t, "/dev/pts/0\r\nopened\r\n")
	if exit := c.end(t); exit.Code != 0 {
		t.Errorf("exit %+v", exit)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// TestGivenDevices: a task opens the devices that it was given and no other, and
// makes none.
func TestGivenDevices(t *testing.T) {
	t.Parallel()
	m := newMachine(t, func(c *config) {
		c.host.Devices = map[string]host.DeviceFiles{
			"log":  {Each: [][]string{{"/dev/none-there"}, {"/dev/kmsg"}}},
			"many": {All: []string{"/dev/kmsg"}},
		}
	})
	m.needNamespaces(t)
	m.needGroups(t, "devices")
	// A node of the task's own, for what it was given and for what it was not.
	const script = `
		for f in /dev/kmsg kmsg tty0; do (: >$f) 2>/dev/null && echo opened $f || echo no $f; done
		for n in 1 5; do mknod node$n c $n 3 2>/dev/null && echo made; done; [ $(stat -c %a:%u /dev/kmsg 2>/dev/null) = 600:$(id -u) ] && echo mine`
	for i, c := range []struct {
		uses       []schema.DeviceUse
		want, note string
	}{
		{nil, "no /dev/kmsg\nno kmsg\nno tty0\n", ""},
		{[]schema.DeviceUse{{Kind: "log", Index: 1, Milli: 1000}}, "opened /dev/kmsg\nopened kmsg\nno tty0\nmine\n", ""},
		{[]schema.DeviceUse{{Kind: "many", Index: 7, Milli: 500}}, "opened /dev/kmsg\nopened kmsg\nno tty0\nmine\n", ""},
		{
			[]schema.DeviceUse{{Kind: "log", Index: 0, Milli: 1000}, {Kind: "odd", Index: 2, Milli: 1000}},
			"no /dev/kmsg\nno kmsg\nno tty0\n",
			"no device file is known of log 0, odd 2 (--device-node of its agent)",
		},
	} {
		a := shell(i, script)
		a.Devices = c.uses
		dir := place(t, m.dir, a, 1)
		work := filepath.Join(filepath.Dir(dir), "work")
		if err := os.Mkdir(work, 0o777); err != nil {
			t.Fatal(err)
		}
		for name, number := range map[string]uint64{"kmsg": unix.Mkdev(1, 11), "tty0": unix.Mkdev(4, 0)} {
			if err := unix.Mknod(filepath.Join(work, name), unix.S_IFCHR|0o666, int(number)); err != nil {
				t.Fatal(err)
			}
			if err := os.Chmod(filepath.Join(work, name), 0o666); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.Chmod(work, 0o777); err != nil {
			t.Fatal(err)
		}
		p, dir := m.start(a)
		note := p.State().Note
		wait(t, p)
		if got := said(t, dir); got != c.want || note != c.note {
			t.Errorf("%s: %q with note %q, want %q with %q; %s", strconv.Itoa(i), got, note, c.want, c.note, saidErr(t, dir))
		}
	}
}

func saidErr(t testing.TB, dir string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, "stderr"))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
