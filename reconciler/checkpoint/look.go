package checkpoint

import (
	"context"
	"sync"

	"github.com/musterhq/muster/reconciler/control"
	"github.com/musterhq/muster/reconciler/intent"
	"github.com/musterhq/muster/reconciler/model"
	"github.com/musterhq/muster/reconciler/status"
	"github.com/musterhq/muster/schema"
)

// Look is a checkpoint as those look at it who look at a live cell: at the moment at which
// it was taken, which does not pass. Any goroutine may.
type Look struct {
	in       status.DescribeInput
	describe func() *status.Snapshot
	never    chan struct{} // there is no newer version
}

// Look returns c for those who look at it. What its master would decide next is found out,
// for the reasons, and not done.
func (c *Cell) Look() *Look {
	desired, observed := intent.Of(c.State), c.Observed()
	last := control.Step(control.Input{
		State: c.State, Desired: desired, Observed: observed, Now: c.At, Seed: control.Seed(c.Cell, c.State.Head.Commit),
	})
	l := &Look{never: make(chan struct{}), in: status.DescribeInput{
		State: c.State, Desired: desired, Observed: observed, Last: last, Head: c.Commit, Source: model.Seen{Commit: c.Commit, At: c.At}, Now: c.At, Version: 1,
	}}
	l.describe = sync.OnceValue(func() *status.Snapshot { return new(status.Describer).Describe(l.in) })
	return l
}

// Snapshot returns the cell.
func (l *Look) Snapshot(context.Context) (*status.Snapshot, <-chan struct{}, error) {
	return l.describe(), l.never, nil
}

// Why explains user/job or user/job/index; false when there is none.
func (l *Look) Why(_ context.Context, name, machine string) (status.Explanation, bool, error) {
	e, known := status.Explain(l.in, l.describe(), name, machine)
	return e, known, nil
}

// Usages returns what machines and tasks used.
func (l *Look) Usages(context.Context) (*status.Usage, error) {
	return status.DescribeUsage(l.in.State, l.in.Observed.Samples(l.in.Now), l.in.Now), nil
}

// JobUsages returns the sums of Usages by job.
func (l *Look) JobUsages(context.Context) ([]status.JobUsage, error) {
	return status.SumUsage(l.in.State, l.in.Observed.Samples(l.in.Now)), nil
}

// Locate returns the machine that ran a task last.
func (l *Look) Locate(_ context.Context, task schema.TaskName, from uint64) (string, error) {
	return l.in.State.Locate(task, from), nil
}
