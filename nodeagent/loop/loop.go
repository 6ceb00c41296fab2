package loop

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"reflect"
	"sync"
	"sync/atomic"
	"time"

	"github.com/musterhq/muster/nodeagent"
	"github.com/musterhq/muster/nodeagent/durable"
	"github.com/musterhq/muster/nodeagent/trash"
	"github.com/musterhq/muster/schema"
	"github.com/prometheus/client_golang/prometheus"
)

// ErrInUse is in New's error when another agent has the state directory.
var ErrInUse = errors.New("another agent runs on it")

// ErrEnded is returned by calls to a Loop whose Run has returned.
var ErrEnded = errors.New("the agent's loop has ended")

// Runtime runs incarnations. Its methods are called for one directory by one
// goroutine at a time.
type Runtime interface {
	// Start starts the task of a in dir, which it makes, and returns when
	// its process runs. After an error nothing of it runs.
	// The error is ErrTask if it is not the machine's fault.
	Start(ctx context.Context, dir string, a *schema.Assignment) (Process, error)
	// Adopt finds the incarnation that was started in dir, by this agent or
	// one before it. What it cannot account for it kills, and calls ended.
	Adopt(ctx context.Context, dir string) (Process, error)
	// Remains lists the directories, there or not, that hold what the tasks of a
	// generation have made for themselves, but for logs and what is sticky; dir is
	// the generation's.
	Remains(dir string) []string
}

// Meter measures the machine. Its methods may be called from any goroutine.
type Meter interface {
	// Machine measures the machine as a whole, without its tasks.
	Machine() (schema.MachineUsage, error)
	// Disk measures what directories take of their file system, with what the
	// processes of a task have deleted there and still use. It may end early when
	// that is more than a limit in bytes allows, and take seconds.
	Disk(dirs []string, of nodeagent.Processes, limit int64) (nodeagent.DiskUse, error)
}

// Limited is the part of a Process that holds it to its limits.
type Limited interface {
	// Limit sets limits on it. What cannot be set now leaves the old limit in
	// force, and the error says why.
	Limit(l nodeagent.TaskLimits) error
	// CPU returns what it has used of processors since it started.
	CPU() nodeagent.CPUTime
}

// Observable is the part of a Process that describes it.
type Observable interface {
	// Incarnation returns how it stands now: Boot, PID, StartedAt, Exit, Note.
	Incarnation() nodeagent.Incarnation
	// Usage measures what it uses, without its disk; false when nothing of it is
	// left.
	Usage() (schema.Usage, bool)
	// Processes returns its processes now; none of an alloc.
	Processes() nodeagent.Processes
	// Line returns the beginning of what the task says of itself: any bytes,
	// and few.
	Line() string
}

// Joined is the part of a Process that runs commands beside it.
type Joined interface {
	// Exec runs a command and speaks frames over conn, until nothing of the
	// command is left. An error means that it has not run.
	Exec(ctx context.Context, r schema.ExecRequest, conn io.ReadWriter) error
	// Run runs a command until the timeout or its end, and returns the end of
	// its output. The error is nil if the command exited with 0.
	Run(ctx context.Context, command []string, timeout time.Duration) (output string, err error)
}

// Process is an incarnation. Its methods may be called from any goroutine.
type Process interface {
	Observable
	// Signal sends SIGTERM to its process group or, with kill, SIGKILL to
	// all of it. It is no error if it has ended.
	Signal(kill bool) error
	// Wait returns when it has ended and its Exit is known.
	Wait(ctx context.Context) error
	Limited
	Joined
}

