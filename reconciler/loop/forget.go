package loop

import (
	"context"

	"github.com/musterhq/muster/schema"
)

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
