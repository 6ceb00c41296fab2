package keeper

import (
	"os"

	"golang.org/x/sys/unix"
)

// releaseProgramPages gives back the pages of the program file that the start has
// touched: most are never needed again, and a machine has thousands of keepers. A page
// that is needed comes back from the kernel's cache. Nothing depends on its success.
func releaseProgramPages() {
	exe, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return
	}
	list, err := mappings()
	if err != nil {
		return
	}
	for _, m := range list {
		if m.path == exe && m.access[1] != 'w' {
			_, _, _ = unix.RawSyscall(unix.SYS_MADVISE, m.from, m.to-m.from, unix.MADV_DONTNEED)
		}
	}
}
