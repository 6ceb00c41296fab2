package credential

import "github.com/prometheus/client_golang/prometheus"

// NewMetrics returns the metric of when a machine's certificate ends.
func NewMetrics(s *Store) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "muster_agent_certificate_expiry_timestamp_seconds",
		Help: "Expiry of the machine's certificate, in seconds since 1970; 0 before it has joined; only with a master over TLS.",
	}, func() float64 {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.pair == nil {
			return 0
		}
		return float64(s.pair.Leaf.NotAfter.Unix())
	})
}
