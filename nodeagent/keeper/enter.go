package keeper

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// foreign returns those of a process's namespaces that are not this one's, as
// the flags of clone.
func foreign(pid int) (kinds int, err error) {
	for name, kind := range map[string]int{
		"user": unix.CLONE_NEWUSER, "pid": unix.CLONE_NEWPID, "ipc": unix.CLONE_NEWIPC,
		"uts": unix.CLONE_NEWUTS, "net": unix.CLONE_NEWNET, "mnt": unix.CLONE_NEWNS,
	} {
		own, err := os.Readlink("/proc/self/ns/" + name)
		if errors.Is(err, os.ErrNotExist) {
			continue // a kernel without them
		}
		if err != nil {
			return 0, fmt.Errorf("namespaces: %w", err)
		}
		its, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/%s", pid, name))
		if err != nil {
			return 0, fmt.Errorf("the task's namespaces: %w", err)
		}
		if own != its {
			kinds |= kind
		}
	}
	return kinds, nil
}

// aboveAll is higher than any descriptor that a child is given.
const aboveAll = 256

// forkInside starts this program with args in those of the namespaces of the
// process of a pidfd that kinds names, leader of a session, with fds as its
// descriptors from 0. It returns its pid, of which this process is the parent.
//
// A user namespace can be entered by a process of one thread only, and a pid
// namespace holds only what is forked after that. So it forks twice, as the
// syscall package does: what runs in the children makes system calls and
// nothing else. Setting up memory is done before.
func forkInside(pidfd, kinds int, args []string, fds []uintptr) (int, error) {
	exe, err := os.Open("/proc/self/exe") // in its namespaces there may be no such file
	if err != nil {
		return 0, err
	}
	defer exe.Close()
	argv, err := syscall.SlicePtrFromStrings(args)
	if err != nil {
		return 0, err
	}
	envv, err := syscall.SlicePtrFromStrings(environment)
	if err != nil {
		return 0, err
	}
	high, err := raise(fds)
	defer func() {
		for _, fd := range high {
			_ = unix.Close(fd)
		}
	}()
	if err != nil {
		return 0, err
	}
	var pid int
	report := [2]int{}
	if err := unix.Pipe2(report[:], unix.O_CLOEXEC); err != nil {
		return 0, err
	}
	defer unix.Close(report[0])
	c := &inside{pidfd: uintptr(pidfd), kinds: uintptr(kinds), exe: exe.Fd(), argv: argv, envv: envv, fds: high, report: uintptr(report[1]), empty: new(byte)}
	middle, errno := c.fork()
	_ = unix.Close(report[1])
	if errno != 0 {
		return 0, errno
	}
	b := make([]byte, 8)
	n, err := unix.Read(report[0], b)
	_, _ = unix.Wait4(middle, nil, 0, nil)
	if err != nil || n != len(b) {
		return 0, errors.Join(errors.New("no word from the child"), err)
	}
	said := *(*[2]int32)(unsafe.Pointer(&b[0]))
	if pid = int(said[0]); said[1] != 0 {
		return 0, fmt.Errorf("enter the task's namespaces: %w", syscall.Errno(said[1]))
	}
	return pid, nil
}

// raise returns copies of descriptors that are above all that a child is given.
func raise(fds []uintptr) (high []int, err error) {
	for _, fd := range slices.Clone(fds) {
		n, err := unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, aboveAll)
		if err != nil {
			return high, err
		}
		high = append(high, n)
	}
	return high, nil
}

// inside is what the children of forkInside need, all of it in memory.
type inside struct {
	pidfd, kinds, exe, report uintptr
	argv, envv                []*byte
	fds                       []int
	empty                     *byte
	word                      [2]int32 // pid, errno
}

// fork returns the pid of the child in the middle, which enters the namespaces,
// starts the other as its sibling, and says how that went.
//
//go:norace
func (c *inside) fork() (int, syscall.Errno) {
	pid, _, errno := syscall.RawSyscall6(syscall.SYS_CLONE, uintptr(syscall.SIGCHLD), 0, 0, 0, 0, 0)
	if errno != 0 || pid != 0 {
		return int(pid), errno
	}
	_, _, errno = syscall.RawSyscall(unix.SYS_SETNS, c.pidfd, c.kinds, 0)
	if errno == 0 {
		pid, _, errno = syscall.RawSyscall6(syscall.SYS_CLONE, uintptr(syscall.SIGCHLD)|unix.CLONE_PARENT, 0, 0, 0, 0, 0)
		if errno == 0 && pid == 0 {
			c.exec()
		}
	}
	c.word[0], c.word[1] = int32(pid), int32(errno)
	_, _, _ = syscall.RawSyscall(syscall.SYS_WRITE, c.report, uintptr(unsafe.Pointer(&c.word[0])), 8)
	for {
		_, _, _ = syscall.RawSyscall(syscall.SYS_EXIT_GROUP, 0, 0, 0)
	}
}

// exec makes the calling child the program. It never returns.
//
//go:norace
func (c *inside) exec() {
	_, _, _ = syscall.RawSyscall(syscall.SYS_SETSID, 0, 0, 0)
	for i := 0; i < len(c.fds); i++ {
		_, _, _ = syscall.RawSyscall(syscall.SYS_DUP3, uintptr(c.fds[i]), uintptr(i), 0)
	}
	_, _, _ = syscall.RawSyscall6(unix.SYS_EXECVEAT, c.exe, uintptr(unsafe.Pointer(c.empty)),
		uintptr(unsafe.Pointer(&c.argv[0])), uintptr(unsafe.Pointer(&c.envv[0])), unix.AT_EMPTY_PATH, 0)
	for {
		_, _, _ = syscall.RawSyscall(syscall.SYS_EXIT_GROUP, 127, 0, 0)
	}
}
