package relay

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/musterhq/muster/reconciler/model"
	"github.com/musterhq/muster/schema"
)

const (
	answerTimeout = 4 * time.Second // for another shard to ask an agent whether it is there: it waits 3 s
	admitEvery    = time.Second     // how often it is looked whether anything was revoked
)

// ErrNotConnected says that a machine has no session with any master.
var ErrNotConnected = errors.New("not connected to the master")

// Loop owns the state of the cell that this master leads.
type Loop interface {
	// Join waits for the answer also when ctx ends, but gives no epoch to a machine whose
	// turn comes after that.
	Join(ctx context.Context, info schema.MachineInfo) (epoch uint64, err error)
	UpdateSessions(ctx context.Context, all []model.SessionUpdate) (refused []error, err error)
	// Ended is closed when the loop leads no more; calls err then.
	Ended() <-chan struct{}
}

// HubConfig is what a Hub needs.
type HubConfig struct {
	// Term is that of the election; it grows with each.
	Term uint64
	// Admit errs when a machine is not welcome with what it has shown another master.
	// It must not block.
	Admit func(machine string, link *schema.Connection) error
	// Revision is another number whenever Admit may refuse whom it did not before.
	Revision func() uint64
}

// Hub is the shards of a cell, for the loop that leads it for one term.
type Hub struct {
	cfg  HubConfig
	loop Loop // since Begin, before any shard is attached

	mu      sync.Mutex             // guards what follows
	routes  map[string]route       // by machine
	fresh   map[string]bool        // machines whose session began since all or some were checked
	pending map[string]schema.View // of machines without a route, the newest
}

// route is which shard has a machine's session.
type route struct {
	at    *attachment
	epoch uint64
	link  schema.Connection
}

// end is a shard, as its hub sees it. No method but answers, logs and exec may block.
type end interface {
	view(machine string, view schema.View)
	drop(machine string, epoch uint64, why error)
	answers(ctx context.Context, machine, life string) bool
	logs(ctx context.Context, machine string, r schema.LogRequest) (io.ReadCloser, error)
	exec(ctx context.Context, machine string, r schema.ExecRequest) (io.ReadWriteCloser, error)
}

// NewHub returns a hub for the loop that Begin is given.
func NewHub(cfg HubConfig) *Hub {
	return &Hub{cfg: cfg, routes: map[string]route{}, fresh: map[string]bool{}, pending: map[string]schema.View{}}
}

// Begin gives the hub the loop for which it pushes: once, before a Shard or a Service has
// the hub.
func (h *Hub) Begin(l Loop) { h.loop = l }

// Run checks the machines of other shards again whenever something was revoked, until ctx
// ends: their sessions are there until this master says so. Those whose session has just
// begun are checked in any case, as it may have been revoked meanwhile.
func (h *Hub) Run(ctx context.Context) {
	tick := time.NewTicker(admitEvery)
	defer tick.Stop()
	seen := h.cfg.Revision()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		now := h.cfg.Revision() // before the look: what is revoked meanwhile is seen the next time
		h.admitAgain(now != seen)
		seen = now
	}
}

// admitAgain ends the sessions of machines of other shards that are not welcome any more:
// of all, or of those whose session has just begun.
func (h *Hub) admitAgain(all bool) {
	h.mu.Lock()
	some := map[string]route{}
	for machine := range h.fresh {
		if r, ok := h.routes[machine]; ok {
			some[machine] = r
		}
	}
	clear(h.fresh)
	if all {
		some = maps.Clone(h.routes)
	}
	h.mu.Unlock()
	for machine, r := range some {
		if err := h.admit(r.at, machine, &r.link); err != nil {
			r.at.end.drop(machine, r.epoch, status.Error(codes.PermissionDenied, err.Error())) // of that epoch alone
		}
	}
}

// admit errs when a machine of another shard is not welcome.
func (h *Hub) admit(a *attachment, machine string, link *schema.Connection) error {
	if _, here := a.end.(*Shard); here || link.Key == "" {
		return nil // the link server here checks its own
	}
	return h.cfg.Admit(machine, link)
}

// Push gives a machine its view in the session that has the view's epoch, and in no other:
// it goes to the shard that has it, or that gets it.
func (h *Hub) Push(machine string, view schema.View) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if r, ok := h.routes[machine]; ok && r.epoch == view.Epoch {
		r.at.end.view(machine, view)
		return
	}
	h.pending[machine] = view
}

// Logs asks the agent of the machine for a log, through the shard that has it. The error
// is ErrNotConnected when none has.
func (h *Hub) Logs(ctx context.Context, machine string, r schema.LogRequest) (io.ReadCloser, error) {
	to, err := h.shardOf(machine)
	if err != nil {
		return nil, err
	}
	return to.logs(ctx, machine, r)
}

// Exec asks the agent of the machine for a session, as Logs does.
func (h *Hub) Exec(ctx context.Context, machine string, r schema.ExecRequest) (io.ReadWriteCloser, error) {
	to, err := h.shardOf(machine)
	if err != nil {
		return nil, err
	}
	return to.exec(ctx, machine, r)
}

