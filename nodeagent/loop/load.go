package loop

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/musterhq/muster/nodeagent"
	"github.com/musterhq/muster/nodeagent/durable"
	"github.com/musterhq/muster/schema"
	"github.com/musterhq/muster/schema/atomicfile"
)

// loader reads a state directory. Its methods may be called for one directory by one
// goroutine at a time.
type loader struct {
	disk    *disk
	runtime Runtime
	log     *slog.Logger
	machine string
}

// loaded is a generation that was read, with its process if it runs.
type loaded struct {
	nodeagent.FoundTask
	process Process
}

// load reads the state directory. What the disk says decides, and what runs: of a
// task whose files are damaged or lost, the process table and the cgroups are read. What
// cannot be read now is left as it is and read again later, for nothing that is not
// understood may be killed, or started a second time. No damage keeps the agent from
// its start.
func (l *loader) load(ctx context.Context) (nodeagent.Found, map[schema.TaskRef]Process, error) {
	var found nodeagent.Found
	m, err := l.disk.readMemory(l.machine)
	if err != nil {
		// Nothing is lost for long: the master sends the view again.
		l.log.Error("the kept view is unreadable: nothing is started or stopped until the master sends it", "err", err)
	}
	found.Memory = m
	for _, name := range []string{tasksDir, "sticky"} {
		if err := l.disk.makeDir(filepath.Join(l.disk.root, name)); err != nil {
			l.log.Error("cannot make a directory of the state directory", "err", err) // as on a full disk
		}
	}
	if found.Sticky, err = l.disk.sticky(); err != nil {
		return found, nil, fmt.Errorf("read the sticky directories of %s: %w", l.disk.root, err)
	}
	l.findRunning()
	dirs, err := l.disk.generations()
	if err != nil {
		return found, nil, fmt.Errorf("read state directory %s: %w", l.disk.root, err)
	}
	processes := map[schema.TaskRef]Process{}
	for _, g := range l.loadGenerations(ctx, dirs, m.View) {
		found.Tasks = append(found.Tasks, g.FoundTask)
		if g.process != nil {
			processes[schema.TaskRef{Task: g.Assignment.Task, Generation: g.Assignment.Generation}] = g.process
		}
	}
	l.sweepStrays(ctx, found.Tasks)
	return found, processes, nil
}

// findRunning makes the directories of what runs that have been lost, so that it is
// adopted.
func (l *loader) findRunning() {
	f, ok := l.runtime.(Finder)
	if !ok {
		return
	}
	top := filepath.Join(l.disk.root, tasksDir)
	dirs, err := f.Running(top)
	if err != nil {
		l.log.Error("cannot look for tasks that run", "err", err)
	}
	for _, dir := range dirs {
		_, err := os.Lstat(dir)
		if _, bad := l.disk.parse(filepath.Dir(dir)); bad != nil || err == nil {
			continue
		}
		if err := l.disk.makeDir(dir); err != nil {
			l.log.Error("cannot make the directory of a task that runs", "dir", dir, "err", err)
			continue
		}
		l.disk.reportDamage(dir, "it was missing, and its task runs", true)
	}
}

// sweepFor bounds how long the end of strays is waited for.
const sweepFor = 10 * time.Second

// sweepStrays kills what runs for tasks of which nothing is on disk.
func (l *loader) sweepStrays(ctx context.Context, tasks []nodeagent.FoundTask) {
	f, ok := l.runtime.(Finder)
	if !ok {
		return
	}
	var held []string
	for i := range tasks {
		t := &tasks[i]
		dir := l.disk.dir(t.Assignment.Task, t.Assignment.Generation)
		numbers, _ := l.disk.incarnations(dir) // none: it is held by what is in memory
		for _, n := range numbers {
			if t.Unreadable != "" || t.Alive() && t.Incarnations[len(t.Incarnations)-1].Number == n {
				held = append(held, incarnationDir(dir, n))
			}
		}
	}
	ctx, cancel := context.WithTimeoutCause(ctx, sweepFor, fmt.Errorf("it runs on after %v", sweepFor))
	defer cancel()
	found, err := f.Sweep(ctx, filepath.Join(l.disk.root, tasksDir), held)
	for _, name := range found {
		l.disk.reportDamage(filepath.Join(l.disk.root, tasksDir, name), "processes ran without a file that names them: they were killed", err == nil)
	}
	if err != nil {
		l.log.Error("cannot end processes of tasks that no file names", "err", err)
	}
}

