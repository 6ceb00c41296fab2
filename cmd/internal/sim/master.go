package sim

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"time"

	"github.com/musterhq/muster/reconciler"
	"github.com/musterhq/muster/reconciler/store"
	"github.com/musterhq/muster/schema"
)

const (
	slowCommit = 5 * time.Second // that a commit takes while the store is slow
	// auditEvery is how many turns lie between two looks at whether a master that
	// sleeps has something to do, and whether what it remembers is so.
	auditEvery = 16
)

// master is one life of a master: all of it is lost when it dies.
type master struct {
	since    time.Time // by the world's time
	store    *store.Store
	state    *reconciler.State
	observed *reconciler.Observed
	memo     *reconciler.Memo
	last     reconciler.Output
	wake     time.Time // when last wants a step, zero if never
	busy     time.Time // until then it waits for the store, or is stopped
	waits    time.Time // by its clock: when it began to wait for the store, zero if it does not
	news     bool      // something happened since the last step
	views    uint64
	epochs   map[string]uint64              // of the connected machines
	heard    map[string]*schema.Report      // the last of each
	heardAt  map[string]time.Time           // and when
	pushed   map[string][]schema.Assignment // the last view that each was sent
	changed  bool                           // the state has, since views were made
}

// turnMaster starts a master if there is none, or lets it hear, decide and
// write once.
func (w *World) turnMaster() {
	var err error
	switch {
	case w.master != nil && w.now.Before(w.master.busy):
		return
	case w.master != nil:
		err = w.masterStep()
	case w.now.Before(w.masterAt):
	default:
		err = w.startMaster()
	}
	if err == nil {
		return
	}
	// The memory's hook makes a transaction fail where a crash is wanted.
	if !errors.Is(err, store.ErrInjected) {
		w.violate("the master: %v", err)
	}
	w.note("the master dies at transaction %d: %v", w.memory.Transactions(), err)
	w.endMaster()
}

// endMaster leaves the cell without a master for a while.
func (w *World) endMaster() {
	w.hangUp()
	w.master, w.masterAt = nil, w.now.Add(masterDown)
}

// FreezeMaster stops the master's time for a while, so that another takes its
// place. Then it goes on as if nothing had been: see thaw. It returns false if
// there is none.
func (w *World) FreezeMaster(d time.Duration) bool {
	if w.master == nil {
		return false
	}
	w.note("the master is frozen for %s, and replaced", d)
	w.frozen, w.thawAt = w.master, w.now.Add(d)
	w.endMaster()
	return true
}

// thaw lets a frozen master finish its round: the store must refuse what it
// writes, and the agents what it says.
func (w *World) thaw() {
	m := w.frozen
	if m == nil || w.master == nil || w.now.Before(w.thawAt) {
		return
	}
	w.frozen = nil
	now := w.clock.read(w.now)
	writes := reconciler.Step(reconciler.Input{State: m.state, Observed: m.observed, Now: now, Seed: reconciler.Seed(cellName, m.state.Head.Commit)}).Writes
	if w.head.Commit != "" && w.head.Commit != m.state.Head.Commit { // it looks at git first
		writes, _ = reconciler.Adopt(m.state, w.head, now)
	}
	w.note("the frozen master wakes up and wants to write %d documents", len(writes))
	if batches := reconciler.Batches(writes); len(batches) > 0 {
		if err := m.store.Commit(context.Background(), batches[0]); !errors.Is(err, store.ErrNotLeader) && !errors.Is(err, store.ErrInjected) {
			w.violate("a master that was replaced writes: %v", err)
		}
		return
	}
	views := reconciler.Views(m.state)
	for _, machine := range w.machines {
		if epoch, ok := m.epochs[machine.name]; ok {
			m.views++
			w.toMachine(machine, letter{epoch: epoch, version: m.views, view: views[machine.name]})
		}
	}
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
	since := w.clock.read(w.now)
	if f := w.cfg.Mutant.Since; f != nil {
		since = f(since)
	}
	w.master = &master{
		since: w.now, store: s, state: state, observed: observing(since), memo: &reconciler.Memo{}, news: true, epochs: map[string]uint64{},
		heard: map[string]*schema.Report{}, heardAt: map[string]time.Time{}, pushed: map[string][]schema.Assignment{}, changed: true,
	}
	w.moved = true
	w.oracle.restarted(state)
	w.checkOnce(w.oracle.halfway)
	w.oracle.halfway = nil
	return nil
}

