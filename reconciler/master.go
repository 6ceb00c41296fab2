package reconciler

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/musterhq/muster/placement/reserve"
	"github.com/musterhq/muster/reconciler/control"
	"github.com/musterhq/muster/reconciler/intent"
	"github.com/musterhq/muster/reconciler/model"
	"github.com/musterhq/muster/reconciler/sources"
	"github.com/musterhq/muster/reconciler/status"
	"github.com/musterhq/muster/schema"
)

// Master is a cell's master as a state machine: it takes what happened, and hands
// out what is to be done about it as data. It does no I/O and reads no clock, so
// that production, the simulation and the scripts run the same one.
//
// Whoever drives it calls an input (Join, Report, Head, ...) and, when there is
// news or Wake has come, Decide. After each of these it takes Ready until there is
// nothing more, carries each out in the order that Ready says, and calls Advance.
// An input that is given before panics: its decision would rest on a state that is
// not stored yet. Joins of several machines may be given together, see MayJoin.
//
// A Master belongs to one goroutine. Its shape is that of RawNode in
// go.etcd.io/raft.
type Master struct {
	cfg      MasterConfig
	state    *model.State
	observed *model.Observed
	wanted   intent.Cache
	memo     control.Memo
	last     control.Output

	out   Ready // handed out, or to be: see pending
	phase phase
	news  bool      // something happened that was not decided upon
	began time.Time // when out was handed out; zero before
	// joining are the names and ids of the machines whose joins are in out, with nothing
	// else being written.
	joining map[string]struct{}

	source model.Seen
	head   head
	waits  schema.JobName    // that kept head from having converged when that was last looked at
	looked *status.Describer // what was found out then, for the next commits, too
	// kept is the newest commit that came while the cell was suspended.
	kept *keptCommit

	epochs  map[string]uint64      // machines that are connected
	pushed  map[string]schema.View // last view that each was sent
	unsent  map[string]struct{}    // machines whose view may be another than they were sent
	viewSeq uint64
	// registries is what views say of them; nil before the first.
	registries *model.Registries

	desk sources.Desk

	reserved *reserve.Book // nil where nothing is reclaimed

	version uint64 // counts rounds: what a Status is a function of
}

// MasterConfig is what a Master is made with.
type MasterConfig struct {
	Cell string
	// LostAfter and JoinWait are those of Observed; 0 is DefaultLostAfter and not
	// at all.
	LostAfter, JoinWait time.Duration
	// Observed is what is known of the machines already, which is the master's from then on;
	// nil: nothing is.
	Observed *model.Observed
	// Describer finds out whether a commit has converged: one that is shared, and that the owner
	// of the master has describe the cell. nil: one of the master's own.
	Describer *status.Describer
	// Parallel is that of control.Input. It also spreads what a master begins with: reading
	// documents, and the digests of jobs.
	Parallel func(n int, do func(i int))
	// Step decides; nil is the package's own. The simulation plants bugs here.
	Step func(control.Input) control.Output
}

// Ready is what a Master wants done: first the writes are stored, in order and
// each batch of Batches at once, calling Stored for each; the events are of these
// writes, and published when they are stored; then the views are pushed.
type Ready struct {
	Writes []model.Write
	Events []schema.Event
	// Adopts is the commit that the writes bring into force, "" if they are of
	// something else.
	Adopts string
	// Step says that this is what a step decided, whose reasons Last has.
	Step  bool
	Views []View
	// Converged is set when the newest commit has converged.
	Converged *Convergence
}

// empty reports whether there is nothing to do.
func (r *Ready) empty() bool {
	return len(r.Writes) == 0 && len(r.Events) == 0 && !r.Step && len(r.Views) == 0 && r.Converged == nil
}

// View is what a machine is sent, in the session that has its epoch and in no other. The
// versions of all views of a master grow.
type View struct {
	Machine string
	schema.View
}

// Convergence is a commit that all runs as it says, and how long that took since
// it was seen.
type Convergence struct {
	Commit string
	Took   time.Duration
}

// phase is what comes next in a round.
type phase int

const (
	idle phase = iota
	adopting
	stepping
	sending
)

// NewMaster returns a master that begins to lead at now with what is stored. It
// errs when a document cannot be read.
func NewMaster(cfg MasterConfig, docs map[string][]byte, now time.Time) (*Master, error) {
	state, err := model.Load(cfg.Cell, docs, cfg.Parallel)
	if err != nil {
		return nil, fmt.Errorf("load cell %s: %w", cfg.Cell, err)
	}
	return NewMasterOf(cfg, state, now), nil
}

