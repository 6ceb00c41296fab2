package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/musterhq/muster/nodeagent/hollow"
	"github.com/musterhq/muster/schema"
)

// Config says what is measured.
type Config struct {
	Muster   string // the binary
	Dir      string // where repository and state are kept meanwhile; its path is short
	Machines int
	// Tasks is how many there are for each machine, 1 to 1,000.
	Tasks int
	// Steady is how long the cell is watched while nothing changes, and Edits how many
	// commits change one line.
	Steady time.Duration
	Edits  int
	// Arrivals is how many batch jobs arrive, one each second.
	Arrivals int
	// LostAfter is how long a machine is silent before it is lost.
	LostAfter time.Duration
	// Loads are those to apply, in their own order; none: all. A load finds what those
	// before it leave, so join and commit belong to any other.
	Loads []string
	// Profiles is a directory for profiles of master and machines; "" takes none.
	Profiles string
	// Progress gets a line for each thing that is done.
	Progress io.Writer
}

const (
	tasksPerJob  = 100
	editedTasks  = 5    // of the job that one line is changed of
	rolledTasks  = 1000 // of the job that is updated, if the cell has so many machines
	rolledAtOnce = 50
	lostShare    = 10  // one machine in so many is lost,
	mostLost     = 500 // and so many at most
	reads        = 5   // of each kind
	// As many tasks arrive in a minute as there are machines, with a commit every so often.
	arriveEvery = time.Second
	// patience is how long each load may take, with so many tasks or fewer, and again with each
	// patienceTasks more.
	patience      = 5 * time.Minute
	patienceTasks = 100_000
)

// patience is how long each load may take.
func (c *Config) patience() time.Duration {
	return patience * time.Duration(max(1, c.Machines*c.Tasks/patienceTasks))
}

// cell is the cell that is measured.
type cell struct {
	cfg    Config
	repo   *repository
	master *master
	fleet  *hollow.Fleet
	tracks tracker
	edited time.Duration // that one line took, before anything was lost; a median
	rows   []Row
	sock   string
}

// Run measures. The rows that it has measured before an error are in the Result.
func Run(ctx context.Context, cfg Config) (*Result, error) {
	c := &cell{
		cfg: cfg, sock: filepath.Join(cfg.Dir, "link", "agent.sock"),
		tracks: tracker{running: map[schema.TaskRef]string{}, versions: map[version]*tally{}},
	}
	var err error
	if c.repo, err = newRepository(ctx, filepath.Join(cfg.Dir, "repo"), cfg.Machines, cfg.Tasks); err != nil {
		return nil, err
	}
	if err := c.startMaster(ctx); err != nil {
		return nil, err
	}
	defer func() { c.master.kill() }()
	ctx, cancel := context.WithCancel(ctx)
	c.fleet = hollow.New(hollow.Config{
		Cell: cellName, Masters: []string{c.sock}, Count: cfg.Machines, Seed: 1, Pattern: hollow.Pattern{SilentFor: time.Hour},
		Version: "bench", Log: slog.New(slog.DiscardHandler), Observe: c.tracks.observe,
	})
	ended := make(chan error, 1)
	defer func() { cancel(); _ = <-ended }() // it never errs
	begin, err := c.master.sample()
	if err != nil {
		return nil, err
	}
	go func() { ended <- c.fleet.Run(ctx) }()
	for _, load := range []struct {
		name string
		run  func(context.Context, *load) error
	}{
		{"join", c.join},
		{"commit", c.commit},
		{"steady", c.steady},
		{"edit", c.edit},
		{"rollout", c.rollOut},
		{"arrivals", c.arrive},
		{"read", c.read},
		{"loss", c.lose},
		{"restart", c.restart},
		{"memory", c.memory},
	} {
		if len(cfg.Loads) > 0 && !slices.Contains(cfg.Loads, load.name) {
			continue
		}
		fmt.Fprintln(cfg.Progress, time.Now().Format(time.TimeOnly), load.name)
		l, err := c.newLoad(load.name, begin)
		if err == nil {
			within, cancel := context.WithTimeout(ctx, cfg.patience())
			err = load.run(within, l)
			cancel()
		}
		if err != nil {
			return c.result(), fmt.Errorf("%s: %w", load.name, errors.Join(err, c.stuck(ctx, load.name), c.master.said()))
		}
		begin = sample{}
	}
	return c.result(), nil
}

func (c *cell) startMaster(ctx context.Context) (err error) {
	c.master, err = startMaster(ctx, c.cfg.Muster, filepath.Join(c.cfg.Dir, "log"),
		"master", "--repo", c.repo.dir, "--data-dir", filepath.Join(c.cfg.Dir, "master"), "--link", c.sock,
		"--socket", filepath.Join(c.cfg.Dir, "api", "api.sock"), "--pprof", "127.0.0.1:0", "--log-level", "info",
		"--lost-after", c.cfg.LostAfter.String(), "--snapshot-every", "0")
	return err
}

