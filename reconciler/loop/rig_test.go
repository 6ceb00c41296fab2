package loop_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/musterhq/muster/reconciler/loop"
	"github.com/musterhq/muster/reconciler/model"
	"github.com/musterhq/muster/reconciler/status"
	"github.com/musterhq/muster/reconciler/store"
	"github.com/musterhq/muster/schema"
)

// rig is a Loop that runs, and the fakes around it. It lives in a synctest
// bubble, which fails when a goroutine is left in it.
type rig struct {
	*loop.Loop
	t      *testing.T
	memory *store.Memory
	reader *store.Store // sees what is stored, and never leads
	cancel context.CancelFunc
	ended  chan error

	intended []schema.Event // of what is being stored

	mu      sync.Mutex // guards all below
	trace   []string   // what the store and the machines were sent, in order
	views   map[string]schema.View
	settled []string
	events  []schema.Event
	hold    chan struct{} // while not nil, the owner waits for it to be closed
	slow    time.Duration // that a round takes of which nothing is logged
}

// start runs a new master on m.
func start(t *testing.T, m *store.Memory) *rig {
	t.Helper()
	r := prepare(t, m)
	r.run()
	return r
}

// prepare makes a new master on m that leads but does not run yet.
func prepare(t *testing.T, m *store.Memory) *rig {
	t.Helper()
	r := &rig{t: t, memory: m, ended: make(chan error, 1), views: map[string]schema.View{}}
	s, err := m.Open("c")
	if err == nil {
		err = s.Campaign(t.Context(), "test")
	}
	if err == nil {
		r.reader, err = m.Open("c")
	}
	if err != nil {
		t.Fatal(err)
	}
	r.Loop = loop.New(loop.Config{
		Cell: "c", Store: s, Pusher: r, Events: r, Now: time.Now,
		Settled: func(commit string, took time.Duration) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.settled = append(r.settled, fmt.Sprintf("%s %s", commit, took))
		},
	})
	r.failAt(0, store.Taken)
	return r
}

// failAt records transactions, and gives the nth from now (from 1; 0 is none)
// the given fate.
func (r *rig) failAt(n int, fate store.Fate) {
	from := r.memory.Transactions()
	r.memory.Hook(func(i int) store.Fate {
		if i-from == n {
			r.note("store: %s", []string{"taken", "refused", "forgotten"}[fate])
			return fate
		}
		r.note("store: taken")
		return store.Taken
	})
}

func (r *rig) run() {
	ctx, cancel := context.WithCancel(r.t.Context())
	r.cancel = cancel
	go func() { r.ended <- r.Run(ctx) }()
}

// stop ends Run in order.
func (r *rig) stop() {
	r.t.Helper()
	r.cancel()
	if err := <-r.ended; err != nil {
		r.t.Errorf("Run ended with %v", err)
	}
}

func (r *rig) note(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.trace = append(r.trace, fmt.Sprintf(format, args...))
}

// traced returns what was recorded since it was last called.
func (r *rig) traced() []string {
	synctest.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	out := r.trace
	r.trace = nil
	return out
}

// Push implements loop.Pusher. Whatever a machine is sent must be what the
// store holds at that moment.
func (r *rig) Push(machine string, view schema.View) {
	stored := model.View(r.stored(), machine, nil)
	stored.Epoch, stored.Version = view.Epoch, view.Version
	if diff := cmp.Diff(stored, view); diff != "" {
		r.t.Errorf("view %d of %s is not what is stored: %s", view.Version, machine, diff)
	}
	names := []string{}
	for _, a := range view.Assignments {
		names = append(names, fmt.Sprintf("%s#%d", a.Task.Short(), a.Generation))
	}
	r.note("push %d to %s: %v", view.Version, machine, names)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.views[machine] = view
}

// stored returns the state that the next master would load.
func (r *rig) stored() *model.State {
	r.t.Helper()
	docs, err := r.reader.Load(context.Background())
	if err != nil {
		r.t.Error(err)
	}
	s, err := model.Load("c", docs, nil)
	if err != nil {
		r.t.Error(err)
	}
	return s
}

// Append implements loop.EventLog.
func (r *rig) Append(events []schema.Event) {
	r.mu.Lock()
	r.events = append(r.events, events...)
	hold, slow := r.hold, r.slow
	r.mu.Unlock()
	if hold != nil {
		<-hold
	}
	if len(events) == 0 {
		time.Sleep(slow)
	}
}

// Intend and Settle implement loop.EventLog: what may have been stored is logged.
func (r *rig) Intend(events []schema.Event) { r.intended = events }

func (r *rig) Settle(error) { r.Append(r.intended) }

// Last implements loop.EventLog.
func (r *rig) Last() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return uint64(len(r.events))
}

// logged returns the kinds of events that were logged, with their tasks.
func (r *rig) logged() map[string]bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	logged := map[string]bool{}
	for _, e := range r.events {
		logged[strings.TrimSpace(string(e.Kind)+" "+e.Task)] = true
	}
	return logged
}

