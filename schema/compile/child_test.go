package compile_test

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/schema/compile"
)

// probeArg makes the test binary a compile child that, once it is one, tries
// what it may not do, and ends with what it could.
const probeArg = "confine-probe"

// prober is what a child reads from: by then it is confined.
type prober struct{}

// Read ends the child.
func (prober) Read([]byte) (int, error) {
	fmt.Fprintln(os.Stderr, probe())
	os.Exit(1)
	return 0, io.EOF
}

// probe returns what this process can do, one word for each.
func probe() string {
	var could []string
	raw := func(call uintptr, args ...uintptr) func() error {
		args = append(args, 0, 0, 0)
		return func() error {
			_, _, errno := syscall.Syscall(call, args[0], args[1], args[2])
			return errno
		}
	}
	tries := map[string]func() error{
		"read":     func() error { _, err := os.ReadFile("/proc/self/status"); return err },
		"write":    func() error { return os.WriteFile("confine-probe", nil, 0o600) },
		"stat":     func() error { _, err := os.Stat("/etc/passwd"); return err },
		"list":     func() error { _, err := os.ReadDir("/"); return err },
		"remove":   func() error { return os.Remove("/nonexistent") },
		"dial":     func() error { _, err := net.Dial("tcp", "127.0.0.1:1"); return err },
		"udp":      func() error { _, err := net.Dial("udp", "127.0.0.1:1"); return err },
		"unix":     func() error { _, err := net.Dial("unix", "/nonexistent"); return err },
		"listen":   func() error { _, err := net.Listen("tcp", "127.0.0.1:0"); return err },
		"exec":     func() error { return syscall.Exec("/bin/true", nil, nil) },
		"start":    func() error { _, err := os.StartProcess("/bin/true", nil, &os.ProcAttr{}); return err },
		"signal":   func() error { return syscall.Kill(syscall.Getppid(), 0) },
		"mount":    func() error { return syscall.Mount("x", "/", "tmpfs", 0, "") },
		"unshare":  func() error { return syscall.Unshare(syscall.CLONE_NEWUSER) },
		"ptrace":   raw(syscall.SYS_PTRACE),
		"io_uring": raw(unix.SYS_IO_URING_SETUP),
		"memfd":    raw(unix.SYS_MEMFD_CREATE),
		"bpf":      raw(unix.SYS_BPF),
	}
	for _, name := range slices.Sorted(maps.Keys(tries)) {
		if err := tries[name](); !errors.Is(err, syscall.EPERM) {
			could = append(could, name)
		}
	}
	done := make(chan struct{})
	go func() { // threads made later are confined too
		defer close(done)
		runtime.LockOSThread()
		if _, err := os.Open("/"); err == nil {
			could = append(could, "thread")
		}
	}()
	<-done
	if env := os.Environ(); len(env) > 0 {
		could = append(could, "environment:"+strings.Join(env, ","))
	}
	return "could:" + strings.Join(could, " ") + "."
}

func self(t *testing.T) string {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return exe
}

// probed returns what a child says that Compile has started with probeArg.
func probed(t *testing.T) string {
	t.Helper()
	c := compile.New(compile.Config{Exe: self(t), Args: []string{probeArg}, Workers: 1})
	out, err := c.Compile(t.Context(), tree(map[string]string{"a/a.cue": "package a\n"}))
	if err != nil {
		t.Fatal(err)
	}
	return out.Packages[0].Diagnostics[0].Message
}

// TestConfined checks, from inside a child as Compile starts it, that it reaches
// no disk, network, environment or other process; as this user, and as an
// ordinary one.
func TestConfined(t *testing.T) {
	t.Parallel()
	if !strings.Contains(probed(t), "could:.") {
		t.Error(probed(t))
	}
	if os.Getuid() != 0 {
		return
	}
	dir, err := os.MkdirTemp("", "muster-confined-") // t.TempDir is closed to others
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil { //nolint:gosec // another user runs what is in it
		t.Fatal(err)
	}
	exe := filepath.Join(dir, "compile.test")
	if out, err := exec.CommandContext(t.Context(), "cp", self(t), exe).CombinedOutput(); err != nil { // not by this process, as in newCounted
		t.Fatalf("%v: %s", err, out)
	}
	cmd := exec.CommandContext(t.Context(), exe, "-test.run=^TestConfined$", "-test.v")
	cmd.Dir, cmd.Env = dir, []string{"TMPDIR=/tmp"}
	const nobody = 65534
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "--- PASS: TestConfined") {
		t.Errorf("as an ordinary user: %v\n%s", err, out)
	}
}

// TestOrphan checks that a child whose parent dies in the middle of a long
// evaluation does not go on.
func TestOrphan(t *testing.T) {
	t.Parallel()
	cmd := exec.CommandContext(t.Context(), self(t), childArg)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if err := compile.WriteRequest(in, "p", "p.cue", endless); err != nil {
		t.Fatal(err)
	}
	if err := in.Close(); err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	if _, err := io.Copy(io.Discard, out); err != nil {
		t.Error(err)
	}
	var exit *exec.ExitError
	if err := cmd.Wait(); !errors.As(err, &exit) || exit.ExitCode() != compile.ExitOrphan {
		t.Errorf("ended with %v", err)
	}
	if took := time.Since(start); took > 8*time.Second {
		t.Errorf("took %v", took)
	}
}
