package compile_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// resident returns how much memory of a process is resident, in bytes; 0 if it
// is gone.
func resident(pid string) int64 {
	b, err := os.ReadFile("/proc/" + pid + "/statm")
	if err != nil {
		return 0
	}
	var size, pages int64
	_, _ = fmt.Sscan(string(b), &size, &pages) // nothing of one that is ending
	return pages * int64(os.Getpagesize())
}

// children returns the processes that this one has started.
func children() (pids []string) {
	threads, _ := filepath.Glob("/proc/self/task/*/children") // the pattern is valid
	for _, name := range threads {
		if b, err := os.ReadFile(name); err == nil {
			pids = append(pids, strings.Fields(string(b))...)
		}
	}
	return pids
}

// watchChildren samples this process and its children until the function that
// it returns is called, which gives the largest resident size of one child, and
// the largest of all together.
func watchChildren(t testing.TB) (stop func() (child, all int64)) {
	t.Helper()
	type sizes struct{ child, all int64 }
	done, result := make(chan struct{}), make(chan sizes)
	go func() {
		tick := time.NewTicker(50 * time.Millisecond) // looking costs time, too
		defer tick.Stop()
		var most sizes
		for {
			select {
			case <-done:
				result <- most
				return
			case <-tick.C:
			}
			all := resident("self")
			for _, pid := range children() {
				size := resident(pid)
				most.child = max(most.child, size)
				all += size
			}
			most.all = max(most.all, all)
		}
	}()
	return func() (child, all int64) {
		close(done)
		s := <-result
		return s.child, s.all
	}
}

// meter measures what a benchmark's clock does not.
type meter struct {
	b     *testing.B
	start time.Duration
	stop  func() (child, all int64)
}

// used is the processor time of this process and of its children that ended.
func used() (sum time.Duration) {
	for _, who := range []int{syscall.RUSAGE_SELF, syscall.RUSAGE_CHILDREN} {
		var u syscall.Rusage
		if err := syscall.Getrusage(who, &u); err == nil {
			sum += time.Duration(u.Utime.Nano() + u.Stime.Nano())
		}
	}
	return sum
}

// startMeter starts one after what came before is collected.
func startMeter(b *testing.B) *meter {
	b.Helper()
	b.ResetTimer()
	return &meter{b: b, start: used(), stop: watchChildren(b)}
}

func (m *meter) report() {
	m.b.StopTimer()
	cpu := used() - m.start
	child, all := m.stop()
	m.b.ReportMetric(float64(cpu.Microseconds())/1000/float64(m.b.N), "cpu-ms/op")
	m.b.ReportMetric(float64(child>>20), "MiB-child")
	m.b.ReportMetric(float64(all>>20), "MiB-together")
}
