package loop

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/musterhq/muster/nodeagent"
	"github.com/musterhq/muster/schema"
	"github.com/prometheus/client_golang/prometheus"
)

// ErrEnded is returned by calls to a Loop whose Run has returned.
var ErrEnded = errors.New("the agent's loop has ended")

// Config is what a Loop needs. All but Meter, Limits and the hooks must be set.
type Config struct {
	Cell    string
	Machine schema.MachineInfo
	Dir     string // the state directory; made if it is not there
	// Lock, if set, is that of Dir, which the Loop gives back; nil: New takes
	// it.
	Lock    *Lock
	Runtime Runtime
	Log     *slog.Logger
	Metrics prometheus.Registerer
	// Images, if set, brings images; nil: tasks that need one do not start.
	Images Images
	// Networks, if set, gives tasks networks of their own; nil: those that are to have one do
	// not start.
	Networks Networks
	// Meter, if set, is asked what machine and tasks use: every SampleEvery, and
	// for disks every DiskEvery.
	Meter                  Meter
	SampleEvery, DiskEvery time.Duration
	// Hardware distinguishes the machine from others that were made from the same image;
	// "" if that is not known.
	Hardware string
	// Limits say what is done when the machine runs short, and what is kept.
	Limits nodeagent.Limits
	// BallastBytes is how much of the disk is kept for what the agent has to write
	// when others have filled it; 0: nothing.
	BallastBytes int64
	// Damages, if set, gets the Runtime's reports too; nil: the Loop's alone.
	Damages *Damages
	// NoExec refuses commands beside tasks.
	NoExec bool
	// UnlistWithin, UnlistUnlinked and Listing are as in nodeagent.AgentConfig.
	UnlistWithin, UnlistUnlinked time.Duration
	Listing                      bool
	// LookEvery is the time between two looks at how the machine is; zero: it
	// is not looked at, and what is wrong with it is found by starts alone.
	LookEvery time.Duration
	// Hint, if set, is called when a report differs from the one before. It
	// must not block.
	Hint func()
	// Step, if set, is called before and after each change of the state
	// directory. Tests kill the agent there.
	Step func(what string)
}

// Loop is the agent of one machine.
type Loop struct {
	cfg     Config
	owner   *owner // belongs to Run's goroutine
	events  chan func()
	asks    chan func()   // that change nothing
	ended   chan struct{} // closed when Run has returned
	workers sync.WaitGroup

	info   atomic.Pointer[schema.MachineInfo]
	report atomic.Pointer[schema.Report]
	usage  atomic.Pointer[schema.MachineUsage] // nil before the first sample
	clock  atomic.Pointer[clockSample]         // nil: not since the last look
}

// clockSample is one comparison with the master's clock.
type clockSample struct{ ahead, within time.Duration }

// LookEvery is a good Config.LookEvery: a look costs a write of one block that
// need not reach the disk.
const LookEvery = 10 * time.Second

// New takes the state directory's lock if it has not been taken, reads what is held there and finds its
// processes. The error is ErrInUse when another agent has the directory, and ErrCopied
// when it is a copy of one.
func New(ctx context.Context, cfg Config) (*Loop, error) {
	if cfg.Step == nil {
		cfg.Step = func(string) {}
	}
	if cfg.Hint == nil {
		cfg.Hint = func() {}
	}
	if cfg.Lock == nil {
		var err error
		if cfg.Lock, err = Take(cfg.Dir); err != nil {
			return nil, err
		}
	}
	if cfg.Damages == nil {
		cfg.Damages = NewDamages(cfg.Dir, cfg.Log)
	}
	l := &Loop{cfg: cfg, events: make(chan func()), asks: make(chan func()), ended: make(chan struct{})}
	if err := newOwner(ctx, l); err != nil {
		return nil, err
	}
	return l, nil
}

// Run is the agent, until ctx ends. It leaves the tasks running and gives the
// state directory back. It may be called once.
func (l *Loop) Run(ctx context.Context) error {
	o := l.owner
	defer func() {
		l.workers.Wait()
		_ = o.disk.close()
		close(l.ended)
	}()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for _, h := range o.agent.All() {
		o.await(ctx, h)
	}
	l.measure(ctx)
	l.workers.Go(func() { l.watchLogs(ctx) })
	l.workers.Go(func() { o.disk.trash.Run(ctx) })
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		wake := o.turn(ctx)
		timer.Reset(max(time.Until(wake), 0))
		if !l.await(ctx, timer) {
			return nil
		}
		l.drain()
	}
}

// await answers what is asked until there is something to decide about; false when ctx
// has ended.
func (l *Loop) await(ctx context.Context, timer *time.Timer) bool {
	for {
		select {
		case <-ctx.Done():
			return false
		case f := <-l.asks:
			f()
			continue
		case f := <-l.events:
			f()
		case <-l.owner.emptied:
			l.owner.takeEmptied()
		case <-l.cfg.Damages.news:
		case <-timer.C:
		}
		return true
	}
}

