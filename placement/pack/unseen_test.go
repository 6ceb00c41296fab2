package pack

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/musterhq/muster/placement"
)

var cells = flag.Int("cells", 20, "how many cells BenchmarkUnseen draws, of the seeds from -first-seed on")

// drawn is a cell of which all is drawn by a seed: machines, sizes, how long tasks stay and how they come,
// failures, and the load.
type drawn struct {
	synthetic

	life Life
	load float64
}

// pick draws one of a list.
func pick[T any](r *rand.Rand, list ...T) T { return list[r.IntN(len(list))] }

func drawCell(seed uint64) drawn {
	r := rand.New(rand.NewPCG(seed, 84))
	d := drawn{load: pick(r, 0.85, 0.9, 0.95)}
	gpus := r.IntN(3) == 0
	for range 1 + r.IntN(3) {
		n := Node{CPUMilli: pick[int64](r, 16, 32, 48, 64, 96, 128, 192, 256) * 1000}
		n.RAMMiB = n.CPUMilli / 1000 * pick[int64](r, 2, 4, 8, 16) * 1024
		if gpus && (len(d.shapes) == 0 || r.IntN(2) == 0) {
			n.GPUs, n.Model = pick(r, 2, 4, 8), "A100"
		}
		d.shapes = append(d.shapes, n)
	}
	d.nodes, d.tasks = 60+r.IntN(240), 3000
	median, sigma, perCore := 0.01+0.07*r.Float64(), 0.4+0.9*r.Float64(), pick(r, 0.3, 0.6, 1, 1.5)
	large, least, tilt := pick(r, 0.01, 0.02, 0.05, 0.1), 0.3+0.4*r.Float64(), r.IntN(3)
	wantsGPU := pick(r, 0.3, 0.6, 0.9)
	d.task = func(r *rand.Rand, _, _ int) Task {
		n := d.shapes[r.IntN(len(d.shapes))]
		cpu, ram := float64(n.CPUMilli), float64(n.RAMMiB)
		t := Task{
			CPUMilli: logNormal(r, median*cpu, sigma, 50, 0.5*cpu),
			RAMMiB:   logNormal(r, perCore*median*ram, sigma, 64, 0.5*ram),
		}
		if r.Float64() < large {
			share := func() float64 { return least + (0.97-least)*r.Float64() }
			if tilt != 1 {
				t.CPUMilli = int64(cpu * share())
			}
			if tilt != 0 {
				t.RAMMiB = int64(ram * share())
			}
		}
		if n.GPUs > 0 && r.Float64() < wantsGPU {
			if t.GPUs, t.GPUMilli = 1, 1000; r.IntN(3) == 0 {
				t.GPUMilli = 100 * (1 + r.IntN(9))
			} else if r.IntN(4) == 0 {
				t.GPUs = min(2<<r.IntN(3), n.GPUs)
			}
		}
		return t
	}
	d.life = Life{Mean: time.Duration(20+r.IntN(180)) * time.Minute, Sigma: 0.5 + r.Float64(), Burst: pick(r, 1, 1, 5, 20)}
	if r.IntN(2) == 0 {
		d.life.Fails, d.life.Down = time.Duration(12+r.IntN(60))*time.Hour, time.Duration(2+r.IntN(20))*time.Minute
	}
	d.name = fmt.Sprintf("%d machines, %d shapes, gpus %t, load %v, %.0f%% large from %.2f, mean %.0f min, sigma %.1f, bursts of %d, fails every %v", d.nodes, len(d.shapes), gpus, d.load, 100*large, least, d.life.Mean.Minutes(), d.life.Sigma, d.life.Burst, d.life.Fails)
	return d
}

// BenchmarkUnseen measures cells of which all is drawn, and nothing was chosen on.
func BenchmarkUnseen(b *testing.B) {
	for i := range uint64(*cells) {
		seed := *firstSeed + i
		b.Run(fmt.Sprint(seed), func(b *testing.B) {
			d := drawCell(seed)
			nodes, tasks := d.trace(seed)
			b.Log(d.name)
			for b.Loop() {
				for _, policy := range []placement.Policy{placement.Hybrid, placement.BestFit, placement.DotProduct, placement.Cosine} {
					r, err := Run(Config{Nodes: nodes, Tasks: tasks, Policy: policy, Measure: ChurnWait, Load: d.load, Seeds: 2, FirstSeed: seed, Life: d.life})
					if err != nil {
						b.Fatal(err)
					}
					b.ReportMetric(r.Value, string(policy)+"-wait-s")
					b.ReportMetric(r.Churn.Allocated, string(policy)+"-allocated-%")
					b.ReportMetric(r.Churn.OverHour, string(policy)+"-over-hour-%")
				}
			}
			b.ReportMetric(0, "ns/op")
		})
	}
}
