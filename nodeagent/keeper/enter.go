package keeper

import (
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// entry is what a child needs from the fork to the exec of a command beside a task.
// All of it is made before, in a forkRoom: the child has that, and none of this
// process's threads. It runs no program of ours: the start of one takes longer than all that
// is to be done, and could be looked into by a task with our user.
type entry struct {
	task  uintptr // pidfd of the task, whose namespaces are to be entered; or one of these
	rooms uintptr // which: flags of setns
	// home is this process's pid namespace, from which a child is forked right into
	// that of the task. Where it is 0 and rooms has the pid namespace, only a child
	// of who enters is in it.
	home   uintptr
	group  uintptr   // directory of the v2 cgroup to be forked in; 0: none
	joins  []uintptr // files to write "0" to, to be in the cgroups
	late   uintptr   // likewise for group, unless it was forked there; 0: none
	std    [3]uintptr
	tty    bool    // std[0] is a terminal, which becomes the controlling one
	report uintptr // where its records go
	// program is a file to be executed, where there are no paths; 0: none.
	program uintptr
	// What is written to its oom_score_adj, and where that is.
	score     []byte
	scoreFile *byte
	limits    []limit
	unbound   bool // its bounding set is empty from the fork on
	rights    rights
	switches  bool // to another user and group
	uid, gid  uintptr
	scope     uintptr         // see newScope; 0: none
	filter    *unix.SockFprog // nil: none
	paths     []*byte         // of the command, tried in this order
	argv      **byte
	envp      **byte

	approach
	ofKernel
	scratch
}

// ofKernel is what the runtime of a kernel in user space needs beside that.
type ofKernel struct {
	// makes are namespaces that it makes in those that it enters, as user 0 there: flags of
	// unshare. The pid namespace is among them, of which it is the first process.
	makes     uintptr
	procType  *byte // with makes: of the file system of processes,
	procMount *byte // and where it is mounted
	// hides is a directory of that file system with nothing in it: see hidden; nil: none. Its type and options follow.
	hides, hideType, hideOptions *byte
	whole                        bool // it keeps all capabilities
}

// approach is how the working directory is entered.
type approach struct {
	way       []*byte // to it: each directory in the one before, or all at once
	contained bool    // the way is the task's: each directory is entered without following links of /proc
	main      bool    // it is the task itself: the directories are made, and lo is brought up
}

// scratch is what the child needs room for. It writes no pointers: that could need the
// garbage collector.
type scratch struct {
	page    uintptr   // the size of one, less 1
	empty   [1]byte   // a path
	zero    [1]byte   // what a process writes to be in a cgroup itself
	placed  bool      // in group
	at      [2]uint64 // a time of zero
	signals [1]uint64 // blocked before
	clone   cloneArgs
	kept    [2]unix.CapUserData
	header  unix.CapUserHeader
	poll    [1]unix.PollFd
	refused syscall.Errno // of the first path that is there
	record  record
	how     unix.OpenHow
	lo      interfaceFlags
	stack   []byte // of a child that shares this process's memory, see share; nil: it has a copy
}

// interfaceFlags is the kernel's struct ifreq with flags.
type interfaceFlags struct {
	name  [unix.IFNAMSIZ]byte
	flags uint16
	_     [22]byte
}

// limit is a resource limit as the kernel takes it.
type limit struct {
	resource uintptr
	value    [2]uint64
}

// cloneArgs are the kernel's struct clone_args.
type cloneArgs struct {
	flags, pidfd, childTID, parentTID, exitSignal, stack, stackSize, tls, setTID, setTIDSize, cgroup uint64
}

// record is what the child reports, as it is in memory: a step that has failed, or begun
// if that is begun.
type record struct {
	step  byte
	errno byte
	path  uint16 // of the command, in entry.paths
	pid   uint32 // as this process's pid namespace has it
}

// recordSize is the size of a record, in bytes.
const recordSize = int(unsafe.Sizeof(record{}))

// begun is the step of a record with the pid of a child in a pid namespace.
const begun = 'p'

// capabilities is how many there can be: their sets have 64 bits.
const capabilities = 64

// aboveFD is where descriptors are put that must not be overwritten.
const aboveFD = 200

// scoreFile is one's own oom_score_adj.
const scoreFile = "/proc/self/oom_score_adj"

// start forks the child and returns its pid, which is that of the command unless
// it is nested. A process with threads cannot enter a user namespace, nor can one
// leave its pid namespace: so it is a raw fork. The kernel kills the command with
// the calling thread.
func (e *entry) start() (int, error) {
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
		return 0, errno
	}
	return int(pid), nil
}

