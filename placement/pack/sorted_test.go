package pack

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"testing"

	"github.com/musterhq/muster/placement"
)

// arrivals is work that arrives one by one in an order, for a cell.
type arrivals struct {
	nodes []Node
	tasks []Task
	gpus  GPUs
	// atOnce is how many asks a pass decides; 0 means all, whose order counts as if they
	// came one by one.
	atOnce int
	mean   amounts // of the machines
}

func newArrivals(nodes []Node, tasks []Task, gpus GPUs, atOnce int) *arrivals {
	a := &arrivals{nodes: nodes, tasks: tasks, gpus: gpus, atOnce: atOnce}
	for i := range nodes {
		for d, v := range nodes[i].amounts(gpus) {
			a.mean[d] += v / float64(len(nodes))
		}
	}
	return a
}

// shares returns what a task asks of a mean machine.
func (a *arrivals) shares(t *Task) (out amounts) {
	for d, v := range t.amounts(a.gpus) {
		if a.mean[d] > 0 {
			out[d] = v / a.mean[d]
		}
	}
	return out
}

// order is by what tasks are sorted.
type order struct {
	name string
	of   func(share amounts) float64
}

// orders are by what tasks can be sorted. Each is measured in both directions.
var orders = []order{
	{"arrival", func(amounts) float64 { return 0 }},
	{"cpu", func(share amounts) float64 { return share[0] }},
	{"ram", func(share amounts) float64 { return share[1] }},
	{"gpu", func(share amounts) float64 { return share[2] }},
	{"largest-share", func(share amounts) float64 { return slices.Max(share[:]) }},
	{"all-shares", func(share amounts) float64 { return share[0] + share[1] + share[2] }},
	{"cpu-less-ram", func(share amounts) float64 { return share[0] - share[1] }},
	{"gpu-less-cpu", func(share amounts) float64 { return share[2] - share[0] }},
}

// sorted returns the tasks in an order, up or down; what is equal stays in order, or is
// turned around.
func (a *arrivals) sorted(of func(amounts) float64, down bool) []Task {
	out := slices.Clone(a.tasks)
	slices.SortStableFunc(out, func(x, y Task) int { return cmp.Compare(of(a.shares(&x)), of(a.shares(&y))) })
	if down {
		slices.Reverse(out)
	}
	return out
}

// least returns how few machines, of an order that the seed gives, hold tasks that arrive one
// by one; one more than there are if all are too few.
func (a *arrivals) least(tasks []Task, options placement.Options, seed uint64) int {
	work, all := asks(tasks, a.gpus), shuffled(machines(a.nodes, a.gpus), seed)
	pending := len(work) * pendingShare / 1000
	least, enough := 0, len(all)+1
	for enough-least > 1 {
		n := (least + enough) / 2
		if a.pack(all[:n], work, options, pending) {
			enough = n
		} else {
			least = n
		}
	}
	return enough
}

// pack reports whether machines hold asks, but for so many.
func (a *arrivals) pack(all []placement.Machine, work []placement.Ask, options placement.Options, pending int) bool {
	s := placement.NewSnapshot(all, nil)
	options.OneByOne = true
	s.Configure(options)
	for len(work) > 0 {
		now := work
		if a.atOnce > 0 {
			now = work[:min(a.atOnce, len(work))]
		}
		for _, d := range placement.Place(s, now, 0) {
			if d.Machine == "" {
				pending--
			}
		}
		if pending < 0 {
			return false
		}
		work = work[len(now):]
	}
	return true
}

// rules are the simple ones.
var rules = []placement.Policy{placement.BestFit, placement.DotProduct, placement.Cosine, placement.WorstFit}

// behind is by what factor the hybrid needs more machines than the best simple rule.
func (a *arrivals) behind(of func(amounts) float64, down bool, seed uint64) (ratio float64, line string) {
	tasks := a.sorted(of, down)
	hybrid := a.least(tasks, placement.Options{NoRelaxed: true}, seed)
	best := len(a.nodes) + 1
	for _, policy := range rules {
		n := a.least(tasks, placement.Options{Policy: policy, NoRelaxed: true}, seed)
		line += fmt.Sprintf(" %s %d", policy, n)
		best = min(best, n)
	}
	return float64(hybrid) / float64(best), fmt.Sprintf("hybrid %d%s", hybrid, line)
}

// measure measures all orders.
func (a *arrivals) measure(b *testing.B, seed uint64) {
	b.Helper()
	for b.Loop() {
		var worst, sum float64
		var which string
		for _, o := range orders {
			for _, down := range []bool{false, true} {
				ratio, line := a.behind(o.of, down, seed)
				if ratio > worst {
					worst, which = ratio, fmt.Sprintf("%s, down %t: %s", o.name, down, line)
				}
				sum += ratio
			}
		}
		b.Log(which)
		b.ReportMetric(worst, "worst")
		b.ReportMetric(sum/float64(2*len(orders)), "mean")
	}
}

// Where ever larger tasks arrive one by one, or ever smaller ones, the hybrid is not behind the
// best simple rule.
func TestSorted(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		trace string
		by    string
		down  bool
		part  int // of the trace
		seed  uint64
	}{{"drift", "ram", false, 4, 5}, {"drift", "ram", true, 4, 5}, {"independent", "cpu", false, 2, 12}, {"large", "arrival", true, 4, 5}} {
		s := synthetics[slices.IndexFunc(synthetics, func(s synthetic) bool { return s.name == c.trace })]
		s.nodes, s.tasks = s.nodes/c.part, s.tasks/c.part
		nodes, tasks := s.trace(c.seed)
		of := orders[slices.IndexFunc(orders, func(o order) bool { return o.name == c.by })].of
		if ratio, line := newArrivals(nodes, tasks, GPUDevices, 0).behind(of, c.down, 1); ratio > 1.03 {
			t.Errorf("%s, sorted by %s, down %t: %s", c.trace, c.by, c.down, line)
		}
	}
}

// half returns each second of a list, from the first or the second on.
func half[T any](list []T, from int) (out []T) {
	for i := from; i < len(list); i += 2 {
		out = append(out, list[i])
	}
	return out
}

// What the hybrid needs of machines where tasks arrive one by one, in 16 orders, as a multiple
// of what the best of the simple rules does.
func BenchmarkSorted(b *testing.B) {
	for _, atOnce := range []int{0, 32} {
		for i := range synthetics {
			for seed := range uint64(3) {
				b.Run(fmt.Sprintf("pass=%d/%s-%d", atOnce, synthetics[i].name, seed+1), func(b *testing.B) {
					s := synthetics[i]
					s.nodes, s.tasks, s.order = s.nodes/2, s.tasks/2, nil
					nodes, tasks := s.trace(11 + seed)
					newArrivals(nodes, tasks, GPUDevices, atOnce).measure(b, seed)
				})
			}
		}
		for _, gpus := range []GPUs{GPUIgnored, GPUScalar, GPUDevices} {
			for from := range 2 {
				b.Run(fmt.Sprintf("pass=%d/openb-%s-%d", atOnce, gpus, from+1), func(b *testing.B) {
					if *traces == "" {
						fmt.Fprintln(os.Stderr, "SKIPPED:", b.Name(), "needs the openb traces: set MUSTER_TRACES or -traces")
						b.SkipNow()
					}
					nodes, tasks := load(b, *traces, "openb_node_list_all_node.csv", "openb_pod_list_default.csv")
					if gpus != GPUIgnored { // else all have room
						tasks = ran(tasks)
					}
					newArrivals(half(nodes, from), half(tasks, from), gpus, atOnce).measure(b, uint64(from))
				})
			}
		}
	}
}
