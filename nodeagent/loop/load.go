package loop

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/musterhq/muster/nodeagent"
	"github.com/musterhq/muster/nodeagent/durable"
	"github.com/musterhq/muster/schema"
	"github.com/musterhq/muster/schema/atomicfile"
)

// load reads the state directory. What the disk says decides, and what runs: of a
// task whose files are damaged or lost, the process table and the cgroups are read. What
// cannot be read now is left as it is and read again later, for nothing that is not
// understood may be killed, or started a second time. No damage keeps the agent from
// its start.
func (l *Loop) load(ctx context.Context) error {
	m, err := l.disk.readMemory(l.cfg.Machine.Name)
	if err != nil {
		// Nothing is lost for long: the master sends the view again.
		l.cfg.Log.Error("the kept view is unreadable: nothing is started or stopped until the master sends it", "err", err)
	}
	l.memory = m
	l.sees(m.epoch)
	for _, name := range []string{tasksDir, "sticky"} {
		if err := l.disk.makeDir(filepath.Join(l.disk.root, name)); err != nil {
			l.cfg.Log.Error("cannot make a directory of the state directory", "err", err) // as on a full disk
		}
	}
	if l.sticky, err = l.disk.sticky(); err != nil {
		return fmt.Errorf("read the sticky directories of %s: %w", l.cfg.Dir, err)
	}
	l.findRunning()
	dirs, err := l.disk.generations()
	if err != nil {
		return fmt.Errorf("read state directory %s: %w", l.cfg.Dir, err)
	}
	l.loadGenerations(ctx, dirs)
	l.sweepStrays(ctx)
	if err := l.finishUpgrade(); err != nil {
		l.cfg.Log.Error("cannot write down that all files have checksums; the next start does", "err", err)
	}
	return nil
}

// Finder is the part of a Runtime that finds what runs by other ways than the
// directories of its tasks. tasks is the directory above those.
type Finder interface {
	// Running lists the directories of living incarnations, there or not.
	Running(tasks string) ([]string, error)
	// Sweep kills what runs of this agent's tasks beside the incarnations whose
	// directories are held, and returns their names when it is gone.
	Sweep(ctx context.Context, tasks string, held []string) ([]string, error)
}

// findRunning makes the directories of what runs that have been lost, so that it is
// adopted.
func (l *Loop) findRunning() {
	f, ok := l.cfg.Runtime.(Finder)
	if !ok {
		return
	}
	top := filepath.Join(l.disk.root, tasksDir)
	dirs, err := f.Running(top)
	if err != nil {
		l.cfg.Log.Error("cannot look for tasks that run", "err", err)
	}
	for _, dir := range dirs {
		_, err := os.Lstat(dir)
		if _, bad := l.disk.parse(filepath.Dir(dir)); bad != nil || err == nil {
			continue
		}
		if err := l.disk.makeDir(dir); err != nil {
			l.cfg.Log.Error("cannot make the directory of a task that runs", "dir", dir, "err", err)
			continue
		}
		l.disk.reportDamage(dir, "it was missing, and its task runs", true)
	}
}

// sweepFor bounds how long the end of strays is waited for.
const sweepFor = 10 * time.Second

