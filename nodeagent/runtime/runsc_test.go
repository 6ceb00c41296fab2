package runtime_test

import (
	"context"
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

	"github.com/musterhq/muster/nodeagent"
	"github.com/musterhq/muster/nodeagent/bundle"
	"github.com/musterhq/muster/nodeagent/runtime"
	"github.com/musterhq/muster/nodeagent/secrets"
	"github.com/musterhq/muster/nodeagent/strike"
	"github.com/musterhq/muster/schema"
)

// TestRunsc: what is different in a kernel of one's own.
func TestRunsc(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]func(t *testing.T, m *machine){
		"Ends":     testRunscEnds,
		"Isolated": testRunscIsolated,
		"Killed":   testRunscKilled,
		"Network":  testRunscNetwork,
		"Capable":  testRunscCapable,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, newRunscMachine(t, withCapabilities(schema.NetworkCapabilities()...)))
		})
	}
}

func TestRunscSecrets(t *testing.T) {
	t.Parallel()
	var kept *secrets.Machine
	m := newRunscMachine(t, withSecrets(t, &kept))
	testSecrets(t, m, kept, nil)
}

// testRunscCapable: user 0 of a container has what is added, over its own kernel and network, and no other user has;
// over the machine's network nobody has anything.
func testRunscCapable(t *testing.T, m *machine) {
	t.Helper()
	const tries = `grep CapEff /proc/self/status; ping -c 1 -W 60 10.64.0.1 >/dev/null 2>&1 && echo sends || echo sends nothing
		ip addr add 10.9.9.9/32 dev lo 2>/dev/null && echo changes || echo changes nothing; echo said; exec sleep 1000`
	for i, c := range []struct {
		asks *schema.Capabilities
		want string
	}{
		{nil, "CapEff:\t00000000000005fb\nsends nothing\nchanges nothing\nsaid\n"},
		{&schema.Capabilities{Add: []string{"NET_RAW", "NET_ADMIN"}}, "CapEff:\t00000000000035fb\nsends\nchanges\nsaid\n"},
		{&schema.Capabilities{Drop: []string{"ALL"}, Add: []string{"NET_RAW", "CHOWN"}}, "CapEff:\t0000000000002001\nsends\nchanges nothing\nsaid\n"},
	} {
		l := newLinked(t)
		a := joining(contained(shell(i, tries)), l.task, "")
		a.Job.Task.Container.Runtime, a.Job.Task.Container.User, a.Job.Task.Capabilities = schema.Runsc, "0", c.asks
		dir := place(t, m.dir, a, 1)
		p, err := m.Start(t.Context(), dir, a)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { end(t, p) })
		says(t, dir, "said")
		if got := said(t, dir); got != c.want {
			t.Errorf("with %+v it has %q, want %q", c.asks, got, c.want)
		}
		if c.asks == nil {
			continue
		}
		if out, err := p.Run(t.Context(), []string{"grep", "CapEff", "/proc/self/status"}, patience); err != nil || !strings.HasPrefix(c.want, out) {
			t.Errorf("a command beside it has %q, %v", out, err)
		}
	}
	for i, c := range []struct{ user, want string }{{"1000", "user 0 of the container alone"}, {"0", "this one has its machine's"}} {
		a := contained(shell(8+i, "exec sleep 1000"))
		a.Job.Task.Container.Runtime, a.Job.Task.Container.User, a.Job.Task.Capabilities = schema.Runsc, c.user, &schema.Capabilities{Add: []string{"NET_RAW"}}
		if _, err := m.Start(t.Context(), place(t, m.dir, a, 1), a); !errors.Is(err, nodeagent.ErrTask) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v, want %s", err, c.want)
		}
	}
}

// testRunscEnds: a signal that ends it is its exit code, unless muster has sent it; and a
// command that is not there is its own fault.
func testRunscEnds(t *testing.T, m *machine) {
	t.Helper()
	p, _ := m.start(shell(0, "kill -KILL $$"))
	if e := wait(t, p); e.Code != 128+9 || e.Signal != "" || e.OOM {
		t.Errorf("killed by itself: exit %v, want status 137", e)
	}
	a := assignment(1, "/no/such")
	if _, err := m.Start(t.Context(), place(t, m.dir, a, 1), a); !errors.Is(err, runtime.ErrCommand) || !strings.Contains(err.Error(), "/no/such") {
		t.Errorf("a command that is not there: %v", err)
	}
	a = shell(2, "exit 3")
	a.Job.Task.Container = &schema.Container{Image: busyboxImage, Command: a.Job.Task.Process.Command, Runtime: schema.Runsc, Workdir: "/a/b", ReadOnly: true}
	a.Job.Task.Process, a.Job.Task.Resources.RAMBytes = schema.Process{}, a.Job.Task.Resources.RAMBytes+kernelRAM
	if _, err := m.Start(t.Context(), place(t, m.dir, a, 1), a); !errors.Is(err, nodeagent.ErrTask) || !strings.Contains(err.Error(), `working directory "/a/b"`) {
		t.Errorf("a working directory that is not there, and cannot be made: %v", err)
	}
}

