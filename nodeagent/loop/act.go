package loop

import (
	"context"
	"fmt"
	"time"

	"github.com/musterhq/muster/nodeagent"
	"github.com/musterhq/muster/schema"
)

// act carries x out, or begins to. recorded says that what it is for was written down
// before.
func (o *owner) act(ctx context.Context, x *nodeagent.Act, recorded bool) {
	log := o.cfg.Log.With("task", x.Task.Short(), "generation", x.Generation)
	err := o.do(ctx, x)
	o.agent.Done(x, err, time.Now())
	if c := x.Cause; (x.Kind == nodeagent.Term || x.Kind == nodeagent.Unlist || x.Kind == nodeagent.StopCommand || x.Kind == nodeagent.Delay) && recorded && c.Kind == schema.CauseOutOfResources {
		o.metrics.evictions.WithLabelValues(string(c.Resource)).Inc()
	}
	if err != nil {
		o.metrics.errors.Inc()
		log.Error("cannot "+string(x.Kind), "err", err)
		return
	}
	if x.Cause != nil {
		log = log.With("cause", x.Cause.String())
	}
	log.Info(string(x.Kind), "incarnation", x.Incarnation)
}

func (o *owner) do(ctx context.Context, x *nodeagent.Act) error {
	ref := refOf(&x.Action)
	dir := o.disk.dir(x.Task, x.Generation)
	switch x.Kind {
	case nodeagent.Start:
		o.start(ctx, x)
	case nodeagent.StopCommand:
		o.stopCommand(ctx, x)
	case nodeagent.Term, nodeagent.Kill:
		return o.processes[ref].Signal(x.Kind == nodeagent.Kill)
	case nodeagent.Limit:
		o.limit(ctx, x)
	case nodeagent.Renew:
		if p := o.processes[ref]; p != nil {
			return p.Renew(x.Assignment, x.Renewal)
		}
	case nodeagent.Unlist, nodeagent.Delay: // the signal comes later
	case nodeagent.Reap: // it is gone
	case nodeagent.End:
		leaveNetwork(o, ref)
		if x.Clear {
			o.workers.Go(func() {
				if err := o.starter.discard(dir); err != nil {
					o.cfg.Log.Warn("cannot clear a task's work directory", "task", x.Task.Short(), "generation", x.Generation, "err", err)
				}
				o.send(ctx, func() { o.agent.Cleared(ref) })
			})
		}
	case nodeagent.Prune:
		if err := o.disk.remove(incarnationDir(dir, x.Incarnation)); err != nil {
			return err
		}
		o.metrics.collected(x.Action)
	case nodeagent.Remove:
		if err := o.disk.removeTask(dir); err != nil {
			return err
		}
		o.metrics.collected(x.Action)
	default:
		return fmt.Errorf("action %q of %s: unknown", x.Kind, x.Task)
	}
	return nil
}

func refOf(x *nodeagent.Action) schema.TaskRef {
	return schema.TaskRef{Task: x.Task, Generation: x.Generation}
}

// start begins a start in a goroutine of its own.
func (o *owner) start(ctx context.Context, x *nodeagent.Act) {
	began := time.Now()
	if goesOn := x.Step > 1 || x.Step == 0 && len(x.Assignment.Job.Task.Before) > 0; x.Incarnation > 1 && !goesOn {
		o.metrics.restarts.Inc()
	}
	o.workers.Go(func() {
		out, ok := o.starter.start(ctx, x)
		if ok {
			o.send(ctx, func() { o.started(ctx, x, out, began) })
		}
	})
}

