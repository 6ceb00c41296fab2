package relay

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/musterhq/muster/reconciler/model"
	"github.com/musterhq/muster/reconciler/shard"
	"github.com/musterhq/muster/schema"
)

const (
	joinTimeout    = 30 * time.Second // for a leader to be there and to answer; agents wait 60 s
	updateEvery    = time.Second      // between two updates without changes
	mostUpdates    = 512              // at once
	retryEvery     = 200 * time.Millisecond
	helloTimeout   = 5 * time.Second  // for a leader to take a shard
	keepaliveEvery = 10 * time.Second // silence after which a leader is asked; as long again, and it is gone
)

// Agents is the link server that has the sessions.
type Agents interface {
	// Push gives a machine its view in the session that has the view's epoch. It must not
	// block.
	Push(machine string, view schema.View)
	// End ends the session with the epoch, if there is one; the agent gets the reason.
	End(machine string, epoch uint64, why error)
	// Answers reports whether another agent than life with the name is connected and
	// answers.
	Answers(ctx context.Context, machine, life string) bool
	Logs(ctx context.Context, machine string, r schema.LogRequest) (io.ReadCloser, error)
	Exec(ctx context.Context, machine string, r schema.ExecRequest) (io.ReadWriteCloser, error)
}

// ShardConfig is what a Shard needs.
type ShardConfig struct {
	Cell   string
	Agents Agents
	// Parted is how long a leader may be out of reach before the sessions end, so that
	// their machines find a master that reaches it: longer than its lease.
	Parted time.Duration
	// Security is for leaders on other machines; nil when there is none.
	Security Security
	// Beside, if set, is called with each connection to a leader elsewhere that has taken
	// this shard, until ctx ends: for what else masters have to say to each other.
	Beside func(ctx context.Context, leader grpc.ClientConnInterface)
	Log    *slog.Logger
}

// Shard is the link shard of one master, as the Master of its link server.
type Shard struct {
	cfg ShardConfig

	mu       sync.Mutex // guards what follows
	sessions *shard.Sessions
	target   target
	moved    chan struct{} // closed when the target or the leader changes
	leader   leader        // that the sessions are attached to; nil for none
	term     uint64        // the highest that it was attached to
	absent   error         // why nobody who joins is to wait; nil if they are

	wake chan struct{} // there is something for the leader
}

// target is who leads, as the election says: a Hub here, an address, or nobody.
type target struct {
	hub     *Hub
	address string
	term    uint64
	unknown bool // this master cannot ask the election
}

// leader is who leads, for one shard.
type leader interface {
	// join gets a machine its next epoch and calls opened before anything is sent to it. It
	// errs with errGone when the leader no longer leads.
	join(ctx context.Context, info *schema.MachineInfo, opened func(epoch uint64)) error
	// updates hands over updates, and returns for each of them why its session is to
	// end.
	updates(ctx context.Context, all []model.SessionUpdate) ([]error, error)
	// gone is closed when the leader leads no more, or is out of reach.
	gone() <-chan struct{}
}

// errGone says that a leader leads no more.
var errGone = errors.New("the master that led is gone")

// NewShard returns a Shard that knows of no leader.
func NewShard(cfg ShardConfig) *Shard {
	return &Shard{cfg: cfg, sessions: shard.New(), moved: make(chan struct{}), wake: make(chan struct{}, 1)}
}

// Lead says that the hub leads, in this process.
func (s *Shard) Lead(h *Hub) { s.follow(target{hub: h, term: h.cfg.Term}, nil) }

// Follow says that another master leads, and where its link is.
func (s *Shard) Follow(address string, term uint64) {
	s.follow(target{address: address, term: term}, nil)
}

// Wait says that nobody leads: sessions stay as they are.
func (s *Shard) Wait() { s.follow(target{}, nil) }

// Lose says that this master cannot find out who leads: sessions end when that lasts,
// since another one may.
func (s *Shard) Lose() { s.follow(target{unknown: true}, nil) }

// Following reports whether another master is followed, as Follow said, or this is Lose
// already.
func (s *Shard) Following() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.target.address != "" || s.target.unknown
}

// Refuse says that the leader cannot be followed: sessions end, and nobody joins.
func (s *Shard) Refuse(why error) { s.follow(target{}, why) }