// NewMasterOf returns a master that begins to lead at now with what is stored, which is the
// master's from then on: it changes when something is Stored.
func NewMasterOf(cfg MasterConfig, state *model.State, now time.Time) *Master {
	if cfg.Step == nil {
		cfg.Step = control.Step
	}
	m := &Master{
		cfg: cfg, state: state, observed: cfg.Observed, wanted: intent.Cache{Parallel: cfg.Parallel}, looked: cfg.Describer, head: head{commit: state.Head.Commit, reported: true},
		epochs: map[string]uint64{}, pushed: map[string]schema.View{}, unsent: map[string]struct{}{}, joining: map[string]struct{}{},
	}
	if m.observed == nil {
		m.observed = model.NewObserved(now)
	}
	if m.looked == nil {
		m.looked = new(status.Describer)
	}
	m.observed.LostAfter, m.observed.JoinWait = cmp.Or(cfg.LostAfter, model.DefaultLostAfter), cfg.JoinWait
	m.addEvents([]schema.Event{{At: now, Kind: schema.EventMaster, Commit: state.Head.Commit, Message: "a master leads the cell"}})
	return m
}

// State is what is stored. It must not be written to.
func (m *Master) State() *model.State { return m.state }

// Observed is what the cell's agents have said. It must not be written to.
func (m *Master) Observed() *model.Observed { return m.observed }

// Last is what the newest step decided.
func (m *Master) Last() *control.Output { return &m.last }

// Wake is when Decide is to be called though there is no news, zero if never.
func (m *Master) Wake() time.Time { return m.last.Wake }

// addEvents adds events to the Ready.
func (m *Master) addEvents(events []schema.Event) { m.out.Events = append(m.out.Events, events...) }

// change hands a change out. What the change before wrote must be stored.
func (m *Master) change(writes []model.Write, events []schema.Event) {
	m.mustBeStored()
	m.news = true
	m.out.Writes = writes
	m.addEvents(events)
}

// mustBeStored panics when what was decided is not stored yet.
func (m *Master) mustBeStored() {
	if len(m.out.Writes) > 0 {
		panic("reconciler: an input before what was Ready is stored")
	}
}

// News reports whether something has happened since Decide that there may be anything to
// decide by.
func (m *Master) News() bool { return m.news }

// Decide begins a round.
func (m *Master) Decide() {
	m.mustBeStored()
	m.phase = adopting
}

// Ready hands out what is to be done next, or false if there is nothing.
func (m *Master) Ready(now time.Time) (Ready, bool) {
	for m.out.empty() && m.phase != idle {
		m.next(now)
	}
	m.began = now
	return m.out, !m.out.empty()
}

// Stored says that the store has a batch of what was Ready. It errs when the
// state does not take it, which is a bug.
func (m *Master) Stored(batch []model.Write) error {
	was := model.ChunksOf(m.state, batch)
	if err := m.state.Apply(batch); err != nil {
		return fmt.Errorf("cell %s: %w", m.cfg.Cell, err)
	}
	was.Affected(m.state, m.unsent)
	m.disconnect(batch)
	return nil
}

// disconnect ends the sessions of machines that are forgotten: what one reports in
// its session is refused, so that it joins again.
func (m *Master) disconnect(batch []model.Write) {
	for i := range batch {
		if name, ok := strings.CutPrefix(batch[i].Key, model.KeyMachine); ok && batch[i].Value == nil {
			delete(m.epochs, name)
			delete(m.pushed, name)
		}
	}
}

// Advance says that what was Ready is done by now.
func (m *Master) Advance(now time.Time) {
	if len(m.out.Writes) > 0 {
		m.observed.Waited(m.began, now)
	}
	m.out = Ready{}
	clear(m.joining)
}

// next goes one step on in a round: it adopts what waited, decides, and sends views to the
// machines when that is stored.
func (m *Master) next(now time.Time) {
	switch m.phase {
	case adopting:
		m.phase = stepping
		if m.kept != nil && !m.state.Suspended() {
			m.adopt(m.kept.commit, now, &schema.EventDelay{Seconds: now.Sub(m.kept.since).Seconds()})
		}
	case stepping:
		if jump := m.observed.OnResume(m.last.Wake, now); jump > 0 {
			m.change(control.SetForward(m.state, jump, now))
			return
		}
		m.phase = sending
		m.last = m.cfg.Step(m.input(now))
		m.change(m.last.Writes, m.last.Events)
		m.out.Step = true
	case sending:
		m.phase, m.news = idle, false
		m.version++
		m.out.Views = m.push()
		m.out.Converged = m.convergence(now)
	case idle:
	}
}

