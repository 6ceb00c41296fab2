package host

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/musterhq/muster/schema"
)

// LimitAll bounds what all tasks use together, so that the agent, its keepers and
// the system keep their share: memory by a limit, processors by weight (what is
// idle may be used), processes by nine tenths of what the kernel can count. It
// does nothing where there are no cgroups. What tasks hold already is never
// taken from them: while they use more memory than total, the limit stays as it
// was and that is the error.
func (c *Cgroups) LimitAll(total schema.Resources) error {
	if c.groups == nil {
		return nil
	}
	return c.groups.limit(bounds{
		memory: total.RAMBytes, shares: max(total.CPUMilli*1024/1000, 2), processes: countable() * 9 / 10,
	})
}

// bounds are those of all tasks together; 0 is none.
type bounds struct {
	memory    int64 // bytes
	shares    int64 // 1024 for a core
	processes int64
}

// countable returns how many processes and threads the kernel can have, 0 if it
// does not say.
func countable() int64 {
	least := int64(0)
	for _, name := range []string{"pid_max", "threads-max"} {
		b, _ := os.ReadFile("/proc/sys/kernel/" + name)
		n, err := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64)
		if err == nil && (least == 0 || n < least) {
			least = n
		}
	}
	return least
}

// limit sets them in the group that holds the tasks.
func (g *unified) limit(b bounds) error {
	dir := g.dir("", "")
	// As the kernel's documentation converts shares into a weight.
	weight := 1 + (min(b.shares, 262144)-2)*9999/262142
	return errors.Join(
		limitMemory(filepath.Join(dir, "memory.max"), filepath.Join(dir, "memory.current"), b.memory),
		set(filepath.Join(dir, "cpu.weight"), weight), set(filepath.Join(dir, "pids.max"), b.processes),
	)
}

func (g *legacy) limit(b bounds) error {
	var errs []error
	for i, s := range g.subsystems {
		dir := g.parents[i]
		switch string(s.Name()) {
		case Memory:
			// Before Linux 5.11 a limit did not bound the groups below it.
			_ = set(filepath.Join(dir, "memory.use_hierarchy"), 1)
			errs = append(errs, limitMemory(filepath.Join(dir, "memory.limit_in_bytes"), filepath.Join(dir, "memory.usage_in_bytes"), b.memory))
		case cpuController:
			errs = append(errs, set(filepath.Join(dir, "cpu.shares"), b.shares))
		case Processes:
			errs = append(errs, set(filepath.Join(dir, "pids.max"), b.processes))
		}
	}
	return errors.Join(errs...)
}

// limitMemory sets a limit on memory, unless more is in use: the kernel would
// kill for it.
func limitMemory(limit, usage string, bytes int64) error {
	b, err := os.ReadFile(usage)
	if errors.Is(err, os.ErrNotExist) {
		return nil // no such controller
	}
	used, _ := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64)
	if bytes > 0 && used >= bytes {
		return fmt.Errorf("tasks use %d bytes of memory, and %d are left for them: their memory is not limited together", used, bytes)
	}
	return set(limit, bytes)
}

// set writes a number to a file of a cgroup, if there is such a file.
func set(name string, n int64) error {
	if n == 0 {
		return nil
	}
	f, err := os.OpenFile(name, os.O_WRONLY, 0)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	_, err = f.WriteString(strconv.FormatInt(n, 10))
	return errors.Join(err, f.Close())
}
