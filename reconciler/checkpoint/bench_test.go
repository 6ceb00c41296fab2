package checkpoint_test

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/musterhq/muster/reconciler/checkpoint"
	"github.com/musterhq/muster/reconciler/model"
	"github.com/musterhq/muster/schema"
)

// large is a checkpoint of so many machines with ten tasks each, of jobs of 100 tasks, all of
// which run.
func large(tb testing.TB, machines int) []byte {
	tb.Helper()
	const onEach, ofJob = 10, 100
	s, o := model.NewState("c"), model.NewObserved(at.Add(-time.Hour))
	put := func(key string, v any) {
		if err := s.Apply([]model.Write{s.Document(key, v)}); err != nil {
			tb.Fatal(err)
		}
	}
	infos, tasks := make([]schema.MachineInfo, machines), make([][]schema.TaskStatus, machines)
	for i := range infos {
		infos[i] = schema.MachineInfo{
			Name: fmt.Sprintf("m%05d", i), Boot: "boot-1", Capacity: schema.Resources{CPUMilli: 64_000, RAMBytes: 256 << 30, DiskBytes: 1 << 40},
			Attributes: map[string]string{"rack": fmt.Sprint("r", i/40), "arch": "amd64", "os": "linux", "kernel": "6.18.0"}, AgentVersion: "1.2.3",
		}
		put(model.KeyMachine+infos[i].Name, schema.MachineRecord{MachineInfo: infos[i], Epoch: 1, Joined: at})
	}
	p := &schema.Package{Dir: "teams/search", Origins: map[schema.ObjectKey]schema.Position{}}
	generation := uint64(0)
	for n := range machines * onEach / ofJob {
		j := web("1")
		j.Name, j.Tasks, j.Task.Secrets = fmt.Sprintf("web%d", n), ofJob, nil
		p.Objects.Jobs = append(p.Objects.Jobs, *j)
		digest, name := schema.DigestOf(j), j.ID()
		put(model.KeyData+string(digest), j)
		put(model.KeyJob+name.Short(), schema.JobRecord{Name: name, Admitted: digest, Good: digest, Since: at})
		for first := 0; first < ofJob; first += schema.ChunkSize {
			c := schema.Chunk{Job: name, Number: first / schema.ChunkSize}
			for index := first; index < min(first+schema.ChunkSize, ofJob); index++ {
				generation++
				on := (n*ofJob + index) % machines
				ports := schema.PortsOf(map[string]int{"http": 20000 + index})
				c.Tasks = append(c.Tasks, schema.TaskRecord{Index: index, Generation: generation, Machine: infos[on].Name, Data: digest, At: at, Ports: ports})
				tasks[on] = append(tasks[on], schema.TaskStatus{
					Task: name.Task(index), Generation: generation, State: schema.Running, Incarnation: 1, PID: 4000 + index, StartedAt: at, Data: digest, Ports: ports, Health: schema.Healthy,
				})
			}
			put(fmt.Sprintf("%s%s/%d", model.KeyChunk, name.Short(), c.Number), c)
		}
	}
	put(model.KeyPackage+string(schema.DigestOf(p)), p)
	put(model.KeyHead, schema.Head{Commit: "1", Packages: map[string]schema.Digest{p.Dir: schema.DigestOf(p)}})
	put(model.KeyCounter, generation)
	for i := range infos {
		o.AddReport(schema.Report{Machine: infos[i], View: 1, Tasks: tasks[i]}, at)
	}
	h := checkpoint.HeaderOf(s, o, "1", at)
	h.Redaction = "key of this benchmark"
	var b bytes.Buffer
	if err := checkpoint.Write(&b, h, s, o); err != nil {
		tb.Fatal(err)
	}
	return b.Bytes()
}

// BenchmarkRead reads a checkpoint of 10,000 machines with 100,000 tasks.
func BenchmarkRead(b *testing.B) {
	file := large(b, 10_000)
	b.ReportMetric(float64(len(file)), "bytes")
	for b.Loop() {
		if _, err := checkpoint.Read(bytes.NewReader(file)); err != nil {
			b.Fatal(err)
		}
	}
}