// fork returns in this process alone. From the clone on, its code runs in a copy
// of the process that has this thread only: what it calls may make raw system
// calls, and nothing else, not even grow its stack.
//
//go:noinline
//go:norace
//go:nosplit
func (e *entry) fork() (uintptr, syscall.Errno) {
	if e.stack == nil {
		// The child goes on with this stack, of which it needs what is about here: what it
		// calls takes less than a page, since it does not grow, and it does not return.
		here := uintptr(unsafe.Pointer(&e)) &^ e.page
		_, _, _ = syscall.RawSyscall(unix.SYS_MADVISE, here-e.page-1, 3*(e.page+1), unix.MADV_DOFORK)
	}
	if e.home != 0 {
		if _, _, errno := syscall.RawSyscall(unix.SYS_SETNS, e.task, unix.CLONE_NEWPID, 0); errno != 0 {
			return 0, errno
		}
	}
	var pid uintptr
	var errno syscall.Errno
	if e.stack != nil {
		pid, errno = e.share()
	} else if e.nested() {
		pid, _, errno = syscall.RawSyscall6(unix.SYS_CLONE, uintptr(unix.SIGCHLD), 0, 0, 0, 0, 0)
	} else {
		pid, errno = e.spawn(0)
	}
	if errno == 0 && pid == 0 { // which share never returns
		e.child()
	}
	if e.home != 0 {
		if _, _, failed := syscall.RawSyscall(unix.SYS_SETNS, e.home, unix.CLONE_NEWPID, 0); failed != 0 {
			_, _, _ = syscall.RawSyscall(unix.SYS_EXIT_GROUP, 1, 0, 0) // else what it forks next would be there, too
		}
	}
	return pid, errno
}

// nested reports whether the command is a child of the child.
//
//go:norace
//go:nosplit
func (e *entry) nested() bool { return e.rooms&unix.CLONE_NEWPID != 0 || e.makes != 0 }

// spawn forks, in the v2 cgroup if there is one and it can be.
//
//go:noinline
//go:norace
//go:nosplit
func (e *entry) spawn(flags uint64) (uintptr, syscall.Errno) {
	if e.group != 0 {
		e.clone.flags, e.clone.exitSignal, e.clone.cgroup = flags|unix.CLONE_INTO_CGROUP, uint64(unix.SIGCHLD), uint64(e.group)
		pid, _, errno := syscall.RawSyscall(unix.SYS_CLONE3, uintptr(unsafe.Pointer(&e.clone)), unsafe.Sizeof(e.clone), 0)
		if errno == 0 {
			e.placed = true // here and in the child
			return pid, 0
		}
	}
	// Older than Linux 5.7, or the cgroup has as many processes as it may: who joins
	// it by itself is let in.
	pid, _, errno := syscall.RawSyscall6(unix.SYS_CLONE, uintptr(unix.SIGCHLD)|uintptr(flags), 0, 0, 0, 0, 0)
	return pid, errno
}

