package linktest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	agentlink "github.com/musterhq/muster/nodeagent/link"
	agentnaming "github.com/musterhq/muster/nodeagent/naming"
	masterlink "github.com/musterhq/muster/reconciler/link"
	"github.com/musterhq/muster/reconciler/naming"
	"github.com/musterhq/muster/reconciler/status"
	"github.com/musterhq/muster/schema"
)

// directory is a master's, for the link.
type directory struct{ *naming.Directory }

func (d directory) Read(machine string, have *schema.DirectoryDigests, rests bool) masterlink.DirectoryReader {
	return d.Directory.Read(machine, have, rests)
}

// published is a cell whose snapshots a test publishes.
type published struct {
	mu    sync.Mutex
	is    *status.Snapshot
	newer chan struct{}
}

func (c *published) snapshot(context.Context) (*status.Snapshot, <-chan struct{}, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.is, c.newer, nil
}

// publish has the cell be one of so many tasks on a machine, the first in a state.
func (c *published) publish(tasks int, machine string, state status.TaskState) {
	c.serve(tasks, machine, state)
}

// serve is publish, with services.
func (c *published) serve(tasks int, machine string, state status.TaskState, services ...*status.ServiceStatus) {
	s := &status.Status{Cell: "local", Machines: []status.MachineStatus{{Name: "m1", Health: "up"}, {Name: "m2", Health: "up"}}, Jobs: []status.JobStatus{{Name: "u/web"}}}
	for i := range tasks {
		s.Tasks = append(s.Tasks, status.TaskStatus{Name: fmt.Sprintf("u/web/%d", i), Generation: 3, Machine: machine, Address: "10.0.0.1", State: status.TaskRunning, Ports: schema.PortsOf(map[string]int{strings.Repeat("p", 60): 80})})
	}
	s.Tasks[0].State = state
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.newer != nil {
		close(c.newer)
	}
	c.is, c.newer = status.SnapshotOf(s).WithServices(services), make(chan struct{})
}

// kept is the directory of a machine.
type kept struct {
	mu       sync.Mutex
	is       *agentnaming.Directory
	sent     int // entries
	listing  bool
	unlisted []string
	rests    bool
	late     chan struct{} // nil: changes are in force at once
}

func (k *kept) Digests() schema.DirectoryDigests {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.is.Digests()
}

func (k *kept) Rests() bool { return k.rests }

func (k *kept) Apply(c schema.DirectoryChange, done func()) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.sent += len(c.Set)
	k.is.Apply(c)
	if late := k.late; late != nil {
		go func() { <-late; done() }()
	} else {
		done()
	}
}

func (k *kept) Listing() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.listing = true
	return nil
}

func (k *kept) Unlisted(tasks []schema.TaskRef) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, t := range tasks {
		k.unlisted = append(k.unlisted, fmt.Sprintf("%s#%d", t.Task, t.Generation))
	}
	return nil
}

// ready returns how many tasks are known, and how many are ready.
func (k *kept) ready() (all, ready int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	job, ok := k.is.Snapshot().Job("u", "web")
	if !ok {
		return 0, 0
	}
	for t := range job.Tasks() {
		if all++; t.Ready {
			ready++
		}
	}
	return all, ready
}

// masterWaits is how long a master waits for machines that do not acknowledge, at least.
const masterWaits = 2 * time.Second

// waits errs if a task was unlisted before the master can have given up to wait, since a stop was published.
func (k *kept) waits(t *testing.T, before int, since time.Time) {
	t.Helper()
	k.mu.Lock()
	unlisted := slices.Clone(k.unlisted)
	k.mu.Unlock()
	if time.Since(since) < masterWaits && len(unlisted) != before {
		t.Errorf("unlisted before all act by it: %v", unlisted)
	}
}

// lead runs a master of the cell, and returns the path of its socket.
func (c *published) lead(t *testing.T) string {
	t.Helper()
	path := socket(t)
	d := naming.New(naming.Config{Cell: c.snapshot})
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { d.Run(ctx) })
	t.Cleanup(running.Wait)
	t.Cleanup(cancel)
	serve(t, path, masterlink.Config{Master: newMaster(), Directory: directory{d}})
	return path
}

// TestResting: a machine without use for a directory of a cell without services gets none, and is not
// waited for; with the first service it gets all, and is.
func TestResting(t *testing.T) {
	t.Parallel()
	cell := &published{}
	cell.publish(3, "m1", status.TaskRunning)
	path := cell.lead(t)
	first, second := &kept{is: agentnaming.New()}, &kept{is: agentnaming.New(), rests: true}
	run(t, path, agentlink.Config{Agent: newAgent("m2"), Directory: second, Listed: second})
	run(t, path, agentlink.Config{Agent: newAgent("m1"), Directory: first, Listed: first})
	unlisted := func(n int) func() bool {
		return func() bool {
			first.mu.Lock()
			defer first.mu.Unlock()
			return len(first.unlisted) == n
		}
	}
	eventually(t, "all tasks", func() bool { all, _ := first.ready(); return all == 3 })
	cell.publish(3, "m1", status.TaskStopping)
	eventually(t, "no update waits for the one that rests", unlisted(1))
	if all, _ := second.ready(); all > 0 || second.listing {
		t.Errorf("one that rests has %d tasks; listing %v", all, second.listing)
	}
	front := &status.ServiceStatus{DirectoryService: schema.DirectoryService{ServiceSpec: schema.ServiceSpec{User: "u", Name: "front"}}}
	cell.serve(3, "m1", status.TaskRunning, front)
	eventually(t, "it has the directory", func() bool { _, ready := second.ready(); return ready == 3 })
	second.mu.Lock()
	second.late = make(chan struct{})
	second.mu.Unlock()
	since := time.Now()
	cell.serve(3, "m1", status.TaskStopping, front)
	eventually(t, "it knows of the stop", func() bool { _, ready := second.ready(); return ready == 2 })
	first.waits(t, 1, since)
	close(second.late)
	eventually(t, "the stop waits for it", unlisted(2))
}

