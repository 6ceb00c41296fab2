package compile

import (
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// A child keeps its own limits, as long as it can: while a function runs that Go cannot preempt, the
// collector waits for it, and all else in the child for the collector. So the parent looks, too. It
// allows a little more, so that a child which can decides itself.
const (
	overseeEvery = 50 * time.Millisecond
	overseeSlack = 250 * time.Millisecond // of processor time
)

// oversee kills the child when it has used more than limits allow since now, until it is
// released.
func (w *worker) oversee(l Limits) (release func()) {
	pid := w.cmd.Process.Pid
	start, err := cpuOf(pid)
	if err != nil {
		return func() {} // it has ended
	}
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		tick := time.NewTicker(overseeEvery)
		defer tick.Stop()
		for {
			select {
			case <-stop:
				return
			case <-tick.C:
			}
			if code := exceeded(pid, start, l); code != 0 {
				w.over.Store(code)
				_ = w.cmd.Process.Kill()
				return
			}
		}
	}()
	return func() {
		close(stop)
		<-stopped
	}
}

// exceeded returns the exit code of the limit that a child is beyond which had used start before;
// 0 if it is beyond none, or has ended.
func exceeded(pid int, start time.Duration, l Limits) int32 {
	if used, err := cpuOf(pid); err == nil && used-start > l.CPU+overseeSlack {
		return exitCPU
	}
	if resident, err := residentOf(pid); err == nil && resident > l.HeapBytes*3/2+2*l.StackBytes {
		return exitMemory
	}
	return 0
}

// cpuOf returns the processor time that a process has used.
func cpuOf(pid int) (time.Duration, error) {
	const ofProcess = 2 // what clock_getcpuclockid(3) makes of a process: all its threads, as scheduled
	var t unix.Timespec
	if err := unix.ClockGettime(int32(^pid<<3|ofProcess), &t); err != nil { //nolint:gosec // a process id is small
		return 0, fmt.Errorf("read processor time of %d: %w", pid, err)
	}
	return time.Duration(t.Nano()), nil
}

// residentOf returns how many bytes of memory a process has.
func residentOf(pid int) (int, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if err != nil {
		return 0, fmt.Errorf("read memory of %d: %w", pid, err)
	}
	var size, resident int
	if _, err := fmt.Sscan(string(b), &size, &resident); err != nil {
		return 0, fmt.Errorf("read memory of %d from %q: %w", pid, b, err)
	}
	return resident * os.Getpagesize(), nil
}
