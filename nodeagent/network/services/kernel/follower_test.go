package kernel_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/nodeagent/naming"
	"github.com/musterhq/muster/nodeagent/network/services/kernel"
	"github.com/musterhq/muster/schema"
)

// cell is a directory that a follower in a lab follows.
type cell struct {
	*lab
	directory *naming.Directory
	follower  *kernel.Follower
	cancel    func()
}

func (l *lab) follow() *cell {
	c := &cell{lab: l, directory: naming.New()}
	c.start()
	return c
}

// start runs an agent; Cleanup ends it.
func (c *cell) start() {
	c.follower = kernel.NewFollower("one", "m0", slog.New(slog.DiscardHandler))
	c.follower.Begin(c.directory.Snapshot())
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	started := make(chan struct{})
	go func() {
		defer close(done)
		c.machine.do(c.t, func() error {
			close(started)
			c.follower.Run(ctx)
			return nil
		})
	}()
	<-started
	c.cancel = func() {
		cancel()
		<-done
	}
	c.t.Cleanup(c.cancel)
}

// apply changes the directory, and waits until the kernel has it.
func (c *cell) apply(set ...schema.DirectoryEntry) {
	c.t.Helper()
	touched := c.directory.Apply(schema.DirectoryChange{Set: set})
	c.update(touched.Services)
}

func (c *cell) update(touched []naming.Name) {
	c.t.Helper()
	done := make(chan struct{})
	c.follower.Update(c.directory.Snapshot(), touched, func() { close(done) })
	select {
	case <-done:
	case <-time.After(20 * time.Second):
		c.t.Fatal("the kernel does not have the snapshot")
	}
}

// tasks returns the entry of a job with a task on each of some backends; those of not are not ready.
func tasks(on []int, not ...int) schema.DirectoryEntry {
	t := &schema.DirectoryTasks{User: "ana", Job: "web", Labels: map[string]string{"app": "web"}}
	for i, b := range on {
		ready := true
		for _, n := range not {
			ready = ready && n != b
		}
		t.Tasks = append(t.Tasks, schema.DirectoryTask{
			Index: i, Machine: fmt.Sprint("m", b), Address: at(b, false).Addr(), Ready: ready,
			Ports: schema.NewPorts(schema.Port{Name: "http", Port: 80}),
		})
	}
	return schema.DirectoryEntry{Tasks: t}
}

func front(change func(*schema.DirectoryService)) schema.DirectoryEntry {
	s := &schema.DirectoryService{
		ServiceSpec: schema.ServiceSpec{
			Name: "front", User: "ana", Cell: "one", Selector: "app=web",
			Ports: map[string]schema.ServicePort{"http": {Port: 8080}, "dns": {Port: 8080, Target: "http", Protocol: schema.UDP}},
		},
		Addresses: vips[:1],
	}
	if change != nil {
		change(s)
	}
	return schema.DirectoryEntry{Service: s}
}

const virtual = "10.96.0.1:8080"

// reaches fails unless connections reach exactly the given backends.
func (c *cell) reaches(want ...string) {
	c.t.Helper()
	seen := map[string]bool{}
	for range 30 {
		who, err := c.ask(c.client, "tcp", virtual) // a packet of UDP may be of a flow from before
		if err != nil {
			c.t.Fatal(err)
		}
		who, _, _ = strings.Cut(who, " ")
		seen[who] = true
	}
	for _, w := range want {
		if !seen[w] {
			c.t.Errorf("nothing reached %s, but %v", w, seen)
		}
		delete(seen, w)
	}
	if len(seen) > 0 {
		c.t.Errorf("also reached: %v", seen)
	}
}

