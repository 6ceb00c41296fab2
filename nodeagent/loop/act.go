package loop

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/musterhq/muster/nodeagent"
	"github.com/musterhq/muster/schema"
)

// act does a, or begins it. It reports whether anything has changed, so that
// it is worth to decide again.
func (l *Loop) act(ctx context.Context, a nodeagent.Action) bool {
	g := l.held[key{a.Task, a.Generation}]
	if g == nil { // only a start can be of what is not held yet
		g = &generation{Held: nodeagent.Held{Assignment: *a.Assignment}, dir: l.disk.dir(a.Task, a.Generation)}
		l.held[key{a.Task, a.Generation}] = g
	}
	if g.stuck != nil && time.Now().Before(g.retry) {
		return false
	}
	log := l.cfg.Log.With("task", a.Task.Short(), "generation", a.Generation)
	if err := l.do(ctx, g, a); err != nil {
		g.stuck, g.retry = err, time.Now().Add(retryAfter)
		l.metrics.errors.Inc()
		log.Error("cannot "+string(a.Kind), "err", err)
		return false
	}
	g.stuck = nil
	if a.Cause != nil {
		log = log.With("cause", a.Cause.String())
	}
	log.Info(string(a.Kind), "incarnation", a.Incarnation)
	return true
}

func (l *Loop) do(ctx context.Context, g *generation, a nodeagent.Action) error {
	switch a.Kind {
	case nodeagent.Start:
		l.start(ctx, g, a)
		return nil
	case nodeagent.Term:
		return l.term(g, a)
	case nodeagent.Kill:
		g.last().KilledAt = time.Now()
		return g.process.Signal(true)
	case nodeagent.Limit:
		l.limit(ctx, g, a)
		return nil
	case nodeagent.Reap:
		g.last().Exit = a.Exit
		return nil
	case nodeagent.End:
		l.end(ctx, g, a)
		return nil
	case nodeagent.Prune:
		g.Incarnations = slices.DeleteFunc(g.Incarnations, func(c nodeagent.Incarnation) bool { return c.Number == a.Incarnation })
		if err := l.disk.remove(incarnationDir(g.dir, a.Incarnation)); err != nil {
			return err
		}
		l.forget(incarnationDir(g.dir, a.Incarnation))
	case nodeagent.Remove:
		if err := l.disk.removeTask(g.dir); err != nil {
			return err
		}
		l.forget(g.dir)
		delete(l.held, key{a.Task, a.Generation})
	default:
		return fmt.Errorf("action %q of %s: unknown", a.Kind, a.Task)
	}
	l.removed = true
	l.metrics.collected(a)
	return nil
}

func (g *generation) last() *nodeagent.Incarnation { return &g.Incarnations[len(g.Incarnations)-1] }

// find returns incarnation n of g, nil if it was pruned.
func (g *generation) find(n int) *nodeagent.Incarnation {
	for i := range g.Incarnations {
		if g.Incarnations[i].Number == n {
			return &g.Incarnations[i]
		}
	}
	return nil
}

// term makes the cause durable before the task can see the signal, so that an agent
// which comes after knows it. It does not wait for a disk that refuses it: that the
// exit was not the task's own will its keeper writes down, too.
func (l *Loop) term(g *generation, a nodeagent.Action) error {
	c := g.last()
	if c.Stop == nil {
		name := filepath.Join(incarnationDir(g.dir, c.Number), stopFile)
		l.save(g, name, func() error { return l.disk.write(name, a.Cause) })
		c.Stop = a.Cause
		if a.Cause.Kind == schema.CauseOutOfResources {
			l.metrics.evictions.WithLabelValues(string(a.Cause.Resource)).Inc()
		}
	}
	c.TermAt = time.Now()
	return g.process.Signal(false)
}