// Config is what a Loop needs. All but Meter, Limits and the hooks must be set.
type Config struct {
	Cell    string
	Machine schema.MachineInfo
	Dir     string // the state directory; made if it is not there
	// Lock, if set, is that of Dir, which the Loop gives back; nil: New takes
	// it.
	Lock    *Lock
	Runtime Runtime
	Log     *slog.Logger
	Metrics prometheus.Registerer
	// Meter, if set, is asked what machine and tasks use: every SampleEvery, and
	// for disks every DiskEvery.
	Meter                  Meter
	SampleEvery, DiskEvery time.Duration
	// Hardware tells the machine from others that were made of the same image; ""
	// if that is not known.
	Hardware string
	// Limits say what is done when the machine runs short, and what is kept.
	Limits nodeagent.Limits
	// BallastBytes is how much of the disk is kept for what the agent has to write
	// when others have filled it; 0: nothing.
	BallastBytes int64
	// Damages, if set, gets the Runtime's reports too; nil: the Loop's alone.
	Damages *Damages
	// NoExec refuses commands beside tasks.
	NoExec bool
	// LookEvery is the time between two looks at how the machine is; zero: it
	// is not looked at, and what is wrong with it is found by starts alone.
	LookEvery time.Duration
	// Hint, if set, is called when a report differs from the one before. It
	// must not block.
	Hint func()
	// Step, if set, is called before and after each change of the state
	// directory. Tests kill the agent there.
	Step func(what string)
}

// longSleep is the longest time between two decisions.
const longSleep = time.Hour

// parallelStarts bounds the starts in flight: each waits for the disk more than
// for the processor.
const parallelStarts = 8

// retryAfter is the time between two attempts at what the disk refused.
const retryAfter = time.Second

// key identifies a generation.
type key struct {
	task       schema.TaskName
	generation uint64
}

// generation is a nodeagent.Held with what this agent has in its hands.
type generation struct {
	nodeagent.Held
	dir     string
	written bool // assignment.json is on disk
	process Process
	// stuck says what the disk refused, until retry. unread means that it
	// refused to say what there is: then nothing is known, and nothing done.
	stuck  error
	retry  time.Time
	unread bool
	// guessed says that its assignment was damaged: what there is of it is what the
	// directory's name says, until a view has it.
	guessed bool
	walk    walk
	logs    string // what is wrong with the logs of the last incarnation
	execs   int    // commands that run beside the last incarnation
}

// Loop is the agent of one machine.
type Loop struct {
	cfg     Config
	disk    *disk
	metrics *metrics
	events  chan func()
	emptied chan struct{} // the trash was emptied
	ended   chan struct{} // closed when Run has returned
	info    atomic.Pointer[schema.MachineInfo]
	report  atomic.Pointer[schema.Report]
	usage   atomic.Pointer[schema.MachineUsage] // nil before the first sample
	clock   atomic.Pointer[clockSample]         // nil: not since the last look
	starts  chan struct{}                       // a token for each start in flight
	workers sync.WaitGroup

	// What follows belongs to Run's goroutine.
	memory          memory
	identity        identity
	identityUnsaved bool // the disk has refused identity
	damages         *Damages
	scrubs          scrubs
	life            nodeagent.Life
	withheld        map[schema.TaskRef]bool // of the last decision
	held            map[key]*generation
	sticky          map[schema.TaskName]time.Time // since when each directory is idle
	probes          map[asked]asking
	throttling      throttling
	busy            []int // ports in use by others
	scanned         time.Time
	listened        time.Time // when it was last read what tasks say of themselves
	listening       bool
	machineState    machineState
	shutdown        bool
	idle            []chan struct{} // closed when shutdown is done
	pressure        nodeagent.MachinePressure
	removed         bool // something was removed since the disk was measured
	removing        bool // and may be on the disk still
	unsaved         unsaved
}

