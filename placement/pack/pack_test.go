package pack

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/musterhq/muster/placement"
)

var traces = flag.String("traces", os.Getenv("MUSTER_TRACES"), "directory of the openb traces")

func load(t testing.TB, dir, nodes, tasks string) ([]Node, []Task) {
	t.Helper()
	n, err := os.Open(filepath.Join(dir, nodes))
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	k, err := os.Open(filepath.Join(dir, tasks))
	if err != nil {
		t.Fatal(err)
	}
	defer k.Close()
	ns, err := Nodes(n)
	if err != nil {
		t.Fatal(err)
	}
	ts, err := Tasks(k)
	if err != nil {
		t.Fatal(err)
	}
	return ns, ts
}

func TestExcerpt(t *testing.T) {
	t.Parallel()
	nodes, tasks := load(t, "testdata", "nodes.csv", "tasks.csv")
	values := map[string]float64{}
	for _, policy := range []placement.Policy{placement.Random, placement.WorstFit, placement.BestFit, placement.Hybrid} {
		for _, m := range []Measure{Compaction, GPUAt130} {
			for _, gpus := range []GPUs{GPUDevices, GPUScalar} {
				c := Config{Nodes: nodes, Tasks: tasks, Policy: policy, Measure: m, GPUs: gpus, Seeds: 3}
				r, err := Run(c)
				if err != nil {
					t.Fatal(err)
				}
				again, err := Run(c)
				if diff := cmp.Diff(r, again); err != nil || diff != "" {
					t.Errorf("%s %s: the second run differs: %v %s", policy, m, err, diff)
				}
				values[fmt.Sprint(policy, m, gpus)] = r.Value
			}
		}
	}
	if h, w := values["hybridcompactiondevices"], values["worst-fitcompactiondevices"]; h > w {
		t.Errorf("hybrid needs %v machines, worst-fit %v", h, w)
	}
	if h, r := values["hybridgpu-at-130devices"], values["randomgpu-at-130devices"]; h < r {
		t.Errorf("hybrid allocates %v%% of GPU, random %v%%", h, r)
	}
}

func TestSimulate(t *testing.T) {
	t.Parallel()
	const nodes = "sn,cpu_milli,memory_mib\na,2000,1024\nb,2000,1024\nc,2000,1024\n"
	const tasks = "name,memory_mib,cpu_milli\nx,512,1000\ny,512,1000\nz,512,1000\n"
	for _, c := range []struct {
		name, nodes, tasks, policy, measure, want, err string
	}{
		{
			name: "two machines hold three halves", nodes: nodes, tasks: tasks,
			want: "hybrid compaction, GPUs as devices: 2.00 machines (90th percentile of 11 seeds, at most 0 tasks pending; deviation 0.00; 3 machines, 3 tasks)\n",
		},
		{name: "no column", nodes: "sn,cpu_milli\n", tasks: tasks, err: `nodes: header "sn,cpu_milli": no column "memory_mib"`},
		{name: "no number", nodes: nodes, tasks: "name,memory_mib,cpu_milli\nx,much,1\n", err: `tasks: line 2: column memory_mib: "much" is not a number from 0`},
		{name: "policy", nodes: nodes, tasks: tasks, policy: "good", err: `policy "good": want hybrid, best-fit, worst-fit or random`},
		{name: "measure", nodes: nodes, tasks: tasks, measure: "size", err: `measure "size": want compaction or gpu-at-130`},
		{name: "no GPU", nodes: nodes, tasks: tasks, measure: "gpu-at-130", err: "the trace has no GPUs, or nothing asks for one"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r, err := Simulate(Request{Nodes: strings.NewReader(c.nodes), Tasks: strings.NewReader(c.tasks), Policy: c.policy, Measure: c.measure})
			if c.err != "" {
				if err == nil || err.Error() != c.err {
					t.Fatalf("error %v, want %s", err, c.err)
				}
				return
			}
			var b strings.Builder
			if err := r.WriteText(&b); err != nil || b.String() != c.want {
				t.Errorf("%v, got %s want %s", err, b.String(), c.want)
			}
		})
	}
}

func benchmark(b *testing.B, c Config, nodes, tasks string) {
	if *traces == "" {
		fmt.Fprintln(os.Stderr, "SKIPPED:", b.Name(), "needs the openb traces: set MUSTER_TRACES or -traces")
		b.SkipNow()
	}
	c.Nodes, c.Tasks = load(b, *traces, nodes, tasks)
	for b.Loop() {
		r, err := Run(c)
		if err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(r.Value, "value")
		b.ReportMetric(r.Deviation, "deviation")
	}
}

func BenchmarkCompaction(b *testing.B) {
	for _, gpus := range []GPUs{GPUScalar, GPUDevices, GPUIgnored} {
		for _, policy := range []placement.Policy{placement.WorstFit, placement.BestFit, placement.Hybrid} {
			b.Run(string(gpus)+"/"+string(policy), func(b *testing.B) {
				c := Config{Policy: policy, Measure: Compaction, GPUs: gpus}
				c.Options.NoRelaxed = true
				benchmark(b, c, "openb_node_list_all_node.csv", "openb_pod_list_default.csv")
			})
		}
	}
}

// On CPU and RAM alone, with the tasks of all phases.
func BenchmarkCompactionScalars(b *testing.B) {
	for _, policy := range []placement.Policy{placement.WorstFit, placement.BestFit, placement.Hybrid} {
		b.Run(string(policy), func(b *testing.B) {
			c := Config{Policy: policy, Measure: Compaction, GPUs: GPUIgnored, AllPhases: true}
			c.Options.NoRelaxed = true
			benchmark(b, c, "openb_node_list_all_node.csv", "openb_pod_list_default.csv")
		})
	}
}

// What relaxed randomization costs in packing: as above, but each task looks
// at some of the machines only.
func BenchmarkCompactionRelaxed(b *testing.B) {
	c := Config{Policy: placement.Hybrid, Measure: Compaction, GPUs: GPUScalar}
	benchmark(b, c, "openb_node_list_all_node.csv", "openb_pod_list_default.csv")
}

func BenchmarkGPUAt130(b *testing.B) {
	for _, list := range []string{"default", "gpuspec33"} {
		for _, policy := range []placement.Policy{placement.Random, placement.BestFit, placement.Hybrid} {
			b.Run(list+"/"+string(policy), func(b *testing.B) {
				c := Config{Policy: policy, Measure: GPUAt130}
				c.Options.NoRelaxed = true
				benchmark(b, c, "openb_node_list_gpu_node.csv", "openb_pod_list_"+list+".csv")
			})
		}
	}
}
