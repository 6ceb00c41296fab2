package loop

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"time"

	"github.com/musterhq/muster/nodeagent"
	"github.com/musterhq/muster/schema"
)

// load reads the state directory. What the disk says decides; what cannot be
// read is left as it is and read again later, for nothing that is not
// understood may be killed, or started a second time.
func (l *Loop) load(ctx context.Context) error {
	m, err := l.disk.readMemory()
	if err != nil {
		// Nothing is lost for long: the master sends the view again.
		l.cfg.Log.Error("the kept view is unreadable: nothing is started or stopped until the master sends it", "err", err)
	}
	l.memory = m
	l.sees(m.epoch)
	if l.sticky, err = l.disk.sticky(); err != nil {
		return fmt.Errorf("read the sticky directories of %s: %w", l.cfg.Dir, err)
	}
	dirs, err := l.disk.generations()
	if err != nil {
		return fmt.Errorf("read state directory %s: %w", l.cfg.Dir, err)
	}
	for _, dir := range dirs {
		k, err := l.disk.parse(dir)
		if err != nil {
			l.cfg.Log.Warn("not a task's directory: left alone", "err", err)
			continue
		}
		l.loadGeneration(ctx, k, dir)
	}
	return nil
}

// parse returns the generation whose directory is dir.
func (d *disk) parse(dir string) (key, error) {
	rel, err := filepath.Rel(filepath.Join(d.root, tasksDir), filepath.Dir(dir))
	if err != nil {
		return key{}, err
	}
	task, err := schema.ParseTaskName(filepath.ToSlash(rel))
	if err != nil {
		return key{}, fmt.Errorf("%s: %w", dir, err)
	}
	generation, err := strconv.ParseUint(filepath.Base(dir), 10, 64)
	if err != nil || generation == 0 {
		return key{}, fmt.Errorf("%s: want the number of a generation at its end", dir)
	}
	return key{task, generation}, nil
}

// loadGeneration makes what is in dir held, if there is anything.
func (l *Loop) loadGeneration(ctx context.Context, k key, dir string) {
	g, err := l.readGeneration(ctx, dir)
	switch {
	case err != nil:
		l.cfg.Log.Error("cannot read a task's directory: the task is left alone", "task", k.task.Short(), "generation", k.generation, "err", err)
		l.held[k] = l.unreadable(k, dir, err)
	case g == nil:
		delete(l.held, k)
	default:
		l.held[k] = g
	}
}

// readGeneration returns nil for a directory in which nothing was ever
// started, and removes it.
func (l *Loop) readGeneration(ctx context.Context, dir string) (*generation, error) {
	held, ok, err := l.disk.readGeneration(dir)
	if err != nil {
		return nil, err
	}
	numbers, err := l.disk.incarnations(dir)
	if err != nil {
		return nil, err
	}
	if !ok {
		if len(numbers) > 0 {
			return nil, errors.New(assignmentFile + " is missing")
		}
		return nil, l.disk.removeTask(dir)
	}
	g := &generation{Held: held, dir: dir, written: true}
	for _, n := range numbers {
		if err := l.adopt(ctx, g, n); err != nil {
			return nil, err
		}
	}
	return g, nil
}

// unreadable stands for a generation of which nothing is known: it may have a
// process, so it counts as busy.
func (l *Loop) unreadable(k key, dir string, err error) *generation {
	return &generation{
		Held: nodeagent.Held{
			Assignment:   schema.Assignment{Task: k.task, Generation: k.generation, Job: &schema.Job{}},
			Incarnations: []nodeagent.Incarnation{{Boot: l.cfg.Machine.Boot, Busy: true, Note: "cannot read its directory: " + err.Error()}},
		},
		dir: dir, unread: true, retry: time.Now().Add(rereadAfter),
	}
}

// rereadAfter is the time between two attempts at an unreadable directory.
const rereadAfter = 10 * time.Second

// reread tries again to read what could not be read.
func (l *Loop) reread(ctx context.Context) {
	now := time.Now()
	for k, g := range l.held {
		if !g.unread || now.Before(g.retry) {
			continue
		}
		l.loadGeneration(ctx, k, g.dir)
		if g := l.held[k]; g != nil {
			l.await(ctx, g)
		}
	}
}

// adopt adds incarnation n of g as the Runtime finds it.
func (l *Loop) adopt(ctx context.Context, g *generation, n int) error {
	dir := incarnationDir(g.dir, n)
	stop, err := readStop(dir)
	if err != nil {
		return err
	}
	p, err := l.cfg.Runtime.Adopt(ctx, dir)
	if err != nil {
		return fmt.Errorf("adopt incarnation %d: %w", n, err)
	}
	c := p.Incarnation()
	c.Number, c.Stop, c.Probe = n, stop, readHealth(dir)
	if c.Exit != nil {
		exit := *c.Exit
		exit.Incarnation = n
		c.Exit = &exit
	}
	g.Incarnations = append(g.Incarnations, c)
	if c.Exit == nil {
		g.process = p
		l.cfg.Log.Info("adopted", "task", g.Assignment.Task.Short(), "generation", g.Assignment.Generation, "incarnation", n, "pid", c.PID)
	}
	return nil
}