// share forks the child like spawn, but lends it this process's memory until its exec, and waits for
// that: to copy even the tables of it takes longer than all that the child does. The child has a
// stack of its own in the room. It makes the memory one that nobody may look into, which is
// taken back here: by then nothing but this process has it.
//
//go:noinline
//go:norace
//go:nosplit
func (e *entry) share() (uintptr, syscall.Errno) {
	const flags = unix.CLONE_VM | unix.CLONE_VFORK
	stack := uintptr(unsafe.Pointer(unsafe.SliceData(e.stack)))
	result, tried := uintptr(0), false
	if e.group != 0 {
		e.clone.flags, e.clone.exitSignal, e.clone.cgroup = flags|unix.CLONE_INTO_CGROUP, uint64(unix.SIGCHLD), uint64(e.group)
		e.clone.stack, e.clone.stackSize = uint64(stack), childStack
		e.placed = true // as the child finds it
		result = vfork(unix.SYS_CLONE3, uintptr(unsafe.Pointer(&e.clone)), unsafe.Sizeof(e.clone), unsafe.Pointer(e))
		tried = result <= lastPID
		e.placed = tried
	}
	if !tried { // see spawn
		result = vfork(unix.SYS_CLONE, flags|uintptr(unix.SIGCHLD), stack+childStack, unsafe.Pointer(e))
	}
	_, _, _ = syscall.RawSyscall6(unix.SYS_PRCTL, unix.PR_SET_DUMPABLE, 1, 0, 0, 0, 0)
	if result > lastPID {
		return 0, syscall.Errno(-result)
	}
	return result, 0
}

// lastPID is more than any pid; what is above it is an error as the kernel returns it.
const lastPID = 1 << 30

// goOn is what vfork calls in the child.
//
//go:norace
//go:nosplit
func goOn(e *entry) { e.child() } //nolint:unused // the assembler calls it

// child is the copy. It does not return.
//
//go:noinline
//go:norace
//go:nosplit
func (e *entry) child() {
	left, errno := e.enter()
	if errno == 0 && !left {
		if errno = e.join(); errno == 0 {
			if errno = e.handOn(); errno == 0 {
				if errno = e.disarm(); errno == 0 {
					errno = e.execute()
				}
			}
		}
	}
	if errno != 0 {
		e.record.errno = byte(errno)
		e.writeRecord()
	}
	for {
		_, _, _ = syscall.RawSyscall(unix.SYS_EXIT_GROUP, 0, 0, 0)
	}
}

// writeRecord writes the record.
//
//go:noinline
//go:norace
//go:nosplit
func (e *entry) writeRecord() {
	_, _, _ = syscall.RawSyscall(unix.SYS_WRITE, e.report, uintptr(unsafe.Pointer(&e.record)), uintptr(recordSize))
}

// enter enters the namespaces. It has left the rest to a child of its own where
// that alone is in all of them.
//
//go:noinline
//go:norace
//go:nosplit
func (e *entry) enter() (left bool, errno syscall.Errno) {
	// A task may be the first to go where memory runs out, never the last: an
	// adjustment that is refused changes nothing that is promised.
	fd, _, errno := syscall.RawSyscall6(unix.SYS_OPENAT, ^uintptr(99), uintptr(unsafe.Pointer(e.scoreFile)), unix.O_WRONLY|unix.O_CLOEXEC, 0, 0, 0) // AT_FDCWD
	if errno == 0 {
		_, _, _ = syscall.RawSyscall(unix.SYS_WRITE, fd, uintptr(unsafe.Pointer(&e.score[0])), uintptr(len(e.score)))
		_, _, _ = syscall.RawSyscall(unix.SYS_CLOSE, fd, 0, 0)
	}
	// From here on nobody looks into it before its exec, though it has the user of
	// the task and is seen by it; by then it has its filter.
	e.record.step = 'v'
	if _, _, errno = syscall.RawSyscall6(unix.SYS_PRCTL, unix.PR_SET_DUMPABLE, 0, 0, 0, 0, 0); errno != 0 {
		return false, errno
	}
	e.record.step = 'n'
	if e.rooms != 0 {
		if _, _, errno = syscall.RawSyscall(unix.SYS_SETNS, e.task, e.rooms, 0); errno != 0 {
			return false, errno
		}
	}
	if !e.nested() {
		return false, 0
	}
	if e.makes != 0 {
		if errno = e.become(0, 0); errno != 0 {
			return false, errno
		}
		if _, _, errno = syscall.RawSyscall(unix.SYS_UNSHARE, e.makes, 0, 0); errno != 0 {
			return false, errno
		}
	}
	e.record.step = 'f'
	pid, errno := e.spawn(unix.CLONE_PARENT)
	if errno != 0 || pid == 0 {
		return false, errno
	}
	e.record.step, e.record.pid = begun, uint32(pid)
	e.writeRecord()
	return true, 0
}