func TestFollowsDirectory(t *testing.T) {
	t.Parallel()
	c := newLab(t, 3).follow()
	c.apply(front(nil), tasks([]int{0, 1, 2}))
	c.reaches("b0", "b1", "b2")
	conn, name := c.open(c.client, virtual)
	var keep int
	_, _ = fmt.Sscanf(name, "b%d", &keep)
	other := (keep + 1) % 3

	c.apply(tasks([]int{0, 1, 2}, keep)) // it is to end, and serves what it has
	if who, err := c.ask(c.client, "udp", virtual); err != nil || who == name {
		t.Errorf("%q, %v, though it is not ready", who, err)
	}
	c.apply(front(func(s *schema.DirectoryService) { s.Selector = "app=none" }))
	if _, err := c.dial(c.client, "tcp", virtual); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("a service without tasks: %v; want it refused", err)
	}
	c.apply(front(nil), tasks([]int{0, 1, 2}, 0, 1, 2)) // none is ready: it sends on
	c.reaches("b0", "b1", "b2")
	c.apply(front(func(s *schema.DirectoryService) { s.WhenNoneReady = schema.Refuse }))
	if _, err := c.dial(c.client, "tcp", virtual); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("none is ready: %v; want it refused", err)
	}
	c.apply(front(func(s *schema.DirectoryService) { s.Prefer = schema.PreferMachine }), tasks([]int{0, 1, 2}))
	c.reaches("b0") // which is on m0
	if err := echo(conn); err != nil {
		t.Fatalf("a connection did not survive the changes: %v", err)
	}
	c.apply(front(nil), tasks([]int{other})) // the others have ended
	if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("a connection to a task that has ended: %v; want a reset", err)
	}
	c.reaches(fmt.Sprint("b", other))
}

// TestSuccessorKeepsItsConnections: another task is reached where one has ended a moment ago, before flows to that
// are looked for once more.
func TestSuccessorKeepsItsConnections(t *testing.T) {
	t.Parallel()
	c := newLab(t, 2).follow()
	// Through this one connections still reach what has ended, and say when flows were reset.
	other := web(1)
	other.Addresses = []netip.Addr{netip.MustParseAddr("10.97.0.1")}
	c.program(kernel.New("two"), other)
	reset := func(within time.Duration) bool {
		conn, _ := c.open(c.client, "10.97.0.1:8080")
		_ = conn.SetDeadline(time.Now().Add(within))
		_, err := conn.Read(make([]byte, 1))
		return errors.Is(err, syscall.ECONNRESET)
	}
	successor := tasks([]int{0})
	successor.Tasks.Tasks[0].Index = 7
	for range 10 {
		c.apply(front(nil), tasks([]int{0, 1}))
		marker, _ := c.open(c.client, "10.97.0.1:8080")
		c.apply(tasks(nil))
		if _, err := marker.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
			t.Fatalf("a connection to a task that has ended: %v; want a reset", err)
		}
		c.apply(successor)
		conn, _ := c.open(c.client, virtual)
		if !reset(3 * time.Second) {
			continue // the machine was so slow that the last look was over before
		}
		c.update(nil) // after all of that look
		if err := echo(conn); err != nil {
			t.Errorf("a connection to the task that came after it: %v", err)
		}
		return
	}
	t.Error("flows to tasks that have ended were never looked for once more")
}

// TestUnansweredGoElsewhere: what a client sends to open a connection is lost, and its endpoint is about to end.
// The next packet reaches another one.
func TestUnansweredGoElsewhere(t *testing.T) {
	t.Parallel()
	c := newLab(t, 2).follow()
	c.apply(front(nil), tasks([]int{0}))
	c.machine.do(t, func() error { // b0 does not take what is for another hardware address
		l, err := netlink.LinkByName("b0")
		if err != nil {
			return err
		}
		return netlink.NeighSet(&netlink.Neigh{
			LinkIndex: l.Attrs().Index, Family: unix.AF_INET, State: netlink.NUD_PERMANENT,
			IP: at(0, false).Addr().AsSlice(), HardwareAddr: net.HardwareAddr{2, 0, 0, 0, 0, 9},
		})
	})
	answered := make(chan error, 1)
	go func() {
		var err error
		c.client.do(t, func() error {
			var conn net.Conn
			if conn, err = net.DialTimeout("tcp", virtual, 30*time.Second); err == nil {
				_, err = answer(conn, "tcp")
				_ = conn.Close()
			}
			return nil
		})
		answered <- err
	}()
	for deadline := time.Now().Add(20 * time.Second); c.flows() == 0; {
		if time.Now().After(deadline) {
			t.Fatal("the client has sent nothing")
		}
	}
	c.apply(tasks([]int{0, 1}, 0))
	if err := <-answered; err != nil {
		t.Error(err)
	}
}

