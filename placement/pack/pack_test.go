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
	ns, err := Nodes(nodes, n)
	if err != nil {
		t.Fatal(err)
	}
	ts, err := Tasks(tasks, k)
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

// BenchmarkGPUAt130 takes each list of tasks that is with the traces: of openb there are more than are
// in the folder that the tests read. "relaxed" is as a cell decides, the others look at all
// machines for each task.
func BenchmarkGPUAt130(b *testing.B) {
	const prefix, suffix = "openb_pod_list_", ".csv"
	lists := []string{"default"} // which says that there are no traces
	if *traces != "" {
		files, err := filepath.Glob(filepath.Join(*traces, prefix+"*"+suffix))
		if err != nil {
			b.Fatal(err)
		}
		lists = nil
		for _, f := range files {
			lists = append(lists, strings.TrimSuffix(strings.TrimPrefix(filepath.Base(f), prefix), suffix))
		}
	}
	run := func(list, name string, policy placement.Policy, relaxed bool) {
		b.Run(list+"/"+name, func(b *testing.B) {
			c := Config{Policy: policy, Measure: GPUAt130}
			c.Options.NoRelaxed = !relaxed
			benchmark(b, c, "openb_node_list_gpu_node.csv", prefix+list+suffix)
		})
	}
	for _, list := range lists {
		for _, policy := range []placement.Policy{placement.Random, placement.BestFit, placement.Hybrid} {
			run(list, string(policy), policy, false)
		}
		run(list, "relaxed", placement.Hybrid, true)
	}
}