// New takes the state directory's lock if it has not been taken, reads what is held there and finds its
// processes. The error is ErrInUse when another agent has the directory, and ErrCopied
// when it is a copy of one.
func New(ctx context.Context, cfg Config) (*Loop, error) {
	if cfg.Step == nil {
		cfg.Step = func(string) {}
	}
	if cfg.Hint == nil {
		cfg.Hint = func() {}
	}
	if cfg.Lock == nil {
		var err error
		if cfg.Lock, err = Take(cfg.Dir); err != nil {
			return nil, err
		}
	}
	if cfg.Damages == nil {
		cfg.Damages = NewDamages(cfg.Dir, cfg.Log)
	}
	docs := durable.Documents{Old: !durable.Current(cfg.Dir), Report: cfg.Damages.Report}
	d := &disk{root: filepath.Clean(cfg.Dir), lock: cfg.Lock, docs: docs, step: cfg.Step, ballast: openBallast(filepath.Join(cfg.Dir, ballastDir), cfg.BallastBytes)}
	made := false
	defer func() {
		if !made {
			_ = d.close()
		}
	}()
	l := &Loop{
		cfg: cfg, disk: d, damages: cfg.Damages,
		events: make(chan func()), ended: make(chan struct{}), emptied: make(chan struct{}, 1),
		starts: make(chan struct{}, parallelStarts),
		held:   map[key]*generation{}, probes: map[asked]asking{},
		life: nodeagent.Life{Began: time.Now()},
	}
	l.info.Store(&cfg.Machine)
	if err := d.clear(filepath.Join(d.root, trashDir)); err != nil {
		return nil, err
	}
	var err error
	d.trash, err = trash.Open(trash.Config{Dir: filepath.Join(cfg.Dir, trashDir), Log: cfg.Log, Emptied: l.noteEmptied})
	if err != nil {
		return nil, err
	}
	if err := l.identify(); err != nil {
		return nil, err
	}
	if err := l.load(ctx); err != nil {
		return nil, err
	}
	if l.metrics, err = newMetrics(cfg.Metrics); err != nil {
		return nil, err
	}
	l.publish(nodeagent.Decide(l.input(time.Now())))
	made = true
	return l, nil
}

// Run is the agent, until ctx ends. It leaves the tasks running and gives the
// state directory back. It may be called once.
func (l *Loop) Run(ctx context.Context) error {
	defer func() {
		l.workers.Wait()
		_ = l.disk.close()
		close(l.ended)
	}()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for _, g := range l.held {
		l.await(ctx, g)
	}
	l.measure(ctx)
	l.workers.Go(func() { l.disk.trash.Run(ctx) })
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		wake := l.turn(ctx)
		timer.Reset(max(time.Until(wake), 0))
		select {
		case <-ctx.Done():
			return nil
		case f := <-l.events:
			f()
		case <-l.emptied:
			l.takeEmptied()
		case <-l.damages.news:
		case <-timer.C:
		}
		l.drain()
	}
}

// drain takes what else has happened, so that one decision serves all of it.
func (l *Loop) drain() {
	for range 100 { // of a flood too
		select {
		case f := <-l.events:
			f()
		default:
			return
		}
	}
}

// call has f run by Run's goroutine and waits for it. f is not run when ctx has
// ended before.
func (l *Loop) call(ctx context.Context, f func()) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	done := make(chan struct{})
	select {
	case l.events <- func() { f(); close(done) }:
	case <-l.ended:
		return ErrEnded
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	select {
	case <-done:
		return nil
	case <-l.ended:
		return ErrEnded
	}
}

// Alive returns when Run's goroutine has answered. It errs when ctx ends before,
// or Run has.
func (l *Loop) Alive(ctx context.Context) error { return l.call(ctx, func() {}) }

// turn decides and acts until there is nothing more to do now, publishes what
// has come of it, and returns when to wake.
func (l *Loop) turn(ctx context.Context) time.Time {
	l.reread(ctx)
	l.saveAgain(time.Now())
	l.reportDamages()
	look := l.look(ctx, time.Now())
	var plan nodeagent.Plan
	for {
		plan = nodeagent.Decide(l.input(time.Now()))
		acted := false
		for _, a := range plan.Actions {
			if l.act(ctx, a) {
				acted = true
			}
		}
		acted = l.stick(plan) || acted
		if !acted {
			break
		}
		l.remeasure()
	}
	l.check(ctx, plan.Checks)
	l.withhold(plan.Withheld)
	l.publish(plan)
	if l.shutdown && plan.Alive == 0 {
		for _, c := range l.idle {
			close(c)
		}
		l.idle = nil
	}
	return l.wake(ctx, plan, look)
}

