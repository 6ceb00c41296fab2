package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/musterhq/muster/nodeagent/link"
	"github.com/musterhq/muster/reconciler/status"
	"github.com/musterhq/muster/schema"
	"github.com/musterhq/muster/schema/linkpb"
)

// liar is an agent that runs nothing, and claims the tasks of others.
type liar struct {
	info schema.MachineInfo

	mu     sync.Mutex // guards what follows
	view   schema.View
	others []schema.TaskStatus // that it claims
	at     []netip.Addr        // where it says that its own tasks are
	acked  int                 // changes of the directory
}

func (l *liar) Info() schema.MachineInfo { return l.info }
func (*liar) Welcome(uint64) error       { return nil }
func (*liar) Refused() error             { return nil }

func (l *liar) Assign(view schema.View) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.view = view
	return nil
}

// Report says that what is assigned to it runs where others are, and that it has their tasks, too.
func (l *liar) Report() *schema.Report {
	l.mu.Lock()
	defer l.mu.Unlock()
	r := &schema.Report{Machine: l.info, View: l.view.Version, Tasks: slices.Clone(l.others)}
	for i := range l.view.Assignments {
		a := &l.view.Assignments[i]
		r.Tasks = append(r.Tasks, schema.TaskStatus{
			Task: a.Task, Generation: a.Generation, State: schema.Running, Incarnation: 1, PID: 1, Ports: a.Ports, Health: schema.Healthy,
			StartedAt: time.Unix(1, 0), Own: &schema.TaskNetwork{Addresses: l.at}, Line: strings.Repeat("a lie ", 1<<17),
		})
	}
	slices.SortFunc(r.Tasks, func(a, b schema.TaskStatus) int {
		if c := a.Task.Compare(b.Task); c != 0 {
			return c
		}
		return int(a.Generation) - int(b.Generation)
	})
	return r
}

func (*liar) Logs(context.Context, schema.LogRequest, io.Writer) error { return fs.ErrNotExist }
func (*liar) Exec(context.Context, schema.ExecRequest, io.ReadWriter)  {}
func (*liar) Rests() bool                                              { return false }
func (*liar) Digests() (none schema.DirectoryDigests)                  { return none }

func (*liar) Listing() error                  { return nil }
func (*liar) Unlisted([]schema.TaskRef) error { return nil }
func (*liar) Unlinked() error                 { return nil }

// Apply acknowledges at once what it does not act by.
func (l *liar) Apply(_ schema.DirectoryChange, done func()) {
	l.mu.Lock()
	l.acked++
	l.mu.Unlock()
	done()
}

// claim has it say that it has tasks of other machines, in one of the states that a task has, and its own where these are.
func (l *liar) claim(s *status.Status, state schema.TaskState) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.others, l.at = nil, nil
	for _, t := range s.Tasks {
		if t.Machine == l.info.Name || t.Address == "" {
			continue
		}
		name, err := schema.ParseTaskName(cellName + "/" + t.Name)
		if err != nil {
			return err
		}
		x := schema.TaskStatus{Task: name, Generation: t.Generation, State: state, Incarnation: 1, PID: 1, Ports: t.Ports, Health: schema.Healthy, StartedAt: time.Unix(1, 0)}
		at, err := netip.ParseAddr(t.Address)
		if err != nil {
			return err
		}
		if x.Own = (&schema.TaskNetwork{Addresses: []netip.Addr{at}}); len(l.at) == 0 {
			l.at = x.Own.Addresses
		}
		l.others = append(l.others, x)
	}
	return nil
}

// lie connects a liar as a machine that has what another one has, at the address of that.
func (g *grid) lie(name, as string) *liar {
	g.t.Helper()
	l := &liar{}
	for _, m := range g.until("look", func(*status.Status) string { return "" }).Machines {
		if m.Name == as {
			l.info = schema.MachineInfo{
				Name: name, Boot: "a lie", ID: strings.Repeat("1", 32), Capacity: m.Capacity, Ports: schema.PortRange{First: 20000, Last: 29999}, AgentVersion: "lies",
				Attributes: maps.Clone(m.Attributes), Address: m.Address,
			}
			l.info.Attributes["is"] = name
		}
	}
	client := link.New(link.Config{Cell: g.name, Dial: g.path("link", "agent.sock"), Agent: l, Directory: l, Listed: l, Log: slog.New(slog.DiscardHandler)})
	ctx, cancel := context.WithCancel(g.t.Context())
	ended := make(chan error, 1)
	go func() { ended <- client.Run(ctx) }()
	g.t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil && !errors.Is(err, context.Canceled) {
			g.t.Error(err)
		}
	})
	return l
}

