package pack

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/musterhq/muster/placement"
)

// synthetic is a trace made up by a rule, so that weights that only suit openb
// are found out.
type synthetic struct {
	name string
	// shapes of machines, dealt out in turn
	shapes []Node
	nodes  int
	tasks  int
	// task draws the k-th of n tasks.
	task func(r *rand.Rand, k, n int) Task
	// order of arrival; nil is the order of drawing
	order func(a, b Task) int
}

// small, medium and large machines without GPUs.
var plainShapes = []Node{{CPUMilli: 32_000, RAMMiB: 131_072}, {CPUMilli: 64_000, RAMMiB: 262_144}, {CPUMilli: 96_000, RAMMiB: 393_216}}

var gpuShapes = []Node{
	{CPUMilli: 64_000, RAMMiB: 262_144},
	{CPUMilli: 96_000, RAMMiB: 393_216, GPUs: 4, Model: "A10"},
	{CPUMilli: 128_000, RAMMiB: 786_432, GPUs: 8, Model: "A100"},
}

// logNormal draws around a median, with the deviation of its logarithm, and
// keeps to the bounds.
func logNormal(r *rand.Rand, median, sigma, least, most float64) int64 {
	return int64(min(max(median*math.Exp(sigma*r.NormFloat64()), least), most))
}

var synthetics = []synthetic{
	{
		name: "skewed", shapes: plainShapes[1:2], nodes: 300, tasks: 3000,
		// Half want CPU with little RAM, half RAM with little CPU.
		task: func(r *rand.Rand, _, _ int) Task {
			if r.IntN(2) == 0 {
				return Task{CPUMilli: logNormal(r, 6000, 0.5, 500, 32_000), RAMMiB: logNormal(r, 2048, 0.5, 128, 16_384)}
			}
			return Task{CPUMilli: logNormal(r, 500, 0.5, 100, 4000), RAMMiB: logNormal(r, 24_576, 0.5, 1024, 131_072)}
		},
	},
	{
		name: "drift", shapes: plainShapes, nodes: 300, tasks: 3000,
		// First come those that want CPU, then those that want RAM.
		task: func(r *rand.Rand, k, n int) Task {
			if r.IntN(n) > k {
				return Task{CPUMilli: logNormal(r, 6000, 0.7, 500, 32_000), RAMMiB: logNormal(r, 4096, 0.7, 128, 32_768)}
			}
			return Task{CPUMilli: logNormal(r, 800, 0.7, 100, 8000), RAMMiB: logNormal(r, 24_576, 0.7, 1024, 131_072)}
		},
	},
	{
		name: "small", shapes: plainShapes[:2], nodes: 100, tasks: 6000,
		task: func(r *rand.Rand, _, _ int) Task {
			return Task{CPUMilli: logNormal(r, 400, 0.6, 50, 2000), RAMMiB: logNormal(r, 1200, 0.8, 64, 8192)}
		},
	},
	{
		name: "large", shapes: plainShapes, nodes: 500, tasks: 2000,
		// A tenth wants most of a machine, and arrives at any time.
		task: func(r *rand.Rand, _, _ int) Task {
			if r.IntN(10) == 0 {
				return Task{CPUMilli: 24_000 + r.Int64N(60)*1000, RAMMiB: 65_536 + r.Int64N(200_000)}
			}
			return Task{CPUMilli: logNormal(r, 3000, 0.8, 100, 16_000), RAMMiB: logNormal(r, 8192, 0.8, 256, 65_536)}
		},
	},
	{
		name: "large-last", shapes: plainShapes, nodes: 500, tasks: 2000,
		// The worst order: the largest find what the small ones left.
		task: func(r *rand.Rand, _, _ int) Task {
			return Task{CPUMilli: logNormal(r, 3000, 1.2, 100, 90_000), RAMMiB: logNormal(r, 8192, 1.2, 256, 380_000)}
		},
		order: func(a, b Task) int { return cmp.Compare(a.CPUMilli, b.CPUMilli) },
	},
	{
		name: "independent", shapes: plainShapes, nodes: 300, tasks: 3000,
		task: func(r *rand.Rand, _, _ int) Task {
			return Task{CPUMilli: logNormal(r, 2000, 1, 100, 30_000), RAMMiB: logNormal(r, 8192, 1, 128, 120_000)}
		},
	},
	{
		name: "gpu", nodes: 1200, tasks: 2000, shapes: gpuShapes,
		task: func(r *rand.Rand, _, _ int) Task {
			t := Task{CPUMilli: logNormal(r, 6000, 0.7, 500, 64_000), RAMMiB: logNormal(r, 24_576, 0.7, 1024, 262_144)}
			switch k := r.IntN(10); {
			case k < 3:
				t.GPUs, t.GPUMilli = 1, 100*(1+r.IntN(9))
			case k < 7:
				t.GPUs, t.GPUMilli = 1<<r.IntN(4), 1000
			}
			return t
		},
	},
}

// trace makes the trace; a seed makes another of the same kind.
func (s *synthetic) trace(seed uint64) (nodes []Node, tasks []Task) {
	r := rand.New(rand.NewPCG(seed, 7))
	for i := range s.nodes {
		n := s.shapes[i%len(s.shapes)]
		n.Name = fmt.Sprintf("n%04d", i)
		nodes = append(nodes, n)
	}
	for k := range s.tasks {
		t := s.task(r, k, s.tasks)
		t.Name = fmt.Sprintf("t%05d", k)
		tasks = append(tasks, t)
	}
	if s.order != nil {
		slices.SortStableFunc(tasks, s.order)
	}
	return nodes, tasks
}

// simple is what the hybrid is compared with.
var simple = []placement.Policy{placement.BestFit, placement.WorstFit}

func (s *synthetic) compact(t testing.TB, policy placement.Policy, seed uint64, seeds int) float64 {
	t.Helper()
	nodes, tasks := s.trace(seed)
	c := Config{Nodes: nodes, Tasks: tasks, Policy: policy, Measure: Compaction, Seeds: seeds}
	c.Options.NoRelaxed = true
	r, err := Run(c)
	if err != nil {
		t.Fatal(err)
	}
	return mean(r.PerSeed)
}

// On traces that nobody tuned weights on, the hybrid is never clearly worse
// than the best simple rule.
func TestHybridOnOtherTraces(t *testing.T) {
	t.Parallel()
	for i := range synthetics {
		s := synthetics[i]
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			s.nodes, s.tasks = s.nodes/2, s.tasks/2
			best := math.Inf(1)
			for _, policy := range simple {
				best = min(best, s.compact(t, policy, 2, 1))
			}
			hybrid := s.compact(t, placement.Hybrid, 2, 1)
			if hybrid > best*1.10+1 {
				t.Errorf("hybrid needs %v machines, the best simple rule %v", hybrid, best)
			}
		})
	}
}

// The table of docs/performance-placement.md: machines needed, on average.
func BenchmarkSynthetic(b *testing.B) {
	for i := range synthetics {
		s := &synthetics[i]
		for _, policy := range append([]placement.Policy{placement.Hybrid}, simple...) {
			b.Run(s.name+"/"+string(policy), func(b *testing.B) {
				for b.Loop() {
					b.ReportMetric(s.compact(b, policy, 1, 5), "machines")
				}
			})
		}
	}
}
