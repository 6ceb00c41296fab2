package hollow

import (
	"container/heap"
	"context"
	"sync"
	"time"

	"github.com/musterhq/muster/nodeagent/link"
)

// group is machines that share a connection and a goroutine, which owns them.
type group struct {
	fleet    *Fleet
	machines []*machine
	shared   *link.Shared
	events   chan func() // to be run by the goroutine
	ended    chan struct{}
	due      timetable
	clients  sync.WaitGroup
}

// run is the goroutine. It returns when all links have ended, too.
func (g *group) run(ctx context.Context) {
	defer g.clients.Wait()
	defer close(g.ended)
	now := time.Now()
	for _, m := range g.machines {
		m.begin(ctx, now)
		heap.Push(&g.due, m)
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		timer.Reset(max(time.Until(g.due[0].wake), 0))
		select {
		case <-ctx.Done():
			return
		case f := <-g.events:
			f()
		case <-timer.C:
		}
		for now := time.Now(); !g.due[0].wake.After(now); {
			g.turn(g.due[0], now)
		}
	}
}

// turn lets a machine do what is due.
func (g *group) turn(m *machine, now time.Time) {
	m.turn(now)
	heap.Fix(&g.due, m.place)
}

// call has f run by the goroutine, and then what is due on the machine, and waits for
// both; false if the goroutine has ended.
func (g *group) call(m *machine, f func(now time.Time)) bool {
	done := make(chan struct{})
	event := func() {
		now := time.Now()
		f(now)
		g.turn(m, now)
		close(done)
	}
	select {
	case g.events <- event:
	case <-g.ended:
		return false
	}
	<-done // one that was taken is run
	return true
}

// timetable is a heap of machines, the one that is due first on top.
type timetable []*machine //nolint:recvcheck // as container/heap has it

func (t timetable) Len() int { return len(t) }

func (t timetable) Less(i, j int) bool { return t[i].wake.Before(t[j].wake) }

func (t timetable) Swap(i, j int) {
	t[i], t[j] = t[j], t[i]
	t[i].place, t[j].place = i, j
}

// Push appends a machine.
func (t *timetable) Push(x any) {
	m := x.(*machine) // nothing else is pushed
	m.place = len(*t)
	*t = append(*t, m)
}

// Pop takes the last machine away.
func (t *timetable) Pop() any {
	old := *t
	m := old[len(old)-1]
	*t = old[:len(old)-1]
	return m
}