// TestLyingAgent: an agent that claims the tasks and addresses of other machines, as running and as dead, gets no request, stops
// no task, and takes none of its names away; what it says is shown with the machine, and of a long text the beginning.
func TestLyingAgent(t *testing.T) {
	t.Parallel()
	g := newGridAt(t, place{machines: 2, network: `range: "10.64.0.0/16", services: "10.80.0.0/24"`})
	web := answering{name: "web", version: "1", tasks: 2, more: "task: isolation: network: \"own\"\nspread: max: is: 1"}
	front := g.service("front", "web", "http: port: 80")
	s := g.converge(g.declare("a service", g.job(web), front))
	load := g.sendAll()
	t.Cleanup(load.stop)
	load.shop("m1", g.known("front"), 80)
	load.shop("m2", "0.web.crew."+g.name+".muster.internal", schema.FirstOwnPort)
	load.hold("m2", "front", g.virtual("front"))
	honest := byName(s)
	if len(honest) != 2 || honest["crew/web/0"].Address == "" {
		t.Skipf("NOT TESTED: needs networks of tasks: %v", s.Machines)
	}
	web.tasks = 3
	load.account("a liar", func() {
		l := g.lie("m3", "m1")
		g.declare("one on each machine", g.job(web), front)
		for _, state := range []schema.TaskState{schema.Running, schema.Dead} {
			g.must(l.claim(s, state))
			g.until("what the liar says is shown", func(s *status.Status) string {
				for i := range s.Machines {
					m := &s.Machines[i]
					if said := strings.Join(m.Notes, " "); m.Name == "m3" && strings.Contains(said, "of none of its subnets") &&
						strings.Contains(said, map[schema.TaskState]string{schema.Running: "of 3 tasks", schema.Dead: "of crew/web/2 at"}[state]) {
						return ""
					}
				}
				return "no such note"
			})
			g.unmoved(honest)
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.acked == 0 {
			t.Error("the liar has got no directory: it could not lie of what it acts by")
		}
	})
}

// byName returns the tasks of a status by their names.
func byName(s *status.Status) map[string]status.TaskStatus {
	out := map[string]status.TaskStatus{}
	for _, t := range s.Tasks {
		out[t.Name] = t
	}
	return out
}

// unmoved fails unless the tasks are what and where they were, to the master, in DNS and in the kernels, and no others are.
func (g *grid) unmoved(honest map[string]status.TaskStatus) {
	g.t.Helper()
	now := byName(g.until("look", func(*status.Status) string { return "" }))
	var want []string
	for name, was := range honest {
		is := now[name]
		if is.Machine != was.Machine || is.Address != was.Address || is.PID != was.PID || is.Generation != was.Generation || is.State != status.TaskRunning {
			g.t.Errorf("%s is %+v, and was %+v", name, is, was)
		}
		want = append(want, fmt.Sprintf("%s:%d", was.Address, schema.FirstOwnPort))
	}
	slices.Sort(want)
	if of := now["crew/web/2"]; of.Machine != "m3" || of.Address != "" || !strings.HasPrefix(of.Line, "a lie a lie") || len(of.Line) > linkpb.MaxText {
		of.Line = of.Line[:min(len(of.Line), 80)]
		g.t.Errorf("the liar's own task is %+v, or its line is too long", of)
	}
	for machine := range g.hosts {
		fronts, err := frontsOf(g.rules(machine))
		if is := fronts[fmt.Sprintf("%s . tcp . 80", g.virtual("front").Addr())]; err != nil || !slices.Equal(is, want) {
			g.t.Errorf("in the kernel of %s the service leads to %v (%v), want %v", machine, is, err, want)
		}
		var err2 error
		var at netip.Addr
		g.must(g.inside(machine, func() { at, err2 = g.lookup(g.t.Context(), "2.web.crew."+g.name+".muster.internal", machine) }))
		if err2 == nil {
			g.t.Errorf("on %s the liar's task is found at %s", machine, at)
		}
	}
}
