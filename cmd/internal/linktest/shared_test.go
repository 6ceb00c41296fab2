package linktest

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"sync/atomic"
	"testing"
	"time"

	agentlink "github.com/musterhq/muster/nodeagent/link"
	masterlink "github.com/musterhq/muster/reconciler/link"
	"github.com/musterhq/muster/reconciler/local"
	"github.com/musterhq/muster/schema"
)

// counting counts the connections that it accepts.
type counting struct {
	net.Listener
	accepted atomic.Int32
}

func (l *counting) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err == nil {
		l.accepted.Add(1)
	}
	return c, err
}

// TestShared has many machines on one connection, each with a session of its own, and
// again on one when the master has been started again.
func TestShared(t *testing.T) {
	t.Parallel()
	const machines = 20
	path, m := socket(t), newMaster()
	start := func() (s *masterlink.Server, l *counting, stop func()) {
		plain, err := local.Listen(path)
		if err != nil {
			t.Fatal(err)
		}
		l = &counting{Listener: plain}
		s = masterlink.New(masterlink.Config{Cell: "c", Master: m, PullEvery: 10 * time.Millisecond, Log: slog.New(slog.DiscardHandler)})
		return s, l, background(t, func(ctx context.Context) error { return s.Serve(ctx, l) })
	}
	s, l, stop := start()
	shared := new(agentlink.Shared)
	agents := make([]*agent, machines)
	clients := make([]*agentlink.Client, machines)
	leave := make([]func(), machines)
	for i := range agents {
		agents[i] = newAgent(fmt.Sprint("m", i))
		clients[i], leave[i] = run(t, path, agentlink.Config{Agent: agents[i], Shared: shared, Backoff: agentlink.Backoff{Max: 50 * time.Millisecond}})
	}
	linked := func(n int) func() bool {
		return func() bool {
			left := n
			for _, c := range clients {
				if c.Linked() {
					left--
				}
			}
			return left == 0
		}
	}
	eventually(t, "sessions of all machines", linked(machines))
	if n := l.accepted.Load(); n != 1 {
		t.Errorf("%d connections, want 1", n)
	}
	for i := range agents {
		s.Push(agents[i].info.Name, schema.View{Epoch: 1, Version: uint64(i) + 1, Assignments: []schema.Assignment{task("web", uint64(i)+1)}})
	}
	for i, a := range agents {
		eventually(t, "its own view", func() bool { v, _ := a.has(); return v == uint64(i)+1 })
	}

	leave[0]()
	eventually(t, "one session less", func() bool { return len(m.gone()) == 1 })
	clients = clients[1:]
	agents[1].set(func() { agents[1].view.Version = 99 })
	eventually(t, "a report of another, over the same connection", func() bool { return m.last().View == 99 })

	stop()
	_, l, _ = start()
	eventually(t, "sessions of all that are left, once more", linked(machines-1))
	if n := l.accepted.Load(); n >= machines/2 {
		t.Errorf("%d connections for %d machines", n, machines-1)
	}
}
