package thread_test

import (
	"errors"
	"runtime"
	"syscall"
	"testing"

	"github.com/musterhq/muster/schema/thread"
)

// TestRun: the function never has the first thread, though goroutines are on it from time to
// time: here it is the one that is given back last.
func TestRun(t *testing.T) {
	t.Parallel()
	want := errors.New("of f")
	first := 0
	for range 2000 {
		if err := thread.Run(func() error {
			if syscall.Gettid() == syscall.Getpid() {
				first++
			}
			return want
		}); !errors.Is(err, want) {
			t.Fatalf("error %v, want %v", err, want)
		}
	}
	if first > 0 {
		t.Errorf("%d of 2000 had the first thread of the process", first)
	}
	if err := thread.Run(func() error { runtime.Goexit(); return want }); err != nil {
		t.Errorf("error %v of a function that has ended its goroutine, want none", err)
	}
}
