package keeper

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/nodeagent/durable"
	"github.com/musterhq/muster/schema/filelock"
)

func TestMain(m *testing.M) {
	if IsCall(os.Args[1:]) {
		os.Exit(Main(os.Args[1:]))
	}
	if len(os.Args) == 3 && os.Args[1] == trickleArg {
		os.Exit(trickle(os.Args[2]))
	}
	if len(os.Args) == 2 && os.Args[1] == liarArg {
		os.Exit(lie())
	}
	os.Exit(m.Run())
}

// boot stands for the boot id, which is the agent's to find out.
const boot = "this"

// testSpec runs a script as the caller's own user, with no cgroup.
func testSpec(t *testing.T, script string) *Spec {
	t.Helper()
	dir := t.TempDir()
	mark := "MARK=" + dir
	return &Spec{
		Boot: boot, Dir: dir, Command: []string{"sh", "-c", script},
		Env: []string{"PATH=" + os.Getenv("PATH"), mark}, Mark: mark,
	}
}

// launchNow is Launch and Begin.
func launchNow(ctx context.Context, exe, dir string, spec *Spec) (*Handle, error) {
	s, err := Launch(exe, dir, nil)
	if err != nil {
		return nil, err
	}
	if err := s.Prepare(spec); err != nil {
		return nil, errors.Join(err, s.Drop(ctx))
	}
	return s.Begin(ctx)
}

func start(t *testing.T, dir string, spec *Spec) *Handle {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	h, err := launchNow(t.Context(), exe, dir, spec)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := h.Kill(); err != nil {
			t.Error(err)
		}
		if _, err := h.Wait(); err != nil {
			t.Error(err)
		}
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	})
	return h
}

// TestOlderAgent: an agent that was not restarted since a new keeper was installed has the spec
// on disk before, and says nothing.
func TestOlderAgent(t *testing.T) {
	t.Parallel()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	spec := testSpec(t, "exit 7")
	ready, w, err := os.Pipe()
	if err == nil {
		err = writeNow(spec.Dir, SpecFile, spec)
	}
	if err != nil {
		t.Fatal(err)
	}
	c := exec.Command(exe, spec.Dir)
	c.ExtraFiles = []*os.File{readyFD - 3: w}
	if err := errors.Join(c.Start(), w.Close()); err != nil {
		t.Fatal(err)
	}
	var a answer
	if err := json.NewDecoder(ready).Decode(&a); err != nil || a.State == nil {
		t.Errorf("it answers %+v, %v", a, err)
	}
	if err := errors.Join(ready.Close(), c.Wait()); err != nil {
		t.Error(err)
	}
	h, err := Open(t.Context(), spec.Dir, Known{Boot: boot})
	if err != nil {
		t.Fatal(err)
	}
	if h.Exit == nil || h.Exit.Code != 7 {
		t.Errorf("exit %+v, want 7", h.Exit)
	}
}

// TestDropped: a keeper that is ready when its agent gives up, or dies, runs nothing, and says
// that it has not.
func TestDropped(t *testing.T) {
	t.Parallel()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	drop := func(s *Starting) error { return s.Drop(t.Context()) }
	die := func(s *Starting) error { return errors.Join(s.ready.Close(), s.h.await(), s.h.Close()) }
	for name, c := range map[string]struct {
		drop     func(s *Starting) error
		prepared bool
	}{
		"gives up": {drop, true}, "dies": {die, true}, "gives up before the spec": {drop, false}, "dies before the spec": {die, false},
	} {
		spec := testSpec(t, "echo it ran >ran")
		dir := spec.Dir
		s, err := Launch(exe, dir, nil)
		if err == nil && c.prepared {
			err = s.Prepare(spec)
		}
		if err == nil {
			err = c.drop(s)
		}
		if err != nil {
			t.Fatal(err)
		}
		h, err := Open(t.Context(), dir, Known{Boot: spec.Boot})
		if err != nil {
			t.Fatal(err)
		}
		if h.Exit == nil || !h.Exit.Never {
			t.Errorf("the agent %s: %+v, want an end of what never was", name, h.Exit)
		}
		if _, err := os.Stat(filepath.Join(dir, "ran")); err == nil {
			t.Errorf("the agent %s: the task ran", name)
		}
	}
}

