package nodeagent

import (
	"time"

	"github.com/musterhq/muster/schema"
)

// TaskLimits are what the machine holds an incarnation to.
type TaskLimits struct {
	Class schema.AppClass
	// CPUMilli is the task's part of processors that several want, in
	// thousandths of a core.
	CPUMilli int64
	// QuotaMilli is the most CPU that it gets even if all else is idle, in
	// thousandths of a core; 0 is no such bound.
	QuotaMilli int64
	// Cores is how many cores it has for itself; with 0 it runs on those that
	// nobody has for himself.
	Cores int
	// Processes is the most processes and threads that it has; 0 is no bound.
	Processes int64
	// RAMBytes is the most memory that it gets; 0 is no bound.
	RAMBytes int64
	// IOBytes is the most that it reads, and the most that it writes, on the disk of
	// the state directory in a second; 0 is no bound.
	IOBytes int64
	// SoftRAMBytes is to how much memory it is pushed back when memory is
	// short; 0 is RAMBytes.
	SoftRAMBytes int64
	// DiskBytes is to how much its directories are held where the file system can; 0
	// is no bound.
	DiskBytes int64
}

// LimitsOf returns the limits of a job's task on a machine of which nothing is
// known: without what it may use beyond them.
func LimitsOf(job *schema.Job) TaskLimits {
	ask := &job.Task.Resources
	l := TaskLimits{Class: job.Class(), CPUMilli: ask.CPUMilli, RAMBytes: ask.RAMBytes, DiskBytes: ask.DiskBytes}
	if ask.WholeCores {
		l.Cores = int(ask.CPUMilli / schema.CoreMilli)
	}
	if job.Kind != schema.Allocs { // the tasks inside have their own
		l.Processes = job.Task.Bounds().Processes
	}
	exceeds := job.Task.Exceeds()
	if !exceeds.CPU {
		l.QuotaMilli = ask.CPUMilli
	}
	if exceeds.RAM {
		l.SoftRAMBytes = ask.RAMBytes
	}
	return l
}

// SocketRoom returns how much the buffers of a task's sockets hold at most where the
// kernel does not count them as its memory (cgroup v1): a quarter of its limit of
// memory beside that, in bytes.
func SocketRoom(ramBytes int64) int64 { return ramBytes / 4 }

// LimitAgain is the time between two attempts at limits that could not be set:
// a task that uses too much for its new limit may use less by then.
const LimitAgain = 10 * time.Second

// slackUnit rounds what tasks get above their limit of memory, so that it does
// not change for nothing.
const slackUnit = 16 << 20

// slack returns how much memory each task that may exceed its limit gets above
// it: an equal part of what the machine has and no limit of a task promises.
func slack(capacity int64, items []item) int64 {
	left, sharers := capacity, int64(0)
	for _, it := range items {
		if it.held == nil || !it.held.Alive() {
			continue
		}
		task := &it.job().Task
		left -= task.Resources.RAMBytes
		if task.Exceeds().RAM {
			sharers++
		}
	}
	if left <= 0 || sharers == 0 {
		return 0
	}
	return left / sharers / slackUnit * slackUnit
}

// limits returns the limits that a running incarnation of it shall have now; slack is
// what it gets above that of its memory if it may exceed it.
func (it item) limits(slack int64) TaskLimits {
	want := LimitsOf(it.job())
	if want.SoftRAMBytes > 0 {
		want.RAMBytes += slack
	}
	if t := it.held.Throttle; t > 0 && (want.QuotaMilli == 0 || t < want.QuotaMilli) {
		want.QuotaMilli = t
	}
	want.IOBytes = it.held.IOBound
	return want
}

// notes joins what is to be said of how an incarnation is held.
func (c *Incarnation) notes(throttle, io int64) string {
	note := joined(c.Note, c.LimitsNote)
	if throttle > 0 {
		note = joined(note, ThrottleNote)
	}
	if io > 0 {
		note = joined(note, IOThrottleNote)
	}
	return note
}

// joined joins two notes, of which either may be empty.
func joined(a, b string) string {
	if a != "" && b != "" {
		a += "; "
	}
	return a + b
}
