package loop

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/musterhq/muster/reconciler"
	"github.com/musterhq/muster/reconciler/model"
	"github.com/musterhq/muster/reconciler/parallel"
	"github.com/musterhq/muster/schema"
)

// maxRest is the longest that a round waits, after the one before, for more reports of
// machines, and for which messages are taken that keep coming.
const maxRest = 250 * time.Millisecond

// ErrStopped is returned by calls to a Loop whose Run has ended.
var ErrStopped = errors.New("the master is stopping")

// Store keeps the cell's documents. Commit is atomic and fails when another
// master leads.
type Store interface {
	Load(ctx context.Context) (map[string][]byte, error)
	Commit(ctx context.Context, writes []model.Write) error
}

// Pusher hands a machine its new view, in the session that has its epoch and in no other;
// it must not block.
type Pusher interface {
	Push(machine string, view schema.View)
}

// EventLog keeps the cell's history.
type EventLog interface {
	// Append must not block.
	Append(events []schema.Event)
	// Intend keeps the events of decisions that are about to be stored, so that the end of
	// this process does not lose them; Settle appends them, with a note that it is not
	// known whether they were stored if err is not nil.
	Intend(events []schema.Event)
	Settle(err error)
	// Last returns the id of the newest record, 0 if there is none.
	Last() uint64
}

// Config is what a Loop needs. All fields but LostAfter, JoinWait and Workers are required.
type Config struct {
	Cell   string
	Store  Store // of which the caller is the elected leader
	Pusher Pusher
	Events EventLog
	Now    func() time.Time
	// LostAfter is how long a machine may be silent before it is given up; 0 is
	// model.DefaultLostAfter.
	LostAfter time.Duration
	// JoinWait is that of model.Observed.
	JoinWait time.Duration
	// Workers is how many goroutines look at machines for tasks that are placed; 0 is 1.
	Workers int
	// Settled is called with how long a commit took from when its head was seen until the
	// cell had converged. It must not block.
	Settled func(commit string, took time.Duration)
}

// Loop owns the state of a cell while Run runs.
type Loop struct {
	cfg   Config
	inbox chan message
	done  chan struct{} // closed when Run has ended
}

// message is something that happened, an event, or a question.
type message any

// event is an input of the master, for the owner's goroutine.
type event interface {
	handle(ctx context.Context, o *owner) error
}

// question has the owner's goroutine answer it. There is nothing to decide.
type question interface{ answer(o *owner) }

// New returns a Loop that waits for Run.
func New(cfg Config) *Loop {
	return &Loop{cfg: cfg, inbox: make(chan message, 256), done: make(chan struct{})}
}

