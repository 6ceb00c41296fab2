package runtime_test

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/nodeagent/image"
	"github.com/musterhq/muster/nodeagent/keeper"
	"github.com/musterhq/muster/nodeagent/runtime"
	"github.com/musterhq/muster/schema"
	"github.com/musterhq/muster/schema/turns"
)

// images are images by their references.
type images map[string]image.Image

func (i images) Find(reference string) (image.Image, bool) {
	found, ok := i[reference]
	return found, ok
}

// FindPackage takes the digest of a package for its directory: see packageOf.
func (i images) FindPackage(source string) (string, bool) {
	_, dir, ok := schema.SplitSource(source)
	return string(dir), ok
}

// busyboxImage is the image of contained tasks.
const busyboxImage = "test/busybox"

// busybox makes the layer of an image with the programs of busybox, once.
var busybox = sync.OnceValues(func() (string, error) {
	program, err := exec.LookPath("busybox")
	if err != nil {
		return "", err
	}
	dir, err := os.MkdirTemp(commonDir, "image")
	if err != nil {
		return "", err
	}
	layer := filepath.Join(dir, "layer")
	for _, name := range []string{"bin", "etc", "usr/bin", "root"} {
		err = errors.Join(err, os.MkdirAll(filepath.Join(layer, name), 0o755))
	}
	b, rerr := os.ReadFile(program)
	err = errors.Join(err, rerr, os.Chmod(dir, 0o700), os.WriteFile(filepath.Join(layer, "bin/busybox"), b, 0o755),
		os.WriteFile(filepath.Join(layer, "etc/passwd"), []byte("root:x:0:0::/root:/bin/sh\nada:x:1000:1001::/home/ada:/bin/sh\n"), 0o644),
		os.WriteFile(filepath.Join(layer, "etc/group"), []byte("root:x:0:\nstaff:x:50:\n"), 0o644))
	if err != nil {
		return "", err
	}
	list, err := exec.Command(program, "--list").Output()
	for name := range strings.FieldsSeq(string(list)) {
		if name != "busybox" {
			err = errors.Join(err, os.Symlink("/bin/busybox", filepath.Join(layer, "bin", name)))
		}
	}
	return layer, err
})

// withImages gives a machine the image of contained tasks.
func withImages(t testing.TB) func(*config) {
	layer, err := busybox()
	if err != nil {
		t.Fatal(err)
	}
	return func(c *config) {
		c.Images = images{busyboxImage: {
			Layers: []string{layer}, Root: image.Root{Mode: 0o755},
			Settings: image.Settings{Entrypoint: []string{"/bin/sh", "-c"}, Command: []string{"echo hello"}, Env: []string{"PATH=/bin", "COLOUR=blue"}},
		}}
	}
}

// withLayer puts a file of the machine into the image of contained tasks, at its path.
func withLayer(t testing.TB, file string) func(*config) {
	needStatic(t, file)
	layer := t.TempDir()
	name := filepath.Join(layer, file)
	err := os.MkdirAll(filepath.Dir(name), 0o755)
	if err == nil {
		err = copyProgram(file, name)
	}
	if err != nil {
		t.Fatal(err)
	}
	return func(c *config) {
		image := c.Images.(images)[busyboxImage]
		image.Layers = append(image.Layers, layer)
		c.Images.(images)[busyboxImage] = image
	}
}

// newContainerMachine makes a machine that runs containers.
func newContainerMachine(t testing.TB, change ...func(*config)) *machine {
	m := newMachine(t, append([]func(*config){withImages(t)}, change...)...)
	if m.Attributes()[schema.HasContainers] != "true" {
		_ = m.Close()
		t.Skipf("NOT TESTED: needs a runtime of containers: %v", m.Notes())
	}
	return m
}

// contained is an assignment whose command runs in a container.
func contained(a *schema.Assignment) *schema.Assignment {
	a.Job.Task.Container = &schema.Container{Image: busyboxImage, Command: a.Job.Task.Process.Command, Workdir: "/muster/work", User: "ada"}
	a.Job.Task.Process = schema.Process{}
	return a
}