// loadFor is how long the start of an agent waits, in all, for keepers that start, end
// or repair their files. What takes longer is read again beside the loop.
const loadFor = 2 * time.Second

// loadGenerations reads what is in dirs.
func (l *loader) loadGenerations(ctx context.Context, dirs []string, view *schema.View) []*loaded {
	ctx, cancel := context.WithTimeoutCause(ctx, loadFor, errors.New("it takes long: it is read beside the others"))
	defer cancel()
	var list []*loaded
	for _, dir := range dirs {
		r, err := l.disk.parse(dir)
		if err != nil {
			l.log.Warn("not a task's directory: left alone", "err", err)
			continue
		}
		if g := l.read(ctx, r, view); g != nil {
			list = append(list, g)
		}
	}
	return list
}

// read returns what there is of a generation; nil if nothing was ever started.
func (l *loader) read(ctx context.Context, r schema.TaskRef, view *schema.View) *loaded {
	g, err := l.readGeneration(ctx, r, view)
	if err != nil {
		l.log.Error("cannot read a task's directory: the task is left alone", "task", r.Task.Short(), "generation", r.Generation, "err", err)
		g = &loaded{}
		g.Assignment.Task, g.Assignment.Generation, g.Unreadable = r.Task, r.Generation, err.Error()
	}
	return g
}

// readGeneration returns nil for a directory in which nothing was ever started, and
// removes it.
func (l *loader) readGeneration(ctx context.Context, r schema.TaskRef, view *schema.View) (*loaded, error) {
	dir := l.disk.dir(r.Task, r.Generation)
	g := &loaded{}
	g.Written = true
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
		if err := l.guess(g, r, view); err != nil {
			return nil, err
		}
	}
	for _, n := range numbers {
		if err := l.adopt(ctx, g, incarnationDir(dir, n), n); err != nil {
			return nil, err
		}
	}
	if noEnd != nil {
		err = settleEnd(g, noEnd)
	}
	return g, err
}

// guess makes the assignment of a generation whose own is damaged: that of the view,
// or what the directory's name says of it. Then the view to come has it, or the
// generation stops.
func (l *loader) guess(g *loaded, r schema.TaskRef, view *schema.View) error {
	if a := view.Find(r.Task, r.Generation); a != nil {
		g.Assignment = *a
		return l.disk.writeAssignment(&g.Assignment)
	}
	g.Guessed, g.Written = true, false
	g.Assignment = schema.Assignment{Task: r.Task, Generation: r.Generation, Job: &schema.Job{
		User: r.Task.User, Cell: r.Task.Cell, Name: r.Task.Job, Task: schema.TaskSpec{GraceSeconds: guessedGrace},
	}}
	return nil
}

// guessedGrace is the grace period of a task whose own is not known, in seconds.
const guessedGrace = 10

// settleEnd settles what a damaged end means: of a generation that runs, nothing; of
// another, that it has ended, and nobody knows how.
func settleEnd(g *loaded, lost *durable.Damage) error {
	if g.process != nil {
		return atomicfile.MoveAside(lost.File)
	}
	g.Refused = &schema.Cause{Kind: schema.CauseUnknown, Message: lost.Error() + ": how it ended is not known"}
	return nil
}

// adopt adds incarnation n of g, whose directory is dir, as the Runtime finds it.
func (l *loader) adopt(ctx context.Context, g *loaded, dir string, n int) error {
	stop, err := l.disk.readStop(dir)
	if err != nil {
		return err
	}
	p, err := l.runtime.Adopt(ctx, dir)
	if err != nil {
		return fmt.Errorf("adopt incarnation %d: %w", n, err)
	}
	c := nodeagent.Incarnation{Number: n, Process: p.State(), Stop: stop, Probe: l.disk.readHealth(dir)}
	c.Step, c.Attempt = c.Process.Step, c.Process.Attempt
	if c.Given, c.Renewed, err = l.disk.readGiven(dir); err != nil {
		return err
	}
	if !c.Renewed {
		c.Given = c.Process.Given
	}
	if c.Exit != nil {
		exit := *c.Exit
		exit.Incarnation = n
		c.Exit = &exit
	}
	g.Incarnations = append(g.Incarnations, c)
	if c.Exit == nil {
		g.process = p
		l.log.Info("adopted", "task", g.Assignment.Task.Short(), "generation", g.Assignment.Generation, "incarnation", n, "pid", c.PID)
	}
	return nil
}