// wake returns the next time at which something is due, which is not after wake,
// and scans the ports if that is.
func (l *Loop) wake(ctx context.Context, plan nodeagent.Plan, wake time.Time) time.Time {
	now := time.Now()
	if r := l.cfg.Machine.Ports; r.First <= r.Last {
		every := scanEvery
		if len(l.busy) > 0 {
			every = scanBusy
		}
		if now.Sub(l.scanned) >= every {
			l.scan(ctx, now)
		}
		if next := l.scanned.Add(every); next.Before(wake) {
			wake = next
		}
	}
	if plan.Alive > 0 {
		if now.Sub(l.listened) >= lineEvery {
			l.listen(ctx, now)
		}
		if again := l.listened.Add(lineEvery); again.Before(wake) {
			wake = again
		}
	}
	if !plan.Wake.IsZero() && plan.Wake.Before(wake) {
		wake = plan.Wake
	}
	if at := l.throttle(ctx, now); !at.IsZero() && at.Before(wake) {
		wake = at
	}
	if len(l.unsaved.files) > 0 && l.unsaved.retry.Before(wake) {
		wake = l.unsaved.retry
	}
	for _, g := range l.held {
		if (g.stuck != nil || g.unread) && g.retry.Before(wake) {
			wake = g.retry
		}
	}
	return wake
}

// input gathers what a decision depends on.
func (l *Loop) input(now time.Time) nodeagent.Input {
	held := make([]nodeagent.Held, 0, len(l.held))
	for _, g := range l.held {
		held = append(held, g.Held)
	}
	var sticky []nodeagent.Sticky
	for task, idle := range l.sticky {
		sticky = append(sticky, nodeagent.Sticky{Task: task, Idle: idle})
	}
	busy, _ := l.disk.trash.Status()
	l.removing = l.removing || busy
	return nodeagent.Input{
		Machine: l.cfg.Machine.Name, Boot: l.cfg.Machine.Boot, Now: now, Life: l.life,
		View: l.memory.view, Held: held, Sticky: sticky, Shutdown: l.shutdown, Capacity: l.cfg.Machine.Capacity,
		Pressure: l.pressure, Limits: l.cfg.Limits, Removing: l.removing,
	}
}

// noteEmptied is called by the trash when it has removed what it can.
func (l *Loop) noteEmptied() {
	select {
	case l.emptied <- struct{}{}:
	default:
	}
}

// takeEmptied looks how much disk there is now that the trash is empty.
func (l *Loop) takeEmptied() {
	var stuck int
	l.removing, stuck = l.disk.trash.Status()
	l.metrics.stuck.Set(float64(stuck))
	l.removed = true
	l.remeasure()
}

// publish makes the plan's word on the machine the report, and hints if it is
// news. A report is never written to afterwards.
func (l *Loop) publish(plan nodeagent.Plan) {
	r := &schema.Report{
		Machine: l.Info(), BusyPorts: l.busyPorts(), Conditions: l.machineState.conditions.List(), Tasks: plan.Tasks, Overload: plan.Overload,
	}
	if l.memory.view != nil {
		r.View = l.memory.view.Version
	}
	for i := range r.Tasks {
		s := &r.Tasks[i]
		switch g := l.held[key{s.Task, s.Generation}]; {
		case g == nil:
		case g.stuck != nil:
			s.Note = g.stuck.Error()
		case l.unsavedOf(g) != nil:
			s.Note = "not on disk yet: " + l.unsavedOf(g).Error()
		case g.logs != "" && s.Note != "":
			s.Note += "; " + g.logs
		case g.logs != "":
			s.Note = g.logs
		}
	}
	l.metrics.observe(r, l.memory)
	if old := l.report.Swap(r); old != nil && !reflect.DeepEqual(old, r) {
		l.cfg.Hint()
	}
}

