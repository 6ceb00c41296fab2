package pack

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/musterhq/muster/placement"
)

var (
	fillBy       = flag.String("fill", "", "policy that decides the first pass of BenchmarkChurn; none means each for itself")
	fillOneByOne = flag.Bool("fill-one-by-one", false, "the first pass of BenchmarkChurn decides in the order in which tasks were drawn")
	firstSeed    = flag.Uint64("first-seed", 0, "first of the five seeds of BenchmarkChurn")
)

// churning are cells in which few tasks want most of a machine. The weights were chosen
// on the first half, and are judged on the other.
var churning = []synthetic{
	{
		name: "mixed", shapes: plainShapes, nodes: 400, tasks: 4000,
		task: func(r *rand.Rand, _, _ int) Task {
			if r.IntN(20) == 0 {
				return Task{CPUMilli: 24_000 + r.Int64N(64)*1000, RAMMiB: 65_536 + r.Int64N(200_000)}
			}
			return Task{CPUMilli: logNormal(r, 3000, 0.8, 100, 16_000), RAMMiB: logNormal(r, 8192, 0.8, 256, 65_536)}
		},
	},
	{
		name: "multi-gpu", nodes: 300, tasks: 4000, shapes: []Node{{CPUMilli: 128_000, RAMMiB: 786_432, GPUs: 8, Model: "A100"}},
		task: func(r *rand.Rand, _, _ int) Task {
			t := Task{CPUMilli: logNormal(r, 4000, 0.7, 500, 64_000), RAMMiB: logNormal(r, 16_384, 0.7, 1024, 262_144)}
			switch k := r.IntN(10); {
			case k < 3:
				t.GPUs, t.GPUMilli = 4<<r.IntN(2), 1000
			case k < 6:
				t.GPUs, t.GPUMilli = 1, 100*(1+r.IntN(9))
			default:
				t.GPUs, t.GPUMilli = 1+r.IntN(2), 1000
			}
			return t
		},
	},
	{
		name: "tail", shapes: plainShapes[1:2], nodes: 300, tasks: 4000,
		task: func(r *rand.Rand, _, _ int) Task {
			return Task{CPUMilli: logNormal(r, 2000, 1.3, 100, 60_000), RAMMiB: logNormal(r, 8192, 1.3, 128, 250_000)}
		},
	},
	{
		name: "large-machines", nodes: 100, tasks: 6000, shapes: []Node{{CPUMilli: 256_000, RAMMiB: 1 << 20}, {CPUMilli: 192_000, RAMMiB: 1 << 20}},
		task: func(r *rand.Rand, _, _ int) Task {
			if r.IntN(50) == 0 {
				return Task{CPUMilli: 96_000 + r.Int64N(90)*1000, RAMMiB: 131_072 + r.Int64N(500_000)}
			}
			return Task{CPUMilli: logNormal(r, 2000, 1, 100, 16_000), RAMMiB: logNormal(r, 8192, 1, 256, 65_536)}
		},
	},
	{
		name: "two-kinds", nodes: 300, tasks: 4000, shapes: []Node{{CPUMilli: 96_000, RAMMiB: 196_608}, {CPUMilli: 48_000, RAMMiB: 524_288}},
		task: func(r *rand.Rand, _, _ int) Task {
			switch k := r.IntN(25); {
			case k == 0:
				return Task{CPUMilli: 40_000 + r.Int64N(50)*1000, RAMMiB: 32_768 + r.Int64N(100_000)}
			case k == 1:
				return Task{CPUMilli: 8000 + r.Int64N(30)*1000, RAMMiB: 262_144 + r.Int64N(240_000)}
			case k < 12:
				return Task{CPUMilli: logNormal(r, 4000, 0.6, 100, 16_000), RAMMiB: logNormal(r, 4096, 0.6, 256, 32_768)}
			}
			return Task{CPUMilli: logNormal(r, 1000, 0.6, 100, 8000), RAMMiB: logNormal(r, 16_384, 0.6, 256, 65_536)}
		},
	},
	{
		name: "gpu-shapes", nodes: 360, tasks: 4000, shapes: gpuShapes,
		task: func(r *rand.Rand, _, _ int) Task {
			t := Task{CPUMilli: logNormal(r, 3000, 0.7, 500, 64_000), RAMMiB: logNormal(r, 12_288, 0.7, 1024, 262_144)}
			switch k := r.IntN(12); {
			case k < 4:
				t.GPUs, t.GPUMilli = 1, 100*(1+r.IntN(9))
			case k < 7:
				t.GPUs, t.GPUMilli = 1<<r.IntN(4), 1000
			}
			return t
		},
	},
}

