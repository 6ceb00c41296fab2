package plan

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/musterhq/muster/reconciler"
	"github.com/musterhq/muster/reconciler/intent"
	"github.com/musterhq/muster/reconciler/model"
	"github.com/musterhq/muster/reconciler/status"
	"github.com/musterhq/muster/schema"
)

const (
	// reportsEvery is how often machines say that they are up, so that none is silent when the
	// master decides.
	reportsEvery = model.SilentAfter - time.Second
	// settled is for how long nothing may happen in a cell that is as desired, and quiet
	// how long in one that waits for something which may come by itself.
	settled = 2 * time.Minute
	quiet   = 15 * time.Minute
)

// AppointmentLimit is how far ahead something may be that comes by itself, such as a deadline, for
// a cell to be followed until then though nothing happens before: all machines report meanwhile,
// which takes processor time. It is as long as an hourly disruption budget may have a stop wait.
const AppointmentLimit = time.Hour

// DefaultLimit is the most virtual time for which a cell is followed.
const DefaultLimit = 24 * time.Hour

// Config is what a Cell begins with.
type Config struct {
	State    *model.State         // which is the Cell's from then on
	Machines []model.SavedMachine // what they said last, by name
	Now      time.Time            // when that was
	// Since is from when machines have been listened to without a break; zero is Now.
	Since time.Time
	// LostAfter is how long a silent machine is waited for; 0 is the default.
	LostAfter time.Duration
	// Lasts says after how long the tasks of a job end by themselves that are started here;
	// 0 is never, and so is nil.
	Lasts func(*schema.Job) time.Duration
	// Life says what becomes of a generation of a task, where that is known; nil is nowhere.
	// The generations that run when the cell begins are asked for, too.
	Life func(task schema.TaskName, generation uint64) *Life
	// Happens gets each event of the cell, in order; nil is nobody.
	Happens func(schema.Event)
	// Uses says what a task uses that has run for some time, as agents measure it: then the rest of
	// what it asks for is reclaimed, see reconciler.Master.Reclaim. nil is not known.
	Uses func(task schema.TaskName, ran time.Duration) schema.Resources
	// Policy is how tasks are placed, see placement.Policy; "" is the master's own.
	Policy string
	// NoMoves has no task be moved by choice: see control.Input.
	NoMoves bool
	// Parallel is that of reconciler.MasterConfig.
	Parallel func(n int, do func(i int))
	// Limit is the most virtual time for which the cell is followed; 0 is DefaultLimit.
	Limit time.Duration
}

// Cell is a simulated cell: a master, and machines that do what it says.
type Cell struct {
	cfg      Config
	master   *reconciler.Master
	now      time.Time
	machines map[string]*machine
	sorted   []*machine // all of machines, by name
	// active are the machines on which something is due, or that have news.
	active    map[string]struct{}
	repeated  time.Time
	reports   time.Duration // how often machines say that they are up
	sampled   time.Time     // when they said last what they use
	trace     trace
	looked    *status.Describer // the master's, too
	wrote     time.Time         // when something was last stored, or happened on a machine
	converged bool
	known     map[schema.Digest]bool // data that was there before the commit
	broken    func(*schema.Job) bool // of jobs that commits bring
	silent    []string               // see Silent
	ahead     *Next                  // what comes by itself after Run, nil if nothing is known to
	meets     time.Time              // until when Run waits for that, though nothing happens
	watch     watch
	seen      seen
	aside     string // the directory of what is declared only to see what would be, "" before there is any
}

