package web

import (
	"context"
	"iter"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/musterhq/muster/reconciler/status"
	"github.com/musterhq/muster/schema"
)

const (
	// collectTimeout is for the cell's owner, who may be in the middle of a write.
	collectTimeout = 5 * time.Second
	// collectEvery is the least time between two counts: scrapes in between get the same,
	// and those at once wait for one count.
	collectEvery = time.Second
)

// Metrics shows a cell's Status to Prometheus. It is a prometheus.Collector, to
// be registered once.
type Metrics struct {
	cell Cell

	converged, upToDate, source, sourceAt, info *prometheus.Desc
	stale, unread, rejected, held, at           *prometheus.Desc
	suspended, suspendedAt                      *prometheus.Desc
	jobs, tasks, rollouts                       *prometheus.Desc
	machines                                    machineMetrics
	losses, draining, drainLeft                 *prometheus.Desc
	capacity, used                              map[schema.Dimension]*prometheus.Desc

	usage []usageMetric

	commitRunning prometheus.Histogram

	last lastCount
}

// machineMetrics are the metrics of how machines are.
type machineMetrics struct{ all, empty, conditions *prometheus.Desc }

// lastCount is what was counted last.
type lastCount struct {
	mu      sync.Mutex // held while counting; guards what follows
	metrics []prometheus.Metric
	at      time.Time
}

// usageMetric is one number of a job's usage.
type usageMetric struct {
	desc *prometheus.Desc
	of   func(u *schema.Usage) float64
}

// newUsage returns the metrics of jobs' usage.
func newUsage(d func(name, help string, labels ...string) *prometheus.Desc) []usageMetric {
	const more = " Summed over the tasks that run; of a cell with more than 1000 jobs by user alone, and job is *."
	milli := func(of func(u *schema.Usage) int64) func(*schema.Usage) float64 {
		return func(u *schema.Usage) float64 { return float64(of(u)) / 1000 }
	}
	whole := func(of func(u *schema.Usage) int64) func(*schema.Usage) float64 {
		return func(u *schema.Usage) float64 { return float64(of(u)) }
	}
	var out []usageMetric
	for _, m := range []struct {
		name, help string
		of         func(*schema.Usage) float64
	}{
		{"cpu_cores", "CPU usage of a job, in cores.", milli(func(u *schema.Usage) int64 { return u.CPUMilli })},
		{"ram_bytes", "Working set of a job.", whole(func(u *schema.Usage) int64 { return u.RAMBytes })},
		{"cache_bytes", "Page cache that is charged to a job.", whole(func(u *schema.Usage) int64 { return u.CacheBytes })},
		{"disk_bytes", "Disk usage of a job's directories.", whole(func(u *schema.Usage) int64 { return u.DiskBytes })},
		{"processes", "Processes and threads of a job.", whole(func(u *schema.Usage) int64 { return u.Processes })},
		{"throttled_ratio", "Time for which CPU limits throttled a job, per second.", milli(func(u *schema.Usage) int64 { return u.ThrottledMilli })},
		{"delay_ratio", "Time for which threads of a job were runnable and waited for a CPU, per second.", milli(func(u *schema.Usage) int64 { return u.DelayMilli })},
		{"oom_kills", "Processes of a job's running incarnations that the kernel has killed for lack of memory.", whole(func(u *schema.Usage) int64 { return u.OOMKills })},
	} {
		out = append(out, usageMetric{d("job_"+m.name, m.help+more, "user", "job"), m.of})
	}
	return out
}