// started takes the outcome of a start.
func (o *owner) started(ctx context.Context, x *nodeagent.Act, out started, began time.Time) {
	log := o.cfg.Log.With("task", x.Task.Short(), "generation", x.Generation, "incarnation", x.Incarnation)
	r := nodeagent.Running{TaskRef: refOf(&x.Action), Incarnation: x.Incarnation}
	if out.Err != nil {
		o.metrics.errors.Inc()
	}
	c := o.agent.Started(r, &out.StartOutcome, time.Now())
	if out.Refused != nil {
		o.metrics.refused.WithLabelValues(string(out.Refused.Kind)).Inc()
		log.Warn("not started", "cause", out.Refused.String())
		return
	}
	o.processes[r.TaskRef] = out.process
	o.metrics.started(time.Since(began))
	log = log.With("pid", c.PID)
	if c.Unconfirmed {
		log = log.With("note", schema.Unconfirmed)
	}
	log.Info("started")
	o.await(ctx, o.agent.Held(r.TaskRef))
}

// await has the end of h's live incarnation reported to the agent.
func (o *owner) await(ctx context.Context, h *nodeagent.Held) {
	ref := schema.TaskRef{Task: h.Assignment.Task, Generation: h.Assignment.Generation}
	p := o.processes[ref]
	if p == nil {
		return
	}
	r := nodeagent.Running{TaskRef: ref, Incarnation: h.Incarnations[len(h.Incarnations)-1].Number}
	o.workers.Go(func() {
		if p.Wait(ctx) != nil {
			return // ctx has ended
		}
		o.send(ctx, func() { o.exited(r, p) })
	})
}

// exited takes the end of an incarnation.
func (o *owner) exited(r nodeagent.Running, p Process) {
	exit := o.agent.Exited(r, p.State(), time.Now())
	if exit == nil {
		return
	}
	delete(o.processes, r.TaskRef)
	o.metrics.exited(*exit)
	o.cfg.Log.Info("ended", "task", r.Task.Short(), "generation", r.Generation, "incarnation", r.Incarnation, "exit", exit.String())
}

// limit sets limits in a goroutine of its own: to push a task out of memory can
// take the kernel seconds.
func (o *owner) limit(ctx context.Context, x *nodeagent.Act) {
	r := nodeagent.Running{TaskRef: refOf(&x.Action), Incarnation: x.Incarnation}
	p := o.processes[r.TaskRef]
	if p == nil {
		return
	}
	o.workers.Go(func() {
		err := p.Limit(x.Limits)
		o.send(ctx, func() {
			if o.agent.Limited(r, p.State().Limits, err) {
				o.cfg.Log.Warn("limits are not all in force", "task", x.Task.Short(), "generation", x.Generation, "err", err)
			}
		})
	})
}

// stopCommand runs a task's stop command in a goroutine of its own.
func (o *owner) stopCommand(ctx context.Context, x *nodeagent.Act) {
	r := nodeagent.Running{TaskRef: refOf(&x.Action), Incarnation: x.Incarnation}
	p := o.processes[r.TaskRef]
	if p == nil {
		return
	}
	o.workers.Go(func() {
		output, err := p.Run(ctx, x.Command, x.Timeout)
		note := ""
		if err != nil {
			note = printable(err.Error(), messageMax)
		}
		o.cfg.Log.Info("stop command ended", "task", x.Task.Short(), "generation", x.Generation, "incarnation", x.Incarnation, "err", err, "output", printable(output, messageMax))
		o.send(ctx, func() { o.agent.StopCommandRan(r, note) })
	})
}

// keepSticky does what is to be done to a sticky directory.
func (o *owner) keepSticky(a nodeagent.StickyAction) {
	now := time.Now()
	there, err := o.disk.keepSticky(a, now)
	o.agent.StickyDone(a, there, err, now)
	log := o.cfg.Log.With("task", a.Task.Short())
	switch {
	case err != nil:
		o.metrics.errors.Inc()
		log.Error("cannot "+string(a.Kind)+" a sticky directory", "err", err)
	case a.Kind == nodeagent.Leave && there:
		log.Info("its sticky directory stays for a while", "until", now.Add(nodeagent.KeepSticky))
	case a.Kind == nodeagent.Drop:
		log.Info("its sticky directory was removed: the task has left this machine")
	}
}