// New returns a cell as it was when its state was taken, under a master that begins to lead
// then. It errs if that is not a state that a master takes.
func New(cfg Config) (*Cell, error) {
	if cfg.Limit == 0 {
		cfg.Limit = DefaultLimit
	}
	if cfg.Lasts == nil {
		cfg.Lasts = func(*schema.Job) time.Duration { return 0 }
	}
	if cfg.Life == nil {
		cfg.Life = func(schema.TaskName, uint64) *Life { return nil }
	}
	if cfg.Happens == nil {
		cfg.Happens = func(schema.Event) {}
	}
	now := cfg.Now.UTC().Round(0) // a virtual clock has no other reading
	c := &Cell{
		cfg: cfg, now: now, wrote: now, repeated: now, sampled: now, reports: reportsEvery, broken: func(*schema.Job) bool { return false }, machines: map[string]*machine{}, active: map[string]struct{}{},
		looked: status.NewSharedDescriber(), seen: seenOf(cfg.State, cfg.Machines),
	}
	c.master = reconciler.NewMasterOf(reconciler.MasterConfig{
		Cell: cfg.State.Cell, LostAfter: cfg.LostAfter, Observed: model.ObservedOf(cfg.Machines, cmp.Or(cfg.Since, now)), Describer: c.looked, Parallel: cfg.Parallel,
	}, cfg.State, now)
	if cfg.Uses != nil {
		c.master.Reclaim()
	}
	if cfg.NoMoves {
		c.master.NoMoves()
	}
	if cfg.Policy != "" {
		c.master.Policy(cfg.Policy)
	}
	if err := c.carryOut(); err != nil {
		return nil, err
	}
	for i := range cfg.Machines {
		if err := c.connect(&cfg.Machines[i]); err != nil {
			return nil, err
		}
	}
	c.sorted = slices.SortedFunc(maps.Values(c.machines), (*machine).compare)
	return c, c.round()
}

// connect has a machine go on with the session that it had. One that was silent is silent.
func (c *Cell) connect(saved *model.SavedMachine) error {
	record := c.state().Machines[saved.Name]
	if record == nil || record.Forgotten != nil || saved.Report == nil || c.cfg.Now.Sub(saved.At) >= model.SilentAfter {
		return nil
	}
	m := newMachine(saved, record.Epoch)
	if m.live(c.cfg.Life, c.now) {
		c.active[saved.Name] = struct{}{}
	}
	if c.state().Restored == nil {
		m.version = 0 // this master counts anew
	}
	r := m.says()
	update := model.SessionUpdate{Machine: saved.Name, Epoch: m.epoch, Resume: &schema.Connection{}, Report: &r}
	if err := c.master.UpdateSession(&update, c.now); err != nil {
		c.silent = append(c.silent, saved.Name)
		return nil //nolint:nilerr // it would join again: until then it is silent
	}
	if len(saved.Content) > 0 {
		err := c.master.UpdateSession(&model.SessionUpdate{Machine: saved.Name, Epoch: m.epoch, Content: &schema.ContentChange{Whole: true, Added: saved.Content}}, c.now)
		if err != nil {
			return err
		}
	}
	c.machines[saved.Name] = m
	return c.carryOut()
}

// State returns what the cell has stored. Nothing of it may be written to.
func (c *Cell) State() *model.State { return c.state() }

// Silent returns the machines that were up when the state was taken, and are silent here, since
// their sessions cannot go on: these would join again.
func (c *Cell) Silent() []string { return c.silent }

// Add has a machine join on which nothing runs.
func (c *Cell) Add(info schema.MachineInfo) error { return c.join(info, nil) }

// join has a machine join on which tasks run.
func (c *Cell) join(info schema.MachineInfo, tasks map[uint64]*task) error {
	epoch, err := c.master.Join(info, c.now)
	if err != nil {
		return err
	}
	m := newMachine(&model.SavedMachine{Name: info.Name, Report: &schema.Report{Machine: info}}, epoch)
	if tasks != nil {
		m.begun, m.changed, c.active[info.Name] = tasks, true, struct{}{}
	}
	c.machines[info.Name] = m
	if i, has := slices.BinarySearchFunc(c.sorted, m, (*machine).compare); has {
		c.sorted[i] = m
	} else {
		c.sorted = slices.Insert(c.sorted, i, m)
	}
	if err := c.carryOut(); err != nil {
		return err
	}
	return c.master.Report(info.Name, epoch, m.says(), c.now)
}

// Lose has machines send nothing from now on; it returns those that the cell does not have,
// or that are silent anyway.
func (c *Cell) Lose(names []string) (unknown []string, err error) {
	for _, name := range names {
		m := c.machines[name]
		if m == nil || m.silent {
			unknown = append(unknown, name)
			continue
		}
		m.silent, c.converged = true, false
		if err := c.master.Report(name, m.epoch, m.says(), c.now); err != nil {
			return unknown, err
		}
		c.master.Leave(name, m.epoch)
		c.wrote = c.now
	}
	return unknown, nil
}