// end makes the end durable; only where the disk refuses it, it is reported before.
func (l *Loop) end(ctx context.Context, g *generation, a nodeagent.Action) {
	name := filepath.Join(g.dir, endFile)
	l.save(g, name, func() error {
		if !g.written {
			if err := l.disk.writeAssignment(&g.Assignment); err != nil {
				return err
			}
			g.written = true
		}
		return l.disk.write(name, a.Cause)
	})
	g.End = a.Cause
	if a.Clear {
		g.Clearing = true
		l.workers.Go(func() {
			if err := l.discard(g.dir); err != nil {
				l.cfg.Log.Warn("cannot clear a task's work directory", "task", a.Task.Short(), "generation", a.Generation, "err", err)
			}
			l.send(ctx, func() { l.cleared(g) })
		})
	}
}

// Discard takes away the tree at path, which is below the state directory: at once as
// far as a later reader is concerned. It may be called from any goroutine.
func (l *Loop) Discard(path string) error { return l.disk.trash.Put(path) }

// discard removes what the tasks of the generation whose directory dir is have made
// for themselves. None of its incarnations runs.
func (l *Loop) discard(dir string) error {
	for _, name := range l.cfg.Runtime.Remains(dir) {
		if err := l.disk.trash.Put(name); err != nil {
			return err
		}
	}
	return nil
}

// cleared takes that the work directory of g is gone.
func (l *Loop) cleared(g *generation) {
	g.Clearing, g.walk.due, l.removed = false, time.Time{}, true
	l.remeasure()
}

// starting is a start that has begun.
type starting struct {
	nodeagent.Action
	dir     string // of the generation
	written bool   // its assignment is on disk
	taken   error  // another generation has one of its ports
}

// outcome is what has come of a start.
type outcome struct {
	written bool
	process Process
	refused *schema.Cause
	tried   bool  // the Runtime was asked
	fault   bool  // and failed for no fault of the task
	disk    error // what the disk has refused
}

// start begins the next incarnation of g, which is Busy until launch is done.
func (l *Loop) start(ctx context.Context, g *generation, a nodeagent.Action) {
	g.Incarnations = append(g.Incarnations, nodeagent.Incarnation{Number: a.Incarnation, Boot: l.cfg.Machine.Boot, Busy: true, Unconfirmed: a.Unconfirmed})
	if _, ok := l.sticky[a.Task]; !ok && a.Assignment.Job.Task.Sticky.Has() {
		l.sticky[a.Task] = time.Time{} // the Runtime makes it
	}
	g.Clearing = a.Clear
	began, s := time.Now(), starting{dir: g.dir, Action: a, written: g.written, taken: l.holder(g)}
	if a.Incarnation > 1 {
		l.metrics.restarts.Inc()
	}
	l.workers.Go(func() {
		select {
		case l.starts <- struct{}{}:
			defer func() { <-l.starts }()
		case <-ctx.Done():
			return
		}
		// A start that has begun is carried through: its keeper would
		// outlive this agent anyway.
		out := l.launch(context.WithoutCancel(ctx), s)
		l.send(ctx, func() { l.launched(ctx, g, a.Incarnation, out, began) })
	})
}

// send has f run by Run's goroutine unless that is about to end.
func (l *Loop) send(ctx context.Context, f func()) {
	select {
	case l.events <- f:
	case <-ctx.Done():
	}
}

