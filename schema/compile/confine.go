package compile

import (
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// forbidden are the system calls by which a Go program reaches a disk, a
// network or another program. A child has no use for any: what it reads is in
// its pipe.
var forbidden = []uint32{
	unix.SYS_OPENAT, unix.SYS_OPENAT2, unix.SYS_UNLINKAT, unix.SYS_RENAMEAT2, unix.SYS_MKDIRAT, unix.SYS_LINKAT,
	unix.SYS_SYMLINKAT, unix.SYS_READLINKAT, unix.SYS_FCHMODAT, unix.SYS_FCHOWNAT, unix.SYS_CHDIR,
	unix.SYS_SOCKET, unix.SYS_SOCKETPAIR, unix.SYS_CONNECT, unix.SYS_BIND, unix.SYS_IO_URING_SETUP,
	unix.SYS_EXECVE, unix.SYS_EXECVEAT, unix.SYS_PTRACE, unix.SYS_MOUNT,
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
	for _, call := range forbidden {
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
