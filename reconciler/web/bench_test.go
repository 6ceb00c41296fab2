package web_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/musterhq/muster/reconciler/model"
	"github.com/musterhq/muster/reconciler/status"
	"github.com/musterhq/muster/reconciler/web"
	"github.com/musterhq/muster/schema"
)

// largeCell is a cell of 10,000 machines and 1,000 jobs of 100 tasks, of which ten wait.
type largeCell struct {
	*cell
	snapshot *status.Snapshot
	usage    []status.JobUsage
}

func (c *largeCell) Snapshot(context.Context) (*status.Snapshot, <-chan struct{}, error) {
	return c.snapshot, nil, nil
}

func (c *largeCell) JobUsages(context.Context) ([]status.JobUsage, error) { return c.usage, nil }

func newLargeCell() *largeCell {
	s, u := &status.Status{Cell: "local", Commit: "1", Applied: "1"}, []status.JobUsage{}
	for i := range 10_000 {
		s.Machines = append(s.Machines, status.MachineStatus{Name: fmt.Sprintf("m%05d", i), Health: string(model.HealthUp), Attributes: map[string]string{"rack": fmt.Sprint(i / 40), "arch": "amd64"}, Tasks: 10})
	}
	for i := range 1000 {
		j := status.JobStatus{Name: fmt.Sprintf("user-%02d/job-%03d", i/100, i), Kind: schema.Service, Desired: 100, Running: 100, Labels: map[string]string{"tier": fmt.Sprint(i % 10)}}
		if i%100 == 0 {
			j.Reason, j.Running, j.Pending = "1 of 100 tasks does not run", 99, 1
		}
		s.Jobs = append(s.Jobs, j)
		for n := range 100 {
			name := fmt.Sprintf("%s/%d", j.Name, n)
			machine := s.Machines[(100*i+n)%len(s.Machines)].Name
			s.Tasks = append(s.Tasks, status.TaskStatus{Name: name, State: status.TaskRunning, Machine: machine, PID: 1000, StartedAt: at, Ports: schema.PortsOf(map[string]int{"http": 20000}), Generation: 7, Incarnation: 1, History: []string{}})
		}
		u = append(u, status.JobUsage{User: fmt.Sprintf("user-%02d", i/100), Job: fmt.Sprintf("job-%03d", i), Usage: schema.Usage{CPUMilli: 10_000}})
	}
	return &largeCell{newCell(s), status.SnapshotOf(s), u}
}

// discard is a response that counts its bytes.
type discard struct {
	header http.Header
	bytes  int
}

func (d *discard) Header() http.Header { return d.header }
func (d *discard) WriteHeader(int)     {}

func (d *discard) Write(p []byte) (int, error) {
	d.bytes += len(p)
	return io.Discard.Write(p)
}

// BenchmarkReads measures what an answer costs, and its size, once the cell is described.
func BenchmarkReads(b *testing.B) {
	c := newLargeCell()
	cfg := config(c.cell)
	cfg.Cell = c
	r := newRegistry(web.NewMetrics(c))
	cfg.Metrics = r
	h := web.New(cfg).Handler()
	for _, target := range []string{
		"/v1/jobs?limit=1000", "/v1/jobs?waiting=1", "/v1/tasks", "/v1/tasks?limit=1000&continue=user-05/job-550/7", "/v1/tasks?state=pending", "/v1/tasks?selector=tier%3D3",
		"/v1/machines?limit=1000", "/v1/machines?health=lost", "/v1/status?name=user-05/job-550&most=30", "/v1/status?tasks=0&most=30", "/v1/status?tasks=0", "/v1/status", "/metrics", "/",
	} {
		b.Run(target, func(b *testing.B) {
			var d *discard
			var longest time.Duration
			for b.Loop() {
				d = &discard{header: http.Header{}}
				began := time.Now()
				h.ServeHTTP(d, web.As(0, httptest.NewRequest(http.MethodGet, "http://localhost"+target, nil)))
				longest = max(longest, time.Since(began))
			}
			b.ReportMetric(float64(d.bytes)/1000, "kB")
			b.ReportMetric(float64(longest)/1e6, "ms-longest")
		})
	}
}
