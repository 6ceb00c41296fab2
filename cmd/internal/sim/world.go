package sim

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/musterhq/muster/reconciler"
	"github.com/musterhq/muster/reconciler/store"
	"github.com/musterhq/muster/schema"
)

// The simulated time.
const (
	tick       = 250 * time.Millisecond // between two turns of everybody
	masterDown = 2 * time.Second        // from a master's death to the next one's start
	agentDown  = 1 * time.Second
)

// cellName is the cell of every world.
const cellName = "sim"

// World is one cell and everything around it.
type World struct {
	rng      *rand.Rand
	now      time.Time
	memory   *store.Memory
	master   *master // nil while there is none
	masterAt time.Time
	machines []*machine
	head     schema.Compiled // the repository's newest commit
	commits  int

	history  strings.Builder
	finished map[schema.TaskName]bool // batch indices of which a run exited 0
	killed   map[int]string           // why each process that did not end by itself did
	pids     int
	broken   error // the first invariant that did not hold
}

// master is one life of a master: all of it is lost when it dies.
type master struct {
	store    *store.Store
	state    *reconciler.State
	observed *reconciler.Observed
	last     reconciler.Output
	views    uint64
	epochs   map[string]uint64 // of the connected machines
}

// New returns a cell of n machines with an empty repository.
func New(seed uint64, n int) *World {
	w := &World{
		rng: rand.New(rand.NewPCG(seed, 0)), //nolint:gosec // a simulation wants what can be repeated
		now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), memory: store.NewMemory(),
		finished: map[schema.TaskName]bool{}, killed: map[int]string{},
	}
	for i := range n {
		w.machines = append(w.machines, newMachine(fmt.Sprintf("m%d", i)))
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
	err := fmt.Errorf(format, args...)
	w.note("VIOLATED: %v", err)
	if w.broken == nil {
		w.broken = err
	}
}

// Commit makes packages the repository's head. A nil package is one that does
// not compile.
func (w *World) Commit(packages map[string]*schema.Package) {
	w.commits++
	w.head = compiled(fmt.Sprintf("%040d", w.commits), packages)
	w.note("commit %d of %d packages", w.commits, len(packages))
}

// KillMaster ends the master between two of its steps.
func (w *World) KillMaster() {
	if w.master != nil {
		w.note("the master is killed")
		w.master, w.masterAt = nil, w.now.Add(masterDown)
	}
}

// Turn lets a tick of time pass for everybody and checks the invariants.
func (w *World) Turn() error {
	w.now = w.now.Add(tick)
	w.turnMaster()
	for _, m := range w.machines {
		w.turnMachine(m)
	}
	w.check()
	return w.broken
}

// turnMaster starts a master if there is none, or lets it hear, decide and
// write once.
func (w *World) turnMaster() {
	if w.master == nil {
		if w.now.Before(w.masterAt) {
			return
		}
		if err := w.startMaster(); err != nil {
			w.crashed(err)
		}
		return
	}
	if err := w.masterStep(); err != nil {
		w.crashed(err)
	}
}

// crashed ends a master whose store refused a transaction, as the memory's
// hook makes it do where a crash is wanted.
func (w *World) crashed(err error) {
	if !errors.Is(err, store.ErrInjected) {
		w.violate("the master: %v", err)
	}
	w.note("the master dies at transaction %d", w.memory.Transactions())
	w.master, w.masterAt = nil, w.now.Add(masterDown)
}

func (w *World) startMaster() error {
	ctx := context.Background()
	s, err := w.memory.Open(cellName)
	if err != nil {
		return err
	}
	if err := s.Campaign(ctx, fmt.Sprintf("master at %s", w.now)); err != nil {
		return err
	}
	docs, err := s.Load(ctx)
	if err != nil {
		return err
	}
	state, err := reconciler.Load(cellName, docs)
	if err != nil {
		return err
	}
	w.note("a master starts")
	w.master = &master{store: s, state: state, observed: reconciler.NewObserved(w.now), epochs: map[string]uint64{}}
	return nil
}

// masterStep is what reconciler/loop does in a round, without its goroutines.
func (w *World) masterStep() error {
	m := w.master
	for _, machine := range w.machines {
		if err := w.listen(machine); err != nil {
			return err
		}
	}
	if w.head.Commit != "" && w.head.Commit != m.state.Head.Commit {
		writes, events := reconciler.Adopt(m.state, w.head, w.now)
		if err := w.commit(writes); err != nil {
			return err
		}
		w.noteEvents(events)
	}
	out := reconciler.Step(reconciler.Input{State: m.state, Observed: m.observed, Now: w.now, Seed: reconciler.Seed(cellName, m.state.Head.Commit)})
	if err := w.commit(out.Writes); err != nil {
		return err
	}
	w.noteEvents(out.Events)
	m.last = out
	views := reconciler.Views(m.state)
	for _, machine := range w.machines {
		if epoch, ok := m.epochs[machine.name]; ok && !machine.silent {
			m.views++
			machine.assign(epoch, m.views, views[machine.name])
		}
	}
	return nil
}

// listen takes a machine's report, after its join if it is new to this master.
func (w *World) listen(machine *machine) error {
	m := w.master
	if machine.silent || machine.agentDown {
		return nil
	}
	if epoch, ok := m.epochs[machine.name]; !ok || epoch != machine.epoch {
		epoch, writes, events := reconciler.Join(m.state, machine.info(), w.now)
		if err := w.commit(writes); err != nil {
			return err
		}
		w.noteEvents(events)
		if epoch <= machine.epoch {
			w.violate("machine %s was given epoch %d after %d", machine.name, epoch, machine.epoch)
		}
		machine.epoch, m.epochs[machine.name] = epoch, epoch
	}
	w.noteEvents(m.observed.Hear(machine.report(w.now), w.now))
	return nil
}

// commit stores writes as the loop does; the memory's hook decides where the
// master dies.
func (w *World) commit(writes []reconciler.Write) error {
	for _, batch := range reconciler.Batches(writes) {
		if err := w.master.store.Commit(context.Background(), batch); err != nil {
			return err
		}
		if err := w.master.state.Apply(batch); err != nil {
			return err
		}
	}
	return nil
}

func (w *World) noteEvents(events []schema.Event) {
	for _, e := range events {
		w.note("%s %s%s %s: %s", e.Kind, e.Job, strings.TrimPrefix(e.Task, e.Job), e.Machine, e.Message)
	}
}

// Status returns the cell as the master describes it, nil if there is none.
func (w *World) Status() *reconciler.Status {
	if w.master == nil {
		return nil
	}
	s := reconciler.Describe(reconciler.DescribeInput{
		State: w.master.state, Observed: w.master.observed, Last: w.master.last, Head: w.head.Commit, Now: w.now,
	})
	return &s
}