// join joins the cgroups and goes where the command is to run.
//
//go:noinline
//go:norace
//go:nosplit
func (e *entry) join() syscall.Errno {
	e.record.step = 'j'
	for i := range e.joins {
		if _, _, errno := syscall.RawSyscall(unix.SYS_WRITE, e.joins[i], uintptr(unsafe.Pointer(&e.zero[0])), 1); errno != 0 {
			return errno
		}
	}
	if e.late != 0 && !e.placed {
		if _, _, errno := syscall.RawSyscall(unix.SYS_WRITE, e.late, uintptr(unsafe.Pointer(&e.zero[0])), 1); errno != 0 {
			return errno
		}
	}
	if e.makes != 0 {
		e.record.step = 'q'
		if _, _, errno := syscall.RawSyscall6(unix.SYS_MOUNT, uintptr(unsafe.Pointer(e.procType)), uintptr(unsafe.Pointer(e.procMount)), uintptr(unsafe.Pointer(e.procType)), unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, 0, 0); errno != 0 {
			return errno
		}
		if e.hides != nil {
			if _, _, errno := syscall.RawSyscall6(unix.SYS_MOUNT, uintptr(unsafe.Pointer(e.hideType)), uintptr(unsafe.Pointer(e.hides)), uintptr(unsafe.Pointer(e.hideType)), unix.MS_RDONLY|unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, uintptr(unsafe.Pointer(e.hideOptions)), 0); errno != 0 {
				return errno
			}
		}
	}
	if e.main && (e.rooms|e.makes)&unix.CLONE_NEWNET != 0 {
		e.record.step = 'o'
		if errno := e.bringUp(); errno != 0 {
			return errno
		}
	}
	_, _, _ = syscall.RawSyscall(unix.SYS_UMASK, 0o022, 0, 0)
	e.record.step = entering // as our user: a directory above may be closed to the task's
	return e.enterDir()
}

// enterDir enters the working directory. The way to that of a container is the image's, or
// what the task has made of it: a link of /proc/self/fd in it would lead to what this process
// has open of the machine.
//
//go:noinline
//go:norace
//go:nosplit
func (e *entry) enterDir() syscall.Errno {
	if !e.contained {
		_, _, errno := syscall.RawSyscall(unix.SYS_CHDIR, uintptr(unsafe.Pointer(e.way[0])), 0, 0)
		return errno
	}
	if e.main { // as root of the container
		if errno := e.become(0, 0); errno != 0 {
			return errno
		}
	}
	for i := range e.way {
		var refused syscall.Errno
		if e.main {
			_, _, refused = syscall.RawSyscall(unix.SYS_MKDIRAT, ^uintptr(99), uintptr(unsafe.Pointer(e.way[i])), 0o755) // AT_FDCWD
		}
		fd, _, errno := syscall.RawSyscall6(unix.SYS_OPENAT2, ^uintptr(99), uintptr(unsafe.Pointer(e.way[i])), uintptr(unsafe.Pointer(&e.how)), unsafe.Sizeof(e.how), 0, 0)
		if errno == unix.ENOENT && refused != 0 && refused != unix.EEXIST {
			errno = refused
		}
		if errno != 0 {
			return errno
		}
		_, _, errno = syscall.RawSyscall(unix.SYS_FCHDIR, fd, 0, 0)
		_, _, _ = syscall.RawSyscall(unix.SYS_CLOSE, fd, 0, 0)
		if errno != 0 {
			return errno
		}
	}
	return 0
}

