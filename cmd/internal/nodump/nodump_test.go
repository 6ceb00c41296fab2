package nodump

import (
	"os"
	"os/exec"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// childEnv makes the test binary a process that dies of a signal which writes a core file,
// after Set if it says so.
const childEnv = "MUSTER_TEST_NODUMP"

func TestMain(m *testing.M) {
	switch how := os.Getenv(childEnv); how {
	case "":
		os.Exit(m.Run())
	case "set":
		if err := Set(); err != nil {
			panic(err)
		}
		if d, err := unix.PrctlRetInt(unix.PR_GET_DUMPABLE, 0, 0, 0, 0); err != nil || d != 0 {
			panic(d)
		}
	}
	if err := unix.Exec("/bin/sh", []string{"sh", "-c", "ulimit -S -c; kill -QUIT $$"}, nil); err != nil {
		panic(err)
	}
}

// TestSet: neither the process nor what it starts writes a core file, and no other process of
// its user can look into the first.
func TestSet(t *testing.T) {
	t.Parallel()
	cmd := exec.Command(os.Args[0])
	cmd.Env, cmd.Dir = append(os.Environ(), childEnv+"=set"), t.TempDir()
	out, _ := cmd.Output()
	status := cmd.ProcessState.Sys().(syscall.WaitStatus)
	if status.Signal() != unix.SIGQUIT || status.CoreDump() {
		t.Errorf("it ended with %v (core file: %v) and wrote %q", cmd.ProcessState, status.CoreDump(), out)
	}
	if s := string(out); s != "0\n" { // in units of 512 or 1024 bytes: less than any
		t.Errorf("what it starts has a limit of %q", s)
	}
}
