package compile_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// peakRSS returns the largest resident size that the kernel noted of a process,
// in bytes, and its parent; 0 if it is gone.
func peakRSS(status string) (peak int64, parent int) {
	b, err := os.ReadFile(status)
	if err != nil {
		return 0, 0
	}
	for line := range strings.Lines(string(b)) {
		_, _ = fmt.Sscanf(line, "VmHWM: %d kB", &peak) // another line
		_, _ = fmt.Sscanf(line, "PPid: %d", &parent)
	}
	return peak << 10, parent
}

// watchChildren samples the children of this process until the function that
// it returns is called, which gives the largest resident size of one.
func watchChildren(t testing.TB) (stop func() int64) {
	t.Helper()
	done, result := make(chan struct{}), make(chan int64)
	go func() {
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		var largest int64
		for {
			select {
			case <-done:
				result <- largest
				return
			case <-tick.C:
			}
			files, _ := filepath.Glob("/proc/[0-9]*/status") // the pattern is valid
			for _, f := range files {
				if peak, parent := peakRSS(f); parent == os.Getpid() {
					largest = max(largest, peak)
				}
			}
		}
	}()
	return func() int64 {
		close(done)
		return <-result
	}
}