// drain takes what else has happened, so that one decision serves all of it.
func (l *Loop) drain() {
	for range 100 { // of a flood too
		select {
		case f := <-l.events:
			f()
		default:
			return
		}
	}
}

// call has f run by Run's goroutine and waits for it. f is not run when ctx has
// ended before.
func (l *Loop) call(ctx context.Context, f func()) error { return l.run(ctx, l.events, f) }

// ask is call for what changes nothing that is decided about: no decision follows.
func (l *Loop) ask(ctx context.Context, f func()) error { return l.run(ctx, l.asks, f) }

func (l *Loop) run(ctx context.Context, by chan<- func(), f func()) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	done := make(chan struct{})
	select {
	case by <- func() { f(); close(done) }:
	case <-l.ended:
		return ErrEnded
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	select {
	case <-done:
		return nil
	case <-l.ended:
		return ErrEnded
	}
}

// send has f run by Run's goroutine unless that is about to end.
func (l *Loop) send(ctx context.Context, f func()) {
	select {
	case l.events <- f:
	case <-ctx.Done():
	}
}

// Alive returns when Run's goroutine has answered. It errs when ctx ends before,
// or Run has.
func (l *Loop) Alive(ctx context.Context) error { return l.ask(ctx, func() {}) }

// Info returns what the machine says of itself.
func (l *Loop) Info() schema.MachineInfo { return *l.info.Load() }

// Describe replaces the machine's attributes and notes, for the reports to come and for
// the next connection.
func (l *Loop) Describe(ctx context.Context, attributes map[string]string, notes []string) error {
	return l.call(ctx, func() {
		l.owner.agent.Describe(attributes, notes)
		l.owner.publishInfo()
	})
}

// Report returns the newest report: as of the last decision, and immutable.
func (l *Loop) Report() *schema.Report { return l.report.Load() }

// Usage returns the newest sample, nil before the first. It is immutable.
func (l *Loop) Usage() *schema.MachineUsage { return l.usage.Load() }

// Clock takes by how much the master's clock is ahead of this machine's, and how
// far that may be off. The newest counts. It does not block.
func (l *Loop) Clock(ahead, within time.Duration) {
	l.owner.metrics.clock.Set(ahead.Seconds())
	l.clock.Store(&clockSample{ahead, within})
}

// Welcome keeps the epoch that a master has given to the connection, as Assign keeps a
// view. It errs
// when the agent was welcomed with a higher one before: then that master is not
// the machine's any more.
func (l *Loop) Welcome(epoch uint64) error {
	var err error
	return errors.Join(l.call(context.Background(), func() { err = l.owner.welcome(epoch) }), err)
}

// Assign makes view what the machine shall run. When it returns nil, the view
// is on disk, or is written as soon as the disk takes it. It errs for a view that is older than the one there is, or that
// is not of this cell; then nothing has changed.
func (l *Loop) Assign(view schema.View) error {
	var err error
	return errors.Join(l.call(context.Background(), func() { err = l.owner.assign(&view) }), err)
}

// Listing takes in that a master says when nothing is sent to tasks of this machine any more.
func (l *Loop) Listing() error {
	return l.call(context.Background(), func() { l.owner.agent.Listing() })
}

// Unlinked takes in that the link to the master is gone, until Welcome is called again.
func (l *Loop) Unlinked() error {
	return l.call(context.Background(), func() { l.owner.agent.Unlinked() })
}

// Unlisted takes in that no machine of the cell sends anything new to generations of tasks of this one.
func (l *Loop) Unlisted(tasks []schema.TaskRef) error {
	return l.call(context.Background(), func() {
		for _, task := range tasks {
			l.owner.agent.Unlisted(task)
		}
	})
}

// Refused takes note that a master has another agent for this machine: nothing is
// started until one has welcomed this agent. What runs goes on.
func (l *Loop) Refused() error {
	return l.call(context.Background(), l.owner.refuse)
}

// StopAll stops all tasks, SIGTERM first and SIGKILL after their grace period,
// and returns when none is left. Their generations have not ended: the next
// agent on the state directory starts them again. Nothing is started from then
// on. It errs when ctx ends before.
func (l *Loop) StopAll(ctx context.Context) error {
	stopped := make(chan struct{})
	if err := l.call(ctx, func() {
		l.owner.agent.Shutdown()
		l.owner.stopped = append(l.owner.stopped, stopped)
	}); err != nil {
		return fmt.Errorf("stop all tasks: %w", err)
	}
	select {
	case <-stopped:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("stop all tasks: %w", context.Cause(ctx))
	case <-l.ended:
		return fmt.Errorf("stop all tasks: %w", ErrEnded)
	}
}

// Discard takes away the tree at path, which is below the state directory: at once as
// far as a later reader is concerned. It may be called from any goroutine.
func (l *Loop) Discard(path string) error { return l.owner.disk.trash.Put(path) }