// load is one thing that happens to the cell, and what it costs.
type load struct {
	cell   *cell
	name   string
	began  time.Time
	before sample
	tasks  int // by which the master's processor time is divided; 0: it is not
}

// newLoad begins a load at begin, or now if that is zero.
func (c *cell) newLoad(name string, begin sample) (*load, error) {
	var err error
	if begin.answered.at.IsZero() {
		begin, err = c.master.sample()
	}
	return &load{cell: c, name: name, began: begin.answered.at, before: begin}, err
}

// row adds what was measured.
func (l *load) row(measure, unit string, value float64) {
	l.cell.rows = append(l.cell.rows, Row{Load: l.name, Measure: measure, Unit: unit, Value: value})
}

// took adds the time since the load began, and what the master has used.
func (l *load) took() error {
	l.row("time", "s", time.Since(l.began).Seconds())
	return l.used()
}

// used adds what the master has used since the load began.
func (l *load) used() error {
	now, err := l.cell.master.sample()
	if err != nil {
		return err
	}
	used := now.asked.cpu - l.before.answered.cpu
	l.row("master's processor time", "s", used.Seconds())
	if l.tasks > 0 {
		l.row("master's processor time for a task", "ms", 1000*used.Seconds()/float64(l.tasks))
	}
	l.row("store writes", "", now.writes-l.before.writes)
	return nil
}

// join waits until all machines have joined.
func (c *cell) join(ctx context.Context, l *load) error {
	if err := until(ctx, func() bool { return c.fleet.Stats().Linked == c.cfg.Machines }); err != nil {
		return fmt.Errorf("%d of %d machines: %w", c.fleet.Stats().Linked, c.cfg.Machines, err)
	}
	return l.took()
}

// commit has all tasks of the cell declared in one commit, and waits until they run.
func (c *cell) commit(ctx context.Context, l *load) error {
	stop := c.profile(ctx, l.name)
	defer stop()
	next, err := c.repo.declare(ctx)
	if err != nil {
		return err
	}
	if l.began, err = next.publish(ctx); err != nil {
		return err
	}
	want := c.repo.tasks()
	l.tasks = want
	if err := until(ctx, func() bool { return c.fleet.Stats().Running >= want }); err != nil {
		return fmt.Errorf("%d of %d tasks run: %w", c.fleet.Stats().Running, want, err)
	}
	if err := l.took(); err != nil {
		return err
	}
	return c.converge(ctx)
}

// steady watches the cell while nothing changes.
func (c *cell) steady(ctx context.Context, l *load) error {
	if err := sleep(ctx, min(c.cfg.Steady, 5*time.Second)); err != nil { // what the commit has left to do
		return err
	}
	stop := c.profile(ctx, l.name)
	defer stop()
	before, err := c.master.sample()
	if err != nil {
		return err
	}
	own, err := processorTime(os.Getpid())
	if err != nil {
		return err
	}
	if err := sleep(ctx, c.cfg.Steady); err != nil {
		return err
	}
	after, err := c.master.sample()
	if err != nil {
		return err
	}
	ownAfter, err := processorTime(os.Getpid())
	if err != nil {
		return err
	}
	took := after.asked.at.Sub(before.answered.at)
	l.row("master's share of a core", "", (after.asked.cpu-before.answered.cpu).Seconds()/took.Seconds())
	l.row("the machines' share of a core", "", (ownAfter-own).Seconds()/took.Seconds())
	l.row("store writes a minute", "", (after.writes-before.writes)/took.Minutes())
	return nil
}

// edit changes one line again and again, and waits each time until the tasks of that job
// run with it.
func (c *cell) edit(ctx context.Context, l *load) error {
	stop := c.profile(ctx, l.name)
	defer stop()
	times, err := c.edits(ctx, "edit", c.cfg.Edits)
	if err != nil {
		return err
	}
	c.edited = percentile(times, 50)
	l.row("one line to its tasks running, median", "s", c.edited.Seconds())
	l.row("one line to its tasks running, 99th percentile", "s", percentile(times, 99).Seconds())
	return l.used()
}

// edits changes one line so many times, and returns how long it took each time until the
// tasks ran with it.
func (c *cell) edits(ctx context.Context, name string, count int) (times []time.Duration, err error) {
	for n := range count {
		version := fmt.Sprint(name, "-", n)
		next, err := c.repo.edit(ctx, version)
		if err != nil {
			return nil, err
		}
		began, err := next.publish(ctx)
		if err != nil {
			return nil, err
		}
		at, err := c.tracks.wait(ctx, editedJob, version, editedTasks)
		if err != nil {
			return nil, err
		}
		times = append(times, at.Sub(began))
	}
	return times, nil
}

