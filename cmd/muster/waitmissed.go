package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/musterhq/muster/reconciler/status"
	"github.com/musterhq/muster/reconciler/web/client"
	"github.com/musterhq/muster/schema"
)

// missed is asked when a cell has none of the jobs that are waited for, which is
// what none says. It returns nothing while a commit may bring them, the status if
// the commit that is waited for is not on the branch, and else an error that says
// why none will come.
func (w *waited) missed(ctx context.Context, cl *client.Client, none *client.Error) (*status.Status, error) {
	s, _, err := cl.Status(ctx, client.StatusQuery{Brief: true})
	if err != nil {
		return nil, err
	}
	if err := w.stands(ctx, cl, s); err != nil {
		return nil, err
	}
	if w.elsewhere(s) {
		return s, nil
	}
	return nil, w.absence(s, none)
}

// absence says why no job of those that are waited for comes, given the status of
// the whole cell; nil if one may.
func (w *waited) absence(s *status.Status, none *client.Error) error {
	var hidden []status.Blocker // what may hide a job that the newest commit declares
	for _, b := range w.blockers(s) {
		if b.Kind == status.BlockedUnread || b.Kind == status.BlockedStale || b.Kind == status.BlockedSuspended && s.Applied != s.Commit {
			hidden = append(hidden, b)
		}
	}
	if len(hidden) == 0 {
		if !w.settled(s) {
			return nil
		}
		return &failure{
			code: exitDiffers, err: fmt.Errorf("%w at %s", none, short(s.Applied)),
			hint: none.Hint + "; muster wait --commit waits for a commit that is still to come",
		}
	}
	var said, next []string
	for i, b := range hidden {
		if i == mostBlockers {
			said = append(said, fmt.Sprintf("%d more", len(hidden)-i))
			break
		}
		said = append(said, b.Message)
		if !slices.Contains(next, b.Next) {
			next = append(next, b.Next)
		}
	}
	return &failure{
		code: exitDiffers, err: fmt.Errorf("%w; it may be declared by what is not applied: %s", none, strings.Join(said, "; ")),
		hint: strings.Join(next, "; "),
	}
}

// settled reports whether no commit is to come, as far as is known: the head is
// applied, and it is or contains the commit that is waited for.
func (w *waited) settled(s *status.Status) bool {
	return !w.on && s.Master == nil && s.Commit != "" && s.Applied == s.Commit && w.at(s.Commit) && len(s.Pending) == 0
}

// machineUnknown reports whether the machine that is waited for is neither known to
// the cell nor declared by its head.
func (w *waited) machineUnknown(s *status.Status) bool {
	return w.machine != "" && w.settled(s) && len(w.draining(s)) == 0 &&
		!slices.ContainsFunc(s.Machines, func(m status.MachineStatus) bool { return m.Name == w.machine }) &&
		!slices.ContainsFunc(s.Unmatched, w.speaksOf)
}

// speaksOf reports whether a diagnostic is of the object that is waited for.
func (w *waited) speaksOf(d schema.Diagnostic) bool { return d.Field == w.object() }