// In a cell in which tasks come and go large ones wait no longer than with the best
// simple rule.
func TestChurn(t *testing.T) {
	t.Parallel()
	nodes, tasks := churning[0].trace(3)
	wait := map[placement.Policy]float64{}
	for _, policy := range []placement.Policy{placement.Hybrid, placement.BestFit, placement.DotProduct} {
		r, err := Run(Config{Nodes: nodes[:200], Tasks: tasks, Policy: policy, Measure: ChurnWait, Load: 0.95, Seeds: 2})
		if err != nil {
			t.Fatal(err)
		}
		if r.Churn.Load != 0.95 || r.Churn.Large == 0 || r.Churn.Allocated < 85 || r.Churn.Allocated > 100 {
			t.Errorf("%s: %+v", policy, *r.Churn)
		}
		wait[policy] = r.Value
	}
	if best := min(wait[placement.BestFit], wait[placement.DotProduct]); wait[placement.Hybrid] > 1.2*best+5 {
		t.Errorf("%v large tasks wait %v s, with the best simple rule %v", wait, wait[placement.Hybrid], best)
	}
}

// Cells that one policy fills are the same, whichever decides from then on, and as full as the
// policy left them; what it decides one by one is another cell.
func TestChurnFill(t *testing.T) {
	t.Parallel()
	nodes, tasks := churning[0].trace(3)
	filled := func(policy, fill placement.Policy, oneByOne bool) string {
		c := &Config{
			Nodes: nodes[:40], Tasks: tasks, Load: 0.9, GPUs: GPUDevices, Fill: fill, FillOneByOne: oneByOne,
			Options: placement.Options{Policy: policy},
		}
		x, err := newCell(c, rand.New(rand.NewPCG(1, 82)))
		if err != nil {
			t.Fatal(err)
		}
		x.fillFirst(&counts{})
		var on []string
		for _, list := range x.leaving {
			for i := range list {
				on = append(on, list[i].ask.Name.Job+" "+list[i].machine)
			}
		}
		slices.Sort(on)
		return strings.Join(on, "\n")
	}
	best := filled(placement.BestFit, "", false)
	if got := filled(placement.Hybrid, placement.BestFit, false); got != best || got == "" {
		t.Error("best fit fills the cell of the hybrid otherwise than its own")
	}
	largest := filled(placement.Hybrid, "", false)
	if largest == best {
		t.Error("the hybrid fills a cell as best fit does")
	}
	if filled(placement.BestFit, placement.Hybrid, true) == largest {
		t.Error("the hybrid fills a cell in the order of drawing as the largest first")
	}
}

// TestChurnFirstSeed: seeds begin where they are to.
func TestChurnFirstSeed(t *testing.T) {
	t.Parallel()
	nodes, tasks := churning[0].trace(3)
	c := Config{Nodes: nodes[:12], Tasks: tasks, Policy: placement.BestFit, Measure: ChurnWait, Seeds: 2}
	both, err := Run(c)
	if err != nil {
		t.Fatal(err)
	}
	c.Seeds, c.FirstSeed = 1, 1
	second, err := Run(c)
	if err != nil {
		t.Fatal(err)
	}
	if second.PerSeed[0] != both.PerSeed[1] || second.PerSeed[0] == both.PerSeed[0] {
		t.Errorf("the first of the seeds from 1 on is %v, of those from 0 on %v", second.PerSeed, both.PerSeed)
	}
}

func BenchmarkChurn(b *testing.B) {
	run := func(b *testing.B, c Config) {
		b.Helper()
		for _, policy := range []placement.Policy{placement.Hybrid, placement.BestFit, placement.DotProduct, placement.Cosine} {
			for _, load := range []float64{0.8, 0.9, 0.95} {
				b.Run(fmt.Sprintf("load=%v/%s", load, policy), func(b *testing.B) {
					for b.Loop() {
						c.Policy, c.Load, c.Measure, c.Seeds = policy, load, ChurnWait, 5
						c.Fill, c.FillOneByOne, c.FirstSeed = placement.Policy(*fillBy), *fillOneByOne, *firstSeed
						r, err := Run(c)
						if err != nil {
							b.Fatal(err)
						}
						b.ReportMetric(r.Value, "wait-s")
						b.ReportMetric(r.Deviation, "deviation-s")
						b.ReportMetric(r.Churn.OverHour, "over-hour-%")
						b.ReportMetric(r.Churn.Allocated, "allocated-%")
					}
				})
			}
		}
	}
	for i := range churning {
		b.Run(churning[i].name, func(b *testing.B) {
			nodes, tasks := churning[i].trace(1)
			run(b, Config{Nodes: nodes, Tasks: tasks})
		})
	}
	for _, x := range []struct {
		name, list string
		gpus       GPUs
	}{{"openb", "default", GPUDevices}, {"openb-cpu-ram", "default", GPUIgnored}, {"openb-gpuspec33", "gpuspec33", GPUDevices}} {
		b.Run(x.name, func(b *testing.B) {
			if *traces == "" {
				fmt.Fprintln(os.Stderr, "SKIPPED:", b.Name(), "needs the openb traces: set MUSTER_TRACES or -traces")
				b.SkipNow()
			}
			c := Config{GPUs: x.gpus}
			c.Nodes, c.Tasks = load(b, *traces, "openb_node_list_all_node.csv", "openb_pod_list_"+x.list+".csv")
			run(b, c)
		})
	}
}
