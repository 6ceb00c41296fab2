//go:build amd64 || arm64

package bundle

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// forkIdle forks a process in a user namespace of its own, and others that are this one's as flags of clone say,
// which waits to be killed. It
// executes nothing: that takes longer than all that it is there for. It ends with the
// calling thread.
//
// It shares this process's memory, of which it needs none: to copy that takes longer, too. So
// nobody must be let into it: the caller is not dumpable until the process has ended.
func forkIdle(others uintptr) (int, error) {
	// The runtime's handlers are of no use to the child.
	var all, before unix.Sigset_t
	for i := range all.Val {
		all.Val[i] = ^all.Val[i]
	}
	if err := unix.PthreadSigmask(unix.SIG_SETMASK, &all, &before); err != nil {
		return 0, err
	}
	pid := cloneIdle(uintptr(unix.SIGCHLD) | unix.CLONE_NEWUSER | unix.CLONE_VM | others)
	_ = unix.PthreadSigmask(unix.SIG_SETMASK, &before, nil)
	if pid < 0 {
		return 0, syscall.Errno(-pid)
	}
	return pid, nil
}

// cloneIdle returns in this process alone: the pid, or what has failed as a number below 0. The
// child uses registers only, and none of the stack that it shares.
func cloneIdle(flags uintptr) int
