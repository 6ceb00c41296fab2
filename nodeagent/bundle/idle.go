package bundle

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// forkIdle forks a process in a user namespace of its own, which waits to be killed. It
// executes nothing: that takes longer than all that it is there for. It ends with the
// calling thread.
func forkIdle() (int, error) {
	// The runtime's handlers are of no use to the child.
	var all, before unix.Sigset_t
	for i := range all.Val {
		all.Val[i] = ^all.Val[i]
	}
	if err := unix.PthreadSigmask(unix.SIG_SETMASK, &all, &before); err != nil {
		return 0, err
	}
	pid, errno := cloneIdle()
	_ = unix.PthreadSigmask(unix.SIG_SETMASK, &before, nil)
	if errno != 0 {
		return 0, errno
	}
	return int(pid), nil
}

// cloneIdle returns in this process alone. The child has a copy of the process with this
// thread only: it may make raw system calls, and nothing else.
//
//go:noinline
//go:norace
//go:nosplit
func cloneIdle() (uintptr, syscall.Errno) {
	pid, _, errno := syscall.RawSyscall6(unix.SYS_CLONE, uintptr(unix.SIGCHLD)|unix.CLONE_NEWUSER, 0, 0, 0, 0, 0)
	if errno != 0 || pid != 0 {
		return pid, errno
	}
	_, _, _ = syscall.RawSyscall6(unix.SYS_PRCTL, unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0, 0)
	for {
		_, _, _ = syscall.RawSyscall6(unix.SYS_PPOLL, uintptr(unsafe.Pointer(nil)), 0, 0, 0, 0, 0)
	}
}