// sweepStrays kills what runs for tasks of which nothing is on disk.
func (l *Loop) sweepStrays(ctx context.Context) {
	f, ok := l.cfg.Runtime.(Finder)
	if !ok {
		return
	}
	var held []string
	for _, g := range l.held {
		numbers, _ := l.disk.incarnations(g.dir) // none: it is held by what is in memory
		for _, n := range numbers {
			if g.unread || g.process != nil && g.last().Number == n {
				held = append(held, incarnationDir(g.dir, n))
			}
		}
	}
	ctx, cancel := context.WithTimeoutCause(ctx, sweepFor, fmt.Errorf("it runs on after %v", sweepFor))
	defer cancel()
	found, err := f.Sweep(ctx, filepath.Join(l.disk.root, tasksDir), held)
	for _, name := range found {
		l.disk.reportDamage(filepath.Join(l.disk.root, tasksDir, name), "it ran, and no file told of it: it was killed", err == nil)
	}
	if err != nil {
		l.cfg.Log.Error("cannot end what runs for tasks that no file tells of", "err", err)
	}
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

// loadFor is how long the start of an agent waits, in all, for keepers that start, end
// or repair their files. What takes longer is read again beside the loop.
const loadFor = 2 * time.Second

// loadGenerations makes what is in dirs held.
func (l *Loop) loadGenerations(ctx context.Context, dirs []string) {
	ctx, cancel := context.WithTimeoutCause(ctx, loadFor, errors.New("it takes long: it is read beside the others"))
	defer cancel()
	for _, dir := range dirs {
		k, err := l.disk.parse(dir)
		if err != nil {
			l.cfg.Log.Warn("not a task's directory: left alone", "err", err)
			continue
		}
		if g := l.readOrWait(ctx, k, dir, l.memory.view); g != nil {
			l.held[k] = g
			g.retry = time.Time{} // of one that is unread: now, and as long as it takes
		}
	}
}

// readOrWait returns what is in dir, or what stands for it until it can be read; nil
// if nothing was ever started there.
func (l *Loop) readOrWait(ctx context.Context, k key, dir string, view *nodeagent.View) *generation {
	g, err := l.readGeneration(ctx, k, dir, view)
	if err != nil {
		l.cfg.Log.Error("cannot read a task's directory: the task is left alone", "task", k.task.Short(), "generation", k.generation, "err", err)
		return l.unreadable(k, dir, err)
	}
	return g
}

// readGeneration returns nil for a directory in which nothing was ever started, and
// removes it. It touches nothing of the loop but the disk.
func (l *Loop) readGeneration(ctx context.Context, k key, dir string, view *nodeagent.View) (*generation, error) {
	g := &generation{dir: dir, written: true}
	ok, lost, err := l.disk.read(filepath.Join(dir, assignmentFile), &g.Assignment)
	if err != nil {
		return nil, err
	}
	var end schema.Cause
	ended, noEnd, err := l.disk.read(filepath.Join(dir, endFile), &end)
	if err != nil {
		return nil, err
	}
	if ended {
		g.End = &end
	}
	numbers, err := l.disk.incarnations(dir)
	if err != nil {
		return nil, err
	}
	if !ok && len(numbers) == 0 && g.End == nil {
		return nil, l.disk.removeTask(dir)
	}
	if !ok || g.Assignment.Job == nil {
		if lost == nil {
			l.disk.reportDamage(filepath.Join(dir, assignmentFile), "it is missing", true)
		}
		if err := l.guess(g, k, view); err != nil {
			return nil, err
		}
	}
	for _, n := range numbers {
		if err := l.adopt(ctx, g, n); err != nil {
			return nil, err
		}
	}
	if noEnd != nil {
		err = l.doubt(g, noEnd)
	}
	return g, err
}

// guess makes the assignment of a generation whose own is damaged: that of the view,
// or what the directory's name says of it. Then the view to come has it, or the
// generation stops.
func (l *Loop) guess(g *generation, k key, view *nodeagent.View) error {
	if a := view.Find(k.task, k.generation); a != nil {
		g.Assignment = *a
		return l.disk.writeAssignment(&g.Assignment)
	}
	g.guessed, g.written = true, false
	g.Assignment = schema.Assignment{Task: k.task, Generation: k.generation, Job: &schema.Job{
		User: k.task.User, Cell: k.task.Cell, Name: k.task.Job, Task: schema.TaskSpec{GraceSeconds: guessedGrace},
	}}
	return nil
}

// guessedGrace is the grace period of a task whose own is not known, in seconds.
const guessedGrace = 10

// recall gives generations whose assignment was damaged that of the view.
func (l *Loop) recall() {
	for k, g := range l.held {
		if !g.guessed {
			continue
		}
		a := l.memory.view.Find(k.task, k.generation)
		if a == nil {
			continue
		}
		if err := l.disk.writeAssignment(a); err != nil {
			l.cfg.Log.Error("cannot write an assignment anew", "task", k.task.Short(), "generation", k.generation, "err", err)
			continue
		}
		g.Assignment, g.guessed, g.written = *a, false, true
	}
}

// doubt settles what a damaged end means: of a generation that runs, nothing; of
// another, that it has ended, and nobody knows how.
func (l *Loop) doubt(g *generation, lost *durable.Damage) error {
	if g.process != nil {
		return atomicfile.MoveAside(lost.File)
	}
	g.Refused = &schema.Cause{Kind: schema.CauseUnknown, Message: lost.Error() + ": how it ended is not known"}
	return nil
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

// reread tries again to read what could not be read, beside the loop: it may take
// as long as the disk, or a keeper, does.
func (l *Loop) reread(ctx context.Context) {
	now := time.Now()
	for k, g := range l.held {
		if !g.unread || now.Before(g.retry) {
			continue
		}
		g.retry = now.Add(longSleep) // until it is done
		view := l.memory.view
		l.workers.Go(func() {
			found := l.readOrWait(ctx, k, g.dir, view)
			l.send(ctx, func() { l.hold(ctx, k, g, found) })
		})
	}
}

// hold takes what was found of a generation that could not be read; nil if there is
// nothing any more.
func (l *Loop) hold(ctx context.Context, k key, was, found *generation) {
	if l.held[k] != was {
		return
	}
	if found == nil {
		delete(l.held, k)
		return
	}
	l.held[k] = found
	l.await(ctx, found)
	l.recall()
}

// adopt adds incarnation n of g as the Runtime finds it.
func (l *Loop) adopt(ctx context.Context, g *generation, n int) error {
	dir := incarnationDir(g.dir, n)
	stop, err := l.disk.readStop(dir)
	if err != nil {
		return err
	}
	p, err := l.cfg.Runtime.Adopt(ctx, dir)
	if err != nil {
		return fmt.Errorf("adopt incarnation %d: %w", n, err)
	}
	c := p.Incarnation()
	c.Number, c.Stop, c.Probe = n, stop, l.disk.readHealth(dir)
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

// readStop reads why the incarnation in dir was to stop; nil if it was not. Of
// one that is damaged it is known that there was a reason.
func (d *disk) readStop(dir string) (*schema.Cause, error) {
	var stop schema.Cause
	name := filepath.Join(dir, stopFile)
	ok, lost, err := d.read(name, &stop)
	switch {
	case lost != nil:
		stop = schema.Cause{Kind: schema.CauseUnknown, Message: lost.Error(), At: time.Now()}
		return &stop, d.write(name, &stop)
	case err != nil || !ok:
		return nil, err
	}
	return &stop, nil
}