// held are what holds for processes, and for containers whatever makes them. But by runsc some of it does not, as is
// documented; what takes its place is in TestRunsc.
var held = map[string]struct {
	test     func(t *testing.T, m *machine)
	notRunsc string // why
}{
	"AllocIPC":       {testAllocIPC, "no memory is shared with its kernel"},
	"Before":         {test: testBefore},
	"Copy":           {test: testCopy},
	"Escape":         {testEscape, "the task has no processes on the machine that could leave its session"},
	"ExecInGroup":    {testExecInGroup, "the kernel has the cgroup"},
	"ExecTerminal":   {test: testExecTerminal},
	"Exit":           {testExit, "a signal that ends it is a status as a shell has it"},
	"Files":          {test: testFiles},
	"FirstKilled":    {testFirstKilled, "it has no first process"},
	"ForkBomb":       {testForkBomb, "the limit is of its kernel's threads, too"},
	"KeeperKilled":   {test: testKeeperKilled},
	"KillFrozen":     {test: testKillFrozen},
	"Line":           {test: testLine},
	"LogsWithinDisk": {test: testLogsWithinDisk},
	"NextAgent":      {test: testNextAgent},
	"OutOfMemory":    {test: testOutOfMemory},
	"Packages":       {test: testPackages},
	"Processes":      {testProcesses, "the limit is of its kernel's threads, too"},
	"Renew":          {test: testRenew},
	"Resize":         {test: testResize},
	"Rlimits":        {testRlimits, "its kernel has no others than of files"},
	"Run":            {test: testRun},
	"Sticky":         {test: testSticky},
	"StopSignal":     {test: testStopSignal},
	"Term":           {testTerm, "the signal is for its main process alone"},
	"TermThenKill":   {test: testTermThenKill},
	"Usage":          {test: testUsage},
	"Volumes":        {test: testVolumes},
}

// testHeld runs them on machines whose containers a runtime makes. Those of crun are all made in
// each run; the others take turns.
func testHeld(t *testing.T, by schema.ContainerRuntime) {
	t.Helper()
	t.Parallel()
	for i, name := range slices.Sorted(maps.Keys(held)) {
		h := held[name]
		if by == schema.Runsc && h.notRunsc != "" || by != schema.Crun && !turns.Takes(i) {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if by == schema.Runsc {
				h.test(t, newRunscMachine(t, withVolumes(t)))
				return
			}
			m := newContainerMachine(t, withVolumes(t))
			if m.Attributes()[by.Attribute()] != "true" {
				t.Skipf("NOT TESTED: needs %s: %v", by, m.Notes())
			}
			m.contained, m.by = true, by
			h.test(t, m)
		})
	}
}

// TestContained: what holds for processes holds for containers.
func TestContained(t *testing.T) { testHeld(t, schema.Crun) }

// TestContainedByRunc: what makes the container makes no difference.
func TestContainedByRunc(t *testing.T) { testHeld(t, schema.Runc) }

// TestContainedByRunsc: so it is in a kernel of their own.
func TestContainedByRunsc(t *testing.T) { testHeld(t, schema.Runsc) }

// testNextAgent: the next agent does with a task what the first did.
func testNextAgent(t *testing.T, m *machine) {
	t.Helper()
	a := shell(0, "trap 'echo stopped; exit 4' TERM; echo up; while :; do sleep 0.1; done")
	dir := place(t, m.dir, a, 1)
	if _, err := m.Start(t.Context(), dir, a); err != nil {
		t.Fatal(err)
	}
	says(t, dir, "up")
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
	m.open(withImages(t))
	p, _ := m.adopt(0)
	if out, err := p.Run(t.Context(), []string{"/bin/sh", "-c", "echo $MUSTER_JOB"}, patience); err != nil || out != "job\n" {
		t.Errorf("beside it: %q %v", out, err)
	}
	if err := p.Signal(false); err != nil {
		t.Fatal(err)
	}
	if e := wait(t, p); e.Code != 4 || !strings.Contains(said(t, dir), "stopped") {
		t.Errorf("exit %v, output %s", e, said(t, dir))
	}
}

// newRunscMachine makes a machine whose tasks run by runsc. Others do not look for it, which
// takes them half a second.
func newRunscMachine(t testing.TB, change ...func(*config)) *machine {
	m := newMachine(t, append([]func(*config){withImages(t), func(c *config) { c.Runtimes = []schema.ContainerRuntime{schema.Runsc} }}, change...)...)
	if m.Attributes()[schema.Runsc.Attribute()] != "true" {
		_ = m.Close()
		t.Skipf("NOT TESTED: needs runsc: %v", m.Notes())
	}
	m.contained, m.by = true, schema.Runsc
	return m
}

// TestContainerEscapes: what a task may not do it cannot as root of a container, whatever makes that.
func TestContainerEscapes(t *testing.T) {
	t.Parallel()
	needRoot(t)
	for _, by := range []schema.ContainerRuntime{schema.Crun, schema.Runc} {
		t.Run(string(by), func(t *testing.T) {
			t.Parallel()
			testContainerEscapes(t, by)
		})
	}
}

// TestRunscEscapes is TestContainerEscapes in a kernel of one's own: what only a filter of system calls keeps a task from
// elsewhere is done to that alone.
func TestRunscEscapes(t *testing.T) {
	t.Parallel()
	needRoot(t)
	testContainerEscapes(t, schema.Runsc, runtime.Seccomp)
}

