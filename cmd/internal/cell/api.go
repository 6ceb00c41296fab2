package cell

import (
	"context"

	"github.com/musterhq/muster/reconciler/events"
	"github.com/musterhq/muster/reconciler/link"
	"github.com/musterhq/muster/reconciler/loop"
	"github.com/musterhq/muster/schema"
)

// apiCell is the loop as the API wants to see it.
type apiCell struct {
	*loop.Loop
	events *events.Log
}

// Locate returns the machine that ran a task last, or first from a generation on:
// as the state has it, or, for a task that is gone from it, as the history has it.
func (c apiCell) Locate(ctx context.Context, task schema.TaskName, from uint64) (string, error) {
	machine, err := c.Loop.Locate(ctx, task, from)
	if machine != "" || err != nil {
		return machine, err
	}
	q := schema.EventQuery{Task: task.Short(), Kind: schema.EventSchedule}
	if from == 0 {
		q.Newest, q.Limit = true, 1
	}
	records, err := c.events.Since(q)
	if err != nil {
		return "", err
	}
	for i := range records {
		if machine = records[i].Machine; from > 0 && records[i].Generation >= from {
			break
		}
	}
	return machine, nil
}

// pusher breaks the circle between the loop, which pushes views, and the link,
// which reports to the loop.
type pusher struct{ *link.Server }