func (h *Hub) shardOf(machine string) (end, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	r, ok := h.routes[machine]
	if !ok {
		return nil, fmt.Errorf("machine %s: %w", machine, ErrNotConnected)
	}
	return r.at.end, nil
}

// attachment is one shard at a hub: it is what leads, for that shard.
type attachment struct {
	hub    *Hub
	end    end
	closed bool // guarded by the hub's lock
}

func (h *Hub) attach(e end) *attachment { return &attachment{hub: h, end: e} }

// detach says that the shard is gone: its machines have no session any more.
func (a *attachment) detach() {
	h := a.hub
	h.mu.Lock()
	a.closed = true
	var left []model.SessionUpdate
	for machine, r := range h.routes {
		if r.at == a {
			left = append(left, model.SessionUpdate{Machine: machine, Epoch: r.epoch, Left: true})
			delete(h.routes, machine)
		}
	}
	h.mu.Unlock()
	h.leave(left...)
}

// leave reports to the loop sessions that have ended.
func (h *Hub) leave(left ...model.SessionUpdate) {
	if len(left) > 0 {
		_, _ = h.loop.UpdateSessions(context.Background(), left) // it errs when the loop has ended
	}
}

func (a *attachment) gone() <-chan struct{} { return a.hub.loop.Ended() }

// orGone returns err, or errGone when it is of a loop that has ended.
func (h *Hub) orGone(err error) error {
	select {
	case <-h.loop.Ended():
		return errGone
	default:
		return err
	}
}

// join gets a machine its next epoch. A session of its name that another shard has is
// asked whether its agent is there. ctx is of the session: see Loop.
func (a *attachment) join(ctx context.Context, info *schema.MachineInfo, opened func(epoch uint64)) error {
	h := a.hub
	if err := h.admit(a, info.Name, &info.Link); err != nil {
		return err
	}
	h.mu.Lock()
	old, had := h.routes[info.Name]
	h.mu.Unlock()
	with := *info
	if had && old.at != a && !with.Link.Answers {
		within, cancel := context.WithTimeout(ctx, answerTimeout)
		defer cancel()
		with.Link.Answers = old.at.end.answers(within, info.Name, info.Link.Life)
	}
	epoch, err := h.loop.Join(ctx, with)
	if err != nil {
		return h.orGone(err)
	}
	opened(epoch)
	h.route(a, info.Name, epoch, &info.Link)
	return nil
}

// updates hands over the updates of a shard.
func (a *attachment) updates(ctx context.Context, all []model.SessionUpdate) ([]error, error) {
	h := a.hub
	unwelcome := map[int]error{}
	for i := range all {
		w := &all[i]
		if w.Resume == nil {
			continue
		}
		if err := h.admit(a, w.Machine, w.Resume); err != nil {
			unwelcome[i] = err
			*w = model.SessionUpdate{Machine: w.Machine, Epoch: w.Epoch, Left: true}
		}
	}
	refused, err := h.loop.UpdateSessions(ctx, all)
	if err != nil {
		return nil, h.orGone(err)
	}
	for i := range all {
		w := &all[i]
		switch {
		case unwelcome[i] != nil:
			refused[i] = unwelcome[i]
		case w.Left || refused[i] != nil:
			h.unroute(a, w.Machine, w.Epoch)
		case w.Resume != nil:
			h.route(a, w.Machine, w.Epoch, w.Resume)
		}
	}
	return refused, nil
}

// route says that a shard has a machine's session, and hands it the view that waits for
// it. A session before it, that another shard has, is over.
func (h *Hub) route(a *attachment, machine string, epoch uint64, link *schema.Connection) {
	h.mu.Lock()
	if a.closed {
		h.mu.Unlock()
		h.leave(model.SessionUpdate{Machine: machine, Epoch: epoch, Left: true})
		return
	}
	defer h.mu.Unlock()
	old, had := h.routes[machine]
	if had && old.epoch > epoch {
		return
	}
	if had && old.at != a {
		old.at.end.drop(machine, old.epoch, status.Errorf(codes.Aborted, "another agent holds the name of machine %s, since epoch %d", machine, epoch))
	}
	h.routes[machine], h.fresh[machine] = route{a, epoch, *link}, true
	v, waits := h.pending[machine]
	delete(h.pending, machine)
	if waits && v.Epoch == epoch {
		a.end.view(machine, v)
	}
}

func (h *Hub) unroute(a *attachment, machine string, epoch uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if r, ok := h.routes[machine]; ok && r.at == a && r.epoch == epoch {
		delete(h.routes, machine)
	}
}

// answers asks an agent of this shard whether it is there.
func (s *Shard) answers(ctx context.Context, machine, life string) bool {
	return s.cfg.Agents.Answers(ctx, machine, life)
}

func (s *Shard) logs(ctx context.Context, machine string, r schema.LogRequest) (io.ReadCloser, error) {
	return s.cfg.Agents.Logs(ctx, machine, r)
}

func (s *Shard) exec(ctx context.Context, machine string, r schema.ExecRequest) (io.ReadWriteCloser, error) {
	return s.cfg.Agents.Exec(ctx, machine, r)
}
