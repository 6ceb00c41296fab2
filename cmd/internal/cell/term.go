package cell

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/musterhq/muster/reconciler/events"
	"github.com/musterhq/muster/reconciler/link"
	"github.com/musterhq/muster/reconciler/loop"
	"github.com/musterhq/muster/reconciler/model"
	"github.com/musterhq/muster/reconciler/relay"
	"github.com/musterhq/muster/reconciler/replica"
	"github.com/musterhq/muster/reconciler/status"
	"github.com/musterhq/muster/reconciler/store"
	"github.com/musterhq/muster/schema"
)

// term is a master's time at the head of its cell, as the API and the link see
// it: they live as long as the process, and a loop as long as the store takes its
// writes. It is the Cell of the API, and where that finds logs and sessions beside tasks.
type term struct {
	cell   string
	events *events.Log
	known  <-chan struct{} // closed with the first change

	mu           sync.Mutex         // guards what follows
	loop         *loop.Loop         // nil while this master does not lead
	hub          *relay.Hub         // likewise
	absence      *status.Absence    // why, while it does not
	leader       string             // the API of the master that led last, of those that are not this one
	last         *status.Snapshot   // the newest that was asked for
	number       uint64             // counts changes of the above
	changed      chan struct{}      // closed with the next
	done, undone map[string]float64 // when each kind of upkeep was done last, in seconds since 1970, and how often it failed
	outages      int                // times without a store so far

	copy *replica.Copy // what other masters that lead push here; anyone

	writes writes             // anyone
	link   func() link.Counts // anyone
}

// termShift leaves a loop's versions room below the number of its term: the
// versions of two terms are never the same. Numbers of terms begin somewhere below
// maxFirst, so that those of two processes hardly ever are; and a version stays below
// 2^53, which each reader of JSON keeps exactly.
const (
	termShift = 32
	maxFirst  = 1 << 20
)

// Metrics returns the collector of a master that has not led yet.
func Metrics() prometheus.Collector {
	return newTerm("", replica.NewCopy(replica.CopyConfig{Log: slog.New(slog.DiscardHandler)}))
}

func newTerm(cell string, pushed *replica.Copy) *term {
	changed := make(chan struct{})
	return &term{
		done: map[string]float64{store.NoteSnapshot: 0, store.NoteDefrag: 0}, undone: map[string]float64{store.NoteSnapshot: 0, store.NoteDefrag: 0},
		link: func() link.Counts { return link.Counts{} },
		cell: cell, copy: pushed, changed: changed, known: changed, number: rand.Uint64N(maxFirst),
		absence: &status.Absence{Role: status.Starting, Since: time.Now(), Message: "the master is starting"},
	}
}

// begin says that l leads the cell from now on, and that h reaches its machines.
func (t *term) begin(l *loop.Loop, h *relay.Hub) { t.change(l, h, nil) }

// end says that nothing leads the cell here, and why. The same as before is no
// change; it returns whether it was one.
func (t *term) end(a status.Absence) bool {
	t.mu.Lock()
	was := t.absence
	t.mu.Unlock()
	if was != nil && was.Role == a.Role && was.Leader == a.Leader {
		if a.Message == was.Message {
			return false
		}
		a.Since = was.Since
	}
	t.change(nil, nil, &a)
	return was == nil || was.Role != a.Role || was.Leader != a.Leader
}

func (t *term) change(l *loop.Loop, h *relay.Hub, a *status.Absence) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if a != nil && a.Role == status.NoStore && (t.absence == nil || t.absence.Role != a.Role) {
		t.outages++
	}
	t.loop, t.hub, t.absence = l, h, a
	t.number++
	close(t.changed)
	t.changed = make(chan struct{})
	t.copy.Notify()
}

// absentError is the answer of a master that does not lead.
type absentError struct{ status.Absence }

func (e absentError) Error() string { return e.Message }

// Hint says what to do.
func (e absentError) Hint() string {
	if e.Leader != "" {
		return "ask the master that leads, at " + e.Leader
	}
	return "tasks run on meanwhile; the master resumes by itself when it can"
}

// leading returns the loop that leads, or why none does.
func (t *term) leading() (*loop.Loop, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.loop == nil {
		return nil, absentError{*t.absence}
	}
	return t.loop, nil
}

// with calls f with the loop that leads.
func with[T any](t *term, f func(*loop.Loop) (T, error)) (T, error) {
	l, err := t.leading()
	if err != nil {
		var zero T
		return zero, err
	}
	v, err := f(l)
	if errors.Is(err, loop.ErrStopped) {
		if _, absent := t.leading(); absent != nil {
			err = absent
		}
	}
	return v, err
}

// Sources says from where a machine gets an image or a package: the loop does, or the master that
// leads.
func (t *term) Sources(ctx context.Context, q schema.SourceQuestion) (schema.SourceAnswer, error) {
	if _, err := t.leading(); err != nil {
		return t.copy.Sources(ctx, q)
	}
	return with(t, func(l *loop.Loop) (schema.SourceAnswer, error) { return l.Sources(ctx, q) })
}