// push returns the views of the connected machines that do not have theirs, by name.
// It looks only at machines that have joined, or of which a chunk was written, and at all when
// something has changed that is said of registries.
func (m *Master) push() []View {
	if m.state.Recovering() {
		return nil
	}
	var news bool
	if m.registries, news = model.RegistriesOf(m.state, m.registries); news {
		for machine := range m.epochs {
			m.unsent[machine] = struct{}{}
		}
	}
	var out []View
	for _, machine := range slices.Sorted(maps.Keys(m.unsent)) {
		if m.state.Restored != nil && !m.observed.HasReported(machine) {
			continue // it may hold what must be taken over first
		}
		delete(m.unsent, machine)
		epoch, connected := m.epochs[machine]
		if !connected {
			continue // it gets its view when it joins
		}
		view := model.View(m.state, machine, m.registries)
		if had, ok := m.pushed[machine]; ok && model.SameView(had, view) {
			continue
		}
		m.viewSeq++
		view.Epoch, view.Version = epoch, m.viewSeq
		m.pushed[machine] = view
		out = append(out, View{machine, view})
	}
	return out
}

// convergence returns that the newest commit has converged, once.
func (m *Master) convergence(now time.Time) *Convergence {
	if m.head.reported || m.state.Head.Commit != m.head.commit {
		return nil
	}
	if m.head.reported, m.waits = m.looked.Converged(m.described(now), m.waits); !m.head.reported {
		return nil
	}
	return &Convergence{m.head.commit, now.Sub(m.head.seen)}
}

// Snapshot returns what a status of the cell at now is a function of. It is the caller's,
// also in another goroutine: no input changes it.
func (m *Master) Snapshot(now time.Time) status.DescribeInput {
	in := m.described(now)
	in.State, in.Observed = in.State.Snapshot(), in.Observed.Snapshot()
	if m.reserved != nil { // which samples change
		in.Reserved = m.reserved.Clone()
	}
	return in
}

// Input is what a step would be given at now that goes without what was found out
// before.
func (m *Master) Input(now time.Time) control.Input {
	return control.Input{State: m.state, Desired: m.desired(), Observed: m.observed, Now: now, Seed: control.Seed(m.cfg.Cell, m.state.Head.Commit)}
}

// input is Input with what was found out before.
func (m *Master) input(now time.Time) control.Input {
	in := m.Input(now)
	in.Memo, in.Parallel = &m.memo, m.cfg.Parallel
	return in
}

// NoPreempt has no task make room for another one from now on, as for a question of what
// has room.
func (m *Master) NoPreempt() { m.inputs(func(in *control.Input) { in.NoPreempt = true }) }

// NoMoves has no task be moved by choice from now on: see control.Input.
func (m *Master) NoMoves() { m.inputs(func(in *control.Input) { in.NoMoves = true }) }

// Policy has tasks be placed by another policy than the default from now on, as for a question
// of what it is worth: see placement.Policy.
func (m *Master) Policy(name string) {
	m.inputs(func(in *control.Input) { in.Policy = name })
}

// Reclaim has tasks below production be placed from now on in what those that run are estimated not
// to need, by what Usage is given: without it all that they ask for is held back.
func (m *Master) Reclaim() {
	m.reserved = &reserve.Book{}
	m.inputs(func(in *control.Input) { in.Reserved = m.reserved })
}

// inputs has what steps decide by be changed from now on.
func (m *Master) inputs(change func(*control.Input)) {
	step := m.cfg.Step
	m.cfg.Step = func(in control.Input) control.Output {
		change(&in)
		return step(in)
	}
}

// desired is what is desired by what is stored.
func (m *Master) desired() *intent.Desired { return m.wanted.Of(m.state) }

// described is what a Status is a function of.
func (m *Master) described(now time.Time) status.DescribeInput {
	return status.DescribeInput{State: m.state, Desired: m.desired(), Observed: m.observed, Last: m.last, Head: m.head.commit, Source: m.source, Trouble: m.trouble(), Now: now, Version: m.version}
}

// trouble says what keeps the newest commit from being read, nil if nothing does.
func (m *Master) trouble() error { return cmp.Or(m.source.Trouble, m.head.compileErr) }
