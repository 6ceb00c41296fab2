package loop_test

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/musterhq/muster/reconciler/loop"
	"github.com/musterhq/muster/reconciler/model"
	"github.com/musterhq/muster/reconciler/status"
	"github.com/musterhq/muster/reconciler/store"
	"github.com/musterhq/muster/schema"
)

// counted counts what goes to a store.
type counted struct {
	*store.Store
	transactions, documents, bytes int
}

func (c *counted) Commit(ctx context.Context, writes []model.Write) error {
	c.transactions++
	c.documents += len(writes)
	for _, w := range writes {
		c.bytes += len(w.Key) + len(w.Value)
	}
	return c.Store.Commit(ctx, writes)
}

type nobody struct{}

func (nobody) Push(string, schema.View) {}
func (nobody) Append([]schema.Event)    {}
func (nobody) Intend([]schema.Event)    {}
func (nobody) Settle(error)             {}
func (nobody) Last() uint64             { return 0 }

func tenJobs() schema.Compiled {
	var jobs []schema.Job
	for i := range 10 {
		job := web(100)
		job.Name = fmt.Sprint("web", i)
		jobs = append(jobs, job)
	}
	return compiledOf("c1", jobs...)
}

func placed(s *status.Status) (n int) {
	for i := range s.Tasks {
		if s.Tasks[i].Machine != "" {
			n++
		}
	}
	return n
}

// BenchmarkThousandTasks takes a commit of 10 jobs with 100 tasks each, and places
// them, with an embedded etcd on disk.
func BenchmarkThousandTasks(b *testing.B) {
	var total counted
	for b.Loop() {
		b.StopTimer()
		ctx, cancel := context.WithCancel(b.Context())
		s, err := store.OpenEmbedded(ctx, store.EmbeddedConfig{Dir: b.TempDir(), Cell: "c", Log: slog.New(slog.DiscardHandler)})
		if err == nil {
			err = s.Campaign(ctx, "bench")
		}
		if err != nil {
			b.Fatal(err)
		}
		c := &counted{Store: s}
		l := loop.New(loop.Config{Cell: "c", Store: c, Pusher: nobody{}, Events: nobody{}, Now: time.Now, Settled: func(string, time.Duration) {}})
		ended := make(chan error, 1)
		go func() { ended <- l.Run(ctx) }()
		info := machine()
		info.Capacity = schema.Resources{CPUMilli: 1 << 20, RAMBytes: 1 << 40, DiskBytes: 1 << 40}
		epoch, err := l.Join(ctx, info)
		if err == nil {
			err = said(ctx, l, model.SessionUpdate{Machine: info.Name, Epoch: epoch, Report: &schema.Report{Machine: info}})
		}
		if err != nil {
			b.Fatal(err)
		}
		*c = counted{Store: s}
		b.StartTimer()
		if err := l.HeadSeen(ctx, model.Seen{Commit: "c1"}); err != nil {
			b.Fatal(err)
		}
		if err := l.Adopt(ctx, tenJobs()); err != nil {
			b.Fatal(err)
		}
		status, _, err := l.Snapshot(ctx)
		b.StopTimer()
		cancel()
		if runErr := <-ended; err != nil || runErr != nil {
			b.Fatal(err, runErr)
		}
		if n := placed(status.Whole()); n != 1000 {
			b.Fatalf("%d tasks are placed", n)
		}
		if err := s.Close(); err != nil {
			b.Fatal(err)
		}
		total.transactions += c.transactions
		total.documents += c.documents
		total.bytes += c.bytes
		b.StartTimer()
	}
	n := float64(b.N)
	b.ReportMetric(float64(total.transactions)/n, "transactions/op")
	b.ReportMetric(float64(total.documents)/n, "documents/op")
	b.ReportMetric(float64(total.bytes)/n, "bytes/op")
}