// burst has the owner find all that the calls send at once. The calls run
// concurrently, and are queued in order.
func (r *rig) burst(calls ...func()) {
	r.t.Helper()
	hold := make(chan struct{})
	r.mu.Lock()
	r.hold = hold
	r.mu.Unlock()
	var wg sync.WaitGroup
	// What is new of the repository is written to the log, where the owner waits.
	calls = append([]func(){func() { _ = r.HeadSeen(r.t.Context(), model.Seen{Rewritten: "c0"}) }}, calls...)
	for _, call := range calls {
		wg.Go(call)
		synctest.Wait()
	}
	r.mu.Lock()
	r.hold = nil
	r.mu.Unlock()
	close(hold)
	wg.Wait()
}

// join joins machine m1.
func (r *rig) join() uint64 {
	r.t.Helper()
	epoch, err := r.Join(r.t.Context(), machine())
	if err != nil {
		r.t.Error(err)
	}
	return epoch
}

// said hands a loop one update of a session.
func said(ctx context.Context, l *loop.Loop, w model.SessionUpdate) error {
	refused, err := l.UpdateSessions(ctx, []model.SessionUpdate{w})
	if err != nil {
		return err
	}
	return refused[0]
}

// Report hands in a report.
func (r *rig) Report(ctx context.Context, machine string, epoch uint64, report schema.Report) error {
	return said(ctx, r.Loop, model.SessionUpdate{Machine: machine, Epoch: epoch, Report: &report})
}

// Leave says that a session has ended.
func (r *rig) Leave(machine string, epoch uint64) {
	r.t.Helper()
	if err := said(r.t.Context(), r.Loop, model.SessionUpdate{Machine: machine, Epoch: epoch, Left: true}); err != nil {
		r.t.Error(err)
	}
}

// report reports all that m1 was assigned as running.
func (r *rig) report(epoch uint64) {
	r.t.Helper()
	if err := r.Report(r.t.Context(), "m1", epoch, r.running()); err != nil {
		r.t.Error(err)
	}
}

func (r *rig) running() schema.Report {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := schema.Report{Machine: machine()}
	for _, a := range r.views["m1"].Assignments {
		out.Tasks = append(out.Tasks, schema.TaskStatus{
			Task: a.Task, Generation: a.Generation, State: schema.Running, Incarnation: 1, PID: 1, StartedAt: time.Now(),
		})
	}
	return out
}

// apply has the repository move to a commit that compiles to the given jobs.
func (r *rig) apply(commit string, jobs ...schema.Job) {
	r.t.Helper()
	if err := r.HeadSeen(r.t.Context(), model.Seen{Commit: commit}); err != nil {
		r.t.Error(err)
	}
	if err := r.Adopt(r.t.Context(), compiledOf(commit, jobs...)); err != nil {
		r.t.Error(err)
	}
}

func (r *rig) status() *status.Status {
	r.t.Helper()
	s, _ := r.statusAndNewer()
	return s
}

func (r *rig) statusAndNewer() (*status.Status, <-chan struct{}) {
	r.t.Helper()
	s, newer, err := r.Snapshot(r.t.Context())
	if err != nil {
		r.t.Error(err)
		return &status.Status{}, nil
	}
	return s.Whole(), newer
}

func machine() schema.MachineInfo {
	return schema.MachineInfo{
		Name: "m1", Boot: "b1", Capacity: schema.Resources{CPUMilli: 1000, RAMBytes: 1 << 30, DiskBytes: 1 << 30},
		Ports: schema.PortRange{First: 20000, Last: 20100},
	}
}

// web is a job of which m1 can hold ten tasks.
func web(tasks int) schema.Job {
	return schema.Job{
		Name: "web", User: "u", Cell: "c", Kind: schema.Service, Tasks: tasks, Update: schema.UpdatePolicy{MaxParallel: 1},
		Task: schema.TaskSpec{
			Process:   schema.Process{Command: []string{"sleep", "1"}},
			Resources: schema.TaskResources{Resources: schema.Resources{CPUMilli: 100}},
		},
	}
}

// compiledOf returns a commit with one package that declares jobs.
func compiledOf(commit string, jobs ...schema.Job) schema.Compiled {
	p := &schema.Package{Dir: "u", Objects: schema.Objects{Jobs: jobs}, Origins: map[schema.ObjectKey]schema.Position{}}
	for i := range jobs {
		p.Origins[schema.ObjectKey{Kind: schema.KindJob, Name: jobs[i].ID().String()}] = schema.Position{Path: "u/job.cue", Line: i + 1}
	}
	return schema.Compiled{Commit: commit, Packages: []schema.CompiledPackage{{Dir: "u", Package: p, Digest: schema.DigestOf(p)}}}
}

func wantTrace(t *testing.T, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("trace: (-want +got)\n%s", cmp.Diff(want, got))
	}
}
