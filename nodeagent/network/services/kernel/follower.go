package kernel

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/musterhq/muster/nodeagent/naming"
	"github.com/musterhq/muster/nodeagent/network/services"
)

const (
	// auditEvery is after which time elements that others have changed are put right.
	auditEvery = time.Minute
	// retryFirst and retryMost bound the time until what failed is tried again.
	retryFirst, retryMost = 100 * time.Millisecond, 10 * time.Second
	// resetAgain is after which time flows of ended tasks are looked for once more: a packet that
	// was on its way through the rules when they changed may have begun one.
	resetAgain = time.Second
	// openWithin is in which time a backend has answered the first packet of a connection, or that or the
	// answer was lost. It is less than a task is left running once nothing is sent to it.
	openWithin = 250 * time.Millisecond
	// resetShare bounds the processor time of looking for flows, which the kernel does among all that it
	// knows: a tenth of one processor.
	resetShare = 10
)

// Follower keeps the kernel's services as a directory says. Its methods may be called from any
// goroutine.
type Follower struct {
	log        *slog.Logger
	machine    string
	programmer *Programmer
	way        *way
	view       *services.View

	mu      sync.Mutex
	found   *naming.Snapshot // of an earlier agent
	now     *naming.Snapshot // the newest
	touched map[naming.Name]struct{}
	waiting []func() // for now to be in the kernel
	leaves  bool     // Run removes all at its end
	wake    chan struct{}
}

// NewFollower returns a follower for a machine of a cell, which does nothing before Run.
func NewFollower(cell, machine string, log *slog.Logger) *Follower {
	return &Follower{
		log: log, machine: machine, programmer: New(cell), way: newWay(cell), view: services.NewView(machine),
		touched: map[naming.Name]struct{}{}, wake: make(chan struct{}, 1),
	}
}

// Update gives it a newer snapshot, in which the services in touched may differ from the one before,
// and has done called when the kernel has it or a newer one: no new connection goes where it
// leads nowhere. done may be nil, and must not block. Before the first snapshot nothing is
// changed: an agent that starts does not know its cell yet, and what the one before has
// programmed goes on.
func (f *Follower) Update(now *naming.Snapshot, touched []naming.Name, done func()) {
	f.mu.Lock()
	f.now = now
	for _, n := range touched {
		f.touched[n] = struct{}{}
	}
	if done != nil {
		f.waiting = append(f.waiting, done)
	}
	f.mu.Unlock()
	f.rouse()
}

// rouse has Run look at what is new.
func (f *Follower) rouse() {
	select {
	case f.wake <- struct{}{}:
	default: // it is awake
	}
}

// Begin gives it what an earlier agent knew, before the first Update. It acts by that if the kernel has no
// services of the cell at all, as after a restart of the machine: else these may be newer.
func (f *Follower) Begin(found *naming.Snapshot) {
	f.mu.Lock()
	f.found = found
	f.mu.Unlock()
	f.rouse()
}

// begin returns what an earlier agent knew, if that is to be acted by.
func (f *Follower) begin() *naming.Snapshot {
	f.mu.Lock()
	found := f.found
	f.found = nil
	f.mu.Unlock()
	if found == nil || !errors.Is(f.programmer.table.check(), errMissing) {
		return nil
	}
	return found
}

func (f *Follower) take() (now *naming.Snapshot, touched []naming.Name, waiting []func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	touched = slices.SortedFunc(maps.Keys(f.touched), naming.Name.Compare)
	clear(f.touched)
	waiting, f.waiting = f.waiting, nil
	return f.now, touched, waiting
}

// Withdraw has Run remove all services of the cell at its end: nothing of the cell is to be left on
// the machine.
func (f *Follower) Withdraw() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.leaves = true
}

// leave removes what is programmed, if that is wanted.
func (f *Follower) leave() {
	f.mu.Lock()
	leaves := f.leaves
	f.mu.Unlock()
	if !leaves {
		return
	}
	if err := errors.Join(f.programmer.Withdraw(), f.way.remove()); err != nil {
		f.log.Warn("services of the cell are left in the kernel", "err", err)
	}
}

