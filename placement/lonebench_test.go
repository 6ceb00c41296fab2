package placement_test

import (
	"fmt"
	"testing"

	"github.com/musterhq/muster/placement"
	"github.com/musterhq/muster/schema"
)

// BenchmarkLoneAsk: one task that comes alone, of a class that is known or new, in a cell
// whose machines are used to six tenths, or most are full; and the first one after a machine was added, with
// that.
func BenchmarkLoneAsk(b *testing.B) {
	for _, machines := range []int{1000, 10_000, 100_000} {
		s := full(fleet(machines), 60)
		placement.Place(s, jobs(1000, 1000, 100), 1)
		next := 0
		lone := func() []placement.Ask {
			next++
			return []placement.Ask{{
				Name: schema.JobName{Cell: "c", User: "u", Job: fmt.Sprint("lone-", next)}.Task(0), Priority: 200,
				Limit: schema.Resources{CPUMilli: 6000, RAMBytes: 1<<28 + int64(next)},
			}}
		}
		measure := func(b *testing.B, before func()) {
			var busy int64
			for b.Loop() {
				b.StopTimer()
				a := lone()
				b.StartTimer()
				from := processor()
				before()
				if d := placement.Place(s, a, 1)[0]; d.Machine == "" {
					b.Fatal("no room")
				}
				busy += (processor() - from).Nanoseconds()
			}
			b.ReportMetric(float64(busy)/1000/float64(b.N), "cpu-µs/task")
		}
		b.Run(fmt.Sprintf("steady/machines=%d", machines), func(b *testing.B) { measure(b, func() {}) })
		// The machines at which a search begins are full, as those of a cell that placement has filled.
		s = full(fleet(machines), 60)
		filler := distinct(machines * 9 / 10)
		for i := range filler {
			filler[i].Limit = schema.Resources{CPUMilli: 6300, RAMBytes: 1 << 30}
			filler[i].Spread = placement.NoSpread
		}
		placement.Place(s, filler, 1)
		placement.Place(s, lone(), 1)
		b.Run(fmt.Sprintf("filled/machines=%d", machines), func(b *testing.B) { measure(b, func() {}) })
		added := 0
		b.Run(fmt.Sprintf("machine-added/machines=%d", machines), func(b *testing.B) {
			measure(b, func() {
				m := fleet(1)[0]
				m.Name = fmt.Sprint("added-", added)
				added++
				s.SetMachine(m)
			})
		})
	}
}
