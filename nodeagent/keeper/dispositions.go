package keeper

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// signals is how many there are (signal(7)).
const signals = 64

// sigaction is the kernel's, of which only the handler is looked at: what follows
// differs between architectures, and is no longer than this anywhere.
type sigaction struct {
	handler uintptr
	_       [4]uint64
}

// The handlers that are none (signal(7)).
const (
	sigDefault = 0
	sigIgnored = 1
)

// unignoreSignals gives each signal that is ignored its default disposition: what is
// ignored stays so across execve(2), and whoever started the agent may ignore some,
// as nohup does, or a shell's background, or make by the C library's posix_spawn.
func unignoreSignals() { setDefault(func(handler uintptr) bool { return handler == sigIgnored }) }

// defaultSignals gives each signal its default disposition, whatever the Go runtime does
// with it. To the first process of a pid namespace the kernel then delivers none that comes
// from within, and none wakes it: what it does takes none of the task's share.
func defaultSignals() { setDefault(func(uintptr) bool { return true }) }

func setDefault(which func(handler uintptr) bool) {
	for n := uintptr(1); n <= signals; n++ {
		var is sigaction
		const setSize = signals / 8
		if _, _, errno := syscall.RawSyscall6(unix.SYS_RT_SIGACTION, n, 0, uintptr(unsafe.Pointer(&is)), setSize, 0, 0); errno != 0 || !which(is.handler) {
			continue
		}
		is.handler = sigDefault
		_, _, _ = syscall.RawSyscall6(unix.SYS_RT_SIGACTION, n, uintptr(unsafe.Pointer(&is)), 0, setSize, 0, 0) // but for those that nobody can
	}
}
