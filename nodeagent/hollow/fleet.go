package hollow

import (
	"cmp"
	"context"
	"crypto/rand"
	"log/slog"
	"maps"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/musterhq/muster/nodeagent/link"
	"github.com/musterhq/muster/schema"
)

const (
	// MaxMachines is the most that a fleet may have: their names have five digits.
	MaxMachines = 99_999
	// DefaultPrefix begins the names of machines.
	DefaultPrefix = "hollow"
	// DefaultSilentFor is how long a machine is silent.
	DefaultSilentFor = 2 * time.Minute
	// perGroup is how many machines share a connection.
	perGroup = 100
)

// Pattern says what happens to machines and tasks. "Mean" is of an exponential
// distribution; 0 is never. Start, Batch and Stop are drawn between a half and one and a
// half of them; with 0 they take no time.
type Pattern struct {
	Start time.Duration // that a task takes to start
	Batch time.Duration // that a batch task runs
	Stop  time.Duration // that a task takes to end after SIGTERM

	CrashEvery  time.Duration // mean time until a task exits with an error
	AgentEvery  time.Duration // mean time until a machine's agent is restarted
	RebootEvery time.Duration // mean time until a machine is rebooted
	SilentEvery time.Duration // mean time until a machine is cut off from its master
	SilentFor   time.Duration // for that long; DefaultSilentFor when 0
}

// DefaultPattern is one without faults.
var DefaultPattern = Pattern{Start: 100 * time.Millisecond, Batch: time.Minute, Stop: 100 * time.Millisecond}

// Config says what a Fleet is.
type Config struct {
	Cell string
	// Masters are the unix sockets of the masters' links, of which one leads.
	Masters []string
	Count   int    // machines, at most MaxMachines
	Prefix  string // of their names; DefaultPrefix when ""
	Seed    uint64
	Pattern Pattern
	// Version is the agents' version in their reports.
	Version string
	Log     *slog.Logger
	// Observe, if set, is called at each start and end of a task, by several goroutines,
	// and must not block.
	Observe func(Event)
}

// Event is the start or end of a task.
type Event struct {
	At         time.Time
	Machine    string
	Assignment *schema.Assignment // not to be written to
	Exit       *schema.Exit       // nil: it has started
}

// Stats counts what a fleet has and what has happened to it.
type Stats struct {
	Machines int `json:"machines"`
	Linked   int `json:"linked"`  // to a master, now
	Running  int `json:"running"` // tasks, now

	Started  int64 `json:"started"`  // starts of tasks
	Finished int64 `json:"finished"` // batch tasks that ended well
	Crashed  int64 `json:"crashed"`  // tasks that ended by themselves with an error
	Stopped  int64 `json:"stopped"`  // tasks that ended since the master or a reboot stopped them
	Rebooted int64 `json:"rebooted"`
	Silenced int64 `json:"silenced"`
}

// counts are the counters of Stats.
type counts struct {
	running                                                atomic.Int64
	started, finished, crashed, stopped, rebooted, silence atomic.Int64
}

// Fleet is a number of hollow machines.
type Fleet struct {
	cfg    Config
	boots  string // distinguishes the boots of this process from others
	groups []*group
	counts counts
	jobs   link.Jobs
}

// New returns a fleet that has not connected yet.
func New(cfg Config) *Fleet {
	cfg.Prefix = cmp.Or(cfg.Prefix, DefaultPrefix)
	cfg.Pattern.SilentFor = cmp.Or(cfg.Pattern.SilentFor, DefaultSilentFor)
	if cfg.Observe == nil {
		cfg.Observe = func(Event) {}
	}
	f := &Fleet{cfg: cfg, boots: rand.Text()}
	for first := 0; first < cfg.Count; first += perGroup {
		g := &group{fleet: f, shared: new(link.Shared), events: make(chan func()), ended: make(chan struct{})}
		for i := first; i < min(first+perGroup, cfg.Count); i++ {
			g.machines = append(g.machines, newMachine(g, i))
		}
		f.groups = append(f.groups, g)
	}
	return f
}

// Run is the machines, until ctx ends; then it returns nil.
func (f *Fleet) Run(ctx context.Context) error {
	var all errgroup.Group
	for _, g := range f.groups {
		all.Go(func() error {
			g.run(ctx)
			return nil
		})
	}
	return all.Wait()
}

// Stats returns how the fleet stands.
func (f *Fleet) Stats() Stats {
	c := &f.counts
	s := Stats{
		Machines: f.cfg.Count, Running: int(c.running.Load()), Started: c.started.Load(), Finished: c.finished.Load(),
		Crashed: c.crashed.Load(), Stopped: c.stopped.Load(), Rebooted: c.rebooted.Load(), Silenced: c.silence.Load(),
	}
	for _, g := range f.groups {
		for _, m := range g.machines {
			if a := m.agent.Load(); a != nil && a.client.Linked() {
				s.Linked++
			}
		}
	}
	return s
}

// at returns a machine; behind the last comes the first.
func (f *Fleet) at(i int) *machine {
	i %= f.cfg.Count
	return f.groups[i/perGroup].machines[i%perGroup]
}

// Silence cuts n machines off from their master, until heal is called or the pattern's
// SilentFor is over: their tasks run on, but are not reported. It returns which, spread
// evenly over the fleet; none of those to spare is one of them, of which there are far fewer
// than others. It is called while Run runs.
func (f *Fleet) Silence(n int, spare map[string]bool) (names []string, heal func()) {
	all, out := make([]*machine, n), map[string]bool{}
	maps.Copy(out, spare)
	for i := range all {
		at := i * f.cfg.Count / n
		for all[i] = f.at(at); out[all[i].name]; all[i] = f.at(at) {
			at++
		}
		out[all[i].name] = true
		if all[i].group.call(all[i], func(now time.Time) { all[i].silence(now.Add(f.cfg.Pattern.SilentFor)) }) {
			names = append(names, all[i].name)
		}
	}
	return names, func() {
		for _, m := range all {
			m.group.call(m, m.heal)
		}
	}
}
