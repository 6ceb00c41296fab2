package dns

import (
	"github.com/miekg/dns"
	"github.com/prometheus/client_golang/prometheus"
)

// source is where a reply came from.
type source int

const (
	fromCell source = iota
	fromCache
	fromUpstream
	fromNowhere // refused, or not understood
	sources
)

var sourceNames = [sources]string{"cell", "cache", "upstream", "none"}

// codes is how many codes of replies are counted each: those above are rare.
const codes = 6

// metrics are the server's own.
type metrics struct {
	replies  [sources][codes + 1]prometheus.Counter
	dropped  prometheus.Counter
	failures prometheus.Counter
	seconds  prometheus.Histogram
	cached   prometheus.Gauge
}

func newMetrics(r prometheus.Registerer) (*metrics, error) {
	opts := func(name, help string) prometheus.CounterOpts {
		return prometheus.CounterOpts{Namespace: "muster", Subsystem: "agent_dns", Name: name, Help: help}
	}
	replies := prometheus.NewCounterVec(opts("replies_total", "Replies to DNS queries, by where they came from (cell, cache, upstream or none) and their code."), []string{"source", "code"})
	m := &metrics{
		dropped:  prometheus.NewCounter(opts("dropped_total", "DNS queries that got no reply, since they were no queries.")),
		failures: prometheus.NewCounter(opts("upstream_failures_total", "DNS queries that no upstream server answered.")),
		seconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Namespace: "muster", Subsystem: "agent_dns", Name: "upstream_seconds", Help: "Time until an upstream server answered, or was not waited for any more.",
			Buckets: []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5},
		}),
		cached: prometheus.NewGauge(prometheus.GaugeOpts{
			Namespace: "muster", Subsystem: "agent_dns", Name: "cached", Help: "Answers of upstream servers that are kept.",
		}),
	}
	for s := range sources {
		for c := range codes {
			m.replies[s][c] = replies.WithLabelValues(sourceNames[s], dns.RcodeToString[c])
		}
		m.replies[s][codes] = replies.WithLabelValues(sourceNames[s], "other")
	}
	for _, c := range []prometheus.Collector{replies, m.dropped, m.failures, m.seconds, m.cached} {
		if err := r.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// count counts a reply.
func (m *metrics) count(s source, code int) { m.replies[s][min(code, codes)].Inc() }