// TestNoGroup: all descendants are found without a cgroup, in whatever session,
// environment and depth, stopped ones too.
func TestNoGroup(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	h := start(t, dir, testSpec(t, `
		( setsid env -i sh -c 'echo $$; ( setsid sh -c "echo \$\$; kill -STOP \$\$" & ); sleep 1000' & )
		while [ $(wc -l <`+filepath.Join(dir, StdoutFile)+`) -lt 2 ]; do sleep 0.01; done
		exit 8`))
	exit, err := h.Wait()
	if err != nil || exit.Code != 8 {
		t.Fatalf("exit %+v, %v, want status 8", exit, err)
	}
	pids, err := os.ReadFile(filepath.Join(dir, StdoutFile))
	if err != nil {
		t.Fatal(err)
	}
	for _, pid := range strings.Fields(string(pids)) {
		if _, err := os.Stat("/proc/" + pid); err == nil {
			t.Errorf("process %s has escaped", pid)
		}
	}
}

func TestOneKeeperOfADirectory(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	h := start(t, dir, testSpec(t, "sleep 1000"))
	if _, err := claim(dir); !errors.Is(err, filelock.ErrHeld) {
		t.Errorf("claim beside a keeper: %v, want filelock.ErrHeld", err)
	}
	second := func() {
		t.Helper()
		if out, err := exec.Command(os.Args[0], dir).CombinedOutput(); err == nil {
			t.Errorf("a second keeper has run: %s", out)
		}
	}
	second()
	again, err := Open(t.Context(), dir, Known{Boot: h.Spec.Boot})
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(h.State, again.State); d != "" {
		t.Errorf("opened (-started +opened)\n%s", d)
	}
	if err := again.Close(); err != nil {
		t.Error(err)
	}
	if _, err := again.Wait(); !errors.Is(err, os.ErrClosed) {
		t.Errorf("Wait on a closed Handle: %v, want os.ErrClosed", err)
	}
	if err := h.Kill(); err != nil {
		t.Fatal(err)
	}
	if _, err := h.Wait(); err != nil {
		t.Fatal(err)
	}
	second()
}