// arrive has batch jobs arrive, one after the other, whose tasks end at once, and those before
// go.
func (c *cell) arrive(ctx context.Context, l *load) error {
	stop := c.profile(ctx, l.name)
	defer stop()
	before, _, err := residentBytes(c.master.pid())
	if err != nil {
		return err
	}
	tasks := max(1, c.cfg.Machines*int(arriveEvery)/int(time.Minute))
	var pending []time.Duration
	for n := range c.cfg.Arrivals {
		began := time.Now()
		name := fmt.Sprintf("job-%d", n)
		next, err := c.repo.arrive(ctx, name, tasks)
		if err != nil {
			return err
		}
		arrived, err := next.publish(ctx)
		if err != nil {
			return err
		}
		job := arrivingUser + "/" + name
		if err := until(ctx, func() bool { return len(c.tracks.started(job, name)) >= tasks }); err != nil {
			return fmt.Errorf("job %s: %w", job, err)
		}
		for _, at := range c.tracks.started(job, name) {
			pending = append(pending, at.Sub(arrived))
		}
		if err := sleep(ctx, arriveEvery-time.Since(began)); err != nil {
			return err
		}
	}
	l.tasks = c.cfg.Arrivals * tasks
	l.row("commit to a task running, median", "s", percentile(pending, 50).Seconds())
	l.row("commit to a task running, 99th percentile", "s", percentile(pending, 99).Seconds())
	after, _, err := residentBytes(c.master.pid())
	if err != nil {
		return err
	}
	l.row("resident memory, times that before", "", float64(after)/float64(before))
	return l.used()
}

// rollOut updates one large job.
func (c *cell) rollOut(ctx context.Context, l *load) error {
	stop := c.profile(ctx, l.name)
	defer stop()
	next, err := c.repo.rollOut(ctx, "next")
	if err != nil {
		return err
	}
	if l.began, err = next.publish(ctx); err != nil {
		return err
	}
	if _, err := c.tracks.wait(ctx, rolledJob, "next", c.repo.rolled); err != nil {
		return err
	}
	l.tasks = c.repo.rolled
	return l.took()
}

// lose cuts machines off, and waits until all that ran on them runs elsewhere.
func (c *cell) lose(ctx context.Context, l *load) error {
	names, heal := c.fleet.Silence(min(c.cfg.Machines/lostShare, mostLost), c.tracks.machinesOf(editedJob))
	lost := map[string]bool{}
	for _, name := range names {
		lost[name] = true
	}
	moved := c.tracks.watch(lost)
	if err := sleep(ctx, c.cfg.LostAfter); err != nil {
		return err
	}
	stop := c.profile(ctx, l.name)
	defer stop()
	times, err := c.meanwhile(ctx, moved)
	if err != nil {
		return err
	}
	median := percentile(times, 50)
	l.row("one line to its tasks running meanwhile, median", "s", median.Seconds())
	l.row("one line to its tasks running meanwhile, times that before", "", median.Seconds()/c.edited.Seconds())
	l.row("one line to its tasks running meanwhile, longest", "s", percentile(times, 100).Seconds())
	l.row("time, beyond that of a machine's silence", "s", (time.Since(l.began) - c.cfg.LostAfter).Seconds())
	if err := l.used(); err != nil {
		return err
	}
	heal()
	// What the machines have kept, and others run now, is to end before the next load.
	if err := until(ctx, func() bool { return c.fleet.Stats().Running <= c.repo.tasks() }); err != nil {
		return fmt.Errorf("%d tasks run, of %d: %w", c.fleet.Stats().Running, c.repo.tasks(), err)
	}
	return c.converge(ctx)
}

// meanwhile changes one line again and again until the tasks of lost machines run elsewhere,
// and returns how long it took each time until the tasks of the changed job ran with it.
func (c *cell) meanwhile(ctx context.Context, moved map[schema.TaskRef]bool) (times []time.Duration, err error) {
	for left := len(moved); left > 0; left = c.tracks.left(moved) {
		took, err := c.edits(ctx, fmt.Sprint("lost-", len(times)), 1)
		if err != nil {
			return nil, fmt.Errorf("%d tasks were not replaced: %w", left, err)
		}
		times = append(times, took...)
	}
	return times, nil
}

// restart kills the master, and starts another on what it has left.
func (c *cell) restart(ctx context.Context, l *load) error {
	running := c.fleet.Stats()
	c.master.kill()
	l.began = time.Now()
	if err := c.startMaster(ctx); err != nil {
		return err
	}
	l.row("leads", "s", time.Since(l.began).Seconds())
	stop := c.profile(ctx, l.name)
	defer stop()
	if err := until(ctx, func() bool { return c.fleet.Stats().Linked == c.cfg.Machines }); err != nil {
		return err
	}
	if err := c.converge(ctx); err != nil {
		return err
	}
	l.row("converged", "s", time.Since(l.began).Seconds())
	l.row("tasks that ended", "", float64(c.fleet.Stats().Stopped-running.Stopped))
	l.before = sample{}
	return l.used()
}

// memory adds what the master has had at most.
func (c *cell) memory(_ context.Context, l *load) error {
	resident, peak, err := residentBytes(c.master.pid())
	if err != nil {
		return err
	}
	l.row("resident", "MiB", float64(resident)/(1<<20))
	l.row("peak", "MiB", float64(peak)/(1<<20))
	return nil
}