// testContainerEscapes tries what is not kept from a task by that guard alone, if one is named.
func testContainerEscapes(t *testing.T, by schema.ContainerRuntime, alone ...runtime.Guard) {
	t.Helper()
	v := newVictimsOf(t, by)
	for i, c := range escapes {
		if slices.Equal(c.guards, alone) {
			continue
		}
		var whom []string
		if c.whom != nil {
			whom = []string{c.whom(v, place(t, v.m.dir, assignment(i), 1))}
		}
		if said := v.try(t, i, c.how, whom...); !strings.HasPrefix(said, "held: ") {
			t.Errorf("%s: %s", c.name, said)
		}
	}
}

func TestContainer(t *testing.T) {
	t.Parallel()
	m := newContainerMachine(t)
	for i, c := range []struct {
		name   string
		of     schema.Container
		script string
		want   string
	}{
		{"the image's own command", schema.Container{}, "", "hello\n"},
		{"args", schema.Container{Args: []string{"echo $(MUSTER_JOB) $COLOUR $PATH; pwd"}}, "", "job blue /bin\n/\n"},
		{"root", schema.Container{}, "id; echo $HOME; touch /new && chown 7:8 /new && stat -c %u:%g /new", "uid=0(root) gid=0(root)\n/root\n7:8\n"},
		{"user", schema.Container{User: "ada"}, "id -u; id -g; echo $HOME; touch /new 2>&1; touch /tmp/a && stat -c %u /tmp/a", "1000\n1001\n/home/ada\ntouch: /new: Permission denied\n1000\n"},
		{"numbers", schema.Container{User: "1000:staff"}, "id -u; id -g; grep -c . /proc/self/uid_map", "1000\n50\n3\n"},
		{"read-only", schema.Container{ReadOnly: true, Workdir: "/etc"}, "pwd; touch /new 2>&1; touch /tmp/new && echo tmp; touch /muster/work/x && echo work", "/etc\ntouch: /new: Read-only file system\ntmp\nwork\n"},
		{"working directory", schema.Container{Workdir: "/a/b"}, "pwd", "/a/b\n"},
		{"first process", schema.Container{}, "test $$$$ -ne 1 && cat /proc/1/cmdline | tr '\\0' ' ' | cut -d' ' -f2", "init\n"},
		{"nothing of the machine", schema.Container{}, "ls /; ls /muster; mount | grep -c " + m.dir + "; cat /proc/kcore | wc -c", "bin\ndev\netc\nmuster\nproc\nroot\nsys\ntmp\nusr\nalloc\nsecrets\nsticky\nwork\n0\n0\n"},
		{"no capability outside", schema.Container{}, "grep CapBnd /proc/self/status | cut -f2; mount -t tmpfs x /tmp 2>&1; unshare -U true 2>&1; mknod /tmp/sda b 8 0 2>&1", "00000000000005fb\nmount: permission denied (are you root?)\nunshare: unshare(0x10000000): Operation not permitted\nmknod: /tmp/sda: Operation not permitted\n"},
	} {
		a := shell(i, c.script)
		command := a.Job.Task.Process.Command
		a.Job.Task.Process, a.Job.Task.Container = schema.Process{}, &c.of
		c.of.Image = busyboxImage
		if c.script != "" {
			c.of.Command = command
		}
		p, dir := m.start(a)
		exit := wait(t, p)
		if d := cmp.Diff(c.want, said(t, dir)); d != "" || exit.Code != 0 && c.want == "" {
			b, _ := os.ReadFile(filepath.Join(dir, "stderr"))
			t.Errorf("%s: exit %v, output (-want +got)\n%s%s", c.name, exit, d, b)
		}
	}
}

// TestNothingOfTheMachineIsGiven: a runtime makes what it has as its output the container's, and
// nothing of the machine must be that: the owner of /dev/null can close it to all.
func TestNothingOfTheMachineIsGiven(t *testing.T) {
	t.Parallel()
	m := newContainerMachine(t)
	for i, by := range []schema.ContainerRuntime{schema.Crun, schema.Runc} {
		if m.Attributes()[by.Attribute()] != "true" {
			t.Logf("NOT TESTED: %s", by)
			continue
		}
		a := contained(assignment(i, "/bin/sleep", "1000"))
		a.Job.Task.Container.Runtime = by
		_, dir := m.start(a)
		found := false
		for pid, command := range processesOf(dir) {
			if !strings.HasPrefix(command, keeper.InitPath) {
				continue
			}
			found = true
			for fd := range 3 {
				var s unix.Stat_t
				if err := unix.Stat(fmt.Sprintf("/proc/%d/fd/%d", pid, fd), &s); err != nil || s.Mode&unix.S_IFMT != unix.S_IFREG {
					t.Errorf("%s: descriptor %d of the first process has the mode %o, %v", by, fd, s.Mode, err)
				}
			}
		}
		if !found {
			t.Errorf("%s: no first process among %v", by, processesOf(dir))
		}
	}
}
