package nodump

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// pipeLimit is a core file's size that is less than any has. Unlike 0, it keeps the kernel
// also from handing the memory to a program that takes core files (core_pattern with a pipe).
const pipeLimit = 1

// Set has the kernel write no core file of this process, and lets no process of its user look
// into it. What it starts inherits the first, and may ask for more.
func Set() error {
	var l unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_CORE, &l); err != nil {
		return fmt.Errorf("no core files: %w", err)
	}
	l.Cur = min(l.Max, pipeLimit)
	if err := unix.Setrlimit(unix.RLIMIT_CORE, &l); err != nil {
		return fmt.Errorf("no core files: %w", err)
	}
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("not to be looked into: %w", err)
	}
	return nil
}
