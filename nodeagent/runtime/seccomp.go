package runtime

import (
	"encoding/binary"
	"fmt"

	"github.com/elastic/go-seccomp-bpf"
	"github.com/elastic/go-seccomp-bpf/arch"
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// denied are the system calls that no task may make; they fail with EPERM. Most
// need capabilities, which a task has not: they are here for the day on which
// the kernel errs about that. Those of one architecture only are left out on
// others.
var denied = []string{
	// Other views of the machine.
	"mount", "umount", "umount2", "pivot_root", "chroot", "move_mount", "open_tree", "open_tree_attr",
	"fsopen", "fsconfig", "fsmount", "fspick", "mount_setattr", "setns", "unshare",
	// The machine itself.
	"reboot", "kexec_load", "kexec_file_load", "init_module", "finit_module", "delete_module", "create_module",
	"query_module", "get_kernel_syms", "swapon", "swapoff", "acct", "quotactl", "quotactl_fd", "nfsservctl", "syslog",
	"_sysctl", "sysfs", "uselib", "vm86", "vm86old", "modify_ldt", "ioperm", "iopl", "settimeofday", "stime", "clock_settime",
	"clock_settime64", "adjtimex", "clock_adjtime", "clock_adjtime64", "sethostname", "setdomainname", "vhangup",
	// What looks into the kernel or past permissions of files.
	"bpf", "perf_event_open", "lookup_dcookie", "userfaultfd", "open_by_handle_at", "fanotify_init",
	"add_key", "request_key", "keyctl", "io_uring_setup", "io_uring_enter", "io_uring_register",
}

// peeking are the system calls that look into other processes. In a pid
// namespace those are the task's own, and a debugger may have them.
var peeking = []string{"ptrace", "process_vm_readv", "process_vm_writev", "kcmp", "pidfd_getfd"}

// newNamespaces are the flags of clone for which it is denied.
const newNamespaces = unix.CLONE_NEWNS | unix.CLONE_NEWCGROUP | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC |
	unix.CLONE_NEWUSER | unix.CLONE_NEWPID | unix.CLONE_NEWNET

// families are the kinds of socket that tasks can have beside netlink: unix and the
// internet's. Of others the buffers are not counted as the task's, nor bounded (vsock), or
// they have faults more often than users (alg, tipc, can).
var families = []uint32{unix.AF_UNIX, unix.AF_INET, unix.AF_INET6}

// netlink are the protocols of netlink that tasks can speak: those by which libraries ask
// for addresses, and ss for sockets. Others are for administration (netfilter, xfrm,
// audit), report devices (uevent), or are between processes (usersock); their buffers are
// charged to nobody.
var netlink = []uint32{unix.NETLINK_ROUTE, unix.NETLINK_SOCK_DIAG}

// What is answered to a call that is refused: by EPERM, as a kind of socket that the
// kernel has not, and as a system call that the kernel has not.
const (
	refused  = seccomp.ActionErrno | seccomp.Action(unix.EPERM)
	noFamily = seccomp.ActionErrno | seccomp.Action(unix.EAFNOSUPPORT)
	// noProtocol is as netlink answers to a protocol that the kernel has not.
	noProtocol = seccomp.ActionErrno | seccomp.Action(unix.EPROTONOSUPPORT)
	notThere   = seccomp.ActionErrno | seccomp.Action(unix.ENOSYS)
)

// Where struct seccomp_data has the number of the call, its architecture, and its
// arguments, eight bytes each.
const (
	numberOffset   = 0
	archOffset     = 4
	argumentOffset = 16
)

// shmHuge is SHM_HUGETLB of linux/shm.h.
const shmHuge = 0o4000

// fileSetattr is the number of file_setattr, one for all architectures, which the
// library does not know yet.
const fileSetattr = 469

// seccompFilter makes the filter of tasks, in the keeper's form. alone says that a
// task has a pid namespace of its own.
func seccompFilter(alone bool) ([]byte, error) {
	native, err := arch.GetInfo("")
	if err != nil {
		return nil, fmt.Errorf("seccomp: %w", err)
	}
	names := denied
	if !alone {
		names = append(names[:len(names):len(names)], peeking...)
	}
	rules := map[uint32]verdict{fileSetattr: returns(refused)}
	for _, name := range names {
		if n, ok := native.SyscallNames[name]; ok {
			rules[uint32(n)] = returns(refused)
		}
	}
	for name, v := range map[string]verdict{
		"clone": refusedIf(0, bpf.JumpBitsSet, newNamespaces),
		// Its flags are behind a pointer, where no filter sees them: whoever
		// calls it falls back to clone.
		"clone3": returns(notThere),
		"socket": sockets(families, netlink), "socketpair": sockets(families, netlink),
		// The first process of its pid namespace is the keeper's, with its user where the
		// agent is no root.
		"prlimit64": refusedIf(0, bpf.JumpEqual, 1),
		"ioctl":     noProjects(),
		// Huge pages that the machine has set aside are no cgroup's that the agent makes, and
		// nothing gives a task any.
		"mmap":         refusedIf(3, bpf.JumpBitsSet, unix.MAP_HUGETLB),
		"shmget":       refusedIf(2, bpf.JumpBitsSet, shmHuge),
		"memfd_create": refusedIf(1, bpf.JumpBitsSet, unix.MFD_HUGETLB),
	} {
		if n, ok := native.SyscallNames[name]; ok {
			rules[uint32(n)] = v
		}
	}
	// All calls of another architecture, such as of 32-bit programs, go by other numbers.
	program := []bpf.Instruction{
		bpf.LoadAbsolute{Off: archOffset, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: uint32(native.ID), SkipTrue: 1},
		bpf.RetConstant{Val: uint32(notThere)},
		bpf.LoadAbsolute{Off: numberOffset, Size: 4},
	}
	tree, err := searchTree(rules)
	if err != nil {
		return nil, err
	}
	return encode(append(program, tree...))
}

func encode(program []bpf.Instruction) ([]byte, error) {
	raw, err := bpf.Assemble(program)
	if err != nil {
		return nil, fmt.Errorf("seccomp: %w", err)
	}
	var b []byte
	for _, i := range raw {
		b = binary.NativeEndian.AppendUint16(b, i.Op)
		b = append(b, i.Jt, i.Jf)
		b = binary.NativeEndian.AppendUint32(b, i.K)
	}
	return b, nil
}
