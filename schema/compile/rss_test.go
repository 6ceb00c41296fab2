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

// resident returns how much memory of a process is resident, in bytes, and its
// parent; 0 if it is gone.
func resident(status string) (size int64, parent int) {
	b, err := os.ReadFile(status)
	if err != nil {
		return 0, 0
	}
	for line := range strings.Lines(string(b)) {
		_, _ = fmt.Sscanf(line, "VmRSS: %d kB", &size) // another line
		_, _ = fmt.Sscanf(line, "PPid: %d", &parent)
	}
	return size << 10, parent
}

// watchChildren samples this process and its children until the function that
// it returns is called, which gives the largest resident size of one child, and
// the largest of all together.
func watchChildren(t testing.TB) (stop func() (child, all int64)) {
	t.Helper()
	type sizes struct{ child, all int64 }
	done, result := make(chan struct{}), make(chan sizes)
	go func() {
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		var most sizes
		for {
			select {
			case <-done:
				result <- most
				return
			case <-tick.C:
			}
			all, _ := resident("/proc/self/status")
			files, _ := filepath.Glob("/proc/[0-9]*/status") // the pattern is valid
			for _, f := range files {
				if size, parent := resident(f); parent == os.Getpid() {
					most.child = max(most.child, size)
					all += size
				}
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