// TestDirectory: machines get a large directory and then what changes; the one with a task that
// stops learns when both act by it; and one that connects again gets what differs.
func TestDirectory(t *testing.T) {
	t.Parallel()
	const tasks = 5000 // several pieces
	cell := &published{}
	cell.publish(tasks, "m1", status.TaskRunning)
	path := cell.lead(t)
	first, second := &kept{is: agentnaming.New()}, &kept{is: agentnaming.New()}
	run(t, path, agentlink.Config{Agent: newAgent("m1"), Directory: first, Listed: first})
	_, stop := run(t, path, agentlink.Config{Agent: newAgent("m2"), Directory: second, Listed: second})
	for _, k := range []*kept{first, second} {
		eventually(t, "all tasks", func() bool { all, ready := k.ready(); return all == tasks && ready == tasks })
	}
	first.mu.Lock()
	sent := first.sent
	first.mu.Unlock()
	second.mu.Lock()
	second.late = make(chan struct{})
	second.mu.Unlock()
	since := time.Now()
	cell.publish(tasks, "m1", status.TaskStopping)
	for _, k := range []*kept{first, second} {
		eventually(t, "one is not ready", func() bool { _, ready := k.ready(); return ready == tasks-1 })
	}
	first.mu.Lock()
	if first.sent != sent+1 || !first.listing {
		t.Errorf("%d entries of one change; listing %v", first.sent-sent, first.listing)
	}
	first.mu.Unlock()
	first.waits(t, 0, since)
	close(second.late)
	eventually(t, "the task is unlisted", func() bool {
		first.mu.Lock()
		defer first.mu.Unlock()
		return slices.Equal(first.unlisted, []string{"c/u/web/0#3"})
	})
	stop()
	cell.publish(tasks, "m1", status.TaskRunning)
	second.mu.Lock()
	second.sent, second.late = 0, nil
	second.mu.Unlock()
	run(t, path, agentlink.Config{Agent: newAgent("m2"), Directory: second, Listed: second})
	eventually(t, "all are ready again", func() bool { _, ready := second.ready(); return ready == tasks })
	second.mu.Lock()
	defer second.mu.Unlock()
	if second.sent > tasks/schema.DirectoryPart/8 {
		t.Errorf("%d entries were sent to one that has all but one", second.sent)
	}
}

// stopping is a directory that, each time it is woken, has a view pushed that stops a task, and says at once that
// nothing is sent to that any more.
type stopping struct {
	master *master
	server chan *masterlink.Server
	wake   chan struct{}
	last   uint64 // version of a view
}

func (d *stopping) Read(string, *schema.DirectoryDigests, bool) masterlink.DirectoryReader { return d }

func (d *stopping) Wake() <-chan struct{} { return d.wake }
func (d *stopping) Close()                {}

func (d *stopping) Next(uint64) (schema.DirectoryUpdate, bool) {
	s := <-d.server
	d.last++
	d.master.push(s, d.last, nil)
	d.server <- s
	return schema.DirectoryUpdate{Unlisted: []schema.UnlistedTask{{Task: "u/web/0", Generation: 1}}}, true
}

// informed is an agent that notes which view it had when it was informed of a task.
type informed struct {
	*kept
	agent *agent
	views chan uint64
}

func (i informed) Unlisted([]schema.TaskRef) error {
	version, _ := i.agent.has()
	i.views <- version
	return nil
}

// TestUnlistedAfterView: an agent has the view that stops a task when it learns that nothing is sent to that.
func TestUnlistedAfterView(t *testing.T) {
	t.Parallel()
	path, m := socket(t), newMaster()
	d := &stopping{master: m, server: make(chan *masterlink.Server, 1), wake: make(chan struct{}, 1)}
	s, _ := serve(t, path, masterlink.Config{Master: m, Directory: d})
	d.server <- s
	a := newAgent("m1")
	i := informed{&kept{is: agentnaming.New()}, a, make(chan uint64)}
	run(t, path, agentlink.Config{Agent: a, Directory: i, Listed: i})
	for want := range uint64(5) {
		d.wake <- struct{}{}
		if got := <-i.views; got != want+1 {
			t.Fatalf("answered with view %d, want %d", got, want+1)
		}
	}
}