// observing returns what a master knows that begins to lead: one of machines that
// come over a network.
func observing(now time.Time) *reconciler.Observed {
	o := reconciler.NewObserved(now)
	o.JoinWait = reconciler.DefaultJoinWait
	return o
}

// masterStep is what reconciler/loop does in a round, without its goroutines.
// It steps only when there is news or its time has come: when it sleeps though
// there is something to do, that is a bug.
func (w *World) masterStep() error {
	m := w.master
	if !m.waits.IsZero() {
		m.observed.Waited(m.waits, w.clock.read(w.now))
		m.waits = time.Time{}
	}
	for _, machine := range w.machines {
		if err := w.listen(machine); err != nil {
			return err
		}
	}
	if err := w.adopt(); err != nil {
		return err
	}
	if w.now.Before(m.busy) {
		return nil // it waits for the store, and then decides
	}
	in := reconciler.Input{State: m.state, Observed: m.observed, Now: w.clock.read(w.now), Seed: reconciler.Seed(cellName, m.state.Head.Commit)}
	if f := w.cfg.Mutant.Input; f != nil {
		f(&in)
	}
	if !m.news && (m.wake.IsZero() || w.now.Before(m.wake)) {
		if w.turns%auditEvery == 0 {
			if out := reconciler.Step(in); len(out.Writes) > 0 { // without a memo: it is held against one
				w.noteEvents(out.Events)
				w.violate("the master sleeps until %s, and has to write %s", m.wake.Format(time.DateTime), out.Writes[0].Key)
			}
		}
		w.push(m.state)
		return nil
	}
	return w.decide(in)
}

// adopt takes the repository's head in if it is new, and git can be reached.
func (w *World) adopt() error {
	m := w.master
	if w.head.Commit == "" || w.head.Commit == m.state.Head.Commit || w.now.Before(w.gitGone) || m.state.Suspended() {
		return nil
	}
	head := w.head
	if f := w.cfg.Mutant.Commit; f != nil {
		head = f(head)
	}
	m.news = true
	writes, events := reconciler.Adopt(m.state, head, w.clock.read(w.now))
	w.oracle.adopting(w.head)
	w.promoting()
	if err := w.commit(writes); err != nil {
		return err
	}
	w.oracle.adopted(w.head.Commit)
	w.noteEvents(events)
	return nil
}

// decide steps, stores and pushes.
func (w *World) decide(in reconciler.Input) error {
	m := w.master
	before, suspended := w.snap(), w.suspended()
	w.oracle.halfway = before
	if err := w.awake(in.Now); err != nil {
		return err
	}
	if w.cfg.Mutant.Input == nil { // which shows each step another state
		in.Memo = m.memo
	}
	out := reconciler.Step(in)
	if f := w.cfg.Mutant.Output; f != nil {
		f(&out)
	}
	if w.cfg.Mutant.Early {
		if err := w.pushEarly(out.Writes); err != nil {
			return err
		}
	}
	if err := w.commit(out.Writes); err != nil {
		return err
	}
	m.last, m.news, m.wake = out, false, time.Time{}
	if !out.Wake.IsZero() { // as a timer is set
		m.wake = w.now.Add(out.Wake.Sub(in.Now))
	}
	if in.Memo != nil && w.turns%auditEvery == 0 {
		if err := m.memo.Audit(in); err != nil {
			w.violate("%v", err)
		}
	}
	w.noteEvents(out.Events)
	w.checkEvents(out.Events, before, in.Now)
	w.checkDrains(before, suspended, in.Now)
	w.checkOnce(before)
	w.oracle.halfway = nil
	w.checkTrials(before, suspended)
	w.checkGlass(suspended)
	w.checkRestarts(before)
	w.checkWake(in)
	w.checkWaits(in.Now)
	w.push(m.state)
	return nil
}

// awake has the master see by how much its clock was set forward.
func (w *World) awake(now time.Time) error {
	m := w.master
	if leap := m.observed.Awake(m.last.Wake, now); leap > 0 {
		writes, events := reconciler.SetForward(m.state, leap, now)
		if err := w.commit(writes); err != nil {
			return err
		}
		w.noteEvents(events)
	}
	w.oracle.seesClock(m)
	return nil
}

