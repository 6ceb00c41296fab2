package pki

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// NewMetrics returns the metrics of when the master's certificate and that of the
// cell's authority end.
func NewMetrics(certificate, authority func() time.Time) []prometheus.Collector {
	gauge := func(name, help string, at func() time.Time) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, func() float64 { return float64(at().Unix()) })
	}
	return []prometheus.Collector{
		gauge("muster_certificate_expiry_timestamp_seconds",
			"Expiry of the master's certificate, in seconds since 1970; only with --pki.", certificate),
		gauge("muster_authority_expiry_timestamp_seconds",
			"Expiry of the certificate of the cell's authority, and so of all that it has issued, in seconds since 1970; only with --pki.",
			authority),
	}
}
