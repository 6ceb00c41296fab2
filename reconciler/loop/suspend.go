package loop

import (
	"context"
	"time"

	"github.com/musterhq/muster/reconciler"
	"github.com/musterhq/muster/schema"
)

// Suspend leaves a job as it is from now on, or all of them, and returns the
// suspension when it is stored; lasts is how long it lasts, 0 for as long as
// nobody ends it. It errs with reconciler.NoneError if the cell runs no such job.
func (l *Loop) Suspend(ctx context.Context, x schema.Suspension, lasts time.Duration) (*schema.Suspension, error) {
	reply := make(chan suspendAnswer, 1)
	a, err := ask(ctx, l, suspend{x, lasts, reply}, reply)
	if err != nil {
		return nil, err
	}
	return a.now, a.err
}

// suspendAnswer is the suspension that was, that is now, or neither.
type suspendAnswer struct {
	was, now *schema.Suspension
	err      error
}

type suspend struct {
	schema.Suspension
	lasts time.Duration
	reply chan<- suspendAnswer
}

func (m suspend) handle(ctx context.Context, o *owner) error {
	now, x := o.cfg.Now(), m.Suspension
	if m.lasts > 0 {
		x.Until = now.Add(m.lasts)
	}
	writes, events, err := reconciler.Suspend(o.state, x, now)
	if err != nil {
		m.reply <- suspendAnswer{err: err}
		return nil //nolint:nilerr // it is the asker's
	}
	if err := o.record(ctx, writes, events); err != nil {
		return err
	}
	m.reply <- suspendAnswer{now: o.state.Suspensions[m.Name]}
	return nil
}

// Resume ends the suspension of a job, or the one of all of them, and returns the
// one that was; nil if there was none. by is who asks for it. It errs with
// reconciler.NoneError if the cell runs no such job.
func (l *Loop) Resume(ctx context.Context, name, by string) (*schema.Suspension, error) {
	reply := make(chan suspendAnswer, 1)
	a, err := ask(ctx, l, resume{name, by, reply}, reply)
	if err != nil {
		return nil, err
	}
	return a.was, a.err
}

type resume struct {
	name, by string
	reply    chan<- suspendAnswer
}

func (m resume) handle(ctx context.Context, o *owner) error {
	was := o.state.Suspensions[m.name]
	writes, events, err := reconciler.Resume(o.state, m.name, m.by, o.cfg.Now())
	if err != nil {
		m.reply <- suspendAnswer{err: err}
		return nil //nolint:nilerr // it is the asker's
	}
	if err := o.record(ctx, writes, events); err != nil {
		return err
	}
	m.reply <- suspendAnswer{was: was}
	return nil
}

// adopt takes a compiled commit into the desired data. While the cell is
// suspended the newest is kept until that ends: see adoptKept.
func (o *owner) adopt(ctx context.Context, c *schema.Compiled) error {
	if o.state.Suspended() {
		o.kept = c
		return nil
	}
	o.kept = nil
	writes, events := reconciler.Adopt(o.state, *c, o.cfg.Now())
	return o.record(ctx, writes, events)
}

// adoptKept adopts the commit that came while the cell was suspended, unless the
// cell still is.
func (o *owner) adoptKept(ctx context.Context) error {
	if o.kept == nil || o.state.Suspended() {
		return nil
	}
	return o.adopt(ctx, o.kept)
}
