package loop

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/musterhq/muster/reconciler"
	"github.com/musterhq/muster/schema"
)

// ErrStopped is returned by calls to a Loop whose Run has ended.
var ErrStopped = errors.New("the master is stopping")

// Store keeps the cell's documents. Commit is atomic and fails when another
// master leads.
type Store interface {
	Load(ctx context.Context) (map[string][]byte, error)
	Commit(ctx context.Context, writes []reconciler.Write) error
}

// Pusher hands a machine its new view, in the session that has the epoch and in no
// other; it must not block.
type Pusher interface {
	Push(machine string, epoch, version uint64, view []schema.Assignment)
}

// EventLog keeps the cell's history.
type EventLog interface {
	// Append must not block.
	Append(events []schema.Event)
	// Intend keeps what is to be told of decisions that are about to be stored, so
	// that the end of this process does not lose it; Settle tells it, or that nobody
	// knows of it, by whether that went well.
	Intend(events []schema.Event)
	Settle(err error)
}

// Config is what a Loop needs. All fields but LostAfter and JoinWait are required.
type Config struct {
	Cell   string
	Store  Store // of which the caller is the elected leader
	Pusher Pusher
	Events EventLog
	Now    func() time.Time
	// LostAfter is how long a machine may be silent before it is given up; 0 is
	// reconciler.DefaultLostAfter.
	LostAfter time.Duration
	// JoinWait is that of reconciler.Observed.
	JoinWait time.Duration
	// Settled is told how long a commit took from when its head was seen
	// until all ran as it says. It must not block.
	Settled func(commit string, took time.Duration)
}

// Loop owns the state of a cell while Run runs.
type Loop struct {
	cfg   Config
	inbox chan message
	done  chan struct{} // closed when Run has ended
}

// message is something that happened, or a question; handle runs on the
// owner's goroutine.
type message interface {
	handle(ctx context.Context, o *owner) error
}

