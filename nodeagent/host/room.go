package host

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/musterhq/muster/schema"
	"golang.org/x/sys/unix"
)

// room measures the machine as a whole.
type room struct {
	stateDir string
	memory   []string // cgroups around the agent that limit memory, innermost first
	total    int64    // memory, as in the machine's capacity

	mu    sync.Mutex // guards what follows
	last  cpuTime
	rated int64 // at last
}

// cpuTime is how long the machine's processors were busy.
type cpuTime struct {
	at   time.Time
	busy time.Duration
}

// measure returns the machine's use and what is left, without tasks.
func (r *room) measure(now time.Time) (schema.MachineUsage, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	u := schema.MachineUsage{At: now, RAMTotal: r.total}
	info, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return u, fmt.Errorf("measure memory: %w", err)
	}
	if u.RAMAvailable, err = memAvailable(string(info)); err != nil {
		return u, fmt.Errorf("measure memory: %w", err)
	}
	for _, dir := range r.memory {
		if left, ok := leftIn(dir); ok {
			u.RAMAvailable = min(u.RAMAvailable, left)
		}
	}
	u.RAMAvailable = min(u.RAMAvailable, u.RAMTotal)
	var s unix.Statfs_t
	if err := unix.Statfs(r.stateDir, &s); err != nil {
		return u, fmt.Errorf("measure disk: %s: %w", r.stateDir, err)
	}
	u.DiskTotal, u.DiskFree = int64(s.Blocks-s.Bfree+s.Bavail)*s.Bsize, int64(s.Bavail)*s.Bsize
	u.InodesTotal, u.InodesFree = int64(s.Files), int64(s.Ffree) // no files at all: no such bound, as with btrfs
	stat, err := os.ReadFile("/proc/stat")
	if err != nil {
		return u, fmt.Errorf("measure processors: %w", err)
	}
	u.CPUMilli = r.rate(cpuTime{now, busyTime(string(stat))})
	return u, nil
}

// shortest is the least time over which a rate of the machine is taken: the kernel
// counts in ticks.
const shortest = 500 * time.Millisecond

// rate returns how busy the machine was since the last look, in thousandths of a
// core.
func (r *room) rate(now cpuTime) int64 {
	if took := now.at.Sub(r.last.at); r.last.at.IsZero() || took >= shortest {
		if !r.last.at.IsZero() {
			r.rated = milli(now.busy-r.last.busy, took)
		}
		r.last = now
	}
	return r.rated
}

// leftIn returns what is left of the memory limit of a cgroup, counting what the
// kernel would take back as left; false if it has no limit.
func leftIn(dir string) (int64, bool) {
	for _, names := range [][2]string{{"memory.max", "memory.current"}, {"memory.limit_in_bytes", "memory.usage_in_bytes"}} {
		b, err := os.ReadFile(filepath.Join(dir, names[0]))
		limit, e := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64)
		if err != nil || e != nil || limit >= noLimit {
			continue
		}
		b, err = os.ReadFile(filepath.Join(dir, names[1]))
		if err != nil {
			continue
		}
		c := counters{ram: number(b)}
		if b, err = os.ReadFile(filepath.Join(dir, "memory.stat")); err == nil {
			readMemoryStat(&c, b)
		}
		return max(0, limit-c.ram), true
	}
	return 0, false
}

// noLimit is below what v1 says where there is no limit, which depends on the
// page size, and above any memory.
const noLimit = 1 << 60

// memAvailable takes what the kernel holds for available without swapping from
// /proc/meminfo, in bytes.
func memAvailable(meminfo string) (int64, error) {
	for line := range strings.Lines(meminfo) {
		if f := strings.Fields(line); len(f) == 3 && f[0] == "MemAvailable:" {
			n, err := strconv.ParseInt(f[1], 10, 64)
			return n << 10, err
		}
	}
	return 0, fmt.Errorf("/proc/meminfo: no MemAvailable")
}

// busyTime adds up the first line of /proc/stat without idle and iowait; guest
// time is in user time already.
func busyTime(stat string) time.Duration {
	line, _, _ := strings.Cut(stat, "\n")
	var busy int64
	for i, f := range strings.Fields(line) {
		if n, err := strconv.ParseInt(f, 10, 64); err == nil && i >= 1 && i <= 8 && i != 4 && i != 5 {
			busy += n
		}
	}
	return time.Duration(busy) * clockTick
}
