package loop

import (
	"context"

	"github.com/musterhq/muster/schema"
)

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