// Run loads the state and leads the cell until ctx ends (nil) or the store no
// longer takes its writes (an error). It may be called once.
func (l *Loop) Run(ctx context.Context) error {
	defer close(l.done)
	o, err := newOwner(ctx, l.cfg)
	if err == nil {
		// Before the first question: its answer is a decision's, too.
		err = o.round(ctx)
	}
	if err != nil {
		return unlessDone(ctx, err)
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	resetTo(timer, o.wake(), l.cfg.Now())
	resting := false // there is news, for which the timer runs
	for {
		due, questions := false, []question(nil)
		select {
		case <-ctx.Done():
			return nil
		case m := <-l.inbox:
			questions, err = o.take(ctx, m, l.inbox)
		case <-timer.C:
			due = true
		}
		switch {
		case err != nil:
		case due || o.master.News() && (len(questions) > 0 || o.rested(l.cfg.Now())):
			err, resting = o.round(ctx), false
			resetTo(timer, o.wake(), l.cfg.Now())
		case o.master.News() && !resting:
			resting = true
			resetTo(timer, o.rests, l.cfg.Now())
		}
		if err != nil {
			return unlessDone(ctx, err)
		}
		for _, q := range questions {
			q.answer(o)
		}
	}
}

// Ended is closed when Run has ended.
func (l *Loop) Ended() <-chan struct{} { return l.done }

// unlessDone returns err, or nil if ctx has ended: then that is what err is of.
func unlessDone(ctx context.Context, err error) error {
	if ctx.Err() == nil {
		return err
	}
	return nil
}

// resetTo makes timer fire at t, never if t is zero.
func resetTo(timer *time.Timer, t, now time.Time) {
	if t.IsZero() {
		timer.Stop()
		return
	}
	timer.Reset(max(t.Sub(now), time.Millisecond))
}

// send hands m to the owner.
func (l *Loop) send(ctx context.Context, m message) error {
	select {
	case <-l.done: // first: the inbox may have room for ever
		return ErrStopped
	default:
	}
	select {
	case l.inbox <- m:
		return nil
	case <-l.done:
		return ErrStopped
	case <-ctx.Done():
		return ctx.Err()
	}
}

// ask hands m to the owner and waits for the answer on reply.
func ask[T any](ctx context.Context, l *Loop, m message, reply <-chan T) (T, error) {
	var zero T
	if err := l.send(ctx, m); err != nil {
		return zero, err
	}
	select {
	case v := <-reply:
		return v, nil
	case <-l.done:
		return zero, ErrStopped
	case <-ctx.Done():
		return zero, ctx.Err()
	}
}

// owner has the master, touched by Run's goroutine alone.
type owner struct {
	cfg     Config
	master  *reconciler.Master
	changed chan struct{} // closed when the master's version moves on
	joins   []joined      // that are not stored yet
	reading *reading      // of now; nil until somebody asks
	urgent  bool          // there is news other than reports and joins of machines
	rests   time.Time     // until then, unless there is such news, or a question
	// describer is what readings are described by.
	describer *describer
}

func newOwner(ctx context.Context, cfg Config) (*owner, error) {
	docs, err := cfg.Store.Load(ctx)
	if err != nil {
		return nil, fmt.Errorf("load cell %s: %w", cfg.Cell, err)
	}
	m, err := reconciler.NewMaster(reconciler.MasterConfig{Cell: cfg.Cell, LostAfter: cfg.LostAfter, JoinWait: cfg.JoinWait, Parallel: parallel.Calls(cfg.Workers)}, docs, cfg.Now())
	if err != nil {
		return nil, err
	}
	return &owner{cfg: cfg, master: m, changed: make(chan struct{}), describer: &describer{}}, nil
}

// take handles m and whatever else is waiting, for maxRest at most, so that a burst of
// reports costs one round, and one of joins a few transactions. Questions are handed back: they are
// to be answered after the round, from a state in which the news has been decided upon.
func (o *owner) take(ctx context.Context, m message, inbox <-chan message) (questions []question, err error) {
	for began := o.cfg.Now(); ; {
		switch m := m.(type) {
		case question:
			questions = append(questions, m)
		case event:
			if err := o.handle(ctx, m); err != nil {
				return questions, err
			}
		default:
			panic(fmt.Sprintf("loop: %T is neither an event nor a question", m))
		}
		if o.cfg.Now().Sub(began) >= maxRest {
			return questions, o.welcome(ctx)
		}
		select {
		case m = <-inbox:
		default:
			return questions, o.welcome(ctx)
		}
	}
}

// handle takes an event; joins before it are stored unless it is another one.
func (o *owner) handle(ctx context.Context, e event) error {
	_, joins := e.(join)
	if !joins {
		if err := o.welcome(ctx); err != nil {
			return err
		}
	}
	if _, reports := e.(sessionUpdates); !reports && !joins {
		o.urgent = true
	}
	return e.handle(ctx, o)
}

// wake returns when the next round is due if nothing happens before, zero if never.
func (o *owner) wake() time.Time {
	wake := o.master.Wake()
	if !wake.IsZero() && wake.Before(o.rests) {
		return o.rests
	}
	return wake
}

// rested reports whether what has happened may be decided upon.
func (o *owner) rested(now time.Time) bool { return o.urgent || !now.Before(o.rests) }

// round has the master decide, and carries that out. The next one rests for as long as this
// one took, so that what machines report meanwhile is decided upon together: in a large
// cell in which much happens a round looks at most jobs, however few of the machines have
// reported.
func (o *owner) round(ctx context.Context) error {
	began := o.cfg.Now()
	o.master.Decide()
	if err := o.carryOut(ctx); err != nil {
		return err
	}
	ended := o.cfg.Now()
	o.urgent, o.rests = false, ended.Add(min(ended.Sub(began), maxRest))
	close(o.changed)
	o.changed, o.reading = make(chan struct{}), nil
	return nil
}

// carryOut does what the master wants done: it makes decisions durable, and only then
// appends their events and pushes views.
func (o *owner) carryOut(ctx context.Context) error {
	for {
		ready, more := o.master.Ready(o.cfg.Now())
		if !more {
			return nil
		}
		if err := CarryOut(ctx, &o.cfg, o.master, &ready); err != nil {
			return err
		}
	}
}

// CarryOut does what a master has handed out, and reports that to it. Run does; it is also
// for whoever drives a master without it, as the simulation does. An error is that of the
// store, or a bug of the master, which must not be driven any further.
func CarryOut(ctx context.Context, cfg *Config, m *reconciler.Master, ready *reconciler.Ready) error {
	if err := record(ctx, cfg, m, ready); err != nil {
		return err
	}
	m.Advance(cfg.Now())
	for _, v := range ready.Views {
		cfg.Pusher.Push(v.Machine, v.View)
	}
	if c := ready.Converged; c != nil {
		cfg.Settled(c.Commit, c.Took)
	}
	return nil
}

// record makes decisions durable, and then appends their events. Those are on disk before:
// the cause of a task that ends with its record is nowhere else.
func record(ctx context.Context, cfg *Config, m *reconciler.Master, ready *reconciler.Ready) error {
	if len(ready.Writes) == 0 || len(ready.Events) == 0 {
		cfg.Events.Append(ready.Events)
		return store(ctx, cfg, m, ready.Writes)
	}
	cfg.Events.Intend(ready.Events)
	err := store(ctx, cfg, m, ready.Writes)
	cfg.Events.Settle(err)
	return err
}

// store makes writes durable, batch by batch.
func store(ctx context.Context, cfg *Config, m *reconciler.Master, writes []model.Write) error {
	for _, batch := range model.Batches(writes) {
		if err := cfg.Store.Commit(ctx, batch); err != nil {
			return fmt.Errorf("write to the store of cell %s: %w", cfg.Cell, err)
		}
		if err := m.Stored(batch); err != nil {
			return err
		}
	}
	return nil
}