// workdirHow opens the working directory of a container.
var workdirHow = unix.OpenHow{Flags: unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_MAGICLINKS}

// become changes user and group.
//
//go:noinline
//go:norace
//go:nosplit
func (e *entry) become(uid, gid uintptr) syscall.Errno {
	if e.rights.ambient {
		if _, _, errno := syscall.RawSyscall6(unix.SYS_PRCTL, unix.PR_SET_KEEPCAPS, 1, 0, 0, 0, 0); errno != 0 {
			return errno
		}
	}
	if _, _, errno := syscall.RawSyscall(unix.SYS_SETGROUPS, 0, 0, 0); errno != 0 {
		return errno
	}
	if _, _, errno := syscall.RawSyscall(unix.SYS_SETRESGID, gid, gid, gid); errno != 0 {
		return errno
	}
	_, _, errno := syscall.RawSyscall(unix.SYS_SETRESUID, uid, uid, uid)
	return errno
}

// bringUp brings up lo.
//
//go:noinline
//go:norace
//go:nosplit
func (e *entry) bringUp() syscall.Errno {
	fd, _, errno := syscall.RawSyscall(unix.SYS_SOCKET, unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if errno != 0 {
		return errno
	}
	_, _, errno = syscall.RawSyscall(unix.SYS_IOCTL, fd, unix.SIOCSIFFLAGS, uintptr(unsafe.Pointer(&e.lo)))
	_, _, _ = syscall.RawSyscall(unix.SYS_CLOSE, fd, 0, 0)
	return errno
}

// handOn gives it a session, and its descriptors.
//
//go:noinline
//go:norace
//go:nosplit
func (e *entry) handOn() syscall.Errno {
	e.record.step = 'd'
	for i := range e.std {
		fd, _, errno := syscall.RawSyscall(unix.SYS_FCNTL, e.std[i], unix.F_DUPFD_CLOEXEC, aboveFD)
		if errno != 0 {
			return errno
		}
		e.std[i] = fd
	}
	fd, _, errno := syscall.RawSyscall(unix.SYS_FCNTL, e.report, unix.F_DUPFD_CLOEXEC, aboveFD)
	if errno != 0 {
		return errno
	}
	e.report = fd
	for i := range e.std {
		if _, _, errno := syscall.RawSyscall(unix.SYS_DUP3, e.std[i], uintptr(i), 0); errno != 0 {
			return errno
		}
	}
	e.record.step = 's'
	if _, _, errno := syscall.RawSyscall(unix.SYS_SETSID, 0, 0, 0); errno != 0 {
		return errno
	}
	if e.tty {
		e.record.step = 't'
		if _, _, errno := syscall.RawSyscall(unix.SYS_IOCTL, 0, unix.TIOCSCTTY, 0); errno != 0 {
			return errno
		}
	}
	return 0
}

// disarm sets the limits, installs the filter, and gives up user, groups and capabilities, and all
// ways to get any back. The filter is first: it allows what comes after it.
//
//go:noinline
//go:norace
//go:nosplit
func (e *entry) disarm() syscall.Errno {
	e.record.step = 'l'
	for i := range e.limits {
		if _, _, errno := syscall.RawSyscall6(unix.SYS_PRLIMIT64, 0, e.limits[i].resource, uintptr(unsafe.Pointer(&e.limits[i].value[0])), 0, 0, 0); errno != 0 {
			return errno
		}
	}
	if !e.unbound && !e.whole {
		for c := range uintptr(capabilities) { // see dropBounding
			if e.rights.keeps>>c&1 == 0 {
				_, _, _ = syscall.RawSyscall(unix.SYS_PRCTL, unix.PR_CAPBSET_DROP, c, 0)
			}
		}
	}
	e.record.step = 'w'
	if _, _, errno := syscall.RawSyscall6(unix.SYS_PRCTL, unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0, 0); errno != 0 {
		return errno
	}
	if e.scope != 0 {
		e.record.step = 'a'
		if _, _, errno := syscall.RawSyscall(unix.SYS_LANDLOCK_RESTRICT_SELF, e.scope, 0, 0); errno != 0 {
			return errno
		}
	}
	if e.filter != nil {
		e.record.step = 'm'
		if _, _, errno := syscall.RawSyscall6(unix.SYS_PRCTL, unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(e.filter)), 0, 0, 0); errno != 0 {
			return errno
		}
	}
	e.record.step = 'u'
	if e.switches {
		if errno := e.become(e.uid, e.gid); errno != 0 {
			return errno
		}
	}
	if e.whole {
		return 0
	}
	return e.drop()
}

