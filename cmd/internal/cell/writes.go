package cell

import (
	"context"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/musterhq/muster/reconciler/loop"
	"github.com/musterhq/muster/reconciler/model"
)

// writes counts what has been written to the store.
type writes struct{ calls, documents atomic.Int64 }

var (
	writesDesc    = prometheus.NewDesc("muster_store_writes_total", "Times that this master has written documents of the cell to its store.", nil, nil)
	documentsDesc = prometheus.NewDesc("muster_store_documents_written_total", "Documents of the cell that this master has written to its store, or removed from it.", nil, nil)
)

func (w *writes) collect(out chan<- prometheus.Metric) {
	out <- prometheus.MustNewConstMetric(writesDesc, prometheus.CounterValue, float64(w.calls.Load()))
	out <- prometheus.MustNewConstMetric(documentsDesc, prometheus.CounterValue, float64(w.documents.Load()))
}

// countedStore is a store whose writes are counted.
type countedStore struct {
	loop.Store
	writes *writes
}

// Commit writes documents.
func (s countedStore) Commit(ctx context.Context, documents []model.Write) error {
	err := s.Store.Commit(ctx, documents)
	if err == nil {
		s.writes.calls.Add(1)
		s.writes.documents.Add(int64(len(documents)))
	}
	return err
}
