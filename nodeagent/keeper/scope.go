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

// scope opens the rules of a task with a scope; -1 for others.
func (s *Spec) scope() (rules int, err error) {
	if !s.Scoped {
		return -1, nil
	}
	return newScope()
}

// restrict restricts the calling thread, which has no_new_privs, and what it executes, by
// rules, if there are any, and closes those.
func restrict(rules int) error {
	if rules < 0 {
		return nil
	}
	defer unix.Close(rules)
	if _, _, errno := unix.RawSyscall(unix.SYS_LANDLOCK_RESTRICT_SELF, uintptr(rules), 0, 0); errno != 0 {
		return fmt.Errorf("landlock: %w", errno)
	}
	return nil
}
