package loop

import (
	"context"
	"errors"
	"log/slog"

	"github.com/musterhq/muster/nodeagent"
	"github.com/musterhq/muster/schema"
)

// Networks gives generations of tasks networks of their own. Those inside an alloc have one
// together, which goes with the alloc. Its methods may be called from any goroutine; they do not
// write to assignments, and keep nothing of them but their jobs.
type Networks interface {
	// Ready waits until the machine has addresses for the network of a generation, if it has no
	// network yet. It errs if there are to be none.
	Ready(ctx context.Context, a *schema.Assignment) error
	// Join returns the network of a generation, which it makes unless it is there.
	Join(a *schema.Assignment) (*schema.TaskNetwork, error)
	// Keep returns the networks of the given generations, nil where there is none, and removes
	// all others. It is called once, before all else.
	Keep(of []*schema.Assignment) ([]*schema.TaskNetwork, error)
	// Leave says that nothing of a generation, or of an alloc, runs any more, and removes its
	// network, if there is one that no others have. What cannot be removed now is later.
	Leave(a *schema.Assignment) error
}

// errNoNetworks refuses a task that should have a network of its own.
var errNoNetworks = errors.New("this machine gives tasks no networks of their own any more")

// readyNetwork waits until a task that is to have a network of its own can have one. n may be nil.
func readyNetwork(ctx context.Context, n Networks, x *nodeagent.Act) error {
	switch {
	case !x.Assignment.OwnNetwork:
		return nil
	case n == nil:
		return errNoNetworks
	}
	return n.Ready(ctx, x.Assignment)
}

// findNetworks gives the generations that an agent finds what they have of networks, and removes
// what is of no one. n may be nil.
func findNetworks(n Networks, tasks []nodeagent.FoundTask, log *slog.Logger) {
	if n == nil {
		return
	}
	var of []*schema.Assignment
	for i := range tasks {
		t := &tasks[i]
		if a := &t.Assignment; t.End == nil && (a.OwnNetwork || isAlloc(a) || t.Guessed || t.Unreadable != "") { // of what is not known, there may be one
			of = append(of, a)
		}
	}
	found, err := n.Keep(of)
	if err != nil {
		log.Error("cannot remove networks of tasks that have ended", "err", err)
	}
	for i, a := range of {
		if i < len(found) && !isAlloc(a) {
			a.Network = found[i]
		}
	}
}

// isAlloc reports whether an assignment is that of an alloc, whose network is what its tasks join.
func isAlloc(a *schema.Assignment) bool { return a.Job != nil && a.Job.Kind == schema.Allocs }

// leaveNetwork removes the network of a generation that has ended, in a goroutine of its own: the
// kernel takes its time for it.
func leaveNetwork(o *owner, r schema.TaskRef) {
	h := o.agent.Held(r)
	if o.cfg.Networks == nil || h == nil || !isAlloc(&h.Assignment) && !h.Assignment.OwnNetwork {
		return
	}
	a := h.Assignment
	o.workers.Go(func() {
		if err := o.cfg.Networks.Leave(&a); err != nil {
			o.cfg.Log.Error("cannot remove the network of a task", "task", r.Task.Short(), "generation", r.Generation, "err", err)
		}
	})
}
