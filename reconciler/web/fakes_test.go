package web_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/musterhq/muster/placement"
	"github.com/musterhq/muster/reconciler/control"
	"github.com/musterhq/muster/reconciler/control/snapshot"
	"github.com/musterhq/muster/reconciler/model"
	"github.com/musterhq/muster/reconciler/quota"
	"github.com/musterhq/muster/reconciler/status"
	"github.com/musterhq/muster/reconciler/web"
	"github.com/musterhq/muster/reconciler/web/client"
	"github.com/musterhq/muster/schema"
	"github.com/musterhq/muster/schema/identity"
)

var at = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

const (
	head    = "0123456789abcdef0123456789abcdef01234567"
	applied = "89abcdef0123456789abcdef0123456789abcdef"
)

// busy is a cell in which everything happens that a status can show.
func busy() *status.Status {
	broken := schema.Diagnostic{
		Severity: schema.Error, Position: schema.Position{Path: "teams/search/web.cue", Line: 7, Column: 3},
		Field: "job.web.tasks", Message: "invalid value -1", Expected: ">=0", Hint: "tasks counts from 0",
	}
	over := schema.Diagnostic{
		Severity: schema.Error, Position: schema.Position{Path: "teams/ads/db.cue", Line: 4, Column: 1},
		Message: "over quota of band production by 500m CPU", Hint: "ask for less, or raise quota ads-prod",
	}
	gib := int64(1) << 30
	return &status.Status{
		Cell: "local", At: at, Commit: head, Applied: applied,
		Waiting: []string{"1 package is stale", "1 task of search/web is starting"},
		Behind: status.Behind{
			Stale:   []status.StalePackage{{Dir: "teams/search", Reason: "it does not compile", Diagnostics: []schema.Diagnostic{broken}, Next: "muster validate teams/search"}},
			Pending: []status.PendingPackage{{Dir: "teams/late", Reason: "what tenant late has takes long"}},
		},
		Unread:   &status.UnreadCommit{Reason: "cue.mod: no module", Diagnostics: []schema.Diagnostic{{Severity: schema.Error, Position: schema.Position{Path: "cue.mod"}, Message: "no module", Hint: "muster init writes one"}}, Next: "muster validate"},
		Rejected: []status.Rejection{{Job: "ads/db", User: "ads", Band: schema.BandProduction, Cause: quota.RejectedOverQuota, Diagnostic: over, Next: "muster why ads/db"}},
		Suspended: []status.SuspensionStatus{
			{Suspension: schema.Suspension{Name: "all", Reason: "the repository is being repaired", By: "root", Since: at.Add(-time.Hour), Until: at.Add(time.Hour)}, Waits: "commit 0123456789 waits", Next: "muster resume all"},
			{Suspension: schema.Suspension{Name: "search/web", Reason: "<i>incident</i> 4711", By: "operator/anna", Since: at.Add(-time.Minute)}, Next: "muster resume search/web"},
		},
		Warnings: []quota.Warning{{User: "ads", Band: schema.BandProduction, Diagnostic: schema.Diagnostic{
			Severity: schema.Warning, Position: schema.Position{Path: "tenants.cue", Line: 12, Column: 8}, Field: "quota.ads-spring",
			Message: "owner ads, production, has more than its quota: tasks 3 of 0, over by 3", Hint: "have it prolonged",
		}}},
		Machines: []status.MachineStatus{
			{Name: "m1", Health: "up", Capacity: schema.Resources{CPUMilli: 4000, RAMBytes: 8 * gib, DiskBytes: 100 * gib}, Used: schema.Resources{CPUMilli: 1500, RAMBytes: gib, DiskBytes: 512}, Tasks: 2, Notes: []string{"no cgroups"}},
			{Name: "m2", Health: "lost", Capacity: schema.Resources{CPUMilli: 9000}},
		},
		Jobs: []status.JobStatus{
			{Name: "search/index", Kind: schema.Batch, Band: schema.BandBatch, Desired: 1, Done: 1, Image: "docker.io/library/\"nginx\":1.27@" + string(schema.DigestOf("image"))},
			{Name: "search/web", Kind: schema.Service, Band: schema.BandProduction, Desired: 2, Running: 1, Pending: 1, Reason: "<b>1 task</b> is starting"},
		},
		Tasks: []status.TaskStatus{
			{Name: "search/index/0", State: "done", Restarts: 1, History: []string{"exited with status 3", "exited with status 0"}},
			{Name: "search/web/0", State: "running", Machine: "m1", PID: 4711, StartedAt: at.Add(-time.Hour), Ports: schema.PortsOf(map[string]int{"http": 20001, "admin": 20002}), Generation: 3},
			{Name: "search/web/1", State: "starting", Machine: "m1", Generation: 4, Reason: "it starts"},
		},
		SourceStatus: status.SourceStatus{Source: "fetch: connection refused", SourceAt: at.Add(-time.Minute)}, Notes: []string{"not root: tasks run as this user"},
	}
}

