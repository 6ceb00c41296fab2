package keeper

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Abstract unix sockets have no file whose owner could keep others away: whoever is in
// the network namespace may connect. Landlock keeps a process and what it starts to those
// of their own.

// scopes is the version of Landlock that can do so, of Linux 6.12.
const scopes = 6

// CanScope reports whether this machine can keep tasks from abstract unix sockets of
// others.
func CanScope() bool {
	version, _, errno := unix.RawSyscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	return errno == 0 && version >= scopes
}

// newScope opens the rules by which a process restricts itself.
func newScope() (int, error) {
	rules := unix.LandlockRulesetAttr{Scoped: unix.LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET}
	size := unsafe.Offsetof(rules.Scoped) + unsafe.Sizeof(rules.Scoped)
	fd, _, errno := unix.RawSyscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&rules)), size, 0)
	if errno != 0 {
		return -1, fmt.Errorf("landlock: %w", errno)
	}
	return int(fd), nil
}

// scope restricts the calling thread, which has no_new_privs, and what it executes.
func scope() error {
	fd, err := newScope()
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if _, _, errno := unix.RawSyscall(unix.SYS_LANDLOCK_RESTRICT_SELF, uintptr(fd), 0, 0); errno != 0 {
		return fmt.Errorf("landlock: %w", errno)
	}
	return nil
}