// launch runs in a goroutine of its own and touches nothing of the loop but
// the disk.
func (l *Loop) launch(ctx context.Context, s starting) outcome {
	out := outcome{written: s.written}
	refuse := func(kind schema.CauseKind, err error) outcome {
		out.refused = &schema.Cause{Kind: kind, Message: err.Error()}
		if noRoom(err) || noWrite(err) { // on another machine there is a disk
			out.disk, out.fault = err, false
			out.refused.Kind, out.refused.Resource = schema.CauseOutOfResources, schema.MachineDisk
			out.refused.Message = string(schema.MachineDisk) + ": " + out.refused.Message
		}
		return out
	}
	// It may have been lost since, with its directory.
	if _, err := os.Lstat(filepath.Join(s.dir, assignmentFile)); !s.written || errors.Is(err, fs.ErrNotExist) {
		if err := l.disk.writeAssignment(s.Assignment); err != nil {
			return refuse(schema.CauseStartFailed, fmt.Errorf("keep the assignment: %w", err))
		}
		out.written = true
	}
	if s.Clear {
		if err := l.discard(s.dir); err != nil {
			return refuse(schema.CauseStartFailed, fmt.Errorf("clear the work directory: %w", err))
		}
	}
	err := s.taken
	if err == nil { // else it would be in the way of who has it and looks now
		err = checkPorts(s.Assignment.Ports)
	}
	if err != nil {
		return refuse(schema.CausePortInUse, err)
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	out.tried = true
	p, err := l.cfg.Runtime.Start(ctx, incarnationDir(s.dir, s.Incarnation), s.Assignment)
	if err != nil {
		out.fault = !errors.Is(err, ErrTask)
		return refuse(schema.CauseStartFailed, err)
	}
	out.process = p
	return out
}

// startTimeout bounds a start: a keeper answers within milliseconds, or never.
const startTimeout = 30 * time.Second

// launched takes the outcome of a start.
func (l *Loop) launched(ctx context.Context, g *generation, n int, out outcome, began time.Time) {
	g.written = out.written
	if g.Clearing {
		l.cleared(g)
	}
	if out.disk != nil {
		l.refusedBy(out.disk)
	}
	if out.fault {
		l.logConditions(l.machineState.conditions.SeeStart(out.refused.Message, time.Now()))
	}
	if out.refused != nil {
		g.Refused = out.refused
		l.metrics.refused.WithLabelValues(string(out.refused.Kind)).Inc()
		l.cfg.Log.Warn("not started", "task", g.Assignment.Task.Short(), "generation", g.Assignment.Generation, "incarnation", n, "cause", out.refused.String())
		if out.refused.Kind == schema.CausePortInUse {
			l.scanned = time.Time{} // it is reported to the master now, not at the next look
		}
		if !out.tried {
			g.Incarnations = g.Incarnations[:len(g.Incarnations)-1]
			return
		}
		c := g.last()
		c.Busy, c.Exit = false, &schema.Exit{Incarnation: n, Code: -1, At: time.Now(), Message: "could not be started"}
		return
	}
	c := out.process.Incarnation()
	c.Number, c.Unconfirmed = n, g.last().Unconfirmed
	*g.last() = c
	g.process, g.walk, g.logs = out.process, walk{}, ""
	l.logConditions(l.machineState.conditions.SeeStart("", time.Now()))
	l.metrics.started(time.Since(began))
	log := l.cfg.Log.With("task", g.Assignment.Task.Short(), "generation", g.Assignment.Generation, "incarnation", n, "pid", c.PID)
	if c.Unconfirmed {
		log = log.With("note", schema.Unconfirmed)
	}
	log.Info("started")
	l.await(ctx, g)
}

// await has the end of g's live incarnation reported to the loop.
func (l *Loop) await(ctx context.Context, g *generation) {
	p := g.process
	if p == nil {
		return
	}
	n := g.last().Number
	l.workers.Go(func() {
		watching, stop := context.WithCancel(ctx)
		l.workers.Go(func() { l.watchLogs(watching, g, n) })
		err := p.Wait(ctx)
		stop()
		if err != nil {
			return // ctx has ended
		}
		l.send(ctx, func() { l.exited(g, n, p) })
	})
}

// exited takes the end of incarnation n of g.
func (l *Loop) exited(g *generation, n int, p Process) {
	c := g.find(n)
	if c == nil || c.Exit != nil {
		return
	}
	now := p.Incarnation()
	exit := schema.Exit{Incarnation: n, Code: -1, At: time.Now()}
	if now.Exit != nil {
		exit = *now.Exit
		exit.Incarnation = n
	}
	c.Exit, c.EndedItself, c.Unseen = &exit, now.EndedItself, now.Unseen
	c.PID, c.StartedAt, c.GoneAt = now.PID, now.StartedAt, time.Now()
	g.process, g.walk.due = nil, time.Time{}
	l.metrics.exited(exit)
	l.cfg.Log.Info("ended", "task", g.Assignment.Task.Short(), "generation", g.Assignment.Generation, "incarnation", n, "exit", exit.String())
}