// Run programs until ctx ends. What is programmed then stays, unless Withdraw was called: the data path needs no agent. It is
// called once, from a goroutine that stays on its thread if that has a network namespace of its own.
func (f *Follower) Run(ctx context.Context) {
	defer f.programmer.Close()
	defer f.way.close()
	defer f.leave()
	r := round{Follower: f, audit: time.NewTicker(auditEvery), timer: time.NewTimer(0), fresh: map[netip.AddrPort]struct{}{}, again: map[netip.AddrPort]struct{}{}, left: map[netip.AddrPort]time.Time{}}
	defer r.audit.Stop()
	defer r.timer.Stop()
	for {
		audit := false
		select {
		case <-ctx.Done():
			return
		case <-f.wake:
		case <-r.timer.C:
		case <-r.audit.C:
			audit = true
		}
		r.step(time.Now(), audit)
	}
}

// round is the state of Run.
type round struct {
	*Follower
	seen *naming.Snapshot // of which the programmer has the services
	done *naming.Snapshot // that the kernel has
	// waiters are for seen, or one before it.
	waiters []func()
	audit   *time.Ticker
	timer   *time.Timer

	wait    time.Duration // after the next failure
	retryAt time.Time
	// fresh are where tasks were reached that have ended, whose flows have not been looked for, and
	// again those for which that is done once more, at againAt. It is not done before resetAt.
	fresh, again     map[netip.AddrPort]struct{}
	resetAt, againAt time.Time
	left             map[netip.AddrPort]time.Time // where nothing is sent any more, and since when
	swept            bool                         // flows of tasks that ended while there was no agent are reset

	led     *leading // what the machine has routes for; nil: that is not known
	unledBy string   // why it has not, as it was logged last
}

// leading is which virtual addresses the machine's own packets are to reach, and with which source.
type leading struct {
	ranges []netip.Prefix
	from   netip.Addr
}

func (r *round) step(now time.Time, audit bool) {
	r.takeIn(now)
	if r.seen == nil {
		return
	}
	r.lead(audit)
	if audit || r.seen != r.done && !now.Before(r.retryAt) {
		r.program(now, audit)
	}
	if r.seen == r.done {
		for _, done := range r.waiters {
			done()
		}
		r.waiters = nil
		r.reset(now)
	}
	r.schedule(now)
}

// takeIn passes what is new on to the programmer.
func (r *round) takeIn(now time.Time) {
	newest, touched, waiting := r.take()
	r.waiters = append(r.waiters, waiting...)
	if newest == nil && r.seen == nil {
		newest = r.begin()
	}
	if newest == nil || newest == r.seen {
		return
	}
	t := r.view.Turn(newest, touched)
	maps.Copy(r.fresh, t.Ended)
	r.succeed(t.Set)
	for at := range t.Left {
		r.left[at] = now
	}
	r.programmer.Set(t.Set...)
	r.programmer.Remove(t.Removed...)
	r.seen = newest
}

// succeed resets flows to tasks that have ended while the kernel does not send new ones there yet, if other
// tasks are reached where they were: later, old and new flows look the same.
func (r *round) succeed(set []*services.Service) {
	if len(r.fresh) == 0 && len(r.again) == 0 && len(r.left) == 0 {
		return
	}
	followed := map[netip.AddrPort]struct{}{}
	for _, s := range set {
		for i := range s.Ports {
			for _, b := range s.Ports[i].Backends {
				delete(r.left, b.At)
				if has(r.fresh, b.At) || has(r.again, b.At) {
					followed[b.At] = struct{}{}
					delete(r.fresh, b.At)
					delete(r.again, b.At)
				}
			}
		}
	}
	if len(followed) > 0 {
		r.resetWhere(addresses(followed), func(f Flow) bool { return has(followed, f.Backend) })
	}
}

// resetWhere resets the flows to backends, nil for all, that gone picks.
func (r *round) resetWhere(backends []netip.Addr, gone func(Flow) bool) {
	n, err := r.programmer.Reset(backends, gone)
	if err != nil {
		r.log.Warn("not all connections to ended tasks could be reset", "error", err)
	}
	if n > 0 {
		r.log.Debug("connections to ended tasks were reset", "connections", n)
	}
}

// lead has the machine have a route to virtual addresses while there are services.
func (r *round) lead(audit bool) {
	is := &leading{}
	if c := r.seen.Cell(); c != nil && r.seen.HasAnyService() {
		is.ranges = slices.DeleteFunc([]netip.Prefix{c.Network.Services, c.Network.Services6}, func(p netip.Prefix) bool { return !p.IsValid() })
	}
	if m, ok := r.seen.Machine(r.machine); ok {
		is.from = m.Address.Unmap()
	}
	if was := r.led; !audit && was != nil && is.from == was.from && slices.Equal(is.ranges, was.ranges) {
		return
	}
	made, err := r.way.set(is.ranges, is.from)
	if len(made) > 0 {
		r.log.Info("the machine had no route to virtual addresses, and gets one", "ranges", made, "link", r.way.name)
	}
	if err == nil {
		r.led, r.unledBy = is, ""
		return
	}
	if r.led = nil; r.unledBy != err.Error() {
		r.unledBy = err.Error()
		r.log.Warn("programs of the machine itself may not reach virtual addresses", "error", err)
	}
}

