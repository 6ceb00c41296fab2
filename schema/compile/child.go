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

	"github.com/musterhq/muster/schema/compile/stage"
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
	base, err := startSpace()
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
func bounded(req request, base space) (response, error) {
	start, err := cpuTime()
	if err != nil {
		return response{}, err
	}
	if err := setLimits(req.most(), start, base); err != nil {
		return response{}, err
	}
	before := allocated()
	req.Began = before
	req.stages = stage.New(usedNow, func() bool { return liveHeap() < uint64(req.Limits.HeapBytes)/2 }, stage.Usage{CPU: req.Limits.CPU, Allocs: uint64(req.Limits.AllocBytes)}, req.HeavyPart)
	stop := make(chan struct{})
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		watch(req, base, stop)
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
func setLimits(l Limits, used time.Duration, base space) error {
	debug.SetMaxStack(l.StackBytes)
	cpu := uint64((used + l.CPU + 2*time.Second) / time.Second)
	for _, r := range []struct {
		what  int
		value uint64
	}{
		{syscall.RLIMIT_CPU, cpu},
		{syscall.RLIMIT_AS, base.most(l)},
		{syscall.RLIMIT_CORE, 0},
		{syscall.RLIMIT_FSIZE, 0},
	} {
		if err := setLimit(r.what, r.value); err != nil {
			return err
		}
	}
	return nil
}

func setLimit(what int, value uint64) error {
	var now syscall.Rlimit
	if err := syscall.Getrlimit(what, &now); err != nil {
		return fmt.Errorf("read limit %d: %w", what, err)
	}
	now.Cur = min(value, now.Max)
	if err := syscall.Setrlimit(what, &now); err != nil {
		return fmt.Errorf("set limit %d: %w", what, err)
	}
	return nil
}

// space is the address space that the process has at its start, in bytes.
type space struct {
	all    uint64 // a race detector's shadow is far more than any limit
	beside uint64 // what of it is no memory of the runtime: reserved, and the program itself
}

// startSpace returns what the process has now.
func startSpace() (space, error) {
	b, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return space{}, fmt.Errorf("read address space: %w", err)
	}
	var pages uint64
	if _, err := fmt.Sscan(string(b), &pages); err != nil {
		return space{}, fmt.Errorf("read address space from %q: %w", b, err)
	}
	all := pages * uint64(os.Getpagesize())
	return space{all, all - min(all, mapped())}, nil
}

// arenas is what the runtime reserves beyond what it needs: parts of 64 MiB, aligned.
const arenas = 128 << 20

// most returns how much address space the process may have, given what it has now: with one more
// allocation that no limit allows it ends at once. Some functions of Go cannot be preempted, and the
// collector waits for them, and watch with it: so strconv.FormatFloat, while it writes as many digits as it
// was asked for. A limit of data would not do: the kernel does not count what replaces a reservation.
func (s space) most(l Limits) uint64 {
	return min(s.all+uint64(l.AddressBytes), s.beside+mapped()+uint64(l.HeapBytes+l.StackBytes)+arenas)
}

// watch ends the process when a limit is passed. It lets the heap grow with
// what is alive, so that garbage collection stays a small part of the work.
func watch(req request, base space, stop <-chan struct{}) {
	l, began := req.Limits, time.Now()
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	limit, had := int64(min(heapFloor, l.HeapBytes)), mapped()
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
			req.stages.Full(os.Stderr)
			die(exitMemory)
		}
		if time.Since(began) > l.Wall {
			die(exitWall)
		}
		switch cpu, allocs := req.stages.Exceeded(os.Stderr); {
		case allocs:
			die(exitAllocs)
		case cpu:
			die(exitCPU)
		}
		if live := int64(liveHeap()); live > limit/2 {
			limit = min(2*live, max(int64(l.HeapBytes), live))
			debug.SetMemoryLimit(limit)
		}
		if now := mapped(); now != had {
			had = now
			_ = setLimit(syscall.RLIMIT_AS, base.most(l)) // it was set before
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

// usedNow returns what the process has used so far.
func usedNow() stage.Usage {
	cpu, err := cpuTime()
	if err != nil {
		cpu = 0 // the parent looks, too
	}
	return stage.Usage{CPU: cpu, Allocs: allocated()}
}

// heap returns the bytes of objects in the heap, dead ones included.
func heap() uint64 { return metric("/memory/classes/heap/objects:bytes") }

// mapped returns the bytes of all that the runtime has, used or not.
func mapped() uint64 { return metric("/memory/classes/total:bytes") }

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
