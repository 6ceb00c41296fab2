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

// master is one life of a master: all of it is lost when it dies.
type master struct {
	since    time.Time
	store    *store.Store
	state    *reconciler.State
	observed *reconciler.Observed
	memo     *reconciler.Memo
	last     reconciler.Output
	news     bool // something happened since the last step
	views    uint64
	epochs   map[string]uint64              // of the connected machines
	heard    map[string]schema.Report       // the last of each
	heardAt  map[string]time.Time           // and when
	pushed   map[string][]schema.Assignment // the last view that each was sent
}

// turnMaster starts a master if there is none, or lets it hear, decide and
// write once.
func (w *World) turnMaster() {
	var err error
	switch {
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
	w.note("the master dies at transaction %d", w.memory.Transactions())
	w.master, w.masterAt = nil, w.now.Add(masterDown)
}

// FreezeMaster stops the master's time, so that another takes its place. It
// wakes up after that and goes on as if nothing had been: see thaw. It returns
// false if there is none.
func (w *World) FreezeMaster() bool {
	if w.master == nil {
		return false
	}
	w.note("the master is frozen")
	w.frozen, w.master, w.masterAt = w.master, nil, w.now.Add(masterDown)
	return true
}

// thaw lets a frozen master finish its round: the store must refuse what it
// writes, and the agents what it says.
func (w *World) thaw() {
	m := w.frozen
	if m == nil || w.master == nil || w.rng.IntN(8) != 0 {
		return
	}
	w.frozen = nil
	out := reconciler.Step(reconciler.Input{State: m.state, Observed: m.observed, Now: w.now, Seed: reconciler.Seed(cellName, m.state.Head.Commit)})
	w.note("the frozen master wakes up and wants to write %d documents", len(out.Writes))
	if batches := reconciler.Batches(out.Writes); len(batches) > 0 {
		if err := m.store.Commit(context.Background(), batches[0]); !errors.Is(err, store.ErrNotLeader) && !errors.Is(err, store.ErrInjected) {
			w.violate("a master that was replaced writes: %v", err)
		}
		return
	}
	views := reconciler.Views(m.state)
	for _, machine := range w.machines {
		if epoch, ok := m.epochs[machine.name]; ok {
			m.views++
			machine.inbox = append(machine.inbox, letter{w.underway(), epoch, m.views, views[machine.name]})
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
	since := w.now
	if f := w.cfg.Mutant.Since; f != nil {
		since = f(since)
	}
	w.master = &master{
		since: w.now, store: s, state: state, observed: reconciler.NewObserved(since), memo: &reconciler.Memo{}, news: true, epochs: map[string]uint64{},
		heard: map[string]schema.Report{}, heardAt: map[string]time.Time{}, pushed: map[string][]schema.Assignment{},
	}
	w.oracle.restarted(state)
	return nil
}

// masterStep is what reconciler/loop does in a round, without its goroutines.
// It steps only when there is news or its time has come: when it sleeps though
// there is something to do, that is a bug.
func (w *World) masterStep() error {
	m := w.master
	for _, machine := range w.machines {
		if err := w.listen(machine); err != nil {
			return err
		}
	}
	if err := w.adopt(); err != nil {
		return err
	}
	in := reconciler.Input{State: m.state, Observed: m.observed, Now: w.now, Seed: reconciler.Seed(cellName, m.state.Head.Commit)}
	if f := w.cfg.Mutant.Input; f != nil {
		f(&in)
	}
	if !m.news && (m.last.Wake.IsZero() || w.now.Before(m.last.Wake)) {
		if out := reconciler.Step(in); len(out.Writes) > 0 { // without a memo: it is held against one
			w.violate("the master sleeps until %s, and has to write %s", m.last.Wake, out.Writes[0].Key)
		}
		w.push(m.state)
		return nil
	}
	return w.decide(in)
}

// adopt takes the repository's head in if it is new.
func (w *World) adopt() error {
	m := w.master
	if w.head.Commit == "" || w.head.Commit == m.state.Head.Commit {
		return nil
	}
	head := w.head
	if f := w.cfg.Mutant.Commit; f != nil {
		head = f(head)
	}
	m.news = true
	writes, events := reconciler.Adopt(m.state, head, w.now)
	w.oracle.adopting(w.head)
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
	before := w.standings()
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
	m.last, m.news = out, false
	if in.Memo != nil {
		if err := m.memo.Audit(in); err != nil {
			w.violate("%v", err)
		}
	}
	w.noteEvents(out.Events)
	w.checkEvents(out.Events, before)
	w.push(m.state)
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
	views := reconciler.Views(s)
	for _, machine := range w.machines {
		epoch, ok := m.epochs[machine.name]
		view := views[machine.name]
		if had, sent := m.pushed[machine.name]; !ok || sent && reflect.DeepEqual(had, view) {
			continue
		}
		m.views++
		m.pushed[machine.name] = view
		machine.inbox = append(machine.inbox, letter{w.underway(), epoch, m.views, view})
	}
}

// listen takes a machine's report, after its join if it is not connected.
func (w *World) listen(machine *machine) error {
	m := w.master
	if machine.silent || machine.agentDown {
		return nil
	}
	if epoch, ok := m.epochs[machine.name]; !ok || epoch != machine.epoch || !machine.connected {
		return w.join(machine)
	}
	if machine.outbox == nil || w.now.Before(machine.outbox.due) {
		return nil
	}
	r := machine.outbox.report
	machine.outbox = nil
	if f := w.cfg.Mutant.Report; f != nil {
		f(&r)
	}
	was, known := m.heard[machine.name]
	// A machine that is heard again after a while is news by itself.
	m.news = m.news || !known || !reflect.DeepEqual(was, r) || w.now.Sub(m.heardAt[machine.name]) > 2*slowest
	m.heard[machine.name], m.heardAt[machine.name] = r, w.now
	w.oracle.heard[machine.name] = w.now
	w.noteEvents(m.observed.Hear(r, w.now))
	return nil
}

// join connects a machine anew.
func (w *World) join(machine *machine) error {
	m := w.master
	epoch, writes, events := reconciler.Join(m.state, machine.info(), w.now)
	if err := w.commit(writes); err != nil {
		return err
	}
	w.noteEvents(events)
	if epoch <= machine.epoch {
		w.violate("machine %s was given epoch %d after %d", machine.name, epoch, machine.epoch)
	}
	machine.epoch, m.epochs[machine.name] = epoch, epoch
	machine.connected, machine.outbox, m.news = true, nil, true
	delete(m.pushed, machine.name)
	return nil
}

// commit stores writes as the loop does, in transactions as small as the world
// wants them; the memory's hook decides where the master dies.
func (w *World) commit(writes []reconciler.Write) error {
	if f := w.cfg.Mutant.Writes; f != nil {
		writes = f(writes)
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
	}
	return nil
}

func (w *World) noteEvents(events []schema.Event) {
	for _, e := range events {
		w.note("%s %s%s %s: %s", e.Kind, e.Job, strings.TrimPrefix(e.Task, e.Job), e.Machine, e.Message)
	}
}
