package loop

import (
	"context"
	"path/filepath"
	"time"

	"github.com/musterhq/muster/nodeagent"
	"github.com/musterhq/muster/nodeagent/durable"
	"github.com/musterhq/muster/nodeagent/trash"
	"github.com/musterhq/muster/schema"
)

// owner has the agent and what it holds in its hands, touched by Run's goroutine alone.
// It carries out what the agent wants done, and passes it the results.
type owner struct {
	*Loop
	agent   *nodeagent.Agent
	disk    *disk
	metrics *metrics
	journal journal
	loader  *loader
	starter *starter
	emptied chan struct{} // the trash was emptied

	processes map[schema.TaskRef]Process // that run
	execs     map[schema.TaskRef]int     // commands that run beside them
	prober    *prober
	bringer   *bringer
	identity  identity
	idUnsaved bool // the disk has refused identity
	scrubs    scrubs
	stopped   []chan struct{} // closed when all tasks have been stopped
}

// newOwner makes the owner of l of what the state directory has.
func newOwner(ctx context.Context, l *Loop) error {
	cfg := &l.cfg
	docs := durable.Documents{Old: !durable.Current(cfg.Dir), Report: cfg.Damages.Report}
	o := &owner{
		Loop: l, emptied: make(chan struct{}, 1), execs: map[schema.TaskRef]int{}, prober: newProber(l), bringer: newBringer(l),
		disk: &disk{root: filepath.Clean(cfg.Dir), lock: cfg.Lock, docs: docs, step: cfg.Step, ballast: openBallast(filepath.Join(cfg.Dir, ballastDir), cfg.BallastBytes)},
	}
	defer func() {
		if l.owner == nil {
			_ = o.disk.close()
		}
	}()
	if err := o.load(ctx); err != nil {
		return err
	}
	l.owner = o
	o.publishInfo()
	l.report.Store(o.agent.Report())
	o.metrics.observe(o.agent.Report(), o.agent.Memory().Epoch)
	return nil
}

// load reads the state directory, and makes the agent of what is there.
func (o *owner) load(ctx context.Context) error {
	d, cfg := o.disk, &o.cfg
	if err := d.clear(filepath.Join(d.root, trashDir)); err != nil {
		return err
	}
	var err error
	if d.trash, err = trash.Open(trash.Config{Dir: filepath.Join(cfg.Dir, trashDir), Log: cfg.Log, Emptied: o.noteEmptied}); err != nil {
		return err
	}
	now, err := identity{Hardware: cfg.Hardware}.at(cfg.Dir, cfg.Machine.Boot)
	if err != nil {
		return err
	}
	var whole bool
	if o.identity, whole, err = d.identify(cfg.Log.With("machine", cfg.Machine.Name), now); err != nil {
		return err
	}
	if !whole {
		o.keepIdentity()
	}
	o.loader = &loader{disk: d, runtime: cfg.Runtime, log: cfg.Log, machine: cfg.Machine.Name}
	found, processes, err := o.loader.load(ctx)
	if err != nil {
		return err
	}
	if o.metrics, err = newMetrics(cfg.Metrics); err != nil {
		return err
	}
	o.journal = journal{cfg.Log, o.metrics}
	info := cfg.Machine
	info.ID, found.Refused = o.identity.ID, o.identity.Refused
	o.processes = processes
	findNetworks(cfg.Networks, found.Tasks, cfg.Log)
	o.starter = &starter{disk: d, runtime: cfg.Runtime, networks: cfg.Networks, free: make(chan struct{}, parallelStarts)}
	o.agent = nodeagent.NewAgent(nodeagent.AgentConfig{
		Cell: cfg.Cell, Machine: info, Limits: cfg.Limits, LookEvery: cfg.LookEvery, DiskEvery: cfg.DiskEvery, UnlistWithin: cfg.UnlistWithin, UnlistUnlinked: cfg.UnlistUnlinked, Listing: cfg.Listing,
	}, found, time.Now())
	if err := o.finishUpgrade(); err != nil {
		cfg.Log.Error("cannot write down that all files have checksums; the next start does", "err", err)
	}
	return nil
}

// noteEmptied is called by the trash when it has removed what it can.
func (o *owner) noteEmptied() {
	select {
	case o.emptied <- struct{}{}:
	default:
	}
}

// takeEmptied takes that the trash is empty, but for what cannot be removed.
func (o *owner) takeEmptied() {
	busy, stuck := o.disk.trash.Status()
	o.metrics.stuck.Set(float64(stuck))
	o.agent.Emptied(busy)
}

// turn has the agent decide, carries that out until there is nothing more to do now,
// and returns when to wake.
func (o *owner) turn(ctx context.Context) time.Time {
	if found := o.cfg.Damages.take(); len(found) > 0 {
		o.metrics.damaged.Add(float64(len(found)))
		o.agent.Condition(schema.DamagedState, nodeagent.Bad, o.cfg.Damages.describe(found), time.Now())
	}
	o.agent.Decide()
	o.carryOut(ctx)
	return o.agent.Wake()
}

