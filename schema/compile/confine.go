package compile

import (
	"runtime"
	"slices"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// forbidden are the system calls by which a program reaches a disk, a network,
// another process or the kernel's rarer parts. A child has no use for any: what
// it reads is in its pipe. Those of one architecture are in legacy.
var forbidden = []uint32{
	unix.SYS_OPENAT, unix.SYS_OPENAT2, unix.SYS_UNLINKAT, unix.SYS_RENAMEAT, unix.SYS_RENAMEAT2, unix.SYS_MKDIRAT, unix.SYS_MKNODAT,
	unix.SYS_LINKAT, unix.SYS_SYMLINKAT, unix.SYS_READLINKAT, unix.SYS_FCHMODAT, unix.SYS_FCHOWNAT, unix.SYS_UTIMENSAT,
	unix.SYS_FACCESSAT, unix.SYS_FACCESSAT2, unix.SYS_STATX, unix.SYS_STATFS, unix.SYS_TRUNCATE, unix.SYS_GETDENTS64,
	unix.SYS_CHDIR, unix.SYS_FCHDIR, unix.SYS_CHROOT, unix.SYS_GETCWD, unix.SYS_INOTIFY_INIT1, unix.SYS_NAME_TO_HANDLE_AT,
	unix.SYS_OPEN_BY_HANDLE_AT, unix.SYS_OPEN_TREE, unix.SYS_FSOPEN, unix.SYS_FSPICK, unix.SYS_MOVE_MOUNT, unix.SYS_MOUNT,
	unix.SYS_UMOUNT2, unix.SYS_PIVOT_ROOT, unix.SYS_SWAPON, unix.SYS_SETXATTR, unix.SYS_GETXATTR,
	unix.SYS_SOCKET, unix.SYS_SOCKETPAIR, unix.SYS_CONNECT, unix.SYS_BIND, unix.SYS_LISTEN, unix.SYS_ACCEPT, unix.SYS_ACCEPT4,
	unix.SYS_SENDTO, unix.SYS_SENDMSG, unix.SYS_RECVMSG, unix.SYS_IO_URING_SETUP,
	unix.SYS_EXECVE, unix.SYS_EXECVEAT, unix.SYS_PTRACE, unix.SYS_KILL, unix.SYS_PIDFD_OPEN, unix.SYS_PIDFD_GETFD,
	unix.SYS_PIDFD_SEND_SIGNAL, unix.SYS_PROCESS_VM_READV, unix.SYS_PROCESS_VM_WRITEV, unix.SYS_SETNS, unix.SYS_UNSHARE,
	unix.SYS_SETUID, unix.SYS_SETGID, unix.SYS_SETPRIORITY, unix.SYS_SHMGET, unix.SYS_MSGGET, unix.SYS_SEMGET, unix.SYS_MQ_OPEN,
	unix.SYS_MEMFD_CREATE, unix.SYS_KEYCTL, unix.SYS_ADD_KEY, unix.SYS_BPF, unix.SYS_PERF_EVENT_OPEN, unix.SYS_USERFAULTFD,
	unix.SYS_INIT_MODULE, unix.SYS_FINIT_MODULE, unix.SYS_KEXEC_LOAD, unix.SYS_REBOOT,
}

// confine has the kernel refuse these calls (EPERM) to all threads of the
// process for the rest of its life. It reports false where the kernel or the
// architecture has no such filter: then the compiler's own file system, which
// holds nothing but the request, is the only wall.
func confine() bool {
	arch, ok := map[string]uint32{"amd64": unix.AUDIT_ARCH_X86_64, "arm64": unix.AUDIT_ARCH_AARCH64}[runtime.GOARCH]
	if !ok {
		return false
	}
	const archAt, numberAt = 4, 0 // offsets in struct seccomp_data
	refuse := uint32(unix.SECCOMP_RET_ERRNO) | uint32(unix.EPERM)
	load := func(at uint32) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: at}
	}
	ret := func(v uint32) unix.SockFilter { return unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: v} }
	equal := func(v uint32, yes, no uint8) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jt: yes, Jf: no, K: v}
	}
	program := []unix.SockFilter{load(archAt), equal(arch, 1, 0), ret(refuse), load(numberAt)}
	// The calls of x32 are those of amd64 under other numbers.
	const x32 = 0x40000000
	program = append(program, unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JGE | unix.BPF_K, Jf: 1, K: x32}, ret(refuse))
	for _, call := range slices.Concat(forbidden, legacy) {
		program = append(program, equal(call, 0, 1), ret(refuse))
	}
	program = append(program, ret(unix.SECCOMP_RET_ALLOW))
	filter := unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]}

	runtime.LockOSThread() // no_new_privs belongs to the thread; TSYNC takes it to the others
	defer runtime.UnlockOSThread()
	if unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != nil {
		return false
	}
	_, _, errno := syscall.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC,
		uintptr(unsafe.Pointer(&filter))) //nolint:gosec // the kernel takes a pointer
	runtime.KeepAlive(program)
	return errno == 0
}
