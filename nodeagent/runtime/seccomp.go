package runtime

import (
	"encoding/binary"
	"fmt"

	"github.com/elastic/go-seccomp-bpf"
	"github.com/elastic/go-seccomp-bpf/arch"
	"github.com/musterhq/muster/nodeagent/host"
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
	"_sysctl", "sysfs", "uselib", "vm86", "vm86old", "ioperm", "iopl", "settimeofday", "stime", "clock_settime",
	"clock_settime64", "sethostname", "setdomainname", "vhangup",
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

// families are the kinds of socket that tasks can have: unix, the internet's and
// netlink, with which libraries ask for addresses. Of others the buffers are not
// counted as the task's, nor bounded (vsock), or they have faults more often than
// users (alg, tipc, can).
var families = []uint64{unix.AF_UNIX, unix.AF_INET, unix.AF_INET6, unix.AF_NETLINK}

// noFamily is what socket returns for a kind that the kernel has not.
const noFamily = seccomp.ActionErrno | seccomp.Action(unix.EAFNOSUPPORT)

// notThere is what a system call returns that the kernel has not.
const notThere = seccomp.ActionErrno | seccomp.Action(unix.ENOSYS)

// seccompFilter assembles the filter of tasks, in the keeper's form. alone says
// that a task has a pid namespace of its own.
func seccompFilter(alone bool) ([]byte, error) {
	native, err := arch.GetInfo("")
	if err != nil {
		return nil, fmt.Errorf("seccomp: %w", err)
	}
	names := denied
	if !alone {
		names = append(names[:len(names):len(names)], peeking...)
	}
	group := seccomp.SyscallGroup{
		Action:             seccomp.ActionErrno, // with EPERM
		NamesWithCondtions: []seccomp.NameWithConditions{{Name: "clone", Conditions: seccomp.ArgumentConditions{{Operation: seccomp.BitsSet, Value: newNamespaces}}}},
	}
	for _, name := range names {
		if _, ok := native.SyscallNames[name]; ok {
			group.Names = append(group.Names, name)
		}
	}
	policy := seccomp.Policy{DefaultAction: seccomp.ActionAllow, Syscalls: []seccomp.SyscallGroup{
		group,
		// Its flags are behind a pointer, where no filter sees them: whoever
		// calls it falls back to clone.
		{Action: notThere, Names: []string{"clone3"}},
		{Action: noFamily, NamesWithCondtions: []seccomp.NameWithConditions{
			{Name: "socket", Conditions: otherFamilies()}, {Name: "socketpair", Conditions: otherFamilies()},
		}},
	}}
	program, err := policy.Assemble()
	if err != nil {
		return nil, fmt.Errorf("seccomp: %w", err)
	}
	return encode(append(append(onlyNative(native), noProjects(native)...), program...))
}

// otherFamilies holds when the first argument is none of families.
func otherFamilies() seccomp.ArgumentConditions {
	var all seccomp.ArgumentConditions
	for _, f := range families {
		all = append(all, seccomp.Condition{Operation: seccomp.NotEqual, Value: f})
	}
	return all
}

// archOffset is where struct seccomp_data has the architecture of the call.
const archOffset = 4

// onlyNative goes before a program of which the library would allow all calls
// of another architecture, such as of 32-bit programs.
func onlyNative(native *arch.Info) []bpf.Instruction {
	return []bpf.Instruction{
		bpf.LoadAbsolute{Off: archOffset, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: uint32(native.ID), SkipTrue: 1},
		bpf.RetConstant{Val: uint32(notThere)},
	}
}

// Where struct seccomp_data has the number of the call, and the lower half of its
// second argument, by the byte order.
const (
	numberOffset = 0
	secondLow    = 16 + 8
)

// fileSetattr is the number of file_setattr, one for all architectures, which the
// library does not know yet.
const fileSetattr = 469

// noProjects keeps tasks from giving their files to another project, or to none, which
// every owner of a file may: it would be counted no more. The kernel looks at half of
// an ioctl's request only, which the library cannot.
func noProjects(native *arch.Info) []bpf.Instruction {
	second := uint32(secondLow)
	if binary.NativeEndian.Uint16([]byte{1, 0}) != 1 {
		second += 4
	}
	ioctl := uint32(native.SyscallNames["ioctl"])
	return []bpf.Instruction{
		bpf.LoadAbsolute{Off: numberOffset, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: fileSetattr, SkipTrue: 4},
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: ioctl, SkipTrue: 4},
		bpf.LoadAbsolute{Off: second, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: host.SetAttributes, SkipTrue: 1},
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: host.SetFlags, SkipTrue: 1},
		bpf.RetConstant{Val: uint32(seccomp.ActionErrno | seccomp.Action(unix.EPERM))},
	}
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