// using is what the tasks of busy use.
func using() *status.Usage {
	mib := int64(1) << 20
	limit := schema.Resources{CPUMilli: 500, RAMBytes: 64 * mib, DiskBytes: 64 * mib}
	return &status.Usage{
		Cell: "local", At: at,
		Machines: []status.MachineUsageLine{{
			Name: "m1", HeardAt: at.Add(-2 * time.Second), Tasks: 2,
			Used:     schema.Resources{CPUMilli: 1200, RAMBytes: 2 << 30, DiskBytes: 40 << 30},
			Capacity: schema.Resources{CPUMilli: 4000, RAMBytes: 8 << 30, DiskBytes: 100 << 30}, RAMAvailable: 6 << 30, DiskAvailable: 60 << 30,
		}},
		Tasks: []status.TaskUsageLine{
			{Name: "search/web/0", Machine: "m1", Band: schema.BandProduction, Generation: 3, Incarnation: 1, HeardAt: at, Limit: limit, Usage: schema.Usage{
				At: at, CPUMilli: 250, RAMBytes: 32 * mib, CacheBytes: 4 * mib, DiskBytes: mib, DiskAt: at, Processes: 7, ThrottledMilli: 20, DelayMilli: 5, OOMKills: 1,
			}},
			{Name: "search/web/1", Machine: "m1", Band: schema.BandProduction, Generation: 4, Incarnation: 1, HeardAt: at, Limit: limit, Usage: schema.Usage{
				At: at, CPUMilli: 500, RAMBytes: 16 * mib, Processes: 1,
			}},
		},
	}
}

// cell is a fake of everything behind the API.
type cell struct {
	mu      sync.Mutex
	status  *status.Status
	version uint64
	newer   chan struct{}
	looked  int
	away    error // of the repository
	trouble error // of the cell's owner; set before it is used
	// services are those of the cell; set before it is used.
	services []*status.ServiceStatus

	events []schema.EventRecord
	more   chan struct{}

	suspensions []schema.Suspension // that were asked for
	restarts    []schema.RestartRequest
	forgotten   []schema.Forgotten
	resumed     []string // by whom

	logs   func(ctx context.Context, w io.Writer) error // nil: no such machine
	opened []string
}

func newCell(s *status.Status) *cell {
	return &cell{status: s, version: 1, newer: make(chan struct{}), more: make(chan struct{})}
}

func (c *cell) publish(s *status.Status) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.status = s
	c.version++
	close(c.newer)
	c.newer = make(chan struct{})
}

func (c *cell) Snapshot(context.Context) (*status.Snapshot, <-chan struct{}, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.trouble != nil {
		return nil, nil, c.trouble
	}
	s := *c.status
	s.Version = c.version
	return status.SnapshotOf(&s).WithServices(c.services), c.newer, nil
}

func (c *cell) Usages(context.Context) (*status.Usage, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.trouble != nil {
		return nil, c.trouble
	}
	u := *using()
	return &u, nil
}

func (c *cell) JobUsages(context.Context) ([]status.JobUsage, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.trouble != nil {
		return nil, c.trouble
	}
	sum := using().Tasks[0].Usage
	sum.CPUMilli, sum.RAMBytes, sum.Processes = 750, 48<<20, 8
	return []status.JobUsage{{User: "search", Job: "web", Usage: sum}}, nil
}

func (c *cell) Why(_ context.Context, name, machine string) (status.Explanation, bool, error) {
	e := status.Explanation{Name: name, Tasks: []status.TaskStatus{}}
	if name == "" {
		e.Machine = &status.MachineStatus{Name: machine}
		return e, machine == "m1", c.trouble
	}
	if machine != "" {
		e.Placement = &snapshot.Placing{}
		if machine == "m1" {
			e.Placement.Verdict = &snapshot.MachineVerdict{Verdict: placement.Verdict{Machine: machine, Reason: placement.ReasonCPU}}
		}
	}
	return e, strings.HasPrefix(name, "search/web"), c.trouble
}

func (c *cell) Locate(_ context.Context, task schema.TaskName, _ uint64) (string, error) {
	if task.Index > 1 {
		return "", c.trouble
	}
	return "m1", c.trouble
}

func (c *cell) Logs(ctx context.Context, machine string, r schema.LogRequest) (io.ReadCloser, error) {
	c.mu.Lock()
	c.opened = append(c.opened, fmt.Sprintf("%s %+v", machine, r))
	c.mu.Unlock()
	if c.logs == nil {
		return nil, errors.New("machine m1: not connected to the master")
	}
	read, write := io.Pipe()
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		defer cancel()
		_ = write.CloseWithError(c.logs(ctx, write))
	}()
	return read, nil
}

