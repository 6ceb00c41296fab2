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
)

// TestFirst: the first process lives until nobody can write to its pipe, whatever it is sent
// of signals that it may ignore, and takes the end of orphans.
func TestFirst(t *testing.T) {
	t.Parallel()
	name := filepath.Join(t.TempDir(), "first")
	if err := writeFirst(name); err != nil {
		t.Skipf("NOT TESTED: %v", err)
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	c := exec.Command(name)
	c.ExtraFiles = []*os.File{r}
	if err := c.Start(); err != nil {
		t.Fatal(err)
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
		t.Errorf("without a pipe: %v", err)
	}
}