// Snapshot returns the cell as the loop describes it; while another master leads, as that
// has pushed it; and while neither is so, as it was known last, with the reason.
func (t *term) Snapshot(ctx context.Context) (*status.Snapshot, <-chan struct{}, error) {
	t.mu.Lock()
	l, number := t.loop, t.number
	t.mu.Unlock()
	if l != nil {
		s, newer, err := l.Snapshot(ctx)
		if err == nil {
			own := s.With(func(s *status.Status) { s.Version += number << termShift })
			t.mu.Lock()
			t.last = own
			t.mu.Unlock()
			return own, newer, nil
		}
		if !errors.Is(err, loop.ErrStopped) {
			return nil, nil, err
		}
		// It has ended a moment ago, or it has not been said yet why.
		t.mu.Lock()
		l = t.loop
		t.mu.Unlock()
		if l != nil {
			return nil, nil, err
		}
	}
	pushed := t.copy.State() // before the rest: what is newer than this closes its channel
	t.mu.Lock()
	defer t.mu.Unlock()
	version := t.number<<termShift + pushed.Number
	absence := t.absence
	switch {
	case absence == nil:
		return nil, nil, loop.ErrStopped // it leads again since a moment ago
	case pushed.Snapshot != nil:
		t.last = pushed.Snapshot
		return t.last.With(func(s *status.Status) {
			s.Version, s.Replica = version, t.replicaOf(&pushed)
		}), pushed.Newer, nil
	case t.last == nil:
		t.last = new(status.Describer).Describe(status.DescribeInput{State: model.NewState(t.cell), Observed: model.NewObserved(time.Now()), Now: time.Now()})
	}
	return t.last.With(func(s *status.Status) {
		s.Version, s.Converged, s.Master = version, false, absence
	}), pushed.Newer, nil
}

// replicaOf says which master leads, and how old the state is that it has pushed. The
// caller has the lock.
func (t *term) replicaOf(pushed *replica.Pushed) *status.Replica {
	return &status.Replica{Leader: t.leader, AgeSeconds: time.Since(pushed.ConfirmedAt).Round(time.Millisecond).Seconds()}
}

// Followed returns which master leads and how old the state is that it has pushed here;
// false while none is followed.
func (t *term) Followed() (status.Replica, bool) {
	pushed := t.copy.State()
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.absence == nil || pushed.Snapshot == nil {
		return status.Replica{}, false
	}
	return *t.replicaOf(&pushed), true
}

// Transport carries requests to the API of the master that leads.
func (t *term) Transport() http.RoundTripper { return t.copy.Transport() }

// CatchUp waits until the state here is as new as that of the master that leads.
func (t *term) CatchUp(ctx context.Context) error { return t.copy.CatchUp(ctx) }

// Why explains a job or task.
func (t *term) Why(ctx context.Context, name, machine string) (status.Explanation, bool, error) {
	l, err := t.leading()
	if err != nil {
		return status.Explanation{}, false, err
	}
	return l.Why(ctx, name, machine)
}

// Usages returns what the cell's machines and tasks use; nothing while nobody
// leads here.
func (t *term) Usages(ctx context.Context) (*status.Usage, error) {
	return with(t, func(l *loop.Loop) (*status.Usage, error) { return l.Usages(ctx) })
}

// JobUsages returns the sums of Usages by job.
func (t *term) JobUsages(ctx context.Context) ([]status.JobUsage, error) {
	return with(t, func(l *loop.Loop) ([]status.JobUsage, error) { return l.JobUsages(ctx) })
}

// Locate returns the machine that ran a task last, or first from a generation on:
// as the state has it, or, for a task that is gone from it, as the history has it.
func (t *term) Locate(ctx context.Context, task schema.TaskName, from uint64) (string, error) {
	machine, err := with(t, func(l *loop.Loop) (string, error) { return l.Locate(ctx, task, from) })
	if machine != "" || err != nil {
		return machine, err
	}
	q := schema.EventQuery{Task: task.Short(), Kind: schema.EventSchedule}
	if from == 0 {
		q.Newest, q.Limit = true, 1
	}
	records, err := t.events.Since(q)
	if err != nil {
		return "", err
	}
	for i := range records {
		if machine = records[i].Machine; from > 0 && records[i].Generation >= from {
			break
		}
	}
	return machine, nil
}

// Suspend leaves a job, or all of them, as it is.
func (t *term) Suspend(ctx context.Context, x schema.Suspension, lasts time.Duration) (*schema.Suspension, error) {
	return with(t, func(l *loop.Loop) (*schema.Suspension, error) { return l.Suspend(ctx, x, lasts) })
}

// Resume ends that.
func (t *term) Resume(ctx context.Context, name, by string) (*schema.Suspension, error) {
	return with(t, func(l *loop.Loop) (*schema.Suspension, error) { return l.Resume(ctx, name, by) })
}

// Restart restarts the tasks of a job that run, or one.
func (t *term) Restart(ctx context.Context, x schema.RestartRequest) (*schema.Restarting, error) {
	return with(t, func(l *loop.Loop) (*schema.Restarting, error) { return l.Restart(ctx, x) })
}