func (c *cell) Suspend(_ context.Context, x schema.Suspension, lasts time.Duration) (*schema.Suspension, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if x.Name == "search/none" {
		return nil, &model.NotFoundError{Message: `cell local has no job "search/none"`, Hint: "muster status lists the jobs"}
	}
	if x.Since = at; lasts > 0 {
		x.Until = at.Add(lasts)
	}
	c.suspensions = append(c.suspensions, x)
	return &x, c.trouble
}

func (c *cell) Restart(_ context.Context, x schema.RestartRequest) (*schema.Restarting, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	x.At, x.After, x.Tasks = at, 7, 3
	c.restarts = append(c.restarts, x)
	return &schema.Restarting{Now: &x, Was: []schema.RestartRequest{}, AtOnce: 1}, c.trouble
}

func (c *cell) Forget(_ context.Context, machine string, x schema.Forgotten, dry bool) (*schema.Forgetting, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch machine {
	case "none":
		return nil, &model.NotFoundError{Message: `cell local has no machine "none"`, Hint: "muster status lists the machines"}
	case "here":
		return nil, &control.LinkedError{Machine: machine, Place: schema.Place{Host: "h"}}
	}
	if !dry {
		c.forgotten = append(c.forgotten, x)
	}
	return &schema.Forgetting{Machine: machine, Tasks: []string{"search/web/0"}, NeverTwice: []string{}, Done: !dry}, c.trouble
}

func (c *cell) CancelRestart(_ context.Context, name, by string) (*schema.Restarting, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if name == "search/none" {
		return nil, &model.NotFoundError{Message: `cell local has no job "search/none"`, Hint: "muster status lists the jobs"}
	}
	return &schema.Restarting{Was: []schema.RestartRequest{{Name: name, By: by}}}, c.trouble
}

func (c *cell) Resume(_ context.Context, name, by string) (*schema.Suspension, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.resumed = append(c.resumed, name+" by "+by)
	for i := range c.suspensions {
		if c.suspensions[i].Name == name {
			return &c.suspensions[i], c.trouble
		}
	}
	return nil, c.trouble
}

func (c *cell) record(e schema.Event) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.events = append(c.events, schema.EventRecord{ID: uint64(len(c.events) + 1), Event: e})
	close(c.more)
	c.more = make(chan struct{})
}

func (c *cell) Since(q schema.EventQuery) ([]schema.EventRecord, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var found []schema.EventRecord
	for i := range c.events {
		if c.events[i].ID > q.After && q.Matches(&c.events[i].Event) {
			found = append(found, c.events[i])
		}
	}
	n := len(found)
	if q.Limit > 0 {
		n = min(n, q.Limit)
	}
	if q.Newest {
		return found[len(found)-n:], nil
	}
	return found[:n], nil
}

func (c *cell) Wait(ctx context.Context, after uint64) error {
	for {
		c.mu.Lock()
		n, more := uint64(len(c.events)), c.more
		c.mu.Unlock()
		if n > after {
			return nil
		}
		select {
		case <-more:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func newRegistry(c prometheus.Collector) *prometheus.Registry {
	r := prometheus.NewPedanticRegistry()
	r.MustRegister(c)
	return r
}

func config(c *cell) web.Config {
	return web.Config{
		Name: "local", Cell: c, Suspensions: c, Restarts: c, Machines: c, History: commits{}, Logs: c, Events: c, Metrics: newRegistry(web.NewMetrics(c)), Log: slog.New(slog.DiscardHandler),
		Repository: c,
		// Whoever runs the test may ask.
		Local: web.Local{Own: 990, Users: []web.LocalUser{{First: uint32(os.Geteuid()), Last: uint32(os.Geteuid()), Role: identity.Operator}}},
	}
}

// serve runs the API and returns a client of it, and its URL.
func serve(t *testing.T, c *cell) (cl *client.Client, url string, stop func()) {
	t.Helper()
	l, err := web.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- web.New(config(c)).Serve(ctx, l) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(stop)
	url = "http://" + l.Addr().String()
	cl, err = client.New(url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	return cl, url, stop
}

// Look finds the commit 2.
func (c *cell) Look(context.Context) (*status.Look, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.looked++
	return &status.Look{Commit: "2", Was: "1", Applied: "1"}, c.away
}

// Standing says that the head contains each commit.
func (c *cell) Standing(_ context.Context, name string) (*status.Standing, error) {
	return &status.Standing{Name: name, Head: "1", Is: status.StandsContained}, nil
}

// commits is the history of commit 12, and of none beside it.
type commits struct{}

func (commits) Answer(commit string, most int) (any, error) {
	switch commit {
	case "":
		return []int{most}, nil
	case "1":
		return map[string]string{"commit": "12"}, nil
	}
	return nil, nil
}
