package loop

import (
	"sync"
	"sync/atomic"
)

// parallel returns a function that makes calls from so many goroutines at a time, and returns
// when all have returned: placement.Snapshot.SetParallel says what for. It is nil for one.
func parallel(workers int) func(n int, do func(i int)) {
	if workers <= 1 {
		return nil
	}
	return func(n int, do func(i int)) {
		var next atomic.Int64
		work := func() {
			for i := next.Add(1); i <= int64(n); i = next.Add(1) {
				do(int(i - 1))
			}
		}
		var others sync.WaitGroup
		for range min(workers, n) - 1 {
			others.Go(work)
		}
		work()
		others.Wait()
	}
}