// execute becomes the command. It returns only when that has failed.
//
//go:noinline
//go:norace
//go:nosplit
func (e *entry) execute() syscall.Errno {
	e.record.step = 'h' // after the change of user, which ends it
	if _, _, errno := syscall.RawSyscall6(unix.SYS_PRCTL, unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0, 0); errno != 0 {
		return errno
	}
	e.poll[0].Fd = int32(e.report)
	if n, _, errno := syscall.RawSyscall6(unix.SYS_PPOLL, uintptr(unsafe.Pointer(&e.poll[0])), 1, uintptr(unsafe.Pointer(&e.at)), 0, 0, 0); errno == 0 && n > 0 {
		return unix.ESRCH // who has started it has died before
	}
	_, _, _ = syscall.RawSyscall6(unix.SYS_RT_SIGPROCMASK, unix.SIG_SETMASK, uintptr(unsafe.Pointer(&e.signals)), 0, unsafe.Sizeof(e.signals), 0, 0)
	if e.program != 0 {
		e.record.step = 'y'
		_, _, errno := syscall.RawSyscall6(unix.SYS_EXECVEAT, e.program, uintptr(unsafe.Pointer(&e.empty[0])), uintptr(unsafe.Pointer(e.argv)), uintptr(unsafe.Pointer(e.envp)), unix.AT_EMPTY_PATH, 0)
		return errno
	}
	e.record.step = executing
	var missing syscall.Errno
	for i := range e.paths {
		_, _, errno := syscall.RawSyscall(unix.SYS_EXECVE, uintptr(unsafe.Pointer(e.paths[i])), uintptr(unsafe.Pointer(e.argv)), uintptr(unsafe.Pointer(e.envp)))
		if errno == unix.ENOENT || errno == unix.ENOTDIR {
			missing = errno
			continue
		}
		if e.refused == 0 {
			e.refused, e.record.path = errno, uint16(i)
		}
	}
	if e.refused != 0 {
		return e.refused
	}
	return missing
}

// The steps of a record that are the fault of the command, or of its working directory.
const (
	executing = 'x'
	entering  = 'c'
)

// loopbackUp brings up lo.
var loopbackUp = interfaceFlags{name: [unix.IFNAMSIZ]byte{'l', 'o'}, flags: unix.IFF_UP}

// steps names those of the child.
var steps = map[byte]string{
	'q': "mount /proc, or in it", 'o': "bring up lo", 'v': "not to be looked into", 'n': "enter a namespace", 'f': "fork in the pid namespace", 'j': "join the cgroup", entering: "enter the working directory",
	'l': "set a limit", 'd': "hand on a descriptor", 's': "begin a session", 't': "take the terminal", 'w': "no_new_privs", 'a': "landlock", 'm': "seccomp",
	'u': "become the task's user", 'k': "drop the capabilities", 'h': "follow the keeper", 'y': "execute what copies", executing: "execute the command",
}
