package compile

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"syscall"
	"time"
)

// Exit codes of a child that ended itself because of a limit.
const (
	exitMemory = 90 + iota
	exitCPU
	exitWall
	exitOrphan
	exitAllocs
)

const (
	// heapFloor is the memory below which a child collects no garbage while it has a
	// package: most packages never reach it, collection is a third of their cost, and
	// once the answer is sent nearly nothing is alive.
	heapFloor = 96 << 20
	// heapRest is the heap above which it then collects.
	heapRest   = heapFloor / 2
	watchEvery = 5 * time.Millisecond
	// restAfter is how long a child has nothing to do when it gives memory back: a tree's
	// next package is there at once, and the next commit is seldom there within seconds.
	restAfter = 5 * time.Second
)

// Child is the whole life of a child process: it reads packages from in and
// answers on out, one at a time, until in ends. It bounds its own process, so
// it is for processes that do nothing else. It ends the process when a limit
// is reached or its parent is gone, and cannot reach a disk or a network.
func Child(in io.Reader, out io.Writer) error {
	debug.SetGCPercent(-1)
	debug.SetMemoryLimit(heapFloor)
	base, err := addressSpace()
	if err != nil {
		return err
	}
	confine()
	if err := writeFrame(out, protocol); err != nil {
		return fmt.Errorf("greet parent: %w", err)
	}
	requests := make(chan request)
	failed := make(chan error, 1)
	busy := make(chan struct{}, 1)
	go func() {
		for {
			req, err := readRequest(in)
			if err != nil {
				select {
				case busy <- struct{}{}: // idle: a regular end
					failed <- err
				default: // the parent is gone and evaluation cannot be cancelled
					die(exitOrphan)
				}
				return
			}
			busy <- struct{}{}
			requests <- req
		}
	}()
	alive := uint64(0)
	var rest <-chan time.Time
	for {
		select {
		case <-rest:
			rest = nil
			debug.FreeOSMemory()
		case err := <-failed:
			if errors.Is(err, io.EOF) {
				return nil
			}
			return fmt.Errorf("read request: %w", err)
		case req := <-requests:
			resp, err := bounded(req, base)
			if err != nil {
				return err
			}
			resp.Heap = alive
			if err := writeResponse(out, resp); err != nil {
				return fmt.Errorf("answer: %w", err)
			}
			<-busy
			alive, rest = collected(), time.After(restAfter)
		}
	}
}

// bounded evaluates a package under the limits it came with.
func bounded(req request, base uint64) (response, error) {
	start, err := cpuTime()
	if err != nil {
		return response{}, err
	}
	if err := setLimits(req.Limits, start, base); err != nil {
		return response{}, err
	}
	before := allocated()
	req.Began = before
	stop := make(chan struct{})
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		watch(req.Limits, start, before, stop)
	}()
	resp := evaluate(req)
	close(stop)
	<-ended
	end, err := cpuTime()
	resp.Used, resp.Allocs = end-start, int(allocated()-before)
	return resp, err
}

// collected collects garbage if there is much, now that nothing is evaluated, and returns how
// many bytes are alive, 0 if it did not look.
func collected() uint64 {
	if heap() <= heapRest {
		return 0
	}
	runtime.GC()
	return liveHeap()
}

// setLimits sets limits in the kernel: the last defence, behind watch.
func setLimits(l Limits, used time.Duration, base uint64) error {
	debug.SetMaxStack(l.StackBytes)
	cpu := uint64((used + l.CPU + 2*time.Second) / time.Second)
	for _, r := range []struct {
		what  int
		value uint64
	}{
		{syscall.RLIMIT_CPU, cpu},
		{syscall.RLIMIT_AS, base + uint64(l.AddressBytes)},
		{syscall.RLIMIT_CORE, 0},
		{syscall.RLIMIT_FSIZE, 0},
	} {
		var now syscall.Rlimit
		if err := syscall.Getrlimit(r.what, &now); err != nil {
			return fmt.Errorf("read limit %d: %w", r.what, err)
		}
		now.Cur = min(r.value, now.Max)
		if err := syscall.Setrlimit(r.what, &now); err != nil {
			return fmt.Errorf("set limit %d: %w", r.what, err)
		}
	}
	return nil
}

// addressSpace returns the bytes of address space that the process has. A race
// detector's shadow is far more than any limit.
func addressSpace() (uint64, error) {
	b, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0, fmt.Errorf("read address space: %w", err)
	}
	var pages uint64
	if _, err := fmt.Sscan(string(b), &pages); err != nil {
		return 0, fmt.Errorf("read address space from %q: %w", b, err)
	}
	return pages * uint64(os.Getpagesize()), nil
}

// watch ends the process when a limit is passed. It lets the heap grow with
// what is alive, so that garbage collection stays a small part of the work. Start and
// first are the processor time and the bytes that were used and allocated before.
func watch(l Limits, start time.Duration, first uint64, stop <-chan struct{}) {
	began := time.Now()
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	limit := int64(min(heapFloor, l.HeapBytes))
	debug.SetMemoryLimit(limit)
	for {
		select {
		case <-stop:
			return
		case <-tick.C:
		}
		// What is alive counts: how much is not yet collected depends on the load of
		// the machine. Beyond half more the collector has lost.
		if live := liveHeap(); live > uint64(l.HeapBytes) || heap() > uint64(l.HeapBytes)*3/2 {
			die(exitMemory)
		}
		if time.Since(began) > l.Wall {
			die(exitWall)
		}
		if allocated()-first > uint64(l.AllocBytes) {
			die(exitAllocs)
		}
		if used, err := cpuTime(); err == nil && used-start > l.CPU {
			die(exitCPU)
		}
		if live := int64(liveHeap()); live > limit/2 {
			limit = min(2*live, max(int64(l.HeapBytes), live))
			debug.SetMemoryLimit(limit)
		}
	}
}

// die ends the process at once: evaluation cannot be cancelled.
func die(code int) {
	os.Exit(code) // a child is a process of ours alone, and nothing else ends it
}

func cpuTime() (time.Duration, error) {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0, fmt.Errorf("read processor time: %w", err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()), nil
}

// heap returns the bytes of objects in the heap, dead ones included.
func heap() uint64 { return metric("/memory/classes/heap/objects:bytes") }

// allocated returns the bytes that the process has ever allocated.
func allocated() uint64 { return metric("/gc/heap/allocs:bytes") }

// liveHeap returns the bytes that the last collection found alive.
func liveHeap() uint64 { return metric("/gc/heap/live:bytes") }

func metric(name string) uint64 {
	s := []metrics.Sample{{Name: name}}
	metrics.Read(s)
	if s[0].Value.Kind() != metrics.KindUint64 {
		return 0
	}
	return s[0].Value.Uint64()
}