// NewMetrics returns the metrics of a cell.
func NewMetrics(cell Cell) *Metrics {
	d := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("muster_"+name, help, labels, nil)
	}
	return &Metrics{
		cell: cell, usage: newUsage(d),
		converged:   d("converged", "1 when the head commit is applied, nothing is stale, rejected or held, and all runs as desired."),
		upToDate:    d("head_applied", "1 when the head commit is in the store."),
		source:      d("source_up", "1 when the repository can be read."),
		sourceAt:    d("source_read_timestamp_seconds", "When the repository was last read successfully, in seconds since 1970; 0: never since the master started. The age is muster_status_timestamp_seconds minus this."),
		info:        d("cell_info", "The cell, the head commit seen and the commit applied; always 1.", "cell", "head", "applied"),
		stale:       d("stale_packages", "Directories that still run the version of an earlier commit."),
		unread:      d("head_unread", "1 when the head commit could not be read, and the previous one stays in force."),
		rejected:    d("rejected_jobs", "Jobs whose newest version was not admitted."),
		held:        d("held_tasks", "Tasks that keep running because a guard holds their removal."),
		suspended:   d("suspended", "1 while a job is suspended, or with * for both labels the cell; jobs that are not suspended have no series.", "user", "job"),
		suspendedAt: d("suspended_since_timestamp_seconds", "Since when a job, or with * for both labels the cell, is suspended, in seconds since 1970.", "user", "job"),
		at:          d("status_timestamp_seconds", "When the status was taken, in seconds since 1970."),
		jobs:        d("jobs", "Jobs, by kind.", "kind"),
		rollouts:    d("rollouts", "Jobs whose newest version has not reached all tasks, by state of the rollout.", "state"),
		tasks:       d("tasks", "Tasks, by state; unknown: on machines that are silent or lost.", "state"),
		machines: machineMetrics{
			all:        d("machines", "Machines, by health.", "health"),
			empty:      d("machines_empty", "Machines that are up and hold nothing but tasks of system jobs, in a cell that has machines emptied (rebalance.emptyBelow); 0 in any other."),
			conditions: d("machine_conditions", "Machines that are up and have a condition, by condition.", "condition"),
		},
		losses:    d("loss_holds", "The cell, or failure domains, in which so many machines are silent that their tasks are not rescheduled."),
		draining:  d("draining_machines", "Machines that are draining, by state.", "state"),
		drainLeft: d("draining_tasks", "Tasks on machines that are draining."),
		capacity: map[schema.Dimension]*prometheus.Desc{
			schema.CPUMilli:  d("capacity_cores", "Capacity in cores of the machines that are up."),
			schema.RAMBytes:  d("capacity_ram_bytes", "Capacity in memory of the machines that are up."),
			schema.DiskBytes: d("capacity_disk_bytes", "Capacity in disk of the machines that are up."),
		},
		used: map[schema.Dimension]*prometheus.Desc{
			schema.CPUMilli:  d("used_cores", "Limits in cores of the tasks on machines that are up."),
			schema.RAMBytes:  d("used_ram_bytes", "Limits in memory of the tasks on machines that are up."),
			schema.DiskBytes: d("used_disk_bytes", "Limits in disk of the tasks on machines that are up."),
		},
		commitRunning: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "muster_commit_running_seconds",
			Help:    "Time from when a commit was seen until the cell had converged at it.",
			Buckets: []float64{0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600},
		}),
	}
}

// CommitRunning says how long it took from seeing a commit to converging on it.
func (m *Metrics) CommitRunning(d time.Duration) { m.commitRunning.Observe(d.Seconds()) }

// Describe implements prometheus.Collector.
func (m *Metrics) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		m.converged, m.upToDate, m.source, m.sourceAt, m.info, m.stale, m.unread, m.rejected, m.held, m.suspended, m.suspendedAt, m.at, m.jobs, m.tasks, m.machines.all, m.machines.empty, m.machines.conditions, m.rollouts, m.losses, m.draining, m.drainLeft,
	} {
		out <- d
	}
	for _, d := range schema.Dimensions() {
		out <- m.capacity[d]
		out <- m.used[d]
	}
	for _, u := range m.usage {
		out <- u.desc
	}
	m.commitRunning.Describe(out)
}

// Collect implements prometheus.Collector: it counts over the newest snapshot, or that of
// less than collectEvery ago. A cell whose owner does not answer has no metrics but an
// error.
func (m *Metrics) Collect(out chan<- prometheus.Metric) {
	m.last.mu.Lock()
	defer m.last.mu.Unlock()
	if m.last.metrics == nil || time.Since(m.last.at) >= collectEvery {
		m.last.metrics, m.last.at = nil, time.Now()
		if err := m.count(); err != nil {
			m.last.metrics = nil
			out <- prometheus.NewInvalidMetric(m.converged, err)
			return
		}
	}
	for _, x := range m.last.metrics {
		out <- x
	}
	m.commitRunning.Collect(out)
}

// count counts again.
func (m *Metrics) count() error {
	ctx, cancel := context.WithTimeout(context.Background(), collectTimeout)
	defer cancel()
	cell, _, err := m.cell.Snapshot(ctx)
	if err != nil {
		return err
	}
	m.collect(cell)
	if cell.Brief().Master != nil || cell.Brief().Replica != nil { // who does not lead knows of no usage
		return nil
	}
	return m.collectUsage(ctx)
}

// gauge adds a number to what is counted.
func (m *Metrics) gauge(d *prometheus.Desc, v float64, labels ...string) {
	m.last.metrics = append(m.last.metrics, prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...))
}

