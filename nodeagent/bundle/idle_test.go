package bundle

import (
	"os"
	"runtime"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"
)

// TestIdle: the process is in a user namespace of its own, uses nothing of the memory that it
// shares, and is there until it is killed.
func TestIdle(t *testing.T) {
	t.Parallel()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	pid, err := forkIdle(0)
	if err != nil {
		t.Skipf("NOT TESTED: %v", err)
	}
	for range 100 { // this stack is the child's too
		fill(64)
	}
	ours, oerr := os.Readlink("/proc/self/ns/user")
	its, ierr := os.Readlink("/proc/" + strconv.Itoa(pid) + "/ns/user")
	if oerr != nil || ierr != nil || ours == its {
		t.Errorf("in %s, %v; this process in %s, %v", its, ierr, ours, oerr)
	}
	if err := unix.Kill(pid, unix.SIGKILL); err != nil {
		t.Error(err)
	}
	if status := reap(pid); status.Signal() != unix.SIGKILL {
		t.Errorf("ended with %v", status)
	}
}

// fill writes to the stack.
func fill(depth int) byte {
	var b [64]byte
	for i := range b {
		b[i] = byte(depth)
	}
	if depth > 0 {
		b[0] += fill(depth - 1)
	}
	return b[0]
}
