package sim

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/musterhq/muster/reconciler/control"
	"github.com/musterhq/muster/reconciler/model"
	"github.com/musterhq/muster/reconciler/status"
	"github.com/musterhq/muster/reconciler/store"
	"github.com/musterhq/muster/schema"
)

// The simulated time.
const (
	tick       = 250 * time.Millisecond // between two turns of everybody
	masterDown = 2 * time.Second        // from a master's death to the next one's start
	agentDown  = 1 * time.Second
	slowest    = 5 * tick // that a message may be under way
)

// cellName is the cell of every world.
const cellName = "sim"

// Config says what kind of world it is.
type Config struct {
	Seed     uint64
	Machines int
	// Cut is the most writes in one transaction, 0: as many as the store
	// takes. The fewer, the more places there are to crash at.
	Cut int
	// Slow lets messages be under way for a while, and views overtake others.
	Slow bool
	// Late lets machines join one after the other, a second apart: what their
	// number and their sum decides is decided anew each time.
	Late bool
	// Mixed lets some tasks end with 0 when they are to stop, and some batch tasks take ten
	// times as long as others.
	Mixed bool
	// Jobs are those that a random repository holds at first, as user/job with
	// commas between them, "": all that there are.
	Jobs string
	// DrainHalf has half of the racks drained and return after the calm: see
	// World.DrainHalf.
	DrainHalf bool
	// Tight has a cell of other jobs, for which it has too little room: see tightJobs.
	Tight bool
	// Gangs has some jobs of such a cell get the places of their tasks together: see gangJobs.
	Gangs bool
	// Picky has some jobs say more of where their tasks may be: see picks.
	Picky bool
	// MovesPerHour is the cell's bound for moves of running tasks, 0: what it has by itself.
	MovesPerHour int
	// EmptyBelow is the share of machines, in percent, below which they are emptied, 0: never.
	EmptyBelow int
	// EmptySome has the cell be followed after the calm until machines are emptied: see
	// World.EmptySome.
	EmptySome bool
	// Mutant plants a bug, nil: none.
	Mutant *Mutant
}

// Mutant is a bug planted at one of the seams between the cores and what they
// stand in. What is nil is as it should be.
type Mutant struct {
	Name   string
	Input  func(*control.Input)
	Output func(*control.Output)
	Writes func([]model.Write) []model.Write // of each commit
	Commit func(schema.Compiled) schema.Compiled
	Report func(*schema.Report)
	Since  func(time.Time) time.Time // when a master believes to have begun
	Early  bool                      // views are pushed before they are stored
}

// World is one cell and everything around it.
type World struct {
	cfg        Config
	now        time.Time // the true time
	turns      int
	clock      clock // of the master's host
	memory     *store.Memory
	master     *master   // nil while there is none
	frozen     *master   // one that does not know that it was replaced
	thawAt     time.Time // when frozen wakes up
	rival      *master   // one that was replaced, does not know it, and goes on
	rivalEnd   time.Time // when it sees that its lease has ended
	snapshots  []snapshot
	laterUntil time.Time // until then a later release leads
	masterAt   time.Time // when there is one again
	slow       time.Time // until then commits take slowCommit
	gone       time.Time // until then the store refuses all
	gitGone    time.Time // until then nobody sees a new head
	emptying   int       // tasks that were moved so that a machine is empty
	rebalanced int       // tasks that were moved for their own good
	machines   []*machine
	byName     map[string]*machine
	repo       *repository     // what random commits change
	head       schema.Compiled // the repository's newest commit
	past       []schema.Compiled
	versions   map[string]bool // of secrets, that there were

	history  strings.Builder
	broken   error    // the first invariant that did not hold
	violated []string // in this turn
	moved    bool     // the store has changed, or a generation was written down as ended, since the last check
	pids     int
	changes  map[ActionKind]func(*World, Action) bool
	doFault  map[ActionKind]func(*World, Action) bool
	txns     map[int]store.Fate // of transactions to come
	effects  map[ActionKind]int // how many actions had one
	faults   int                // of them, faults
	oracle   oracle
}

// New returns a cell with an empty repository.
func New(cfg Config) *World {
	if cfg.Mutant == nil {
		cfg.Mutant = &Mutant{}
	}
	w := &World{
		cfg: cfg, now: began, memory: store.NewMemory(), oracle: newOracle(), repo: newRepository(&cfg), changes: changes(), byName: map[string]*machine{}, doFault: faults(), txns: map[int]store.Fate{}, effects: map[ActionKind]int{}, versions: map[string]bool{},
	}
	w.memory.Hook(w.transaction)
	for i := range cfg.Machines {
		m := newMachine(i)
		if cfg.Late {
			m.agentAt = began.Add(time.Duration(i) * time.Second)
		}
		w.machines, w.byName[m.name] = append(w.machines, m), m
	}
	return w
}

// History returns what has happened so far.
func (w *World) History() string { return w.history.String() }

// note adds a line to the history.
func (w *World) note(format string, args ...any) {
	fmt.Fprintf(&w.history, "%s %s\n", w.now.Format("15:04:05.000"), fmt.Sprintf(format, args...))
}

// violate takes down that an invariant does not hold.
func (w *World) violate(format string, args ...any) {
	w.violated = append(w.violated, fmt.Sprintf(format, args...))
}

// judge ends a turn: of what was violated in it, the first by name is what is
// broken. Maps are looked through in any order, and a history has one.
func (w *World) judge() error {
	slices.Sort(w.violated)
	for _, v := range w.violated {
		w.note("VIOLATED: %s", v)
		if w.broken == nil {
			w.broken = errors.New(v)
		}
	}
	w.violated = nil
	return w.broken
}

// Commit makes packages the repository's head. A nil package is one that does
// not compile.
func (w *World) Commit(packages map[string]*schema.Package) {
	w.head = compiled(fmt.Sprintf("%040d", len(w.past)+1), packages)
	w.past = append(w.past, w.head)
	w.oracle.committed(w.head)
	w.takeVersions(&w.head)
	w.note("commit %d of %d packages", len(w.past), len(packages))
}

// KillMaster ends the master between two of its steps; false if there is none.
func (w *World) KillMaster() bool {
	if w.master == nil {
		return false
	}
	w.note("the master is killed")
	w.endMaster()
	return true
}

// Turn lets a tick of time pass for everybody and checks the invariants.
func (w *World) Turn() error {
	w.now = w.now.Add(tick)
	w.turns++
	w.turnMaster()
	w.thaw()
	w.turnRival()
	w.turnRelease()
	w.keepSnapshot()
	for _, m := range w.machines {
		w.sealAgain(m)
		w.turnMachine(m)
	}
	w.check()
	return w.judge()
}

// Status returns the cell as the master describes it, nil if there is none.
func (w *World) Status() *status.Status {
	if w.master == nil {
		return nil
	}
	in := w.master.Input(w.clock.read(w.now))
	s := status.Describe(status.DescribeInput{
		State: in.State, Desired: in.Desired, Observed: in.Observed, Last: *w.master.last, Head: w.head.Commit, Now: in.Now,
	})
	return &s
}