// question is a message after which there is nothing to decide.
type question interface{ question() }

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
	resetTo(timer, o.last.Wake, l.cfg.Now())
	for {
		news, questions := true, []message(nil)
		select {
		case <-ctx.Done():
			return nil
		case m := <-l.inbox:
			news, questions, err = o.take(ctx, m, l.inbox)
		case <-timer.C:
		}
		if err == nil && news {
			err = o.round(ctx)
			resetTo(timer, o.last.Wake, l.cfg.Now())
		}
		for i := 0; i < len(questions) && err == nil; i++ {
			err = questions[i].handle(ctx, o)
		}
		if err != nil {
			return unlessDone(ctx, err)
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

// owner is the state, touched by Run's goroutine alone.
type owner struct {
	cfg      Config
	state    *reconciler.State
	observed *reconciler.Observed
	memo     reconciler.Memo // of the two
	last     reconciler.Output

	headSeen string    // newest commit of the repository
	headAt   time.Time // when it was seen
	settled  bool      // Settled was told of headSeen
	source   reconciler.Seen
	// compileErr is what is wrong with the compilation of headSeen.
	compileErr error
	// kept is the newest commit that came while the cell was suspended.
	kept *schema.Compiled

	epochs  map[string]uint64              // machines that are connected
	views   map[string][]schema.Assignment // of the state; nil when it has changed since
	pushed  map[string][]schema.Assignment // last view that each was sent
	viewSeq uint64

	version uint64 // counts rounds: what a Status is a function of
	status  *reconciler.Status
	changed chan struct{} // closed when version moves on
}

func newOwner(ctx context.Context, cfg Config) (*owner, error) {
	docs, err := cfg.Store.Load(ctx)
	if err != nil {
		return nil, fmt.Errorf("load cell %s: %w", cfg.Cell, err)
	}
	state, err := reconciler.Load(cfg.Cell, docs)
	if err != nil {
		return nil, fmt.Errorf("load cell %s: %w", cfg.Cell, err)
	}
	now := cfg.Now()
	o := &owner{
		cfg: cfg, state: state, observed: reconciler.NewObserved(now),
		headSeen: state.Head.Commit, settled: true,
		epochs: map[string]uint64{}, pushed: map[string][]schema.Assignment{},
		changed: make(chan struct{}),
	}
	o.observed.LostAfter, o.observed.JoinWait = cmp.Or(cfg.LostAfter, reconciler.DefaultLostAfter), cfg.JoinWait
	o.cfg.Events.Append([]schema.Event{{At: now, Kind: schema.EventMaster, Commit: state.Head.Commit, Message: "a master leads the cell"}})
	return o, nil
}

// take handles m and whatever else is waiting, so that a burst of reports costs
// one round. Questions are handed back: they are to be answered after the round,
// from a state in which the news has been decided upon.
func (o *owner) take(ctx context.Context, m message, inbox <-chan message) (news bool, questions []message, err error) {
	for {
		if _, ok := m.(question); ok {
			questions = append(questions, m)
		} else {
			news = true
			if err := m.handle(ctx, o); err != nil {
				return news, questions, err
			}
		}
		select {
		case m = <-inbox:
		default:
			return news, questions, nil
		}
	}
}

// round calls the core once, makes its decisions durable, and only then tells
// the machines.
func (o *owner) round(ctx context.Context) error {
	if err := o.adoptKept(ctx); err != nil {
		return err
	}
	now := o.cfg.Now()
	if leap := o.observed.Awake(o.last.Wake, now); leap > 0 {
		writes, events := reconciler.SetForward(o.state, leap, now)
		if err := o.record(ctx, writes, events); err != nil {
			return err
		}
	}
	out := reconciler.Step(reconciler.Input{
		State: o.state, Observed: o.observed, Now: now, Seed: reconciler.Seed(o.cfg.Cell, o.state.Head.Commit), Memo: &o.memo,
	})
	if err := o.record(ctx, out.Writes, out.Events); err != nil {
		return err
	}
	o.last = out
	o.moved()
	o.push()
	o.settle()
	return nil
}

// record makes decisions durable, and then tells the history. That is on disk
// before: what ends with its record has no cause anywhere else.
func (o *owner) record(ctx context.Context, writes []reconciler.Write, events []schema.Event) error {
	if len(writes) == 0 || len(events) == 0 {
		o.cfg.Events.Append(events)
		return o.store(ctx, writes)
	}
	o.cfg.Events.Intend(events)
	err := o.store(ctx, writes)
	o.cfg.Events.Settle(err)
	return err
}

// store makes writes durable, batch by batch, and applies each to the state once
// the store has it.
func (o *owner) store(ctx context.Context, writes []reconciler.Write) error {
	if len(writes) == 0 {
		return nil
	}
	o.views = nil
	began := o.cfg.Now()
	for _, batch := range reconciler.Batches(writes) {
		if err := o.cfg.Store.Commit(ctx, batch); err != nil {
			return fmt.Errorf("write to the store of cell %s: %w", o.cfg.Cell, err)
		}
		if err := o.state.Apply(batch); err != nil {
			return fmt.Errorf("cell %s: %w", o.cfg.Cell, err)
		}
	}
	o.observed.Waited(began, o.cfg.Now())
	return nil
}

// push sends each connected machine its view if it is not the one it has.
func (o *owner) push() {
	if o.state.Recovering() {
		return
	}
	if o.views == nil {
		o.views = reconciler.Views(o.state)
	}
	for machine, epoch := range o.epochs {
		if o.state.Restored != nil && !o.observed.Heard(machine) {
			continue // it may hold what must be taken over first
		}
		view := o.views[machine]
		if had, ok := o.pushed[machine]; ok && sameView(had, view) {
			continue
		}
		o.viewSeq++
		o.pushed[machine] = view
		o.cfg.Pusher.Push(machine, epoch, o.viewSeq, view)
	}
}

// sameView compares what a view says; Job is a function of Data, and ports are
// chosen once per generation.
func sameView(a, b []schema.Assignment) bool {
	return slices.EqualFunc(a, b, func(x, y schema.Assignment) bool {
		return x.Generation == y.Generation && x.Data == y.Data && (x.Stop == nil) == (y.Stop == nil)
	})
}

// moved marks that a Status made before is out of date.
func (o *owner) moved() {
	o.version++
	o.status = nil
	close(o.changed)
	o.changed = make(chan struct{})
}

// describe returns the Status of this moment, made at most once a version.
func (o *owner) describe() *reconciler.Status {
	if o.status == nil {
		s := reconciler.Describe(o.described())
		s.Version = o.version
		o.status = &s
	}
	return o.status
}

// described is what a Status is a function of at this moment.
func (o *owner) described() reconciler.DescribeInput {
	return reconciler.DescribeInput{
		State: o.state, Observed: o.observed, Last: o.last, Head: o.headSeen, Source: o.source, Trouble: o.trouble(), Now: o.cfg.Now(),
	}
}

// trouble says what keeps the newest commit from being read, "" if nothing does.
func (o *owner) trouble() string {
	if err := cmp.Or(o.source.Trouble, o.compileErr); err != nil {
		return err.Error()
	}
	return ""
}

// settle reports the time that the newest commit took, once.
func (o *owner) settle() {
	if o.settled || o.state.Head.Commit != o.headSeen || !o.describe().Converged {
		return
	}
	o.settled = true
	o.cfg.Settled(o.headSeen, o.cfg.Now().Sub(o.headAt))
}
