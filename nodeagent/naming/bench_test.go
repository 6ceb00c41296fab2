package naming_test

import (
	"fmt"
	"net/netip"
	"runtime"
	"testing"

	"github.com/musterhq/muster/nodeagent/naming"
	"github.com/musterhq/muster/schema"
)

// cell returns the entries of a cell of 10,000 machines with 100,000 tasks of as many jobs as said, and
// a service for each job.
func cell(jobs int) []schema.DirectoryEntry {
	const machines, tasks = 10_000, 100_000
	var out []schema.DirectoryEntry
	for i := range machines {
		out = append(out, schema.DirectoryEntry{Machine: &schema.DirectoryMachine{
			Name: fmt.Sprint("machine-", i), Address: netip.AddrFrom4([4]byte{192, 168, byte(i >> 8), byte(i)}),
			Subnets: []netip.Prefix{netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i >> 8), byte(i), 0}), 24)},
		}})
	}
	for j := range jobs {
		name := fmt.Sprint("job-", j)
		labels := map[string]string{
			"app": name, "tier": "front", schema.LabelUser: "ann", schema.LabelJob: name,
			schema.LabelKind: "service", schema.LabelBand: "production",
		}
		var p *schema.DirectoryTasks
		for i := range tasks / jobs {
			if i%schema.DirectoryPart == 0 {
				p = &schema.DirectoryTasks{User: "ann", Job: name, Part: i / schema.DirectoryPart, Labels: labels}
				out = append(out, schema.DirectoryEntry{Tasks: p})
			}
			m := (j*tasks/jobs + i) % machines
			p.Tasks = append(p.Tasks, schema.DirectoryTask{
				Index: i, Machine: fmt.Sprint("machine-", m), Ready: true, Ports: schema.NewPorts(schema.Port{Name: "http", Port: 8080}),
				Address: netip.AddrFrom4([4]byte{10, byte(m >> 8), byte(m), byte(2 + (j*tasks/jobs+i)/machines)}),
			})
		}
		out = append(out, schema.DirectoryEntry{Service: &schema.DirectoryService{
			ServiceSpec: schema.ServiceSpec{Name: name, User: "ann", Cell: "local", Selector: "tier=front,app=" + name, Ports: map[string]schema.ServicePort{"http": {Port: 80}}},
			Addresses:   []netip.Addr{netip.AddrFrom4([4]byte{172, 16, byte(j >> 8), byte(j)})},
		}})
	}
	return out
}

// BenchmarkApply is the directory of a cell of 10,000 machines with 100,000 tasks: whole, and one
// task that becomes ready or stops being so. B/whole is what stays in memory of it.
func BenchmarkApply(b *testing.B) {
	for _, jobs := range []int{1, 1_000, 10_000} {
		entries := cell(jobs)
		b.Run(fmt.Sprintf("whole/jobs=%d", jobs), func(b *testing.B) {
			var d *naming.Directory
			for b.Loop() {
				d = naming.New()
				d.Apply(schema.DirectoryChange{Whole: true, Set: entries})
			}
			runtime.KeepAlive(d)
		})
		b.Run(fmt.Sprintf("one/jobs=%d", jobs), func(b *testing.B) {
			var before, after runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&before)
			d := naming.New()
			d.Apply(schema.DirectoryChange{Whole: true, Set: entries})
			runtime.GC()
			runtime.ReadMemStats(&after)
			var change schema.DirectoryEntry
			for _, e := range entries {
				if e.Tasks != nil {
					change = e
				}
			}
			ready := false
			b.ReportAllocs()
			for b.Loop() {
				p := *change.Tasks
				p.Tasks = append([]schema.DirectoryTask(nil), p.Tasks...)
				p.Tasks[0].Ready = ready
				ready = !ready
				d.Apply(schema.DirectoryChange{Set: []schema.DirectoryEntry{{Tasks: &p}}})
				d.Snapshot()
			}
			b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/(1<<20), "MiB/whole")
		})
	}
}

// BenchmarkEndpoints finds a service and its first endpoint.
func BenchmarkEndpoints(b *testing.B) {
	d := naming.New()
	d.Apply(schema.DirectoryChange{Whole: true, Set: cell(10_000)})
	s := d.Snapshot()
	for b.Loop() {
		v, _ := s.Service("ann", "job-77")
		for range s.Endpoints(v).From(5) {
			break
		}
	}
}
