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

// Restart restarts the tasks of a job that run, or one task, and returns when that
// is stored. It errs with model.NotFoundError if the cell runs no such job or task,
// or must not restart it.
func (l *Loop) Restart(ctx context.Context, x schema.RestartRequest) (*schema.Restarting, error) {
	return l.restarts(ctx, restart{RestartRequest: x})
}

// CancelRestart ends the restart of a job, with those of its tasks, or of one task;
// by is who asks for it. It errs with model.NotFoundError if the cell has no such
// job.
func (l *Loop) CancelRestart(ctx context.Context, name, by string) (*schema.Restarting, error) {
	return l.restarts(ctx, restart{RestartRequest: schema.RestartRequest{Name: name, By: by}, cancel: true})
}

func (l *Loop) restarts(ctx context.Context, m restart) (*schema.Restarting, error) {
	reply := make(chan restartAnswer, 1)
	m.reply = reply
	a, err := ask(ctx, l, m, reply)
	if err != nil {
		return nil, err
	}
	return &a.Restarting, a.err
}

type restartAnswer struct {
	schema.Restarting
	err error
}

type restart struct {
	schema.RestartRequest
	cancel bool
	reply  chan<- restartAnswer
}

func (m restart) handle(ctx context.Context, o *owner) error {
	var a restartAnswer
	if m.cancel {
		a.Restarting, a.err = o.master.CancelRestart(m.Name, m.By, o.cfg.Now())
	} else {
		a.Restarting, a.err = o.master.Restart(m.RestartRequest, o.cfg.Now())
	}
	if err := o.carryOut(ctx); err != nil {
		return err
	}
	m.reply <- a
	return nil
}

// Forget has a machine forgotten that is not connected, and returns when that is
// stored; its tasks are then given up at once. With dry it only says what that would
// be. The time of x is not looked at. It errs with model.NotFoundError if the cell
// has no such machine, and with control.LinkedError if its agent is connected.
func (l *Loop) Forget(ctx context.Context, machine string, x schema.Forgotten, dry bool) (*schema.Forgetting, error) {
	reply := make(chan forgetAnswer, 1)
	a, err := ask(ctx, l, forget{machine, x, dry, reply}, reply)
	if err != nil {
		return nil, err
	}
	return &a.Forgetting, a.err
}

type forgetAnswer struct {
	schema.Forgetting
	err error
}

type forget struct {
	machine string
	schema.Forgotten
	dry   bool
	reply chan<- forgetAnswer
}

func (m forget) handle(ctx context.Context, o *owner) error {
	var a forgetAnswer
	a.Forgetting, a.err = o.master.Forget(m.machine, m.Forgotten, m.dry, o.cfg.Now())
	if err := o.carryOut(ctx); err != nil {
		return err
	}
	m.reply <- a
	return nil
}
