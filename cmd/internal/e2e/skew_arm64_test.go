package e2e_test

import "syscall"

// stackOf returns where the stack of a traced process ends.
func stackOf(pid int) (uintptr, error) {
	var r syscall.PtraceRegs
	err := syscall.PtraceGetRegs(pid, &r)
	return uintptr(r.Sp), err
}