// testRunscIsolated: it is another kernel, whose runtime is nobody on the machine, with the
// task's limits, and without a network if it is to have none.
func testRunscIsolated(t *testing.T, m *machine) {
	t.Helper()
	a := shell(0, "cat /proc/version; grep -c : /proc/net/dev; grep CapBnd /proc/self/status; ulimit -n; ls /sys/fs/cgroup /muster; echo up; exec sleep 1000")
	a.Job.Task.Isolation = &schema.Isolation{Network: schema.NoNetwork}
	a.Job.Task.Limits = &schema.Limits{Processes: 500, Files: 300}
	m.user = "root"
	p, dir := m.start(a)
	says(t, dir, "up")
	ours, err := os.ReadFile("/proc/version")
	if err != nil {
		t.Fatal(err)
	}
	if out := said(t, dir); strings.HasPrefix(out, string(ours)) || !strings.Contains(out, "CapBnd:\t00000000000005fb\n300\n") {
		t.Errorf("it sees %s", out)
	}
	found := processesOf(filepath.Dir(dir))
	n := 0
	for pid, command := range found {
		var st unix.Stat_t
		if err := unix.Stat(filepath.Join("/proc", strconv.Itoa(pid)), &st); err != nil || !strings.Contains(command, "runsc") {
			continue
		}
		if n++; st.Uid < schema.FirstTaskUser {
			t.Errorf("user %d runs %s", st.Uid, command)
		}
		if in, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "cgroup")); err != nil || !strings.Contains(string(in), "ada.job.0") {
			t.Errorf("%s is in the cgroups %s %v", command, in, err)
		}
	}
	if n != 3 {
		t.Errorf("processes: %v, want the runtime, its file server and its kernel", found)
	}
	if u, ok := p.Usage(); !ok || u.RAMBytes == 0 {
		t.Errorf("usage: %+v", u)
	}
}

// testRunscKilled: a command beside it ends with its time, and what it has started, and the task with its kernel.
func testRunscKilled(t *testing.T, m *machine) {
	t.Helper()
	p, dir := m.start(shell(0, "echo up; exec sleep 1000"))
	says(t, dir, "up")
	if _, err := p.Run(t.Context(), []string{"/bin/sh", "-c", "sleep 2000 & sleep 3000"}, time.Second); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a command without end: %v", err)
	}
	if out, err := p.Run(t.Context(), []string{"ps"}, patience); err != nil || strings.Contains(out, "sleep 2000") || strings.Contains(out, "sleep 3000") {
		t.Errorf("after its time there is %s %v", out, err)
	}
	for pid, command := range processesOf(filepath.Dir(dir)) {
		if strings.HasPrefix(command, "runsc-sandbox ") {
			if err := unix.Kill(pid, unix.SIGKILL); err != nil {
				t.Fatal(err)
			}
		}
	}
	if e := wait(t, p); e.Code == 0 {
		t.Errorf("without its kernel: exit %v", e)
	}
	if left := processesOf(filepath.Dir(dir)); len(left) > 0 {
		t.Errorf("live on: %v", left)
	}
	if _, err := os.Stat(bundle.Path(dir, bundle.State)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("of the bundle there is left: %v", err)
	}
}

// An interface of the machine that goes while runsc looks at it is no fault of the task: runsc
// is started again. Not parallel, since it sets the PATH.
func TestRunscInterfaceGone(t *testing.T) {
	newRunscMachine(t) // it works
	runsc, err := exec.LookPath("runsc")
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "runsc-") // the runtime is nobody
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil { //nolint:gosec // as above
		t.Fatal(err)
	}
	// It fails once for each container, as runsc does then.
	script := fmt.Sprintf(`#!/bin/sh
case " $* " in *" run "*)
	if [ ! -e "$2/failed" ]; then
		: >"$2/failed"
		echo '{"level":"error","msg":"running container: starting container: starting root container: starting sandbox: no such device"}' >"$4"
		echo failed
		exit 128
	fi ;;
esac
exec %s "$@"
`, runsc)
	if err := strike.Program(t.Context(), filepath.Join(dir, "runsc"), []byte(script)); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	m := newMachine(t, withImages(t), func(c *config) { c.Runtimes = []schema.ContainerRuntime{schema.Runsc} })
	if m.Attributes()[schema.Runsc.Attribute()] != "true" {
		t.Fatalf("runsc that fails once is not taken: %v", m.Notes())
	}
	m.contained, m.by = true, schema.Runsc
	p, taskDir := m.start(shell(0, "echo up; exit 3"))
	if e := wait(t, p); e.Code != 3 || said(t, taskDir) != "failed\nup\n" {
		t.Errorf("exit %v, output %q: want 3, and that it failed and was up", e, said(t, taskDir))
	}
}
