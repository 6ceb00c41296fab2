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

// list returns them as the kernel takes them: hard limits, which only the keeper's
// user may raise, and no task has its capabilities.
func (l *Rlimits) list() []limit {
	if l == nil {
		return nil
	}
	var list []limit
	for resource, value := range map[uintptr]uint64{
		unix.RLIMIT_NOFILE: l.Files, unix.RLIMIT_CORE: max(l.CoreBytes, noCore), unix.RLIMIT_NPROC: l.Processes,
	} {
		if value != 0 {
			list = append(list, limit{resource, [2]uint64{value, value}})
		}
	}
	return list
}

// limitNames say what a limit is of.
var limitNames = map[uintptr]string{unix.RLIMIT_NOFILE: "open files", unix.RLIMIT_CORE: "core files", unix.RLIMIT_NPROC: "processes"}

// set sets them for the calling process, for good.
func (l *Rlimits) set() error {
	for _, one := range l.list() {
		// Of package syscall, which puts RLIMIT_NOFILE back before an exec unless it
		// was set through it.
		if err := syscall.Setrlimit(int(one.resource), &syscall.Rlimit{Cur: one.value[0], Max: one.value[1]}); err != nil {
			return fmt.Errorf("limit of %s, %d: %w", limitNames[one.resource], one.value[0], err)
		}
	}
	return nil
}
