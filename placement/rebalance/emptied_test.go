package rebalance_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/musterhq/muster/placement"
	"github.com/musterhq/muster/placement/rebalance"
	"github.com/musterhq/muster/schema"
)

// empty moves tasks so that machines are empty, as the controller does within a pass, and no more
// than a cell moves within an hour.
func (x *aged) empty(now time.Duration) {
	const perHour, again = schema.DefaultMovesPerHour, agedDay
	search := x.search(now, time.Hour)
	may := search.May
	search.Moves, search.Checks = 3, 0
	search.May = func(t *placement.Task, before []rebalance.Move) (placement.Ask, bool) {
		g := x.running[t.Name]
		ask, ok := may(t, before)
		return ask, ok && (g.moved == 0 || now-g.moved >= again)
	}
	counts := func(schema.JobName) bool { return true }
	for n := 0; n < perHour; {
		list, _, _ := search.Empty(rebalance.Emptying{Below: x.below, Counts: counts}, 0)
		if len(list) == 0 {
			return
		}
		for _, e := range list {
			for _, m := range e.Moves {
				x.move(m, now)
				n++
			}
		}
	}
}

// idle returns how many machines have no task.
func (x *aged) idle() (n int) {
	for _, m := range x.machines {
		if len(placement.TasksOn(x.snapshot, m.Name)) == 0 {
			n++
		}
	}
	return n
}

// emptyBegin and emptyTight are placement.Weights.Begin and Tight of a cell that empties machines, as
// reconciler/control/snapshot has them.
const (
	emptyBegin = 0.15
	emptyTight = 0.05
)

// BenchmarkEmptied runs a cell of which little is used for long: how many machines are empty in
// the second half, in the mean, how many tasks were moved a day, of all that run, and how long
// large tasks waited.
func BenchmarkEmptied(b *testing.B) {
	for _, f := range forms[1:3] {
		for _, load := range []float64{0.3, 0.5} {
			for _, below := range []float64{0, 0.2, 0.4} {
				b.Run(fmt.Sprintf("%s/load=%v/below=%v", f.name, load, below), func(b *testing.B) {
					for b.Loop() {
						measureEmptied(b, f, load, below)
					}
				})
			}
		}
	}
}

func measureEmptied(b *testing.B, f form, load, below float64) {
	const machines = 60
	var idle, moved, wait []float64
	for seed := range uint64(agedSeeds) {
		x := newAged(f, agedSeed+seed, machines)
		if x.below = below; below > 0 {
			w := placement.DefaultWeights()
			w.Begin, w.Tight = emptyBegin, emptyTight
			x.snapshot.Configure(placement.Options{Weights: &w})
		}
		passes := f.days * int(agedDay/f.pass)
		ran, empty := 0.0, 0.0
		for n := range passes {
			if x.pass(n, load, true); 2*n <= passes {
				x.moves = 0
				continue
			}
			empty += float64(x.idle())
			ran += float64(len(x.running))
		}
		half := float64(passes) / 2
		idle = append(idle, empty/half)
		moved = append(moved, 100*float64(x.moves)/(float64(f.days)/2)/(ran/half))
		wait = append(wait, x.waited.Seconds()/float64(max(x.larges, 1)))
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(mean(idle), "empty-of-60")
	b.ReportMetric(mean(moved), "moved-%/day")
	b.ReportMetric(mean(wait), "large-wait-s")
}