func (r *round) program(now time.Time, audit bool) {
	do := r.programmer.Program
	if audit {
		do = r.programmer.Audit
	}
	c, err := do()
	if err != nil {
		level := slog.LevelDebug
		if r.wait == 0 {
			level = slog.LevelWarn // the first time
		}
		r.wait = min(max(2*r.wait, retryFirst), retryMost)
		r.retryAt = now.Add(r.wait)
		r.done = nil
		r.log.Log(context.Background(), level, "the kernel does not take the services; it has those from before, and is tried again", "error", err, "again_in", r.wait)
		return
	}
	if r.wait > 0 {
		r.log.Info("the kernel takes the services again")
	}
	r.wait, r.retryAt = 0, time.Time{}
	if audit && !c.Empty() {
		r.log.Warn("services were changed by others, and are put right", "table", TableName(r.programmer.table.cell), "elements", c.Size())
	}
	r.done = r.seen
}

// reset resets flows to tasks that have ended.
func (r *round) reset(now time.Time) {
	last := len(r.again) > 0 && !now.Before(r.againAt)
	stuck := r.stuck(now)
	if r.swept && len(r.fresh) == 0 && !last && len(stuck) == 0 || now.Before(r.resetAt) {
		return
	}
	backends, gone := r.gone(stuck)
	r.resetWhere(backends, gone)
	for at := range stuck {
		delete(r.left, at)
	}
	if last {
		clear(r.again)
	}
	if len(r.fresh) > 0 {
		maps.Copy(r.again, r.fresh)
		clear(r.fresh)
		r.againAt = now.Add(resetAgain)
	}
	r.swept = true
	r.resetAt = now.Add(resetShare * time.Since(now))
}

// stuck returns where nothing is sent any more for so long that a client which has no connection yet waits in vain:
// it sends its first packet once more, a second after the one before, and that is to go to another backend and not
// to one that ends meanwhile.
func (r *round) stuck(now time.Time) map[netip.AddrPort]struct{} {
	out := map[netip.AddrPort]struct{}{}
	for at, since := range r.left {
		if !now.Before(since.Add(openWithin)) {
			out[at] = struct{}{}
		}
	}
	return out
}

// gone returns which flows are to be reset, and the addresses to which they lead, nil for all: what ended while
// there was no agent is found by what is alive. Of those to stuck, no connection may have come about yet.
func (r *round) gone(stuck map[netip.AddrPort]struct{}) ([]netip.Addr, func(Flow) bool) {
	if r.swept {
		return addresses(r.fresh, r.again, stuck), func(f Flow) bool {
			return has(r.fresh, f.Backend) || has(r.again, f.Backend) || f.Opening && has(stuck, f.Backend)
		}
	}
	alive := services.Alive(r.done)
	return nil, func(f Flow) bool {
		return has(r.fresh, f.Backend) || f.Opening && has(stuck, f.Backend) || r.programmer.plan.Virtual(f.Virtual.Addr()) && !has(alive, f.Backend)
	}
}

// addresses returns those of some places, each once, not nil.
func addresses(places ...map[netip.AddrPort]struct{}) []netip.Addr {
	seen := map[netip.Addr]struct{}{}
	for _, p := range places {
		for at := range p {
			seen[at.Addr()] = struct{}{}
		}
	}
	return slices.AppendSeq(make([]netip.Addr, 0, len(seen)), maps.Keys(seen))
}

func has[K comparable, V any](m map[K]V, k K) bool {
	_, ok := m[k]
	return ok
}

// schedule sets the timer.
func (r *round) schedule(now time.Time) {
	var next time.Time
	earliest := func(t time.Time) {
		if next.IsZero() || t.Before(next) {
			next = t
		}
	}
	switch {
	case r.seen != r.done:
		earliest(r.retryAt)
	case len(r.fresh) > 0:
		earliest(r.resetAt)
	}
	if len(r.again) > 0 {
		earliest(r.againAt)
	}
	for _, since := range r.left {
		earliest(later(since.Add(openWithin), r.resetAt))
	}
	if !next.IsZero() {
		r.timer.Reset(max(0, next.Sub(now)))
	}
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
