package parallel

import (
	"sync"
	"sync/atomic"
)

// Calls returns a function that makes n calls, from so many goroutines at a time and in any
// order, and returns when all have returned. It is nil for one worker, or fewer: the cores
// make the calls themselves then, in order. It is safe for concurrent use.
func Calls(workers int) func(n int, do func(i int)) {
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
