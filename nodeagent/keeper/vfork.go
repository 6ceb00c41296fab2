//go:build amd64 || arm64

package keeper

import "unsafe"

// childStack is the size of the stack of a child that shares this process's memory, in bytes:
// what it calls takes much less.
const childStack = 4 << 10

// canShare says that a child can share this process's memory until its exec.
const canShare = true

// vfork makes a system call that is clone or clone3 with a stack, and returns in this process alone
// what that returns. The child calls goOn with e.
//
//go:noescape
func vfork(number, first, second uintptr, e unsafe.Pointer) (result uintptr)
