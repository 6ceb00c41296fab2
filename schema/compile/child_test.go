package compile_test

import (
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/musterhq/muster/schema/compile"
)

// probeArg makes the test binary confine itself and try what it may not.
const probeArg = "confine-probe"

// probe returns what a confined process could do, one word for each.
func probe() string {
	if !compile.Confine() {
		return "unsupported"
	}
	var could []string
	for name, try := range map[string]func() error{
		"read":  func() error { _, err := os.ReadFile("/proc/self/status"); return err },
		"write": func() error { return os.WriteFile("confine-probe", nil, 0o600) },
		"dial":  func() error { _, err := net.Dial("tcp", "127.0.0.1:1"); return err },
		"exec":  func() error { return syscall.Exec("/bin/true", nil, nil) },
	} {
		if err := try(); !errors.Is(err, syscall.EPERM) {
			could = append(could, name)
		}
	}
	done := make(chan struct{})
	go func() { // threads made later are confined too
		defer close(done)
		if _, err := os.Open("/"); err == nil {
			could = append(could, "thread")
		}
	}()
	<-done
	return "could: " + strings.Join(could, " ")
}

func self(t *testing.T) string {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return exe
}

// TestConfined checks that a child can reach neither disk nor network.
func TestConfined(t *testing.T) {
	t.Parallel()
	cmd := exec.CommandContext(t.Context(), self(t), probeArg)
	cmd.Dir = t.TempDir()
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	switch got := strings.TrimSpace(string(out)); got {
	case "could:":
	case "unsupported":
		t.Skip("the kernel has no system call filter")
	default:
		t.Error(got)
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