// TestForeignPID: a pid that was given to another process since is not touched.
func TestForeignPID(t *testing.T) {
	t.Parallel()
	self, err := find(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	if err := signalProcess(self.Identity, 0); err != nil {
		t.Errorf("signal 0 to itself: %v", err)
	}
	other := Identity{PID: self.PID, Start: self.Start - 1}
	if err := signalProcess(other, unix.SIGKILL); !errors.Is(err, unix.ESRCH) {
		t.Errorf("signal to the process that had this pid before: %v, want ESRCH", err)
	}
}

// asleep starts a process that has only these variables in its environment.
func asleep(t *testing.T, env ...string) *exec.Cmd {
	t.Helper()
	c := exec.Command("/bin/sleep", "1000")
	c.Env = append([]string{}, env...)
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	return c
}

// ends wants that sig was the end of a process.
func ends(t *testing.T, c *exec.Cmd, sig syscall.Signal) {
	t.Helper()
	err := c.Wait()
	if got := c.ProcessState.Sys().(syscall.WaitStatus).Signal(); got != sig {
		t.Errorf("%v, want an end by %v", err, sig)
	}
}

// TestKillMarked: of the processes with a variable in their environment those are killed
// and named that are to be; others live on.
func TestKillMarked(t *testing.T) {
	t.Parallel()
	own := t.TempDir() // in nobody else's environment
	stray := func(value string) bool { return strings.HasPrefix(value, own) && value != own+"/held" }
	others := []*exec.Cmd{asleep(t, "MARK="+own+"/held"), asleep(t), asleep(t, "MARKED="+own+"/a")}
	a, b := asleep(t, "A=1", "MARK="+own+"/a"), asleep(t, "MARK="+own+"/b", "Z=1")
	if got, want := KillMarked("MARK", stray), []string{own + "/a", own + "/b"}; !slices.Equal(got, want) {
		t.Errorf("killed %q, want %q", got, want)
		_ = errors.Join(a.Process.Kill(), b.Process.Kill())
	}
	ends(t, a, unix.SIGKILL)
	ends(t, b, unix.SIGKILL)
	if got := KillMarked("MARK", stray); len(got) > 0 {
		t.Errorf("killed %q, which are gone", got)
	}
	for _, c := range others {
		if err := c.Process.Signal(unix.SIGTERM); err != nil {
			t.Error(err)
		}
		ends(t, c, unix.SIGTERM)
	}
}

// TestMarkingWhileLoading: a process whose environment cannot be seen yet is looked at
// again. This one gets it once the first look has passed it: it is older than the one
// that then says so.
func TestMarkingWhileLoading(t *testing.T) {
	t.Parallel()
	own := t.TempDir()
	for range 200 { // a busy machine may take longer than it is looked at
		late := exec.Command("/bin/sh", "-c", "read go; MARK="+own+"/late exec sleep 1000")
		late.Env = []string{}
		stdin, err := late.StdinPipe()
		if err == nil {
			err = late.Start()
		}
		if err != nil {
			t.Fatal(err)
		}
		passed := asleep(t, "MARK="+own+"/passed")
		m := marking{since: 1, entry: func(_ int, entry string) bool {
			if entry == "MARK="+own+"/passed" {
				_ = stdin.Close()
			}
			return entry == "MARK="+own+"/late"
		}}
		found, err := m.list()
		if err != nil {
			t.Fatal(err)
		}
		_ = errors.Join(passed.Process.Kill(), late.Process.Kill())
		ends(t, passed, unix.SIGKILL)
		ends(t, late, unix.SIGKILL)
		if len(found) == 1 && found[0].PID == late.Process.Pid {
			return
		}
	}
	t.Error("a process that was loaded meanwhile was never found")
}

func TestParseStat(t *testing.T) {
	t.Parallel()
	tail := " 5 7 8 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 4321 9 10"
	for in, want := range map[string]process{
		"42 (sh) S" + tail:               {Identity: Identity{42, 4321}, parent: 5},
		"42 (a) Z 1 (b) ) R" + tail:      {Identity: Identity{42, 4321}, parent: 5},
		"42 (new\nline) Z" + tail + "\n": {Identity: Identity{42, 4321}, parent: 5, zombie: true},
		"2 (kthreadd) S" + strings.Replace(tail, "4194560", "2129984", 1): {Identity: Identity{42, 4321}, parent: 5, kernel: true},
	} {
		got, err := parseStat(42, []byte(in))
		if err != nil || got != want {
			t.Errorf("parseStat(%q) = %+v, %v, want %+v", in, got, err, want)
		}
	}
	for _, in := range []string{"", "42 (sh", "42 (sh) S 1 2", "42 (sh) S x" + tail[2:]} {
		if got, err := parseStat(42, []byte(in)); err == nil {
			t.Errorf("parseStat(%q) = %+v, want an error", in, got)
		}
	}
}

func TestFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var got Exit
	if ok, err := read(durable.Documents{}, dir, ExitFile, &got); ok || err != nil {
		t.Errorf("read of no file: %t, %v", ok, err)
	}
	want := Exit{Code: -1, Signal: "SIGKILL", OOM: true, Message: "m"}
	if err := writeEnd(dir, want); err != nil {
		t.Fatal(err)
	}
	if ok, err := read(durable.Documents{}, dir, ExitFile, &got); !ok || err != nil || got != want {
		t.Errorf("read %+v, %t, %v, want %+v", got, ok, err, want)
	}
	if err := os.Truncate(filepath.Join(dir, ExitFile), 5); err != nil {
		t.Fatal(err)
	}
	if ok, err := read(durable.Documents{}, dir, ExitFile, &got); ok || damaged(err) == nil {
		t.Errorf("read of half a file: %t, %v, want it damaged", ok, err)
	}
}

func TestUsage(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{}, {"--help"}, {"relative/dir"}, {stageArg, "x"}, {"/a", "/b"}} {
		if IsCall(args) {
			t.Errorf("IsCall(%q)", args)
		}
		if got := Main(args); got != 2 {
			t.Errorf("Main(%q) = %d, want 2", args, got)
		}
	}
}
