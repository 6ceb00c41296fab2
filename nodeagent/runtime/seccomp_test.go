package runtime_test

import (
	"encoding/binary"
	goruntime "runtime"
	"testing"

	"github.com/elastic/go-seccomp-bpf/arch"
	"github.com/musterhq/muster/nodeagent/runtime"
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// What a filter can answer (linux/seccomp.h).
const (
	allow   = 0x7fff0000
	refuse  = 0x00050000 | int(unix.EPERM)
	absent  = 0x00050000 | int(unix.ENOSYS)
	noKind  = 0x00050000 | int(unix.EAFNOSUPPORT)
	noProto = 0x00050000 | int(unix.EPROTONOSUPPORT)
)

func decode(filter []byte) (program []bpf.Instruction) {
	for b := filter; len(b) > 0; b = b[8:] {
		raw := bpf.RawInstruction{Op: binary.NativeEndian.Uint16(b), Jt: b[2], Jf: b[3], K: binary.NativeEndian.Uint32(b[4:])}
		program = append(program, raw.Disassemble())
	}
	return program
}

// answer runs a filter on a system call.
func answer(t *testing.T, filter []byte, id arch.AuditArch, call int, args ...uint64) int {
	t.Helper()
	vm, err := bpf.NewVM(decode(filter))
	if err != nil {
		t.Fatal(err)
	}
	// struct seccomp_data, in the byte order of packets, which the VM reads.
	data := binary.BigEndian.AppendUint32(nil, uint32(call))
	data = binary.BigEndian.AppendUint32(data, uint32(id))
	data = append(data, make([]byte, 8)...)
	for i := range 6 {
		arg := uint64(0)
		if i < len(args) {
			arg = args[i]
		}
		data = binary.BigEndian.AppendUint32(data, uint32(arg)) // the lower half is first where this is tested
		data = binary.BigEndian.AppendUint32(data, uint32(arg>>32))
	}
	got, err := vm.Run(data)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func TestFilter(t *testing.T) {
	t.Parallel()
	native, err := arch.GetInfo("")
	if err != nil {
		t.Skipf("NOT TESTED: seccomp on %s: %v", goruntime.GOARCH, err)
	}
	alone, err := runtime.Filter(true)
	if err != nil {
		t.Fatal(err)
	}
	shared, err := runtime.Filter(false)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		call          string
		args          []uint64
		alone, shared int
	}{
		{"read", nil, allow, allow},
		{"execve", nil, allow, allow},
		{"futex", nil, allow, allow},
		{"mount", nil, refuse, refuse},
		{"unshare", nil, refuse, refuse},
		{"mmap", []uint64{0, 4096, unix.PROT_READ, unix.MAP_PRIVATE | unix.MAP_ANON}, allow, allow},
		{"mmap", []uint64{0, 4096, unix.PROT_READ, unix.MAP_PRIVATE | unix.MAP_ANON | unix.MAP_HUGETLB}, refuse, refuse},
		{"shmget", []uint64{0, 4096, 0o600}, allow, allow},
		{"shmget", []uint64{0, 4096, 0o4600}, refuse, refuse},
		{"memfd_create", []uint64{0, unix.MFD_CLOEXEC}, allow, allow},
		{"memfd_create", []uint64{0, unix.MFD_CLOEXEC | unix.MFD_HUGETLB}, refuse, refuse},
		{"setns", nil, refuse, refuse},
		{"bpf", nil, refuse, refuse},
		{"keyctl", nil, refuse, refuse},
		{"kexec_load", nil, refuse, refuse},
		{"init_module", nil, refuse, refuse},
		{"open_by_handle_at", nil, refuse, refuse},
		{"perf_event_open", nil, refuse, refuse},
		{"reboot", nil, refuse, refuse},
		{"swapon", nil, refuse, refuse},
		{"io_uring_setup", nil, refuse, refuse},
		{"ptrace", nil, allow, refuse},
		{"process_vm_readv", nil, allow, refuse},
		{"socket", []uint64{unix.AF_UNIX}, allow, allow},
		{"socket", []uint64{unix.AF_INET6, unix.SOCK_STREAM}, allow, allow},
		{"socket", []uint64{unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_ROUTE}, allow, allow},
		{"socket", []uint64{unix.AF_NETLINK, unix.SOCK_DGRAM, unix.NETLINK_SOCK_DIAG}, allow, allow},
		{"socket", []uint64{unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_USERSOCK}, noProto, noProto},
		{"socket", []uint64{unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_KOBJECT_UEVENT}, noProto, noProto},
		{"socket", []uint64{unix.AF_NETLINK, unix.SOCK_RAW, 1<<32 | unix.NETLINK_NETFILTER}, noProto, noProto},
		{"socket", []uint64{1<<32 | unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_GENERIC}, noProto, noProto},
		{"socket", []uint64{unix.AF_INET, unix.SOCK_RAW, 255}, allow, allow}, // which takes a capability
		{"prlimit64", []uint64{0, unix.RLIMIT_NOFILE}, allow, allow},
		{"prlimit64", []uint64{2, unix.RLIMIT_NOFILE}, allow, allow},
		{"prlimit64", []uint64{1, unix.RLIMIT_NOFILE}, refuse, refuse},
		{"prlimit64", []uint64{1<<32 | 1, unix.RLIMIT_NOFILE}, refuse, refuse},
		{"socket", []uint64{unix.AF_VSOCK, unix.SOCK_STREAM}, noKind, noKind},
		{"socket", []uint64{unix.AF_ALG}, noKind, noKind},
		{"socket", []uint64{unix.AF_UNSPEC}, noKind, noKind},
		{"socketpair", []uint64{unix.AF_UNIX}, allow, allow},
		{"socketpair", []uint64{unix.AF_TIPC}, noKind, noKind},
		{"clone3", nil, absent, absent},
		{"ioctl", []uint64{0, unix.TCGETS}, allow, allow},
		{"ioctl", []uint64{0, 0x801c581f}, allow, allow},           // FS_IOC_FSGETXATTR
		{"ioctl", []uint64{0, 0x401c5820}, refuse, refuse},         // FS_IOC_FSSETXATTR
		{"ioctl", []uint64{0, 1<<40 | 0x401c5820}, refuse, refuse}, // the kernel looks at half of it
		{"ioctl", []uint64{0, 0x40086602}, refuse, refuse},         // FS_IOC_SETFLAGS
		{"clone", []uint64{uint64(unix.SIGCHLD)}, allow, allow},
		{"clone", []uint64{unix.CLONE_VM | unix.CLONE_FS | unix.CLONE_FILES | unix.CLONE_SIGHAND | unix.CLONE_THREAD}, allow, allow},
		{"clone", []uint64{unix.CLONE_NEWUSER | uint64(unix.SIGCHLD)}, refuse, refuse},
		{"clone", []uint64{unix.CLONE_NEWNS}, refuse, refuse},
		{"clone", []uint64{unix.CLONE_NEWPID}, refuse, refuse},
		{"clone", []uint64{unix.CLONE_NEWNET | 1<<40}, refuse, refuse},
	} {
		number := native.SyscallNames[c.call]
		if got := answer(t, alone, native.ID, number, c.args...); got != c.alone {
			t.Errorf("%s(%#x): %#x, want %#x", c.call, c.args, got, c.alone)
		}
		if got := answer(t, shared, native.ID, number, c.args...); got != c.shared {
			t.Errorf("%s(%#x) without a pid namespace: %#x, want %#x", c.call, c.args, got, c.shared)
		}
	}
	if got := answer(t, alone, native.ID, 469); got != refuse {
		t.Errorf("file_setattr: %#x, want %#x", got, refuse)
	}
	// No way around it by the numbers of another architecture, or of x32.
	for _, other := range []*arch.Info{arch.I386, arch.ARM, arch.X86_64, arch.AARCH64} {
		if got := answer(t, alone, other.ID, other.SyscallNames["mount"]); other.ID != native.ID && got != absent {
			t.Errorf("mount of %s: %#x, want %#x", other.Name, got, absent)
		}
	}
	if native == arch.X86_64 {
		if got := answer(t, alone, native.ID, native.SyscallNames["mount"]|1<<30); got != absent {
			t.Errorf("mount of x32: %#x, want %#x", got, absent)
		}
	}
	// The kernel does this for each call that there is when a process takes the filter.
	if n := longest(decode(alone)); n > 20 {
		t.Errorf("a call may run through %d instructions of the filter", n)
	}
}

// TestFilterOfAllCalls: the search in the numbers finds what each has, and no other.
func TestFilterOfAllCalls(t *testing.T) {
	t.Parallel()
	native, err := arch.GetInfo("")
	if err != nil {
		t.Skipf("NOT TESTED: seccomp on %s: %v", goruntime.GOARCH, err)
	}
	filter, err := runtime.Filter(true)
	if err != nil {
		t.Fatal(err)
	}
	want := map[int]int{469: refuse, native.SyscallNames["clone3"]: absent, native.SyscallNames["socket"]: noKind, native.SyscallNames["socketpair"]: noKind}
	for _, name := range runtime.Denied {
		if n, ok := native.SyscallNames[name]; ok {
			want[n] = refuse
		}
	}
	numbers := []int{1<<30 - 1, 1 << 30, 1<<31 - 1, 1<<32 - 1}
	want[1<<30], want[1<<31-1], want[1<<32-1] = absent, absent, absent
	for n := range 1000 {
		numbers = append(numbers, n)
	}
	for _, n := range numbers {
		w, ok := want[n]
		if !ok {
			w = allow
		}
		if got := answer(t, filter, native.ID, n); got != w {
			t.Errorf("call %d (%s): %#x, want %#x", n, native.SyscallNumbers[n], got, w)
		}
	}
}

// longest returns how many instructions of a program may be run.
func longest(program []bpf.Instruction) int {
	if len(program) == 0 {
		return 0
	}
	if j, ok := program[0].(bpf.JumpIf); ok {
		return 1 + max(longest(program[1+j.SkipTrue:]), longest(program[1+j.SkipFalse:]))
	}
	if _, ok := program[0].(bpf.RetConstant); ok {
		return 1
	}
	return 1 + longest(program[1:])
}