// carryOut does what the agent wants done.
func (o *owner) carryOut(ctx context.Context) {
	for {
		if busy, _ := o.disk.trash.Status(); busy {
			o.agent.Removing()
		}
		ready, more := o.agent.Ready(time.Now())
		if !more {
			return
		}
		o.log(ready.Log)
		for _, r := range ready.Reread {
			o.reread(ctx, r)
		}
		o.store(ready.Writes)
		o.look(ctx, &ready)
		if ready.Action != nil {
			o.act(ctx, ready.Action, len(ready.Writes) > 0)
		}
		if ready.Sticky != nil {
			o.keepSticky(*ready.Sticky)
		}
		if ready.Turn != nil {
			o.endTurn(ctx, ready.Turn)
		}
	}
}

// log logs the agent's events.
func (o *owner) log(events []nodeagent.LogEntry) {
	for i := range events {
		o.journal.entry(&events[i], o.agent)
	}
}

// endTurn publishes what has come of a turn, and has measured what is to be.
func (o *owner) endTurn(ctx context.Context, t *nodeagent.Turn) {
	o.prober.set(ctx, t.Checks, o.processes)
	o.metrics.observe(t.Report, o.agent.Memory().Epoch)
	o.report.Store(t.Report)
	if t.News {
		o.cfg.Hint()
	}
	if t.Stopped {
		for _, c := range o.stopped {
			close(c)
		}
		o.stopped = nil
	}
	if t.Ports {
		o.scan(ctx)
	}
	o.bringer.turn(ctx, t, func(name string, after time.Time, err error) { o.agent.Brought(name, err, after, time.Now()) })
	o.readLines(ctx, t.Lines)
	o.measureCPU(ctx, t.CPU)
	cpu, disk := o.agent.Bounds()
	o.metrics.bound.Set(float64(cpu))
	o.metrics.ioBound.Set(float64(disk))
}

// publishInfo makes what the agent says of the machine what Info returns.
func (o *owner) publishInfo() {
	info := o.agent.Info()
	o.info.Store(&info)
}

func (o *owner) welcome(epoch uint64) error {
	if err := o.agent.Welcome(epoch, time.Now()); err != nil {
		return err
	}
	o.publishInfo()
	o.keep()
	if o.idUnsaved {
		o.keepIdentity()
	}
	return nil
}

func (o *owner) assign(v *schema.View) error {
	if err := o.agent.Assign(v, time.Now()); err != nil {
		return err
	}
	o.keep()
	return nil
}

func (o *owner) refuse() {
	if o.agent.Refuse() {
		o.cfg.Log.Warn("another agent has the name of this machine: nothing is started here, and what runs goes on", "machine", o.cfg.Machine.Name, "id", o.identity.ID)
		o.keep()
	}
}

// keep writes down what an input has changed, before that is answered.
func (o *owner) keep() {
	if ready, more := o.agent.Ready(time.Now()); more {
		o.log(ready.Log)
		o.store(ready.Writes)
	}
}

// store makes documents durable.
func (o *owner) store(writes []nodeagent.Write) {
	for _, w := range writes {
		err := o.storeOne(w.Document)
		o.journal.stored(w, o.disk.path(w.Document), err)
		if !o.agent.Stored(w, err, time.Now()) {
			return
		}
	}
}

func (o *owner) storeOne(d nodeagent.Document) error {
	switch content := o.agent.Content(d); {
	case content == nil: // it has gone meanwhile
		return nil
	case d.Kind == nodeagent.IdentityDocument:
		o.identity.Refused, _ = content.(bool)
		o.keepIdentity()
		return nil
	default:
		return trouble(o.disk.store(o.cfg.Machine.Name, d, content))
	}
}

// keepIdentity writes down who the machine is. What the disk refuses is tried again
// with the next connection.
func (o *owner) keepIdentity() {
	err := o.disk.writeIdentity(o.identity)
	if o.idUnsaved = err != nil; err != nil {
		o.cfg.Log.Error("cannot keep the machine's id", "err", err)
	}
}

// reread reads again what could not be read, beside the loop: it may take as long as
// the disk, or a keeper, does.
func (o *owner) reread(ctx context.Context, r schema.TaskRef) {
	view := o.agent.Memory().View
	o.workers.Go(func() {
		found := o.loader.read(ctx, r, view)
		o.send(ctx, func() {
			if found == nil {
				o.agent.Reread(r, nil, time.Now())
				return
			}
			if !o.agent.Reread(r, &found.FoundTask, time.Now()) || found.process == nil {
				return
			}
			o.processes[r] = found.process
			o.await(ctx, o.agent.Held(r))
		})
	})
}