// Commit has a commit become the repository's head. It is the cell's from then on.
func (c *Cell) Commit(commit schema.Compiled) error {
	c.master.Head(model.Seen{Commit: commit.Commit, At: c.now}, c.now)
	if err := c.carryOut(); err != nil {
		return err
	}
	c.converged, c.known = false, map[schema.Digest]bool{}
	for digest := range c.state().Data {
		c.known[digest] = true
	}
	c.master.Compiled(&commit, c.now)
	return c.carryOut()
}

// Fail has the tasks not work of the versions of jobs that commits bring from now on, where
// fails says so.
func (c *Cell) Fail(fails func(*schema.Job) bool) { c.broken = fails }

// Brings reports whether the last commit has brought a version of a job.
func (c *Cell) Brings(job schema.JobName) bool {
	d, ok := intent.Of(c.state()).Jobs[job]
	return ok && !c.known[d.Digest]
}

// state is what is stored.
func (c *Cell) state() *model.State { return c.master.State() }

// Status is the cell as its users see it now, without tasks. Nothing of it may be written to.
func (c *Cell) Status() *status.Status { return c.describe().Brief() }

// describe returns the cell as its users see it now.
func (c *Cell) describe() *status.Snapshot { return c.looked.Describe(c.master.Snapshot(c.now)) }

// round has the master decide by what it knows.
func (c *Cell) round() error {
	c.watch.decided = true
	c.master.Decide()
	return c.carryOut()
}

// fails reports whether a task that is started does not work.
func (c *Cell) fails(a *schema.Assignment) bool { return !c.known[a.Data] && c.broken(a.Job) }

// carryOut does what the master wants done.
func (c *Cell) carryOut() error {
	for {
		ready, more := c.master.Ready(c.now)
		if !more {
			return nil
		}
		for _, batch := range model.Batches(ready.Writes) {
			was := model.ChunksOf(c.state(), batch)
			if err := c.master.Stored(batch); err != nil {
				return err
			}
			c.trace.after(c.state(), was, c.now)
			c.wrote = c.now
		}
		c.master.Advance(c.now)
		for i := range ready.Events {
			c.trace.event(&ready.Events[i], c.now)
			c.cfg.Happens(ready.Events[i])
		}
		for i := range ready.Views {
			if m := c.machines[ready.Views[i].Machine]; m != nil && m.epoch == ready.Views[i].Epoch {
				m.take(&ready.Views[i].View, c.now, behaviour{c.fails, c.cfg.Lasts, c.seen.after, c.cfg.Life})
				c.trace.healthy(m.advance(c.now), c.now)
				c.active[ready.Views[i].Machine] = struct{}{}
				c.wrote = c.now
			}
		}
		if ready.Converged != nil {
			c.converged = true
		}
	}
}

// exchange has what is due on the machines happen, and sends the master their reports.
func (c *Cell) exchange() error {
	c.sample()
	talk := c.sorted
	if c.now.Sub(c.repeated) >= c.reports {
		c.repeated = c.now
	} else {
		talk = c.due()
	}
	for _, m := range talk {
		healthy := m.advance(c.now)
		if m.due.IsZero() && len(c.active) > 0 {
			delete(c.active, m.name())
		}
		if m.silent {
			m.news = false
			continue
		}
		c.trace.healthy(healthy, c.now)
		if m.news {
			c.wrote = c.now
		}
		if err := c.master.Report(m.name(), m.epoch, m.says(), c.now); err != nil {
			return err
		}
	}
	return c.carryOut()
}

// sample has all machines say what they use, when it is time.
func (c *Cell) sample() {
	if c.cfg.Uses == nil || c.now.Sub(c.sampled) < sampleEvery {
		return
	}
	c.sampled = c.now
	for _, m := range c.sorted {
		if m.silent {
			continue
		}
		c.master.Usage(m.epoch, m.uses(c.cfg.Uses, c.now), c.now)
		if m.news {
			c.active[m.name()] = struct{}{}
		}
	}
}

