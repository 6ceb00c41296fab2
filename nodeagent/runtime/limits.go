package runtime

import (
	"errors"
	"fmt"

	"github.com/musterhq/muster/nodeagent"
	"github.com/musterhq/muster/schema"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// smallest is the least memory limit that is set: below it not even the exec of
// the command would succeed.
const smallest = 4 << 20

// The kernel's bounds on what says how much CPU a cgroup gets.
const (
	coreShares  = 1024 // of a latency-sensitive task with the limit of one core
	leastShares = 2
	mostShares  = 1 << 18
	period      = 100_000   // microseconds of wall clock that a quota is of, by default
	longPeriod  = 1_000_000 // the longest
	leastQuota  = 1_000     // the least quota, in microseconds
)

// cpuLimits returns the limits on CPU in the library's terms.
func cpuLimits(l nodeagent.TaskLimits) *specs.LinuxCPU {
	shares := l.CPUMilli * coreShares / schema.CoreMilli
	if l.Class == schema.ClassBatch {
		shares = shares * nodeagent.BatchWeightPercent / 100
	}
	of := uint64(min(max(shares, leastShares), mostShares))
	every, quota := uint64(period), int64(-1)
	if l.QuotaMilli > 0 {
		if l.QuotaMilli*period/schema.CoreMilli < leastQuota {
			every = longPeriod
		}
		quota = max(l.QuotaMilli*int64(every)/schema.CoreMilli, leastQuota)
	}
	return &specs.LinuxCPU{Shares: &of, Period: &every, Quota: &quota}
}

// memoryLimits returns the limits on memory in the library's terms; nil for
// none.
func memoryLimits(l nodeagent.TaskLimits) *specs.LinuxMemory {
	if l.RAMBytes <= 0 {
		return nil
	}
	limit := max(l.RAMBytes, smallest)
	soft := limit
	if l.SoftRAMBytes > 0 {
		soft = max(l.SoftRAMBytes, smallest)
	}
	sockets := nodeagent.SocketRoom(limit)
	return &specs.LinuxMemory{Limit: &limit, Reservation: &soft, KernelTCP: &sockets}
}

// pidsLimit returns the limit on processes in the library's terms; nil for none.
func pidsLimit(l nodeagent.TaskLimits) *specs.LinuxPids {
	if l.Processes <= 0 {
		return nil
	}
	return &specs.LinuxPids{Limit: &l.Processes}
}

// Limit sets limits on the running task. What cannot be set now leaves the old
// limit in force, and the error says why; Incarnation says what is in force.
func (p *Process) Limit(l nodeagent.TaskLimits) error {
	if p.group == "" {
		return errors.New("there are no cgroups: no limits are enforced")
	}
	p.limiting.Lock()
	defer p.limiting.Unlock()
	select {
	case <-p.ended:
		return nil
	default:
	}
	was := p.Incarnation().Limits
	now := l
	var errs []error
	if err := p.runtime.cores.change(p.group, l.Cores); err != nil {
		now.Cores = was.Cores
		errs = append(errs, fmt.Errorf("it keeps the cores that it has: it wants %w", err))
	}
	if err := p.runtime.holdDisk(p.dir, l.DiskBytes); err != nil {
		now.DiskBytes = was.DiskBytes
		errs = append(errs, fmt.Errorf("it keeps its old limit of disk: %w", err))
	}
	g := p.runtime.groups
	if err := g.update(p.group, &specs.LinuxResources{CPU: cpuLimits(l)}); err != nil {
		now.CPUMilli, now.QuotaMilli, now.Class = was.CPUMilli, was.QuotaMilli, was.Class
		errs = append(errs, fmt.Errorf("it keeps its old limit of CPU: %w", err))
	}
	if err := g.update(p.group, &specs.LinuxResources{Memory: memoryLimits(l)}); err != nil {
		now.RAMBytes, now.SoftRAMBytes = was.RAMBytes, was.SoftRAMBytes
		if errors.Is(err, unix.EBUSY) {
			err = fmt.Errorf("it uses more than %d bytes", l.RAMBytes)
		}
		errs = append(errs, fmt.Errorf("it keeps its old limit of memory: %w", err))
	}
	if err := g.update(p.group, &specs.LinuxResources{Pids: pidsLimit(l)}); err != nil {
		now.Processes = was.Processes
		errs = append(errs, fmt.Errorf("it keeps its old limit of processes: %w", err))
	}
	if err := g.share(p.group, p.runtime.disk, l); err != nil && (l.IOBytes > 0 || !errors.Is(err, unix.ENODEV)) { // ENODEV: a disk that knows no bounds
		now.IOBytes = was.IOBytes
		errs = append(errs, fmt.Errorf("it keeps its old bound on the disk: %w", err))
	}
	p.mu.Lock()
	p.inc.Limits = now
	p.mu.Unlock()
	return errors.Join(errs...)
}
