package relay_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/musterhq/muster/reconciler/model"
	"github.com/musterhq/muster/reconciler/relay"
	"github.com/musterhq/muster/schema"
	"github.com/musterhq/muster/schema/linkpb"
)

const patience = time.Minute // far more than anything here takes

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %s", patience, what)
		}
	}
}

// epochs are those that the store of a cell has.
type epochs struct {
	mu  sync.Mutex
	all map[string]uint64
}

func (e *epochs) of(machine string) uint64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.all[machine]
}

// loop is a fake one, which leads for a term.
type loop struct {
	stored *epochs
	ended  chan struct{}

	mu       sync.Mutex // guards what follows
	live     map[string]uint64
	joins    []schema.MachineInfo
	reports  map[string]int // how many came whole
	reported map[string]int
	refuse   error // of Join
	hold     chan struct{}
}

func (l *loop) Join(_ context.Context, info schema.MachineInfo) (uint64, error) {
	l.mu.Lock()
	l.joins = append(l.joins, info)
	refuse, hold := l.refuse, l.hold
	l.mu.Unlock()
	if hold != nil {
		<-hold
	}
	if refuse != nil {
		return 0, refuse
	}
	l.stored.mu.Lock()
	defer l.stored.mu.Unlock()
	l.stored.all[info.Name]++
	l.mu.Lock()
	defer l.mu.Unlock()
	l.live[info.Name] = l.stored.all[info.Name]
	return l.live[info.Name], nil
}

func (l *loop) UpdateSessions(_ context.Context, all []model.SessionUpdate) ([]error, error) {
	select {
	case <-l.ended:
		return nil, errors.New("it has ended")
	default:
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	refused := make([]error, len(all))
	for i := range all {
		w := &all[i]
		switch {
		case w.Left:
			if l.live[w.Machine] == w.Epoch {
				delete(l.live, w.Machine)
			}
			continue
		case w.Resume != nil && l.stored.of(w.Machine) != w.Epoch:
			refused[i] = errors.New("not the newest")
			continue
		case w.Resume != nil:
			l.live[w.Machine] = w.Epoch
		case l.live[w.Machine] != w.Epoch:
			refused[i] = fmt.Errorf("machine %s has no session %d", w.Machine, w.Epoch)
			continue
		}
		if w.Report != nil {
			l.reports[w.Machine]++
		}
		if w.Reported {
			l.reported[w.Machine]++
		}
	}
	return refused, nil
}

func (l *loop) Ended() <-chan struct{} { return l.ended }

func (l *loop) connected(machine string) uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.live[machine]
}

func (l *loop) whole(machine string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.reports[machine]
}

// agents is a fake link server.
type agents struct {
	mu      sync.Mutex // guards what follows
	pushed  []string   // machine, epoch and version of each view, and how many tasks
	ended   []string   // machine, epoch and why
	answers bool
	asked   []string // machine and life
	log     io.ReadCloser
	session io.ReadWriteCloser
}

func (a *agents) Push(machine string, view schema.View) {
	a.note(&a.pushed, "%s/%d v%d: %d", machine, view.Epoch, view.Version, len(view.Assignments))
}

func (a *agents) End(machine string, epoch uint64, why error) {
	a.note(&a.ended, "%s/%d: %v", machine, epoch, why)
}

func (a *agents) note(list *[]string, format string, args ...any) {
	a.mu.Lock()
	defer a.mu.Unlock()
	*list = append(*list, fmt.Sprintf(format, args...))
}

func (a *agents) noted(list *[]string) []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(*list)
}

func (a *agents) Answers(_ context.Context, machine, life string) bool {
	a.note(&a.asked, "%s %s", machine, life)
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.answers
}

// set changes what the agents answer.
func (a *agents) set(change func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	change()
}

func (a *agents) Logs(context.Context, string, schema.LogRequest) (io.ReadCloser, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.log == nil {
		return nil, errors.New("no session here")
	}
	return a.log, nil
}

func (a *agents) Exec(context.Context, string, schema.ExecRequest) (io.ReadWriteCloser, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.session, nil
}

// master is one of a cell's.
type master struct {
	revision atomic.Uint64 // of what the leader may refuse
	*relay.Shard
	t       *testing.T
	service *relay.Service
	address string
	agents  *agents
	stop    func() // its process
}

func newMaster(t *testing.T) *master {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	m := &master{t: t, agents: &agents{}, service: relay.NewService(relay.ServiceConfig{Cell: "c", Log: log})}
	m.Shard = relay.NewShard(relay.ShardConfig{Cell: "c", Agents: m.agents, Parted: 100 * time.Millisecond, Log: log})
	dir, err := os.MkdirTemp("", "relay") // t.TempDir is too long for a socket at times
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	path := filepath.Join(dir, "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	m.address = "unix:" + path
	g := grpc.NewServer()
	linkpb.RegisterRelayServer(g, m.service)
	go func() { _ = g.Serve(l) }() // it errs when it is stopped
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		m.Run(ctx)
	}()
	m.stop = sync.OnceFunc(func() {
		cancel()
		g.Stop()
		<-done
	})
	t.Cleanup(m.stop)
	return m
}

// lead has a new loop lead, with what is stored, and returns it and its hub.
func (m *master) lead(term uint64, stored *epochs, admit func(string, *schema.Connection) error) (*loop, *relay.Hub) {
	if admit == nil {
		admit = func(string, *schema.Connection) error { return nil }
	}
	h := relay.NewHub(relay.HubConfig{Term: term, Admit: admit, Revision: m.revision.Load})
	l := &loop{stored: stored, ended: make(chan struct{}), live: map[string]uint64{}, reports: map[string]int{}, reported: map[string]int{}}
	h.Begin(l)
	ctx, cancel := context.WithCancel(m.t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		h.Run(ctx)
	}()
	m.t.Cleanup(func() { cancel(); <-done })
	m.service.Lead(h)
	m.Lead(h)
	return l, h
}

// resign ends a term.
func (m *master) resign(l *loop) {
	close(l.ended)
	m.service.Lead(nil)
	m.Wait()
}

func (m *master) join(machine string) uint64 {
	m.t.Helper()
	epoch, err := m.Join(m.t.Context(), schema.MachineInfo{Name: machine, Link: schema.Connection{Life: "life of " + machine, Key: "key"}})
	if err != nil {
		m.t.Fatalf("join of machine %s: %v", machine, err)
	}
	return epoch
}

func (m *master) report(machine string, epoch uint64, r schema.Report) {
	m.t.Helper()
	if err := m.Report(m.t.Context(), machine, epoch, r); err != nil {
		m.t.Fatal(err)
	}
}

func reportOf(machine string) schema.Report {
	return schema.Report{Machine: schema.MachineInfo{Name: machine}, BusyPorts: []int{80}}
}

// wait waits until what is noted is as wanted.
func (a *agents) wait(t *testing.T, list *[]string, want ...string) {
	t.Helper()
	eventually(t, fmt.Sprintf("%q", want), func() bool { return slices.Equal(a.noted(list), want) || t.Context().Err() != nil })
}