func (s *Shard) follow(t target, absent error) {
	s.mu.Lock()
	s.target, s.absent = t, absent
	s.move()
	s.mu.Unlock()
	if absent != nil {
		s.endAll(absent)
	}
}

// move says that the target or the leader has changed. The caller has the lock.
func (s *Shard) move() {
	close(s.moved)
	s.moved = make(chan struct{})
}

// endAll ends all sessions, in the link server; each then leaves.
func (s *Shard) endAll(why error) {
	s.mu.Lock()
	ids := s.sessions.All()
	s.mu.Unlock()
	for _, id := range ids {
		s.cfg.Agents.End(id.Machine, id.Epoch, status.Error(codes.Unavailable, why.Error()))
	}
}

// Run sends updates to the master that leads, until ctx ends.
func (s *Shard) Run(ctx context.Context) {
	var unreached time.Time // since when the present target is
	var last target
	for ctx.Err() == nil {
		s.mu.Lock()
		t, moved := s.target, s.moved
		s.mu.Unlock()
		if t != last {
			last, unreached = t, time.Now()
		}
		if t.hub == nil && t.address == "" {
			s.idle(ctx, t, moved)
			continue
		}
		attached, err := s.attach(ctx, t)
		if attached {
			unreached = time.Now()
		}
		if ctx.Err() != nil {
			return
		}
		s.cfg.Log.Debug("not attached to the master that leads", "address", t.address, "err", err)
		if t.address != "" && time.Since(unreached) > s.cfg.Parted {
			s.part(t, fmt.Errorf("this master cannot reach %s, which leads: %w", t.address, err))
		}
		s.mu.Lock()
		same := s.target == t
		moved = s.moved // by attach, too
		s.mu.Unlock()
		if !same {
			continue
		}
		select {
		case <-ctx.Done():
		case <-moved:
		case <-time.After(retryEvery):
		}
	}
}

// idle waits until there is a leader to be followed. When it cannot be found out who
// leads, the sessions end after a while.
func (s *Shard) idle(ctx context.Context, t target, moved <-chan struct{}) {
	var lost <-chan time.Time
	if t.unknown {
		timer := time.NewTimer(s.cfg.Parted)
		defer timer.Stop()
		lost = timer.C
	}
	select {
	case <-ctx.Done():
	case <-moved:
	case <-lost:
		s.part(t, errors.New("this master cannot find out who leads the cell"))
	}
}

// part ends all sessions, and refuses others until the leader is reached.
func (s *Shard) part(t target, why error) {
	s.mu.Lock()
	news := s.target == t && s.absent == nil
	if s.target == t {
		s.absent = why
		s.move()
	}
	s.mu.Unlock()
	if news {
		s.cfg.Log.Warn("sessions end: the master that leads is out of reach", "cell", s.cfg.Cell, "err", why)
	}
	s.endAll(why)
}

// attach speaks with a leader until it is gone or another one is to be followed.
func (s *Shard) attach(ctx context.Context, t target) (attached bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go s.untilMoved(ctx, t, cancel)
	var l leader
	if t.hub != nil {
		a := t.hub.attach(s)
		defer a.detach()
		l = a
	} else {
		r, err := s.dial(ctx, t.address, t.term)
		if err != nil {
			return false, err
		}
		defer r.close()
		l = r
	}
	select {
	case <-l.gone():
		return false, errGone
	default:
	}
	s.mu.Lock()
	if s.target != t {
		s.mu.Unlock()
		return false, errGone
	}
	s.sessions.Attach()
	s.leader, s.term, s.absent = l, t.term, nil
	s.move()
	n := s.sessions.Len()
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.leader = nil
		s.move()
	}()
	if r, ok := l.(*remote); ok {
		r.begin()
		if s.cfg.Beside != nil {
			r.work.Go(func() { s.cfg.Beside(r.stream.Context(), r.conn) })
		}
	}
	s.cfg.Log.Info("attached to the master that leads", "cell", s.cfg.Cell, "address", t.address, "term", t.term, "sessions", n)
	return true, s.sendUpdates(ctx, l)
}

// untilMoved cancels when another leader is to be followed.
func (s *Shard) untilMoved(ctx context.Context, t target, cancel context.CancelFunc) {
	for {
		s.mu.Lock()
		now, moved := s.target, s.moved
		s.mu.Unlock()
		if now != t {
			cancel()
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-moved:
		}
	}
}

