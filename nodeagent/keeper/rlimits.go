package keeper

import (
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"
)

// Rlimits are what the kernel holds each of the task's processes to.
type Rlimits struct {
	// Files is the most open descriptors; 0 is the keeper's own limit.
	Files uint64 `json:"files,omitempty"`
	// CoreBytes is the most that is written as a core file; 0 is none.
	CoreBytes uint64 `json:"coreBytes,omitempty"`
	// Processes is the most processes and threads that the task's user has in the
	// task's user namespace; 0 is the keeper's own limit, as it must be without a
	// user namespace.
	Processes uint64 `json:"processes,omitempty"`
}

// noCore is a core file's size that is less than any has. Unlike 0, it keeps
// the kernel also from starting a program that takes core files (core_pattern
// with a pipe), for which it knows no other bound.
const noCore = 1

// set sets them for the calling process, for good: hard limits, which only the
// keeper's user may raise, and no task has its capabilities.
func (l *Rlimits) set() error {
	if l == nil {
		return nil
	}
	for _, one := range []struct {
		what     string
		resource int
		value    uint64
	}{
		{"open files", unix.RLIMIT_NOFILE, l.Files},
		{"core files", unix.RLIMIT_CORE, max(l.CoreBytes, noCore)},
		{"processes", unix.RLIMIT_NPROC, l.Processes},
	} {
		if one.value == 0 {
			continue
		}
		// Of package syscall, which puts RLIMIT_NOFILE back before an exec unless it
		// was set through it.
		if err := syscall.Setrlimit(one.resource, &syscall.Rlimit{Cur: one.value, Max: one.value}); err != nil {
			return fmt.Errorf("limit of %s, %d: %w", one.what, one.value, err)
		}
	}
	return nil
}
