package host

import (
	"github.com/musterhq/muster/nodeagent"
	"github.com/musterhq/muster/schema"
	"github.com/opencontainers/runtime-spec/specs-go"
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

// FirstLimits returns the limits under which the task of a starts: without a
// quota, which can make the way to its command last for minutes. It gets that as
// soon as it runs.
func FirstLimits(a *schema.Assignment) nodeagent.TaskLimits {
	l := nodeagent.LimitsOf(a.Job)
	l.QuotaMilli = 0
	return l
}

// limits returns what a task may use at most, in the library's terms.
func limits(l nodeagent.TaskLimits) *specs.LinuxResources {
	return &specs.LinuxResources{Pids: pidsLimit(l), CPU: cpuLimits(l), Memory: memoryLimits(l)}
}
