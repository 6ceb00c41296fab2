package cell

import (
	"context"
	"fmt"
	"io/fs"

	"github.com/musterhq/muster/reconciler"
	"github.com/musterhq/muster/reconciler/events"
	"github.com/musterhq/muster/reconciler/git"
	"github.com/musterhq/muster/reconciler/loop"
	"github.com/musterhq/muster/schema"
)

// apiView is the cell as the API wants to see it.
type apiView struct {
	cell   string
	repo   *git.Repo
	loop   *loop.Loop
	events *events.Log
}

// Status returns the newest status. A master that is ending has an empty one.
func (v *apiView) Status() (s *reconciler.Status, version uint64, newer <-chan struct{}) {
	s, version, newer, err := v.loop.Status(context.Background())
	if err != nil {
		return &reconciler.Status{Cell: v.cell, Waiting: []string{err.Error()}}, version, nil
	}
	return s, version, newer
}

// Why explains a job, or one task of it.
func (v *apiView) Why(ctx context.Context, job schema.JobName, index int) (any, error) {
	name := job.Short()
	if index >= 0 {
		name = job.Task(index).Short()
	}
	e, known, err := v.loop.Why(ctx, name)
	if err == nil && !known {
		err = fmt.Errorf("cell %s knows of no %s: %w", v.cell, name, fs.ErrNotExist)
	}
	return e, err
}

// Reconcile makes the master look at its repository now.
func (v *apiView) Reconcile(context.Context) error {
	v.repo.Poke()
	return nil
}

// Locate returns the machine that ran a task last: as the state has it, or, for
// a task that is gone from it, as the history has it.
func (v *apiView) Locate(task schema.TaskName) (string, error) {
	machine, err := v.loop.Locate(context.Background(), task)
	if machine != "" || err != nil {
		return machine, err
	}
	records, err := v.events.Since(schema.EventQuery{Task: task.Short(), Kind: schema.EventSchedule, Newest: true, Limit: 1})
	if err != nil {
		return "", err
	}
	if len(records) == 0 {
		return "", fmt.Errorf("task %s never ran: %w", task.Short(), fs.ErrNotExist)
	}
	return records[0].Machine, nil
}

// source is a git repository as the loop wants to see it.
type source struct{ *git.Repo }

// Run follows the repository's head.
func (s source) Run(ctx context.Context, seen func(commit string, trouble error)) error {
	return s.Repo.Run(ctx, func(h git.Head) { seen(h.Commit, h.Err) })
}
