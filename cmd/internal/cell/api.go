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

// Locate returns the machine that ran a task last: as the state has it, or, for
// a task that is gone from it, as the history has it.
func (c apiCell) Locate(ctx context.Context, task schema.TaskName) (string, error) {
	machine, err := c.Loop.Locate(ctx, task)
	if machine != "" || err != nil {
		return machine, err
	}
	records, err := c.events.Since(schema.EventQuery{Task: task.Short(), Kind: schema.EventSchedule, Newest: true, Limit: 1})
	if err != nil || len(records) == 0 {
		return "", err
	}
	return records[0].Machine, nil
}

// pusher breaks the circle between the loop, which pushes views, and the link,
// which reports to the loop.
type pusher struct{ *link.Server }
