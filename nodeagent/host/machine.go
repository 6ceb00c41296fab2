package host

import (
	"fmt"
	"os"
	goruntime "runtime"
	"strconv"
	"strings"

	"github.com/musterhq/muster/schema"
	"golang.org/x/sys/unix"
)

// capacity returns what this machine has for tasks: the processors that the
// agent may use, the memory of the machine or of the agent's surroundings, and
// the file system of dir without what is reserved for root. memory is the limit
// of the surroundings, 0 for none.
func capacity(dir string, memory int64) (schema.Resources, error) {
	c := schema.Resources{CPUMilli: int64(goruntime.NumCPU()) * 1000}
	b, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return c, fmt.Errorf("capacity: %w", err)
	}
	if c.RAMBytes, err = memTotal(string(b)); err != nil {
		return c, fmt.Errorf("capacity: %w", err)
	}
	if memory > 0 {
		c.RAMBytes = min(c.RAMBytes, memory)
	}
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil {
		return c, fmt.Errorf("capacity: %s: %w", dir, err)
	}
	c.DiskBytes = int64(s.Blocks-s.Bfree+s.Bavail) * s.Bsize
	return c, nil
}

// memTotal takes the machine's memory in bytes from /proc/meminfo.
func memTotal(meminfo string) (int64, error) {
	for line := range strings.Lines(meminfo) {
		if f := strings.Fields(line); len(f) == 3 && f[0] == "MemTotal:" {
			n, err := strconv.ParseInt(f[1], 10, 64)
			return n << 10, err
		}
	}
	return 0, fmt.Errorf("/proc/meminfo: no MemTotal")
}
