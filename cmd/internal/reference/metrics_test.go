package reference

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	wired "github.com/musterhq/muster/cmd/internal/cell"
	"github.com/musterhq/muster/nodeagent/credential"
	"github.com/musterhq/muster/nodeagent/image/peer"
	"github.com/musterhq/muster/nodeagent/loop"
	"github.com/musterhq/muster/nodeagent/network/dns"
	"github.com/musterhq/muster/reconciler/link"
	"github.com/musterhq/muster/reconciler/pki"
	"github.com/musterhq/muster/reconciler/status"
	"github.com/musterhq/muster/reconciler/web"
	"github.com/musterhq/muster/schema"
)

//go:generate go test -count=1 -run ^TestMetrics$ . -update

var update = flag.Bool("update", false, "write docs/reference/metrics.md")

// TestMetrics holds docs/reference/metrics.md to the collectors.
func TestMetrics(t *testing.T) {
	t.Parallel()
	const page = "../../../docs/reference/metrics.md"
	var master, agent recorder
	m := web.NewMetrics(emptyCell{})
	master.types = gathered(t, m)
	master.MustRegister(m)
	for _, c := range append(pki.NewMetrics(time.Now, time.Now), wired.Metrics(), web.New(web.Config{}).Refusals(), link.New(link.Config{}).Refusals()) {
		maps.Copy(master.types, gathered(t, c))
		master.MustRegister(c)
	}
	own := credential.NewMetrics(&credential.Store{})
	agent.types = gathered(t, own)
	agent.MustRegister(own)
	none := func() int64 { return 0 }
	for _, m := range peer.NewMetrics(peer.Traffic{FromHosts: none, FromMachines: none, Sent: none}) {
		maps.Copy(agent.types, gathered(t, m))
		agent.MustRegister(m)
	}
	if _, err := dns.NewServer(dns.Config{Metrics: &agent}); err != nil {
		t.Fatal(err)
	}
	_, err := loop.New(t.Context(), loop.Config{
		Cell: "local", Machine: schema.MachineInfo{Name: "m"}, Dir: t.TempDir(), Log: slog.New(slog.DiscardHandler), Metrics: &agent,
	})
	if err != nil {
		t.Fatal(err)
	}
	Section(t, page, "master", master.table(), *update)
	Section(t, page, "agent", agent.table(), *update)
}

// emptyCell is a cell in which nothing is.
type emptyCell struct{ web.Cell }

func (emptyCell) Snapshot(context.Context) (*status.Snapshot, <-chan struct{}, error) {
	// What is exposed by name is exposed of what there is.
	suspended := status.SuspensionStatus{Suspension: schema.Suspension{Name: "u/j"}}
	return status.SnapshotOf(&status.Status{Cell: "local", Suspended: []status.SuspensionStatus{suspended}}), nil, nil
}

func (emptyCell) JobUsages(context.Context) ([]status.JobUsage, error) {
	// One job, since what is exposed by job is exposed of jobs that run.
	return []status.JobUsage{{User: "u", Job: "j"}}, nil
}

// gathered returns the type of each metric of a collector, by name.
func gathered(t *testing.T, c prometheus.Collector) map[string]string {
	t.Helper()
	r := prometheus.NewPedanticRegistry()
	r.MustRegister(c)
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	types := map[string]string{}
	for _, f := range families {
		types[f.GetName()] = strings.ToLower(f.GetType().String())
	}
	return types
}

// recorder is a Registerer that takes down what metrics say of themselves.
type recorder struct {
	types map[string]string // of what the collector's type does not say
	rows  []string
}

// description is how a Desc prints itself; it has no other way to be read.
var description = regexp.MustCompile(`^Desc\{fqName: "([^"]+)", help: "((?:[^"\\]|\\.)*)", (?:unit: "[^"]*", )?constLabels: \{\}, variableLabels: \{([^}]*)\}`)

func (r *recorder) Register(c prometheus.Collector) error {
	descs := make(chan *prometheus.Desc, 100)
	c.Describe(descs)
	close(descs)
	for d := range descs {
		m := description.FindStringSubmatch(d.String())
		if m == nil {
			return fmt.Errorf("cannot read %s", d)
		}
		kind := r.types[m[1]]
		if kind == "" {
			kind = typeOf(c)
		}
		if kind == "" {
			return fmt.Errorf("%s has a type that this test does not know", m[1])
		}
		labels := ""
		if m[3] != "" {
			labels = "`" + strings.ReplaceAll(m[3], ",", "`, `") + "`"
		}
		r.rows = append(r.rows, fmt.Sprintf("| %s | %s | %s | %s |\n", "`"+m[1]+"`", kind, labels, cell(m[2])))
	}
	return nil
}

func typeOf(c prometheus.Collector) string {
	switch c.(type) {
	case *prometheus.GaugeVec, prometheus.Gauge: // before Counter, whose methods a Gauge has
		return "gauge"
	case *prometheus.CounterVec, prometheus.Counter:
		return "counter"
	case *prometheus.HistogramVec, prometheus.Histogram:
		return "histogram"
	}
	return ""
}

func (r *recorder) MustRegister(list ...prometheus.Collector) {
	for _, c := range list {
		if err := r.Register(c); err != nil {
			panic(err)
		}
	}
}

func (*recorder) Unregister(prometheus.Collector) bool { return false }

func (r *recorder) table() string {
	slices.Sort(r.rows)
	return "| name | type | labels | meaning |\n|---|---|---|---|\n" + strings.Join(r.rows, "")
}