// CancelRestart ends that.
func (t *term) CancelRestart(ctx context.Context, name, by string) (*schema.Restarting, error) {
	return with(t, func(l *loop.Loop) (*schema.Restarting, error) { return l.CancelRestart(ctx, name, by) })
}

// Forget has a machine forgotten that is not connected.
func (t *term) Forget(ctx context.Context, machine string, x schema.Forgotten, dry bool) (*schema.Forgetting, error) {
	return with(t, func(l *loop.Loop) (*schema.Forgetting, error) { return l.Forget(ctx, machine, x, dry) })
}

// Logs asks the agent of a machine for a log, whichever master it is connected to.
func (t *term) Logs(ctx context.Context, machine string, r schema.LogRequest) (io.ReadCloser, error) {
	h, err := t.machines()
	if err != nil {
		return nil, err
	}
	return h.Logs(ctx, machine, r)
}

// Exec asks the agent of a machine for a session beside a task, likewise.
func (t *term) Exec(ctx context.Context, machine string, r schema.ExecRequest) (io.ReadWriteCloser, error) {
	h, err := t.machines()
	if err != nil {
		return nil, err
	}
	return h.Exec(ctx, machine, r)
}

// machines returns what reaches the cell's machines, or why this master does not.
func (t *term) machines() (*relay.Hub, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.hub == nil {
		return nil, absentError{*t.absence}
	}
	return t.hub, nil
}

// Is makes it loop.ErrStopped, too.
func (e absentError) Is(target error) bool { return target == loop.ErrStopped }

// kept counts a maintenance of the store.
func (t *term) kept(what string, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err != nil {
		t.undone[what]++
	} else {
		t.done[what] = float64(time.Now().Unix())
	}
}

// The metrics of a term.
var (
	upkeepDesc   = prometheus.NewDesc("muster_store_upkeep_timestamp_seconds", "Time of the last maintenance of the store, in seconds since 1970, by kind: a snapshot, or a defragmentation; 0 if never since the master started.", []string{"what"}, nil)
	failedDesc   = prometheus.NewDesc("muster_store_upkeep_failures_total", "Snapshots and defragmentations that failed.", []string{"what"}, nil)
	roleDesc     = prometheus.NewDesc("muster_master_role", "1 for the current role of this master: leader, standby, starting, or without a store.", []string{"role"}, nil)
	sessionsDesc = prometheus.NewDesc("muster_link_sessions", "Machines whose agents are connected to this master, whether it leads or not.", nil, nil)
	reportsDesc  = prometheus.NewDesc("muster_link_reports_total", "Reports of the machines connected to this master: whole ones, and repeated ones, of which only the digest is sent.", []string{"report"}, nil)
	outagesDesc  = prometheus.NewDesc("muster_store_outages_total", "Times that this master lost its store: it could not be reached or written to.", nil, nil)
)

// Describe implements prometheus.Collector.
func (*term) Describe(out chan<- *prometheus.Desc) {
	out <- roleDesc
	out <- outagesDesc
	out <- sessionsDesc
	out <- reportsDesc
	out <- writesDesc
	out <- documentsDesc
	out <- upkeepDesc
	out <- failedDesc
}

// Collect implements prometheus.Collector.
func (t *term) Collect(out chan<- prometheus.Metric) {
	t.writes.collect(out)
	n := t.link()
	out <- prometheus.MustNewConstMetric(sessionsDesc, prometheus.GaugeValue, float64(n.Sessions))
	out <- prometheus.MustNewConstMetric(reportsDesc, prometheus.CounterValue, float64(n.Whole), "whole")
	out <- prometheus.MustNewConstMetric(reportsDesc, prometheus.CounterValue, float64(n.Repeated), "repeated")
	t.mu.Lock()
	defer t.mu.Unlock()
	is := status.Leader
	if t.absence != nil {
		is = t.absence.Role
	}
	for _, role := range []status.Role{status.Leader, status.Standby, status.Starting, status.NoStore} {
		v := 0.0
		if role == is {
			v = 1
		}
		out <- prometheus.MustNewConstMetric(roleDesc, prometheus.GaugeValue, v, string(role))
	}
	for _, what := range []string{store.NoteSnapshot, store.NoteDefrag} {
		out <- prometheus.MustNewConstMetric(upkeepDesc, prometheus.GaugeValue, t.done[what], what)
		out <- prometheus.MustNewConstMetric(failedDesc, prometheus.CounterValue, t.undone[what], what)
	}
	out <- prometheus.MustNewConstMetric(outagesDesc, prometheus.CounterValue, float64(t.outages))
}

// standby says that this master waits, and which one leads.
func (t *term) standby(leader string) {
	a := status.Absence{Role: status.Standby, Since: time.Now(), Leader: leader, Message: "this master is on standby: another one is about to lead"}
	if leader != "" {
		a.Message = fmt.Sprintf("this master is on standby: %s leads", leader)
		t.mu.Lock()
		t.leader = leader
		t.mu.Unlock()
	}
	t.end(a)
}
