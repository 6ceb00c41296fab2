package peer

import "github.com/prometheus/client_golang/prometheus"

// Traffic counts bytes of images and packages.
type Traffic struct {
	FromHosts    func() int64 // registries, their mirrors, and the servers of packages
	FromMachines func() int64
	Sent         func() int64 // to machines
}

// NewMetrics returns the metrics of the traffic of images and packages.
func NewMetrics(t Traffic) []prometheus.Collector {
	counter := func(name, help string, value func() int64) prometheus.Collector {
		return prometheus.NewCounterFunc(prometheus.CounterOpts{Name: name, Help: help}, func() float64 { return float64(value()) })
	}
	return []prometheus.Collector{
		counter("muster_agent_content_from_registries_bytes_total", "Bytes of layers and packages that have come from registries, their mirrors and the servers of packages, whole or not.", t.FromHosts),
		counter("muster_agent_content_from_machines_bytes_total", "Bytes of images and packages that have come from other machines, whole or not.", t.FromMachines),
		counter("muster_agent_content_sent_bytes_total", "Bytes of images and packages that were sent to other machines.", t.Sent),
	}
}
