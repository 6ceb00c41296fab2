package cni

import (
	"context"
	"fmt"
	"slices"
	"time"
)

const (
	// The time until what could not be taken back is tried again, which doubles.
	redoFirst = time.Second
	redoLast  = time.Minute
	// checkEvery is the time between two questions to plugins whether a network is whole, of one after the other.
	checkEvery = time.Minute
	// collectEvery is the time between two collections of garbage.
	collectEvery = time.Hour
)

// redo is when something is tried again.
type redo struct {
	at    time.Time
	delay time.Duration
}

// Run takes back what is not needed any more and could not be before, checks what there is, and has plugins collect
// garbage, until ctx ends. It is called once, after Keep.
func (n *Networks) Run(ctx context.Context) {
	check, collect := time.NewTicker(checkEvery), time.NewTicker(collectEvery)
	defer check.Stop()
	defer collect.Stop()
	n.collect(ctx)
	for ctx.Err() == nil {
		again := n.takeDueBack(time.Now())
		wait := time.NewTimer(max(0, time.Until(again)))
		if again.IsZero() {
			wait.Stop()
		}
		select {
		case <-ctx.Done():
		case <-n.wake:
		case <-wait.C:
		case <-check.C:
			n.checkNext(ctx)
		case <-collect.C:
			n.collect(ctx)
		}
		wait.Stop()
	}
}

// takeDueBack takes back what is due, and returns when more is; zero if there is nothing.
func (n *Networks) takeDueBack(now time.Time) (again time.Time) {
	due := n.staleOnes(func(x *attachment) bool { return !x.redo.at.After(now) })
	if err := n.takeAllBack(due); err != nil {
		n.cfg.Log.Error("cannot take back networks of tasks that have ended; it is tried again", "err", cutLong(err))
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, x := range due {
		if x.stale && x.record != nil {
			x.redo.delay = min(max(redoFirst, 2*x.redo.delay), redoLast)
			x.redo.at = time.Now().Add(x.redo.delay)
		}
	}
	for _, x := range n.all {
		if x.stale && x.record != nil && (again.IsZero() || x.redo.at.Before(again)) {
			again = x.redo.at
		}
	}
	return again
}

// mostLogged is how much of many errors is logged, in bytes.
const mostLogged = 2000

func cutLong(err error) string {
	s := err.Error()
	return s[:min(len(s), mostLogged)]
}

// checkNext asks plugins for the next network whether it is whole. That takes them as long as making one.
func (n *Networks) checkNext(ctx context.Context) {
	n.mu.Lock()
	ids := n.ids()
	var x *attachment
	for i := range ids {
		at, _ := slices.BinarySearch(ids, n.checkFor+"\x00")
		id := ids[(at+i)%len(ids)]
		if _, ok := n.all[id].task(); ok {
			x, n.checkFor = n.all[id], id
			break
		}
	}
	n.mu.Unlock()
	if x == nil || !x.busy.TryLock() {
		return
	}
	defer x.busy.Unlock()
	n.mu.Lock()
	_, ok := x.task()
	r := x.record
	n.mu.Unlock()
	if !ok {
		return
	}
	err := x.check(ctx, r)
	if ctx.Err() != nil {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if err == nil {
		delete(n.unsound, x.id)
		return
	}
	said := cut(fmt.Sprintf("the network of %s is not whole, and will not be until it is started anew: %s", r.Task, err))
	if n.unsound[x.id] != said {
		n.cfg.Log.Error("a task's network is not whole", "task", r.Task, "err", err)
	}
	n.unsound[x.id] = said
}

// Problems says what is wrong with networks, as far as it is known.
func (n *Networks) Problems() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	var out []string
	for _, id := range n.ids() {
		if said := n.unsound[id]; said != "" {
			out = append(out, said)
		}
	}
	return out
}

// collect has the plugins of the newest list remove what they have of networks that are not here any more. Those of
// versions before 1.1.0 know nothing of that.
func (n *Networks) collect(ctx context.Context) {
	if !n.collecting.TryLock() {
		return // networks are just made: the next time
	}
	defer n.collecting.Unlock()
	n.mu.Lock()
	r, ids := n.newest, n.ids()
	for _, id := range ids {
		if r == nil {
			r = n.all[id].record
		}
	}
	n.mu.Unlock()
	if r == nil {
		return
	}
	p := n.place(n.tag)
	if err := p.collect(ctx, r, ids); err != nil && ctx.Err() == nil {
		n.cfg.Log.Warn("plugins of CNI cannot collect garbage", "err", err)
	}
	if err := p.clear(); err != nil {
		n.cfg.Log.Warn("plugins of CNI have collected garbage, and files stay", "err", err)
	}
}
