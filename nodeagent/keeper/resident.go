package keeper

import (
	"os"
	"strconv"
	"strings"

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
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		return
	}
	for line := range strings.Lines(string(maps)) {
		// 00400000-00500000 r-xp 00000000 fe:00 1234 /path/of/program
		f := strings.Fields(line)
		if len(f) < 6 || f[5] != exe || f[1][1] == 'w' {
			continue
		}
		low, high, _ := strings.Cut(f[0], "-")
		from, err := strconv.ParseUint(low, 16, 64)
		if err != nil {
			continue
		}
		to, err := strconv.ParseUint(high, 16, 64)
		if err != nil {
			continue
		}
		_, _, _ = unix.RawSyscall(unix.SYS_MADVISE, uintptr(from), uintptr(to-from), unix.MADV_DONTNEED)
	}
}
