package placement_test

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/musterhq/muster/placement"
)

// workers makes calls from so many goroutines at a time, and adds up in inside how long those
// take that wait for them.
func workers(n int, inside *time.Duration) func(int, func(int)) {
	return func(calls int, do func(int)) {
		start := time.Now()
		var next atomic.Int64
		work := func() {
			for i := int(next.Add(1)) - 1; i < calls; i = int(next.Add(1)) - 1 {
				do(i)
			}
		}
		var all sync.WaitGroup
		for range n - 1 {
			all.Go(work)
		}
		work()
		all.Wait()
		*inside += time.Since(start)
	}
}

// BenchmarkWorkers: a pass without workers and with them: the share of its time that workers
// do, and of the machines that they looked at those that were looked at again.
func BenchmarkWorkers(b *testing.B) {
	pending := func() []placement.Ask {
		asks := jobs(1000, 1000, 100)
		for i := range asks { // too large for what is left anywhere
			asks[i].Limit.CPUMilli, asks[i].Priority = 6000+int64(i), 110
		}
		return asks
	}
	for _, c := range []struct {
		name string
		cell func() *placement.Snapshot
		asks []placement.Ask
	}{
		{"distinct", func() *placement.Snapshot { return placement.NewSnapshot(fleet(10_000), nil) }, distinct(20_000)},
		{"pending", func() *placement.Snapshot { return full(fleet(10_000), 95) }, pending()},
	} {
		for _, n := range []int{0, 1, 2, 4} {
			b.Run(fmt.Sprintf("%s/workers=%d", c.name, n), func(b *testing.B) {
				var inside, total, busy time.Duration
				var looked, again int
				for b.Loop() {
					b.StopTimer()
					s := c.cell()
					if n > 0 {
						s.SetParallel(workers(n, &inside))
					}
					b.StartTimer()
					start, cpu := time.Now(), processor()
					placement.Place(s, c.asks, 1)
					total, busy = total+time.Since(start), busy+processor()-cpu
					looked, again = s.LookedAhead()
				}
				b.ReportMetric(float64(len(c.asks)*b.N)/total.Seconds(), "asks/s")
				b.ReportMetric(float64(len(c.asks)*b.N)/busy.Seconds(), "asks/cpu-s")
				b.ReportMetric(100*inside.Seconds()/total.Seconds(), "%inside")
				b.ReportMetric(100*float64(again)/float64(max(looked, 1)), "%again")
			})
		}
	}
}
