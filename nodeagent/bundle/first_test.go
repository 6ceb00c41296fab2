package bundle

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/nodeagent/strike"
)

// TestFirst: the first process lives until the other end of its socket is closed, and the
// kernel reaps for it.
func TestFirst(t *testing.T) {
	t.Parallel()
	name := filepath.Join(t.TempDir(), "first")
	if err := writeFirst(name + ".written"); err != nil {
		t.Skipf("NOT TESTED: %v", err)
	}
	b, err := os.ReadFile(name + ".written")
	if err := errors.Join(err, strike.Program(t.Context(), name, b)); err != nil { // another test may start a process while it is written
		t.Fatal(err)
	}
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	r, w := os.NewFile(uintptr(fds[0]), "its end"), os.NewFile(uintptr(fds[1]), "ours")
	c := exec.Command(name)
	c.ExtraFiles = []*os.File{r}
	if err := errors.Join(c.Start(), r.Close()); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Read(make([]byte, 1)); err != nil {
		t.Errorf("it says nothing: %v", err)
	}
	status := func(field string) string {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", c.Process.Pid))
		if err != nil {
			t.Fatal(err)
		}
		_, rest, _ := strings.Cut(string(b), field+":\t")
		line, _, _ := strings.Cut(rest, "\n")
		return line
	}
	for status("State") != "S (sleeping)" { // it reads
		time.Sleep(time.Millisecond)
	}
	var ignored uint64
	if _, err := fmt.Sscanf(status("SigIgn"), "%x", &ignored); err != nil || ignored>>(unix.SIGCHLD-1)&1 == 0 {
		t.Errorf("it ignores %x, %v; want SIGCHLD", ignored, err)
	}
	if threads := status("Threads"); threads != "1" {
		t.Errorf("%s threads", threads)
	}
	if _, err := w.WriteString("x"); err != nil { // means nothing
		t.Error(err)
	}
	_ = w.Close()
	if err := c.Wait(); err != nil {
		t.Error(err)
	}
	var exit *exec.ExitError
	if err := exec.Command(name).Run(); errors.As(err, &exit) && exit.Sys().(syscall.WaitStatus).Signaled() {
		t.Errorf("without a socket: %v", err)
	}
}