// flows returns how many flows the machine knows.
func (c *cell) flows() (n int) {
	c.machine.do(c.t, func() error {
		list, err := netlink.ConntrackTableList(netlink.ConntrackTable, unix.AF_INET)
		n = len(list)
		return err
	})
	return n
}

func TestAgentThatStartsAgain(t *testing.T) {
	t.Parallel()
	c := newLab(t, 2).follow()
	c.apply(front(nil), tasks([]int{0, 1}))
	conns := map[string]net.Conn{}
	for len(conns) < 2 {
		conn, name := c.open(c.client, virtual)
		conns[name] = conn
	}
	c.cancel()
	c.reaches("b0", "b1") // without an agent

	// Meanwhile b0 has ended.
	c.directory = naming.New()
	c.directory.Apply(schema.DirectoryChange{Whole: true, Set: []schema.DirectoryEntry{front(nil), tasks([]int{1})}})
	c.start()
	c.reaches("b0", "b1") // what it finds on disk may be older than the kernel
	c.update(nil)
	c.reaches("b1")
	if _, err := conns["b0"].Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("a connection to a task that ended without an agent: %v; want a reset", err)
	}
	if err := echo(conns["b1"]); err != nil {
		t.Error(err)
	}
}

func TestMachineThatStartsAgain(t *testing.T) {
	t.Parallel()
	c := newLab(t, 1).follow()
	c.apply(front(nil), tasks([]int{0}))
	c.cancel()
	c.machine.do(t, kernel.New("one").Withdraw)
	c.start() // while no master answers
	for deadline := time.Now().Add(10 * time.Second); ; {
		_, err := c.ask(c.client, "tcp", virtual)
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
}

func TestRenamedUnderLoad(t *testing.T) {
	t.Parallel()
	c := newLab(t, 3).follow()
	c.apply(front(nil), tasks([]int{0, 1, 2}))
	conn, _ := c.open(c.client, virtual)
	stop, failed := make(chan struct{}), make(chan error, 1)
	go func() {
		defer close(failed)
		for n := 0; ; n++ {
			select {
			case <-stop:
				return
			default:
			}
			var err error
			c.client.do(t, func() error {
				var d net.Conn
				if d, err = net.Dial("tcp", virtual); err == nil {
					_, err = answer(d, "tcp")
					_ = d.Close()
				}
				return nil
			})
			if err != nil {
				failed <- fmt.Errorf("connection %d: %w", n, err)
				return
			}
		}
	}()
	for i := range 40 {
		renamed := front(func(s *schema.DirectoryService) { s.Name = fmt.Sprint("front", i%2) })
		old := fmt.Sprint("service/ana/front", (i+1)%2)
		if i == 0 {
			old = "service/ana/front"
		}
		touched := c.directory.Apply(schema.DirectoryChange{Set: []schema.DirectoryEntry{renamed}, Removed: []string{old}})
		c.update(touched.Services)
		c.apply(tasks([]int{0, 1, 2}, i%3))
		c.apply(front(func(s *schema.DirectoryService) {
			s.Name, s.Sticky = fmt.Sprint("front", i%2), []string{"", schema.StickyClient}[i/2%2]
		}))
	}
	close(stop)
	if err := <-failed; err != nil {
		t.Error(err)
	}
	if err := echo(conn); err != nil {
		t.Error(err)
	}
}