func (m *Metrics) collect(cell *status.Snapshot) {
	s, gauge := cell.Brief(), m.gauge
	gauge(m.converged, oneIf(s.Converged))
	gauge(m.upToDate, oneIf(s.Applied == s.Commit))
	gauge(m.source, oneIf(s.Source == ""))
	gauge(m.sourceAt, seconds(s.SourceAt))
	gauge(m.info, 1, s.Cell, s.Commit, s.Applied)
	gauge(m.stale, float64(len(s.Stale)+len(s.Pending)))
	gauge(m.unread, oneIf(s.Unread != nil))
	gauge(m.rejected, float64(len(s.Rejected)))
	held := 0
	for i := range s.Held {
		held += s.Held[i].Tasks
	}
	gauge(m.held, float64(held))
	for i := range s.Suspended {
		user, job, ok := strings.Cut(s.Suspended[i].Name, "/")
		if !ok {
			user, job = "*", "*"
		}
		gauge(m.suspended, 1, user, job)
		gauge(m.suspendedAt, seconds(s.Suspended[i].Since), user, job)
	}
	gauge(m.at, seconds(s.At))
	for kind, n := range count(cell.Jobs(), []string{"service", "batch", "system", "allocset"}, func(j *status.JobStatus) string { return string(j.Kind) }) {
		gauge(m.jobs, n, kind)
	}
	m.collectRollouts(cell)
	for state, n := range count(cell.Tasks(), status.TaskStates(), func(t *status.TaskStatus) status.TaskState { return t.State }) {
		gauge(m.tasks, n, string(state))
	}
	for health, n := range count(slices.Values(cell.Machines()), []string{"up", "silent", "lost"}, func(x *status.MachineStatus) string { return x.Health }) {
		gauge(m.machines.all, n, health)
	}
	gauge(m.machines.empty, count(slices.Values(cell.Machines()), []bool{true}, func(x *status.MachineStatus) bool { return x.Empty })[true])
	gauge(m.losses, float64(len(s.Losses)))
	m.collectDrains(s.Machines)
	var capacity, used schema.Resources
	conditions := map[schema.ConditionKind]int{}
	for i := range s.Machines {
		if x := &s.Machines[i]; x.Health == "up" {
			capacity, used = capacity.Add(x.Capacity), used.Add(x.Used)
			for _, c := range x.Conditions {
				conditions[c.Kind]++
			}
		}
	}
	for _, k := range schema.ConditionKinds() {
		gauge(m.machines.conditions, float64(conditions[k]), string(k))
	}
	for _, d := range schema.Dimensions() {
		unit := 1.0
		if d == schema.CPUMilli {
			unit = 1000
		}
		gauge(m.capacity[d], float64(capacity.Of(d))/unit)
		gauge(m.used[d], float64(used.Of(d))/unit)
	}
}

// collectDrains collects the metrics of machines that are draining.
func (m *Metrics) collectDrains(machines []status.MachineStatus) {
	left, states := 0, map[string]float64{"draining": 0, "waiting": 0, "drained": 0}
	for i := range machines {
		d := machines[i].Draining
		switch {
		case d == nil:
			continue
		case d.Left == 0:
			states["drained"]++
		case d.Turn:
			states["waiting"]++
		default:
			states["draining"]++
		}
		left += d.Left
	}
	for state, n := range states {
		m.gauge(m.draining, n, state)
	}
	m.gauge(m.drainLeft, float64(left))
}

// collectRollouts counts the jobs whose newest version is on its way.
func (m *Metrics) collectRollouts(cell *status.Snapshot) {
	rolling := []string{"canary", "waiting", "rolling", "held", "paused", "returned"}
	for state, n := range count(cell.Jobs(), rolling, func(j *status.JobStatus) string { return j.Rollout.Word() }) {
		if state != "" {
			m.gauge(m.rollouts, n, state)
		}
	}
}

// collectUsage collects what jobs use.
func (m *Metrics) collectUsage(ctx context.Context) error {
	jobs, err := m.cell.JobUsages(ctx)
	if err != nil {
		return err
	}
	for i := range jobs {
		for _, metric := range m.usage {
			m.gauge(metric.desc, metric.of(&jobs[i].Usage), jobs[i].User, jobs[i].Job)
		}
	}
	return nil
}

// seconds returns t in seconds since 1970, 0 if it is zero.
func seconds(t time.Time) float64 {
	if t.IsZero() {
		return 0
	}
	return float64(t.UnixMilli()) / 1000
}

func oneIf(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// count counts by key; those that are known are there with 0 too, so that a
// series does not come and go.
func count[T any, K comparable](list iter.Seq[*T], known []K, key func(*T) K) map[K]float64 {
	n := make(map[K]float64, len(known))
	for _, k := range known {
		n[k] = 0
	}
	for x := range list {
		n[key(x)]++
	}
	return n
}
