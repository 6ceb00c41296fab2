package keeper

import (
	"errors"
	"fmt"
	"math/bits"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// disarm sets the limits, restricts what can be called and reached, and gives up the
// keeper's user, groups and capabilities, and all ways to get any back: of the calling
// thread, which is all that the exec leaves. The syscall package would stop all threads
// for each call.
//
// The order is that of entry.disarm. The filter comes before the capabilities go: the
// kernel compiles the filters of all users into one room (net.core.bpf_jit_limit), which
// any task can fill with its own, and then only who has the capabilities still gets one.
func disarm(spec *Spec) error {
	rules, err := spec.scope() // before the limits: one on descriptors may leave none
	if err != nil {
		return err
	}
	if err := spec.Rlimits.set(); err != nil {
		return err
	}
	if err := dropBounding(spec.keeps()); err != nil {
		return err
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("no_new_privs: %w", err)
	}
	if err := restrict(rules); err != nil {
		return err
	}
	if err := confine(spec.Filter); err != nil {
		return err
	}
	if u := spec.inside(); u != nil {
		if spec.ambient() {
			if err := unix.Prctl(unix.PR_SET_KEEPCAPS, 1, 0, 0, 0); err != nil {
				return fmt.Errorf("keep capabilities: %w", err)
			}
		}
		if err := becomeUser(*u); err != nil {
			return err
		}
	}
	if err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0); err != nil && !errors.Is(err, unix.EINVAL) { // EINVAL: older than they are
		return fmt.Errorf("clear the ambient capabilities: %w", err)
	}
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	kept := capabilitySets(spec.keeps())
	if err := unix.Capset(&header, &kept[0]); err != nil {
		return fmt.Errorf("drop the capabilities: %w", err)
	}
	return raiseAmbient(spec)
}

// raiseAmbient has what is executed keep what the task keeps.
func raiseAmbient(spec *Spec) error {
	if !spec.ambient() {
		return nil
	}
	for kept := spec.keeps(); kept != 0; kept &= kept - 1 {
		c := bits.TrailingZeros64(kept)
		if err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_RAISE, uintptr(c), 0, 0); err != nil {
			return fmt.Errorf("hand on capability %d: %w", c, err)
		}
	}
	return nil
}

// capabilitySets are those of a process with the capabilities of kept, as bits. What user 0
// executes has them too; for others see raiseAmbient.
func capabilitySets(kept uint64) [2]unix.CapUserData {
	low, high := uint32(kept), uint32(kept>>32)
	return [2]unix.CapUserData{{Effective: low, Permitted: low, Inheritable: low}, {Effective: high, Permitted: high, Inheritable: high}}
}

// rights are the capabilities that the command keeps.
type rights struct {
	keeps   uintptr // as bits
	ambient bool    // what is executed has them although its user is not 0
}

// drop gives up capabilities.
//
//go:noinline
//go:norace
//go:nosplit
func (e *entry) drop() syscall.Errno {
	e.record.step = 'k'
	_, _, errno := syscall.RawSyscall6(unix.SYS_PRCTL, unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0, 0)
	if errno != 0 && errno != unix.EINVAL { // EINVAL: older than they are
		return errno
	}
	e.header.Version = unix.LINUX_CAPABILITY_VERSION_3
	if _, _, errno = syscall.RawSyscall(unix.SYS_CAPSET, uintptr(unsafe.Pointer(&e.header)), uintptr(unsafe.Pointer(&e.kept[0])), 0); errno != 0 || !e.rights.ambient {
		return errno
	}
	for c := range uintptr(capabilities) { // see raiseAmbient
		if e.rights.keeps>>c&1 == 1 {
			if _, _, errno = syscall.RawSyscall6(unix.SYS_PRCTL, unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_RAISE, c, 0, 0, 0); errno != 0 {
				return errno
			}
		}
	}
	return 0
}

// dropBounding empties the bounding set but for kept: no program that is executed has
// another capability, root's neither. Without CAP_SETPCAP it cannot be; then no_new_privs
// sees to it for all but root, and the agent has said so of the machine.
func dropBounding(kept uint64) error {
	for c := uintptr(0); ; c++ {
		if kept>>c&1 == 1 {
			continue
		}
		err := unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0)
		switch {
		case errors.Is(err, unix.EINVAL), errors.Is(err, unix.EPERM): // EINVAL: beyond the kernel's last
			return nil
		case err != nil:
			return fmt.Errorf("drop capability %d: %w", c, err)
		}
	}
}

// becomeUser makes u the thread's user and clears its groups.
func becomeUser(u User) error {
	uid, gid := uintptr(u.UID), uintptr(u.GID)
	if _, _, e := unix.RawSyscall(unix.SYS_SETGROUPS, 0, 0, 0); e != 0 {
		return fmt.Errorf("clear the groups: %w", e)
	}
	if _, _, e := unix.RawSyscall(unix.SYS_SETRESGID, gid, gid, gid); e != 0 {
		return fmt.Errorf("become group %d: %w", u.GID, e)
	}
	if _, _, e := unix.RawSyscall(unix.SYS_SETRESUID, uid, uid, uid); e != 0 {
		return fmt.Errorf("become user %d: %w", u.UID, e)
	}
	return nil
}

// instruction is the size of one of a seccomp program's, in bytes.
const instruction = 8

// confine installs filter, whose instructions are in the kernel's form:
// struct sock_filter of linux/filter.h.
func confine(filter []byte) error {
	if len(filter) == 0 {
		return nil
	}
	program, err := program(filter)
	if err != nil {
		return err
	}
	f := unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]}
	if err := unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(&f)), 0, 0); err != nil {
		return fmt.Errorf("seccomp: %w", err)
	}
	return nil
}