// due returns the machines, by name, on which something is due now, or that have news.
func (c *Cell) due() []*machine {
	var out []*machine
	for name := range c.active {
		if m := c.machines[name]; m.news || !m.due.IsZero() && !m.due.After(c.now) {
			out = append(out, m)
		}
	}
	slices.SortFunc(out, (*machine).compare)
	return out
}

// Ending says why a cell is followed no further.
type Ending string

// The endings.
const (
	Settled Ending = "settled" // all is as desired
	Blocked Ending = "blocked" // a person has to act on all that is not
	Waiting Ending = "waiting" // something is not as desired, and nothing happens before Next, if ever
	Endless Ending = "endless" // something happens still when the limit is reached
)

// Run follows the cell until nothing happens any more, and returns why it ends there, and when
// something last happened.
func (c *Cell) Run() (Ending, time.Time, error) {
	began, fruitless := c.now, time.Time{}
	c.ahead, c.meets = nil, time.Time{}
	for {
		if err := c.turn(); err != nil {
			return "", c.wrote, err
		}
		if c.wrote.Equal(c.now) {
			c.trace.count(c)
		}
		if c.comesTrue() {
			return Reached, c.now, nil
		}
		next := c.next()
		if !next.After(c.now) { // views that were just taken
			continue
		}
		if fruitless.Before(c.wrote) && c.now.Sub(c.wrote) >= settled {
			fruitless = c.now
			if e := c.ending(); e != "" {
				return e, c.wrote, nil
			}
		}
		switch idle := c.now.Sub(c.wrote); {
		case c.over(idle):
			return Waiting, c.wrote, nil
		case c.now.Sub(began) >= c.cfg.Limit:
			return Endless, c.wrote, nil
		}
		c.now = next
	}
}

// turn has all happen that is due now.
func (c *Cell) turn() error {
	if err := c.exchange(); err != nil {
		return err
	}
	if c.master.News() || !c.master.Wake().IsZero() && !c.master.Wake().After(c.now) {
		return c.round()
	}
	return nil
}

// next is when something may happen next.
func (c *Cell) next() time.Time {
	next := c.repeated.Add(c.reports)
	if sample := c.sampled.Add(sampleEvery); c.cfg.Uses != nil && sample.Before(next) {
		next = sample
	}
	if wake := c.master.Wake(); !wake.IsZero() && wake.Before(next) {
		next = wake
	}
	for name := range c.active {
		m := c.machines[name]
		if m.news && !m.silent {
			return c.now
		}
		if !m.due.IsZero() && m.due.Before(next) {
			next = m.due
		}
	}
	if next.Before(c.now) {
		return c.now.Add(time.Millisecond) // the master is late for what it has just done
	}
	return next
}

// over reports whether nothing has happened for so long that nothing will, or not soon.
func (c *Cell) over(idle time.Duration) bool {
	if idle < quiet || c.now.Before(c.meets) || idle < c.patience() {
		return false
	}
	next := appointment(c)
	if next == nil || next.At.Sub(c.now) > AppointmentLimit {
		c.ahead = next
		return true
	}
	c.meets = next.At.Add(settled)
	return false
}

// ending says whether the cell is as desired, or waits only for people; "" if neither.
func (c *Cell) ending() Ending {
	if c.converged {
		return Settled
	}
	switch s := c.Status(); {
	case len(s.Waiting) == 0:
		return Settled
	case s.AllBlocked():
		c.ahead = appointment(c)
		return Blocked
	}
	return ""
}

// patience is how long the longest wait of a rollout that goes on may last.
func (c *Cell) patience() time.Duration {
	var most time.Duration
	for name, r := range c.state().Jobs {
		want := c.state().Runs(name)
		if r.Rollout == nil || r.Rollout.Failed != "" || want == nil {
			continue
		}
		wait := time.Duration(want.Update.MinHealthySeconds+want.Update.ProgressDeadline()) * time.Second
		if want.Update.Canary != nil {
			wait += time.Duration(want.Update.Canary.WaitSeconds) * time.Second
		}
		if want.Disruption != nil && want.Disruption.PerHour > 0 {
			wait += time.Hour
		}
		most = max(most, wait)
	}
	return most + settled
}
