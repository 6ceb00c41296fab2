package loop

import (
	"errors"
	"time"

	"github.com/musterhq/muster/nodeagent"
	"github.com/musterhq/muster/schema"
	"github.com/prometheus/client_golang/prometheus"
)

// metrics are the agent's own metrics on /metrics.
type metrics struct {
	tasks     *prometheus.GaugeVec
	view      prometheus.Gauge
	epoch     prometheus.Gauge
	busy      prometheus.Gauge
	bound     prometheus.Gauge
	ioBound   prometheus.Gauge
	clock     prometheus.Gauge
	stuck     prometheus.Gauge
	troubles  *prometheus.GaugeVec
	starts    prometheus.Counter
	restarts  prometheus.Counter
	unhealthy prometheus.Counter
	refused   *prometheus.CounterVec
	exits     *prometheus.CounterVec
	errors    prometheus.Counter
	damaged   prometheus.Counter
	latency   prometheus.Histogram

	evictions *prometheus.CounterVec
	oomKills  prometheus.Counter
	removals  *prometheus.CounterVec
	freed     *prometheus.CounterVec
	spent     *prometheus.CounterVec
	left      *prometheus.GaugeVec
	inodes    prometheus.Gauge
}

func newMetrics(r prometheus.Registerer) (*metrics, error) {
	gauge := func(name, help string) prometheus.Gauge {
		return prometheus.NewGauge(prometheus.GaugeOpts{Namespace: "muster", Subsystem: "agent", Name: name, Help: help})
	}
	opts := func(name, help string) prometheus.CounterOpts {
		return prometheus.CounterOpts{Namespace: "muster", Subsystem: "agent", Name: name, Help: help}
	}
	m := &metrics{
		tasks: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Namespace: "muster", Subsystem: "agent", Name: "tasks", Help: "Task generations in the agent's report, by state.",
		}, []string{"state"}),
		view:    gauge("view_version", "Version of the assignments that the agent acts on."),
		epoch:   gauge("link_epoch", "Highest link epoch that the agent got from a master."),
		busy:    gauge("busy_ports", "Ports of the machine's range that are in use by processes other than tasks."),
		bound:   gauge("batch_cpu_milli", "CPU limit of all batch tasks together while latency-sensitive tasks wait for CPU, in thousandths of a core; 0: none."),
		ioBound: gauge("bounded_disk_bytes", "Limit in bytes per second of what throttled tasks may read, and of what they may write, together on the state directory's disk; 0: none."),
		clock:   gauge("clock_offset_seconds", "By how much the master's clock is ahead of this machine's, at the last report."),
		inodes:  gauge("machine_left_inodes", "Free inodes of the state directory's file system."),
		stuck:   gauge("removals_stuck", "Directory trees of ended tasks that could not be removed; the removal is retried."),
		troubles: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Namespace: "muster", Subsystem: "agent", Name: "condition", Help: "1 while the machine is in this condition.",
		}, []string{"condition"}),
		starts:    prometheus.NewCounter(opts("starts_total", "Incarnations that were started.")),
		restarts:  prometheus.NewCounter(opts("restarts_total", "Incarnations after the first of their generation, started or refused.")),
		unhealthy: prometheus.NewCounter(opts("unhealthy_total", "Incarnations whose health check found them unhealthy.")),
		refused:   prometheus.NewCounterVec(opts("refused_total", "Starts that were refused or failed, by cause."), []string{"cause"}),
		exits:     prometheus.NewCounterVec(opts("exits_total", "Incarnations that ended, by how they ended."), []string{"how"}),
		damaged:   prometheus.NewCounter(opts("damaged_files_total", "Files of the state directory that were found damaged or lost.")),
		errors:    prometheus.NewCounter(opts("errors_total", "Actions that the disk or the kernel refused; they are retried.")),
		latency: prometheus.NewHistogram(prometheus.HistogramOpts{
			Namespace: "muster", Subsystem: "agent", Name: "start_seconds", Help: "Time from the decision to start an incarnation until it runs.",
			Buckets: []float64{.001, .0025, .005, .01, .015, .025, .05, .1, .25, .5, 1, 2.5, 5, 10},
		}),
	}
	m.evictions = prometheus.NewCounterVec(opts("evictions_total", "Incarnations that were evicted for lack of a resource, by resource: disk is the task's own limit."), []string{"resource"})
	m.oomKills = prometheus.NewCounter(opts("oom_kills_total", "Processes of tasks that the kernel killed for lack of memory."))
	m.removals = prometheus.NewCounterVec(opts("removed_total", "Directories of ended generations and incarnations that were removed, by reason."), []string{"what", "reason"})
	m.freed = prometheus.NewCounterVec(opts("removed_bytes_total", "Bytes of disk, as measured, of the directories that were removed, by reason."), []string{"reason"})
	m.spent = prometheus.NewCounterVec(opts("measuring_seconds_total", "Time spent on measuring the usage of tasks: samples, and scans of their directories."), []string{"what"})
	m.left = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Namespace: "muster", Subsystem: "agent", Name: "machine_left_bytes", Help: "Free memory of the machine, and free space of the state directory's file system.",
	}, []string{"resource"})
	for _, s := range taskStates() {
		m.tasks.WithLabelValues(string(s))
	}
	for _, r := range []schema.Resource{schema.OwnDisk, schema.MachineRAM, schema.MachineDisk} {
		m.evictions.WithLabelValues(string(r))
	}
	var errs []error
	for _, c := range []prometheus.Collector{
		m.tasks, m.view, m.epoch, m.busy, m.bound, m.ioBound, m.clock, m.stuck, m.troubles, m.starts, m.restarts, m.unhealthy, m.refused, m.exits, m.errors, m.damaged, m.latency,
		m.evictions, m.oomKills, m.removals, m.freed, m.spent, m.left, m.inodes,
	} {
		errs = append(errs, r.Register(c))
	}
	return m, errors.Join(errs...)
}

func taskStates() []schema.TaskState {
	return []schema.TaskState{schema.Starting, schema.Running, schema.Waiting, schema.Stopping, schema.Dead}
}

// observe sets the gauges to what a report says.
func (m *metrics) observe(r *schema.Report, epoch uint64) {
	count := map[schema.TaskState]int{}
	for i := range r.Tasks {
		count[r.Tasks[i].State]++
	}
	for _, s := range taskStates() {
		m.tasks.WithLabelValues(string(s)).Set(float64(count[s]))
	}
	for _, k := range schema.ConditionKinds() {
		m.troubles.WithLabelValues(string(k)).Set(0)
	}
	for _, c := range r.Conditions {
		m.troubles.WithLabelValues(string(c.Kind)).Set(1)
	}
	m.view.Set(float64(r.View))
	m.epoch.Set(float64(epoch))
	m.busy.Set(float64(len(r.BusyPorts)))
}

func (m *metrics) started(d time.Duration) {
	m.starts.Inc()
	m.latency.Observe(d.Seconds())
}

// collected counts what a Prune or Remove has removed.
func (m *metrics) collected(a nodeagent.Action) {
	what := "generation"
	if a.Kind == nodeagent.Prune {
		what = "incarnation"
	}
	m.removals.WithLabelValues(what, string(a.Reason)).Inc()
	m.freed.WithLabelValues(string(a.Reason)).Add(float64(a.Bytes))
}

func (m *metrics) exited(e schema.Exit) {
	how := "unknown"
	switch {
	case e.OOM:
		how = "oom"
	case e.Signal != "":
		how = "signal"
	case e.Code == 0:
		how = "ok"
	case e.Code > 0:
		how = "status"
	}
	m.exits.WithLabelValues(how).Inc()
}