// Info returns what the machine says of itself.
func (l *Loop) Info() schema.MachineInfo { return *l.info.Load() }

// Describe replaces the machine's attributes, for the reports to come and for
// the next connection.
func (l *Loop) Describe(ctx context.Context, attributes map[string]string) error {
	return l.call(ctx, func() {
		info := l.Info()
		info.Attributes = attributes
		l.info.Store(&info)
	})
}

// Report returns the newest report: as of the last decision, and immutable.
func (l *Loop) Report() schema.Report { return *l.report.Load() }

// Welcome keeps the epoch that a master has given to the connection, as Assign keeps a
// view. It errs
// when the agent was welcomed with a higher one before: then that master is not
// the machine's any more.
func (l *Loop) Welcome(epoch uint64) error {
	var err error
	return errors.Join(l.call(context.Background(), func() { err = l.welcome(epoch) }), err)
}

func (l *Loop) welcome(epoch uint64) error {
	switch {
	case epoch < l.memory.epoch:
		return fmt.Errorf("epoch %d is lower than %d, which this agent has seen: the master is an old one, or has lost its data", epoch, l.memory.epoch)
	case epoch == l.memory.epoch:
		l.admitted()
		return nil
	}
	m := memory{epoch: epoch, view: l.memory.view}
	l.remember(m)
	l.sees(epoch)
	l.admitted()
	return nil
}

// sees has Info say which epoch the machine has seen, whatever its master knows.
func (l *Loop) sees(epoch uint64) {
	info := l.Info()
	info.Seen.Epoch = epoch
	l.info.Store(&info)
}

// remember makes m what the agent knows of its master, on disk too as soon as that
// takes it.
func (l *Loop) remember(m memory) {
	l.memory = m
	l.save(nil, filepath.Join(l.disk.root, viewFile), func() error { return l.disk.writeMemory(l.cfg.Machine.Name, l.memory) })
}

// Assign makes view what the machine shall run. When it returns nil, the view
// is on disk, or is written as soon as the disk takes it. It errs for a view that is older than the one there is, or that
// is not of this cell; then nothing has changed.
func (l *Loop) Assign(epoch, version uint64, view []schema.Assignment) error {
	if err := checkView(l.cfg.Cell, view); err != nil {
		return err
	}
	v := &nodeagent.View{Epoch: epoch, Version: version, Assignments: view}
	var err error
	return errors.Join(l.call(context.Background(), func() { err = l.assign(v) }), err)
}

func (l *Loop) assign(v *nodeagent.View) error {
	old := l.memory.view
	switch {
	case v.Epoch < l.memory.epoch:
		return fmt.Errorf("assignments of epoch %d: this agent has seen epoch %d", v.Epoch, l.memory.epoch)
	case old != nil && v.Epoch == old.Epoch && v.Version == old.Version:
		return nil
	case !v.Newer(old):
		return fmt.Errorf("assignments of version %d: this agent has version %d", v.Version, old.Version)
	}
	m := memory{epoch: max(v.Epoch, l.memory.epoch), view: v}
	l.remember(m)
	l.confirm()
	l.recall()
	return nil
}

// StopAll stops all tasks, SIGTERM first and SIGKILL after their grace period,
// and returns when none is left. Their generations have not ended: the next
// agent on the state directory starts them again. Nothing is started from then
// on. It errs when ctx ends before.
func (l *Loop) StopAll(ctx context.Context) error {
	idle := make(chan struct{})
	if err := l.call(ctx, func() {
		l.shutdown = true
		l.idle = append(l.idle, idle)
	}); err != nil {
		return fmt.Errorf("stop all tasks: %w", err)
	}
	select {
	case <-idle:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("stop all tasks: %w", context.Cause(ctx))
	case <-l.ended:
		return fmt.Errorf("stop all tasks: %w", ErrEnded)
	}
}
