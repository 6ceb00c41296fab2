package runtime

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

// cpuModel takes the name of the first processor from /proc/cpuinfo, "" where
// the architecture has none.
func cpuModel(cpuinfo string) string {
	for line := range strings.Lines(cpuinfo) {
		if key, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(key) == "model name" {
			return strings.Join(strings.Fields(value), " ")
		}
	}
	return ""
}

// describe returns the machine's attributes.
func (r *Runtime) describe() map[string]string {
	a := map[string]string{"arch": goruntime.GOARCH, "os": goruntime.GOOS}
	var u unix.Utsname
	if unix.Uname(&u) == nil {
		a["kernel"] = unix.ByteSliceToString(u.Release[:])
		a["hostname"] = unix.ByteSliceToString(u.Nodename[:])
	}
	if b, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		if model := cpuModel(string(b)); model != "" {
			a["cpu.model"] = model
		}
	}
	a["isolation.users"] = strconv.FormatBool(r.users != nil)
	a["isolation.namespaces"] = strconv.FormatBool(r.isolation.namespaces)
	a["isolation.network"] = strconv.FormatBool(r.isolation.network)
	a["isolation.user"] = strconv.FormatBool(r.isolation.user)
	a["isolation.cgroups"] = r.can.kind
	for _, c := range []string{cpuController, memoryController, pidsController} {
		a["isolation."+c] = strconv.FormatBool(r.can.has[c])
	}
	return a
}
