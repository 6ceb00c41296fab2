package web

import (
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

const (
	// warnEvery is the least time between two log lines about refusals: whoever is
	// refused must not fill the disk.
	warnEvery = 10 * time.Second
	maxLogged = 80 // of a path, in bytes
)

// counts counts what is refused. It is a prometheus.Collector.
type counts struct{ *prometheus.CounterVec }

func newCounts() counts {
	c := counts{prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "muster_requests_refused_total",
		Help: "Requests that were refused for who made them: a task, a user that --allow-user does not name, somebody whom the kernel does not name, a role that may only read, a page elsewhere (origin), a certificate.",
	}, []string{"reason"})}
	for _, r := range refusals() {
		c.WithLabelValues(r) // there from the start, so that a rate is right
	}
	return c
}

func (c counts) refused(reason string) { c.WithLabelValues(reason).Inc() }

// quiet logs refusals, the first and then few.
type quiet struct {
	mu     sync.Mutex // guards what follows
	said   time.Time
	unsaid int
}

func (q *quiet) warn(log *slog.Logger, err error, args ...any) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if time.Since(q.said) < warnEvery {
		q.unsaid++
		return
	}
	log.Warn("request refused", append(args, "err", err, "unsaid", q.unsaid)...)
	q.said, q.unsaid = time.Now(), 0
}
