package sim

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/musterhq/muster/reconciler"
	"github.com/musterhq/muster/reconciler/control"
	"github.com/musterhq/muster/reconciler/intent"
	"github.com/musterhq/muster/reconciler/loop"
	"github.com/musterhq/muster/reconciler/model"
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
	*reconciler.Master
	since      time.Time // by the world's time
	store      *store.Store
	state      *model.State              // of Master
	last       *control.Output           // of Master
	in         control.Input             // of the newest step
	wake       time.Time                 // when last wants a step, zero if never
	busy       time.Time                 // until then it waits for the store, or is stopped
	news       bool                      // something happened since the last step
	version    uint64                    // of the newest view
	epochs     map[string]uint64         // of the connected machines
	reported   map[string]*schema.Report // the last of each
	reportedAt map[string]time.Time      // and when
	sent       map[string]sentView       // what each was sent last
}

// turnMaster starts a master if there is none, or lets it receive, decide and
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
	w.endSessions()
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
	writes := control.Step(m.Input(now)).Writes
	if w.head.Commit != "" && w.head.Commit != m.state.Head.Commit { // it looks at git first
		writes, _ = reconciler.Adopt(m.state, intent.Of(m.state), w.head, now)
	}
	w.note("the frozen master wakes up and wants to write %d documents", len(writes))
	if batches := model.Batches(writes); len(batches) > 0 {
		if err := m.store.Commit(context.Background(), batches[0]); !errors.Is(err, store.ErrNotLeader) && !errors.Is(err, store.ErrInjected) {
			w.violate("a master that was replaced writes: %v", err)
		}
		return
	}
	views := model.Views(m.state)
	for _, machine := range w.machines {
		if epoch, ok := m.epochs[machine.name]; ok {
			m.version++
			view := views[machine.name]
			view.Epoch, view.Version = epoch, m.version
			w.sendView(machine, view)
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
	since := w.clock.read(w.now)
	if f := w.cfg.Mutant.Since; f != nil {
		since = f(since)
	}
	m, err := reconciler.NewMaster(reconciler.MasterConfig{Cell: cellName, JoinWait: control.DefaultJoinWait, Step: w.step, Parallel: lastFirst}, docs, since)
	if err != nil {
		return err
	}
	w.note("a master starts")
	w.master = &master{
		Master: m, since: w.now, store: s, state: m.State(), last: m.Last(), news: true,
		epochs: map[string]uint64{}, reported: map[string]*schema.Report{}, reportedAt: map[string]time.Time{}, sent: map[string]sentView{},
	}
	w.moved = true
	w.oracle.restarted(m.State())
	w.checkOnce(w.oracle.halfway)
	w.findParts(w.oracle.halfway)
	w.oracle.halfway = nil
	w.oracle.losses.load(m.State(), w.now, w.clock.ahead)
	w.oracle.findLater(docs)
	return nil
}

// lastFirst makes the calls that a master's workers would, in an order that they might.
func lastFirst(n int, do func(i int)) {
	for i := n - 1; i >= 0; i-- {
		do(i)
	}
}

// masterStep is what reconciler/loop does with a master, without its goroutines.
// It has it decide only when there is news or its time has come: when it sleeps
// though there is something to do, that is a bug.
func (w *World) masterStep() error {
	m := w.master
	for _, machine := range w.machines {
		w.hangUp(machine)
		if err := w.turnStranger(machine); err != nil {
			return err
		}
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
	if !m.news && (m.wake.IsZero() || w.now.Before(m.wake)) {
		w.checkAsleep()
		return nil
	}
	m.Decide()
	if err := w.carryOut(); err != nil {
		return err
	}
	if w.moved || w.turns%auditEvery == 0 {
		w.checkViews()
	}
	return nil
}

// hangUp notifies the master of a connection that has ended: also when its machine came
// back without its disk before the master could look.
func (w *World) hangUp(machine *machine) {
	m := w.master
	over := (machine.agent == nil || w.contested(machine)) && machine.open(w.now)
	if epoch, ok := m.epochs[machine.name]; ok && (machine.link.lost || over) {
		m.Leave(machine.name, epoch)
		delete(m.epochs, machine.name)
		delete(m.sent, machine.name)
		machine.link.in = slices.DeleteFunc(machine.link.in, func(l message) bool { return l.hello }) // its answer went with it
	}
}

// checkAsleep looks now and then whether a master that sleeps has something to do.
func (w *World) checkAsleep() {
	if w.turns%auditEvery != 0 || !w.master.wake.IsZero() && w.master.wake.Sub(w.now) <= searchAgain && w.gathers() {
		return
	}
	in := w.master.Input(w.clock.read(w.now))
	if f := w.cfg.Mutant.Input; f != nil {
		in.Desired = nil
		f(&in)
	}
	if out := control.Step(in); w.overdue(&out) {
		w.noteEvents(out.Events)
		w.violate("the master sleeps until %s, and has to write %s", w.master.wake.Format(time.DateTime), out.Writes[0].Key)
	}
}

// step is the master's, with the bugs that are planted around it.
func (w *World) step(in control.Input) control.Output {
	if f := w.cfg.Mutant.Input; f != nil {
		in.Desired, in.Memo = nil, nil // each step is shown another state
		f(&in)
	}
	w.master.in = in
	out := control.Step(in)
	if f := w.cfg.Mutant.Output; f != nil {
		f(&out)
	}
	return out
}

// adopt hands the master the repository's head if it is new, and git can be
// reached.
func (w *World) adopt() error {
	m := w.master
	if w.head.Commit == "" || w.head.Commit == m.state.Head.Commit || w.now.Before(w.gitGone) {
		return nil
	}
	head := w.head
	if f := w.cfg.Mutant.Commit; f != nil {
		head = f(head)
	}
	now := w.clock.read(w.now)
	m.Head(model.Seen{Commit: head.Commit}, now)
	m.Compiled(&head, now)
	m.news = m.news || !m.state.Suspended()
	return w.carryOut()
}

// carryOut does what the master wants done.
func (w *World) carryOut() error {
	m := w.master
	for {
		ready, more := m.Ready(w.clock.read(w.now))
		if !more {
			return nil
		}
		var err error
		switch {
		case ready.Adopts != "":
			err = w.adopts(&ready)
		case ready.Step:
			err = w.decides(&ready)
		default:
			err = w.does(&ready)
		}
		if err != nil {
			return err
		}
	}
}

// does stores, logs and pushes, as reconciler/loop does it.
func (w *World) does(ready *reconciler.Ready) error {
	if f := w.cfg.Mutant.Writes; f != nil {
		ready.Writes = f(ready.Writes)
	}
	w.checkPrefixes(ready.Writes)
	ready.Writes = w.later(ready.Writes)
	io := &masterIO{World: w}
	var err error
	if ready.Writes, err = io.cut(context.Background(), ready.Writes); err != nil {
		return err
	}
	return loop.CarryOut(context.Background(), &loop.Config{
		Cell: cellName, Store: io, Pusher: io, Events: io, Now: io.now, Settled: func(string, time.Duration) {},
	}, w.master.Master, ready)
}

// adopts has the repository's head come into force.
func (w *World) adopts(ready *reconciler.Ready) error {
	w.oracle.adopting(w.head)
	w.promoting()
	if err := w.does(ready); err != nil {
		return err
	}
	w.oracle.adopted(w.head.Commit)
	return nil
}

// decides stores what a step decided, and holds it against what is promised.
func (w *World) decides(ready *reconciler.Ready) error {
	m, in := w.master, w.master.in
	before, suspended := w.snap(), w.suspended()
	w.oracle.halfway = before
	w.oracle.seesClock(m)
	if w.cfg.Mutant.Early {
		if err := w.pushEarly(ready.Writes); err != nil {
			return err
		}
	}
	if err := w.does(ready); err != nil {
		return err
	}
	maps.DeleteFunc(m.epochs, func(name string, _ uint64) bool { return m.state.Machines[name] == nil })
	m.news, m.wake = false, time.Time{}
	if wake := m.Wake(); !wake.IsZero() { // as a timer is set
		m.wake = w.now.Add(wake.Sub(in.Now))
	}
	if in.Memo != nil && w.turns%auditEvery == 0 {
		if err := in.Memo.Audit(m.Input(in.Now)); err != nil {
			w.violate("%v", err)
		}
	}
	w.checkEvents(ready.Events, before, in.Now)
	w.checkDrains(before, suspended, in.Now)
	w.checkWaves(before, w.drains())
	w.checkRelief(before, suspended)
	w.checkSets(before)
	w.checkInside(before)
	w.checkConstraints(before)
	w.checkPlaced(before)
	w.checkSkew(before)
	w.checkHolds(before, in.Now)
	w.checkGangs(before)
	w.oracle.remember(m.last)
	w.checkOnce(before)
	w.oracle.halfway = nil
	w.checkRollouts(before, suspended)
	w.checkSuspended(suspended)
	w.checkRestarts(before)
	w.checkShares()
	w.checkForgotten(in.Now)
	w.checkWake(in)
	w.checkWaits(in.Now)
	return nil
}

// pushEarly is what no master does: it sends machines what is not stored yet.
func (w *World) pushEarly(writes []model.Write) error {
	docs, err := w.master.store.Load(context.Background())
	if err != nil {
		return err
	}
	s, err := model.Load(cellName, docs, nil)
	if err != nil {
		return err
	}
	if err := s.Apply(writes); err != nil {
		return err
	}
	views := model.Views(s)
	for _, machine := range w.machines {
		if epoch, ok := w.master.epochs[machine.name]; ok {
			w.master.version++
			view := views[machine.name]
			view.Epoch, view.Version = epoch, w.master.version
			w.sendView(machine, view)
		}
	}
	return nil
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
		if w.rivalReport(machine, l) {
			continue
		}
		if l.epoch != m.epochs[machine.name] {
			w.endSession(machine, l.epoch, w.now.Add(redial)) // it is over, as its machine gets to know
			continue
		}
		if err := w.report(machine, l.report); err != nil {
			return err
		}
	}
	return nil
}

func (w *World) report(machine *machine, r *schema.Report) error {
	m := w.master
	m.reported[machine.name], m.reportedAt[machine.name] = r, w.now
	w.oracle.reported[machine.name] = w.now
	w.checkEnds(machine, r)
	said := *r
	if f := w.cfg.Mutant.Report; f != nil {
		f(&said)
	}
	err := m.Report(machine.name, m.epochs[machine.name], said, w.clock.read(w.now))
	if err != nil {
		w.violate("%v", err)
	}
	m.news = m.news || m.News()
	return w.carryOut()
}

// join connects a machine anew.
func (w *World) join(machine *machine) error {
	m := w.master
	info := machine.info()
	info.Seen = machine.seen()
	epoch, err := m.Join(info, w.clock.read(w.now))
	if stored := w.carryOut(); stored != nil {
		return stored
	}
	m.news = true
	w.dropReport(machine.name)
	if err != nil {
		if !w.contested(machine) {
			w.violate("%v", err)
		}
		return nil
	}
	if epoch <= w.oracle.epochs[machine.name] {
		w.violate("machine %s was given epoch %d after %d", machine.name, epoch, w.oracle.epochs[machine.name])
	}
	w.oracle.epochs[machine.name], m.epochs[machine.name] = epoch, epoch
	w.oracle.joined[machine.name] = w.now
	w.toMachine(machine, message{hello: true, epoch: epoch})
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
