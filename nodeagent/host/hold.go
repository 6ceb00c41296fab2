package host

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/musterhq/muster/nodeagent"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// Limit sets limits on the running task whose incarnation is in dir, in place of
// those that it has. What cannot be set now leaves the old limit in force, and the
// error says why; what it returns is in force. group is the name of its cgroup.
func (h *Host) Limit(group, dir string, has, l nodeagent.TaskLimits) (nodeagent.TaskLimits, error) {
	now, c := l, h.cgroups
	var errs []error
	if err := c.cores.change(group, l.Cores); err != nil {
		now.Cores = has.Cores
		errs = append(errs, fmt.Errorf("it keeps the cores that it has: it wants %w", err))
	}
	if err := h.holdDisk(dir, l.DiskBytes); err != nil {
		now.DiskBytes = has.DiskBytes
		errs = append(errs, fmt.Errorf("it keeps its old limit of disk: %w", err))
	}
	if err := c.groups.update(group, &specs.LinuxResources{CPU: cpuLimits(l)}); err != nil {
		now.CPUMilli, now.QuotaMilli, now.Class = has.CPUMilli, has.QuotaMilli, has.Class
		errs = append(errs, fmt.Errorf("it keeps its old limit of CPU: %w", err))
	}
	if err := c.groups.update(group, &specs.LinuxResources{Memory: memoryLimits(l)}); err != nil {
		now.RAMBytes, now.SoftRAMBytes = has.RAMBytes, has.SoftRAMBytes
		if errors.Is(err, unix.EBUSY) {
			err = fmt.Errorf("it uses more than %d bytes", l.RAMBytes)
		}
		errs = append(errs, fmt.Errorf("it keeps its old limit of memory: %w", err))
	}
	if err := c.groups.update(group, &specs.LinuxResources{Pids: pidsLimit(l)}); err != nil {
		now.Processes = has.Processes
		errs = append(errs, fmt.Errorf("it keeps its old limit of processes: %w", err))
	}
	if err := c.groups.share(group, c.disk, l); err != nil && (l.IOBytes > 0 || !errors.Is(err, unix.ENODEV)) { // ENODEV: a disk that knows no bounds
		now.IOBytes = has.IOBytes
		errs = append(errs, fmt.Errorf("it keeps its old bound on the disk: %w", err))
	}
	return now, errors.Join(errs...)
}

// holdDisk holds the directories of the incarnation in dir to another limit.
func (h *Host) holdDisk(dir string, bytes int64) error {
	generation := filepath.Dir(dir)
	if h.quotas == nil {
		return nil
	}
	dirs := []string{generation}
	if task, err := filepath.Rel(filepath.Join(h.cfg.Dir, "tasks"), filepath.Dir(generation)); err == nil {
		dirs = append(dirs, filepath.Join(h.cfg.Dir, "sticky", task))
	}
	var errs []error
	for _, dir := range written(dirs) {
		if err := h.quotas.hold(dir, bytes); err != nil && !errors.Is(err, os.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// BeyondQuota reports whether the cause of an error is the limit of a task's own: the
// machine's disk has room.
func (h *Host) BeyondQuota(err error) bool {
	return h.quotas != nil && errors.Is(err, unix.EDQUOT)
}
