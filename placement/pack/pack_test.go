package pack

import (
	"flag"
	"os"
	"path/filepath"
	"testing"

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

func benchmark(b *testing.B, c Config, nodes, tasks string) {
	if *traces == "" {
		b.Skip("SKIPPED: no traces: set MUSTER_TRACES or -traces")
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