// pushEarly is what no master does: it tells machines what is not stored yet.
func (w *World) pushEarly(writes []reconciler.Write) error {
	docs, err := w.master.store.Load(context.Background())
	if err != nil {
		return err
	}
	s, err := reconciler.Load(cellName, docs)
	if err != nil {
		return err
	}
	if err := s.Apply(writes); err != nil {
		return err
	}
	w.push(s)
	return nil
}

// push sends each connected machine its view if it is not the one it has.
func (w *World) push(s *reconciler.State) {
	m := w.master
	if s == m.state && !m.changed {
		return
	}
	m.changed = s != m.state
	views := reconciler.Views(s)
	for _, machine := range w.machines {
		epoch, ok := m.epochs[machine.name]
		view := views[machine.name]
		if had, sent := m.pushed[machine.name]; !ok || sent && reflect.DeepEqual(had, view) {
			continue
		}
		m.views++
		m.pushed[machine.name] = view
		w.toMachine(machine, letter{epoch: epoch, version: m.views, view: view})
	}
}

// listen takes what a machine says: that it wants a session, or a report.
func (w *World) listen(machine *machine) error {
	m := w.master
	for _, l := range w.arrived(machine, &machine.link.out, machine.link.cutOut) {
		if l.hello {
			if err := w.join(machine); err != nil {
				return err
			}
			continue
		}
		if l.epoch != m.epochs[machine.name] {
			continue // of a session that is over
		}
		w.hear(machine, l.report)
	}
	return nil
}

func (w *World) hear(machine *machine, r *schema.Report) {
	m := w.master
	// A machine that is heard again after a while is news by itself.
	m.news = m.news || m.heard[machine.name] != r || w.now.Sub(m.heardAt[machine.name]) > 2*slowest+pullEvery
	m.heard[machine.name], m.heardAt[machine.name] = r, w.now
	w.oracle.heard[machine.name] = w.now
	w.checkEnds(machine, r)
	said := *r
	if f := w.cfg.Mutant.Report; f != nil {
		f(&said)
	}
	w.noteEvents(m.observed.Hear(said, w.clock.read(w.now)))
}

// join connects a machine anew.
func (w *World) join(machine *machine) error {
	m := w.master
	epoch, writes, events := reconciler.Join(m.state, machine.info(), w.clock.read(w.now))
	if err := w.commit(writes); err != nil {
		return err
	}
	w.noteEvents(events)
	m.observed.Join(machine.name, w.clock.read(w.now))
	if epoch <= w.oracle.epochs[machine.name] {
		w.violate("machine %s was given epoch %d after %d", machine.name, epoch, w.oracle.epochs[machine.name])
	}
	w.oracle.epochs[machine.name], m.epochs[machine.name] = epoch, epoch
	w.oracle.joined[machine.name] = w.now
	m.news, m.changed = true, true
	delete(m.pushed, machine.name)
	w.toMachine(machine, letter{hello: true, epoch: epoch})
	return nil
}

// commit stores writes as the loop does, in transactions as small as the world
// wants them; the memory's hook decides where the master dies.
func (w *World) commit(writes []reconciler.Write) error {
	if f := w.cfg.Mutant.Writes; f != nil {
		writes = f(writes)
	}
	if len(writes) > 0 && w.now.Before(w.slow) {
		w.master.busy, w.master.waits = w.now.Add(slowCommit), w.clock.read(w.now)
	}
	for len(writes) > 0 {
		n := len(writes)
		if w.cfg.Cut > 0 {
			n = min(n, w.cfg.Cut)
		}
		for _, batch := range reconciler.Batches(writes[:n]) {
			if err := w.master.store.Commit(context.Background(), batch); err != nil {
				return err
			}
			if err := w.master.state.Apply(batch); err != nil {
				return err
			}
		}
		writes = writes[n:]
		w.moved, w.master.changed = true, true
	}
	return nil
}

func (w *World) noteEvents(events []schema.Event) {
	for _, e := range events {
		if e.Cause == schema.CauseRebalance {
			w.rebalanced++
		}
		w.note("%s %s%s %s: %s", e.Kind, e.Job, strings.TrimPrefix(e.Task, e.Job), e.Machine, e.Message)
	}
}
