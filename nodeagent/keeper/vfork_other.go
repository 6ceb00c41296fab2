//go:build !amd64 && !arm64

package keeper

import (
	"syscall"
	"unsafe"
)

const (
	childStack = 0
	canShare   = false
)

func vfork(uintptr, uintptr, uintptr, unsafe.Pointer) uintptr {
	failed := uintptr(syscall.ENOSYS)
	return -failed
}
