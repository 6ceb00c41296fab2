package compile_test

import (
	"syscall"
	"testing"
)

// peakRSS returns the largest resident size of any child so far, in bytes.
func peakRSS(t testing.TB) int64 {
	t.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_CHILDREN, &u); err != nil {
		t.Fatal(err)
	}
	return u.Maxrss << 10
}
