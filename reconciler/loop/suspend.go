package loop

import (
	"context"
	"time"

	"github.com/musterhq/muster/schema"
)

// Suspend leaves a job as it is from now on, or all of them, and returns the
// suspension when it is stored; lasts is how long it lasts, 0 for as long as
// nobody ends it. It errs with model.NotFoundError if the cell runs no such job.
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
	if err := o.master.Suspend(m.Suspension, m.lasts, o.cfg.Now()); err != nil {
		m.reply <- suspendAnswer{err: err}
		return nil //nolint:nilerr // it is the asker's
	}
	if err := o.carryOut(ctx); err != nil {
		return err
	}
	m.reply <- suspendAnswer{now: o.master.State().Suspensions[m.Name]}
	return nil
}

// Resume ends the suspension of a job, or the one of all of them, and returns the
// one that was; nil if there was none. by is who asks for it. It errs with
// model.NotFoundError if the cell runs no such job.
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
	was, err := o.master.Resume(m.name, m.by, o.cfg.Now())
	if err != nil {
		m.reply <- suspendAnswer{err: err}
		return nil //nolint:nilerr // it is the asker's
	}
	if err := o.carryOut(ctx); err != nil {
		return err
	}
	m.reply <- suspendAnswer{was: was}
	return nil
}
