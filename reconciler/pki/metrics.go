package pki

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// NewMetrics returns the metric of when the master's certificate ends.
func NewMetrics(expires func() time.Time) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "muster_certificate_expiry_timestamp_seconds",
		Help: "When the certificate that the master shows ends, in seconds since 1970; there only with --pki.",
	}, func() float64 { return float64(expires().Unix()) })
}
