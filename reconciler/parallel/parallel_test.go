package parallel_test

import (
	"sync/atomic"
	"testing"

	"github.com/musterhq/muster/reconciler/parallel"
)

// Each call is made once, and all have returned when Calls does.
func TestCalls(t *testing.T) {
	t.Parallel()
	if parallel.Calls(0) != nil || parallel.Calls(1) != nil {
		t.Fatal("one worker needs no goroutines")
	}
	for _, workers := range []int{2, 3, 40} {
		run := parallel.Calls(workers)
		for _, n := range []int{0, 1, 2, 100} {
			made := make([]atomic.Int32, n)
			run(n, func(i int) { made[i].Add(1) })
			for i := range made {
				if got := made[i].Load(); got != 1 {
					t.Errorf("%d workers, call %d of %d was made %d times", workers, i, n, got)
				}
			}
		}
	}
}
