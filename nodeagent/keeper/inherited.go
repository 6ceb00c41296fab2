package keeper

import (
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// closeInherited closes what the agent was started with and has passed on
// without knowing: a task must not have it, and whoever waits for its end would
// wait for the task's. What this process opened itself is closed on exec. The descriptors up to
// last were meant for it.
func closeInherited(last int) error {
	dir, err := os.Open("/proc/self/fd")
	if err != nil {
		return err
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return err
	}
	for _, name := range names {
		fd, err := strconv.Atoi(name)
		if err != nil || fd <= last {
			continue
		}
		if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err == nil && flags&unix.FD_CLOEXEC == 0 {
			_ = unix.Close(fd)
		}
	}
	return nil
}