// sendUpdates sends the leader updates, at once or every updateEvery, until it is gone.
func (s *Shard) sendUpdates(ctx context.Context, l leader) error {
	tick := time.NewTicker(updateEvery)
	defer tick.Stop()
	for {
		s.mu.Lock()
		urgent := s.sessions.Urgent()
		s.mu.Unlock()
		if !urgent {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-l.gone():
				return errGone
			case <-s.wake:
				continue
			case <-tick.C:
			}
		}
		for {
			s.mu.Lock()
			updates := s.sessions.Next(mostUpdates)
			s.mu.Unlock()
			if len(updates) == 0 {
				break
			}
			refused, err := l.updates(ctx, updates)
			if err != nil {
				return err
			}
			for i, why := range refused {
				if why != nil {
					s.drop(updates[i].Machine, updates[i].Epoch, status.Error(codes.Unavailable, why.Error()))
				}
			}
		}
	}
}

// drop ends a session that the leader does not have.
func (s *Shard) drop(machine string, epoch uint64, why error) {
	s.cfg.Agents.End(machine, epoch, why)
}

// view hands a view on, unless the machine has it.
func (s *Shard) view(machine string, view schema.View) {
	s.mu.Lock()
	defer s.mu.Unlock() // while pushing, so that no older view overtakes
	if own, news := s.sessions.View(machine, view); news {
		s.cfg.Agents.Push(machine, own)
	}
}

func (s *Shard) notify() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// Join gets a machine its next epoch from whoever leads, and waits for that a while.
func (s *Shard) Join(ctx context.Context, info schema.MachineInfo) (uint64, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, joinTimeout, errors.New("no master leads the cell, or none that answers"))
	defer cancel()
	for {
		l, err := s.present(ctx)
		if err != nil {
			return 0, err
		}
		epoch, err := s.joinAt(ctx, l, &info)
		if !errors.Is(err, errGone) {
			return epoch, err
		}
		select {
		case <-ctx.Done():
		case <-l.gone():
		case <-time.After(retryEvery):
		}
	}
}

// present returns who leads, and waits for that.
func (s *Shard) present(ctx context.Context) (leader, error) {
	for {
		s.mu.Lock()
		l, absent, moved := s.leader, s.absent, s.moved
		s.mu.Unlock()
		switch {
		case absent != nil: // also while Run has not left a leader yet that is refused
			return nil, absent
		case l != nil:
			return l, nil
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-moved:
		}
	}
}

// joinAt asks one leader for the next epoch of a machine. When the agent does not wait
// for the answer, the session is over as soon as it is there.
func (s *Shard) joinAt(ctx context.Context, l leader, info *schema.MachineInfo) (uint64, error) {
	var epoch uint64 // guarded by the lock, as is what follows
	left := false
	done := make(chan error, 1)
	go func() {
		done <- l.join(ctx, info, func(e uint64) {
			s.mu.Lock()
			defer s.mu.Unlock()
			epoch = e
			s.sessions.Open(info.Name, e, info.Link, s.leader == l)
			if left {
				s.sessions.Close(info.Name, e)
				s.notify()
			}
		})
	}()
	select {
	case err := <-done:
		return epoch, err
	case <-ctx.Done():
		s.mu.Lock()
		defer s.mu.Unlock()
		left = true
		if epoch != 0 {
			s.sessions.Close(info.Name, epoch)
			s.notify()
		}
		return 0, context.Cause(ctx)
	}
}

// Report takes a report, which the leader has soon. It errs when the session is not the
// machine's newest here.
func (s *Shard) Report(_ context.Context, machine string, epoch uint64, r schema.Report) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.sessions.Report(machine, epoch, r) {
		return fmt.Errorf("connection %d of machine %s is not its newest", epoch, machine)
	}
	if s.sessions.Urgent() {
		s.notify()
	}
	return nil
}

// Usage takes what a machine uses, which the leader has soon.
func (s *Shard) Usage(_ context.Context, epoch uint64, u *schema.MachineUsage) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sessions.Used(epoch, u)
	return nil
}

// Content takes what a machine holds of images and packages, which the leader has soon.
func (s *Shard) Content(machine string, epoch uint64, content []schema.Digest) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sessions.Holds(machine, epoch, content)
}

// Leave says that a session has ended.
func (s *Shard) Leave(machine string, epoch uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sessions.Close(machine, epoch)
	s.notify()
}
