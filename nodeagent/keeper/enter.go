package keeper

import (
	"errors"
	"fmt"
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// entry is what a child needs from the fork to the exec of the stage. All of it
// is made before: the child has this process's memory, and none of its threads.
type entry struct {
	rooms   []uintptr // namespaces to enter
	nested  bool      // a pid namespace is one of them: only a child of who enters is in it
	fds     []uintptr // what shall be descriptors 0, 1, …
	exe     uintptr
	argv    **byte
	envp    **byte
	empty   *byte
	tty     bool
	signals [1]uint64 // blocked before
	bare    bool      // the capabilities of the user namespace are given up before the exec
	step    [2]byte   // how far the child is, of steps, and the error there
}

// capabilities is how many there can be: their sets have 64 bits.
const capabilities = 64

// aboveFD is where descriptors are put that must not be overwritten.
const aboveFD = 200

// forkInto forks the stage into the namespaces; as its standard descriptor 0 is a
// terminal with tty, that is its controlling one. It returns its pid, 0 when
// that is for the stage to tell. A process with threads cannot enter a user
// namespace, nor can one leave its pid namespace: so it is a raw fork.
func forkInto(rooms, fds []uintptr, tty bool) (int, error) {
	exe, err := unix.Open("/proc/self/exe", unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, fmt.Errorf("/proc/self/exe: %w", err)
	}
	defer unix.Close(exe)
	argv, err := syscall.SlicePtrFromStrings([]string{"muster-keeper", stageArg, "/"})
	if err != nil {
		return 0, err
	}
	envp, err := syscall.SlicePtrFromStrings(environment)
	if err != nil {
		return 0, err
	}
	e := &entry{rooms: rooms, fds: fds, exe: uintptr(exe), argv: &argv[0], envp: &envp[0], empty: new(byte), tty: tty}
	for _, fd := range rooms {
		kind, err := unix.IoctlRetInt(int(fd), unix.NS_GET_NSTYPE)
		if err != nil {
			return 0, fmt.Errorf("kind of a namespace: %w", err)
		}
		e.nested = e.nested || kind == unix.CLONE_NEWPID
		e.bare = e.bare || kind == unix.CLONE_NEWUSER && unix.Geteuid() != 0
	}
	// The runtime's handlers are of no use to the child.
	var all unix.Sigset_t
	for i := range all.Val {
		all.Val[i] = ^all.Val[i]
	}
	if _, _, errno := syscall.RawSyscall6(unix.SYS_RT_SIGPROCMASK, unix.SIG_SETMASK, uintptr(unsafe.Pointer(&all)), uintptr(unsafe.Pointer(&e.signals)), unsafe.Sizeof(e.signals), 0, 0); errno != 0 {
		return 0, errno
	}
	pid, errno := e.fork()
	_, _, _ = syscall.RawSyscall6(unix.SYS_RT_SIGPROCMASK, unix.SIG_SETMASK, uintptr(unsafe.Pointer(&e.signals)), 0, unsafe.Sizeof(e.signals), 0, 0)
	runtime.KeepAlive(e)
	if errno != 0 {
		return 0, fmt.Errorf("fork: %w", errno)
	}
	if !e.nested {
		return int(pid), nil
	}
	for {
		_, err := unix.Wait4(int(pid), nil, 0, nil)
		if !errors.Is(err, unix.EINTR) {
			return 0, err
		}
	}
}

// fork returns in this process alone. From the clone on, its code runs in a copy
// of the process that has this thread only: what it calls may make raw system
// calls, and nothing else, not even grow its stack.
//
//go:noinline
//go:norace
//go:nosplit
func (e *entry) fork() (uintptr, syscall.Errno) {
	pid, _, errno := syscall.RawSyscall6(unix.SYS_CLONE, uintptr(unix.SIGCHLD), 0, 0, 0, 0, 0)
	if errno == 0 && pid == 0 {
		e.child()
	}
	return pid, errno
}

// child is the copy. It does not return.
//
//go:noinline
//go:norace
//go:nosplit
func (e *entry) child() {
	left, errno := e.enter()
	if errno == 0 && !left {
		if errno = e.handOn(); errno == 0 {
			errno = e.execute()
		}
	}
	if errno != 0 {
		e.step[1] = byte(errno)
		// By then it may be at its new place, with the old one still open.
		_, _, _ = syscall.RawSyscall(unix.SYS_WRITE, e.fds[errorFD], uintptr(unsafe.Pointer(&e.step[0])), 2)
	}
	for {
		_, _, _ = syscall.RawSyscall(unix.SYS_EXIT_GROUP, 0, 0, 0)
	}
}

// enter enters the namespaces. It has left the rest to a child of its own where
// that alone is in all of them.
//
//go:noinline
//go:norace
//go:nosplit
func (e *entry) enter() (left bool, errno syscall.Errno) {
	e.step[0] = 'n'
	for i := range e.rooms {
		if _, _, errno = syscall.RawSyscall(unix.SYS_SETNS, e.rooms[i], 0, 0); errno != 0 {
			return false, errno
		}
	}
	if !e.nested {
		return false, 0
	}
	e.step[0] = 'f'
	r, _, errno := syscall.RawSyscall6(unix.SYS_CLONE, uintptr(unix.SIGCHLD)|unix.CLONE_PARENT, 0, 0, 0, 0, 0)
	return r != 0, errno
}

// handOn puts the descriptors where the stage looks for them.
//
//go:noinline
//go:norace
//go:nosplit
func (e *entry) handOn() syscall.Errno {
	e.step[0] = 'd'
	for i := range e.fds {
		r, _, errno := syscall.RawSyscall(unix.SYS_FCNTL, e.fds[i], unix.F_DUPFD_CLOEXEC, aboveFD)
		if errno != 0 {
			return errno
		}
		e.fds[i] = r
	}
	for i := range e.fds {
		if _, _, errno := syscall.RawSyscall(unix.SYS_DUP3, e.fds[i], uintptr(i), 0); errno != 0 {
			return errno
		}
	}
	return 0
}

// execute becomes the stage, in a session of its own. It returns only when that
// has failed.
//
//go:noinline
//go:norace
//go:nosplit
func (e *entry) execute() syscall.Errno {
	e.step[0] = 's'
	if _, _, errno := syscall.RawSyscall(unix.SYS_SETSID, 0, 0, 0); errno != 0 {
		return errno
	}
	if e.tty {
		e.step[0] = 't'
		if _, _, errno := syscall.RawSyscall(unix.SYS_IOCTL, 0, unix.TIOCSCTTY, 0); errno != 0 {
			return errno
		}
	}
	if e.bare { // the stage, no root's, has no right to it any more
		for c := range uintptr(capabilities) {
			_, _, _ = syscall.RawSyscall(unix.SYS_PRCTL, unix.PR_CAPBSET_DROP, c, 0)
		}
	}
	e.step[0] = 'e'
	_, _, _ = syscall.RawSyscall6(unix.SYS_RT_SIGPROCMASK, unix.SIG_SETMASK, uintptr(unsafe.Pointer(&e.signals)), 0, unsafe.Sizeof(e.signals), 0, 0)
	_, _, errno := syscall.RawSyscall6(unix.SYS_EXECVEAT, e.exe, uintptr(unsafe.Pointer(e.empty)), uintptr(unsafe.Pointer(e.argv)), uintptr(unsafe.Pointer(e.envp)), unix.AT_EMPTY_PATH, 0)
	return errno
}

// steps names those of the child.
var steps = map[byte]string{
	'n': "enter a namespace", 'f': "fork in the pid namespace", 'd': "hand on a descriptor", 's': "begin a session",
	't': "take the terminal", 'e': "execute the keeper",
}

// entryError returns the error that the child has written; nil if text is not one.
func entryError(text string) error {
	if len(text) != 2 || steps[text[0]] == "" {
		return nil
	}
	return fmt.Errorf("%s: %w", steps[text[0]], syscall.Errno(text[1]))
}
