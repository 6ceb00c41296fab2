package main

import (
	"context"
	"fmt"

	"github.com/musterhq/muster/reconciler/plan"
)

// computed returns what compute returns, or an error as soon as ctx is done. What is simulated
// knows no context, since it is pure, and may take minutes: it is left behind then, and ends with
// the process. So compute must do nothing that has to be undone, and write nothing that is
// used when computed has returned an error.
func computed[T any](ctx context.Context, compute func() (T, error)) (T, error) {
	var none T
	if ctx.Err() != nil {
		return none, endedEarly(ctx)
	}
	type result struct {
		value T
		err   error
	}
	done := make(chan result, 1) // so that what is left behind does not wait for a reader
	go func() {
		value, err := compute()
		done <- result{value, err}
	}()
	select {
	case r := <-done:
		return r.value, r.err
	case <-ctx.Done():
		return none, endedEarly(ctx)
	}
}

// endedEarly says why a command ends before it is done, once ctx is.
func endedEarly(ctx context.Context) error {
	return fmt.Errorf("ended before it was done: %w", context.Cause(ctx))
}

// newCell returns a simulated cell, or an error as soon as ctx is done.
func newCell(ctx context.Context, cfg plan.Config) (*plan.Cell, error) {
	return computed(ctx, func() (*plan.Cell, error) { return plan.New(cfg) })
}

// follow does something to a simulated cell, and returns what comes of it; or an error as soon as
// ctx is done: then the cell is of no further use.
func follow(ctx context.Context, c *plan.Cell, do func() error) (*plan.Outcome, error) {
	return computed(ctx, func() (*plan.Outcome, error) {
		mark := c.Mark()
		if err := do(); err != nil {
			return nil, err
		}
		ending, last, err := c.Run()
		if err != nil {
			return nil, err
		}
		return c.Outcome(mark, ending, last), nil
	})
}
