package loop

import (
	"context"
	"time"

	"github.com/musterhq/muster/reconciler/model"
	"github.com/musterhq/muster/reconciler/status"
	"github.com/musterhq/muster/schema"
)

// HeadSeen tells the loop what is new about the repository: another head, or
// other trouble with it.
func (l *Loop) HeadSeen(ctx context.Context, s model.Seen) error {
	return l.send(ctx, headSeen{s})
}

type headSeen struct{ model.Seen }

func (m headSeen) handle(ctx context.Context, o *owner) error {
	o.master.Head(m.Seen, o.cfg.Now())
	return o.carryOut(ctx)
}

// Looked tells the loop that the repository is as HeadSeen said last, and was
// last known to be so at the given time.
func (l *Loop) Looked(ctx context.Context, at time.Time) error {
	return l.send(ctx, looked{at})
}

// looked is handled as a question is: there is nothing to decide.
type looked struct{ at time.Time }

func (looked) question() {}

func (m looked) handle(_ context.Context, o *owner) error {
	o.master.Looked(m.at)
	return nil
}

// CompileFailed tells the loop that a commit could not be compiled for a reason
// that is not in the commit. It is shown until the commit is adopted, or another
// is the head.
func (l *Loop) CompileFailed(ctx context.Context, commit string, err error) error {
	return l.send(ctx, compileFailed{commit, err})
}

type compileFailed struct {
	commit string
	err    error
}

func (m compileFailed) handle(_ context.Context, o *owner) error {
	o.master.CompileFailed(m.commit, m.err)
	return nil
}

// Adopt hands the loop a compiled commit.
func (l *Loop) Adopt(ctx context.Context, c schema.Compiled) error {
	return l.send(ctx, compiled{c})
}

type compiled struct{ schema.Compiled }

func (m compiled) handle(ctx context.Context, o *owner) error {
	o.master.Compiled(&m.Compiled, o.cfg.Now())
	return o.carryOut(ctx)
}

// Join gives a machine that connects its link epoch, after the store has it. It
// errs with a *schema.BehindError when the machine was told of more than the store
// knows, and with a *schema.TakenError when another agent has the name.
func (l *Loop) Join(ctx context.Context, info schema.MachineInfo) (uint64, error) {
	reply := make(chan joinAnswer, 1)
	a, err := ask(ctx, l, join{info, reply}, reply)
	if err != nil {
		return 0, err
	}
	return a.epoch, a.err
}

type joinAnswer struct {
	epoch uint64
	err   error
}

type join struct {
	info  schema.MachineInfo
	reply chan<- joinAnswer
}

func (m join) handle(ctx context.Context, o *owner) error {
	epoch, refused := o.master.Join(m.info, o.cfg.Now())
	if err := o.carryOut(ctx); err != nil {
		return err
	}
	m.reply <- joinAnswer{epoch, refused}
	return nil
}

// Report takes an agent's report. It errs when epoch is not that of the
// machine's newest connection.
func (l *Loop) Report(ctx context.Context, machine string, epoch uint64, r schema.Report) error {
	reply := make(chan error, 1)
	err, askErr := ask(ctx, l, &report{machine: machine, epoch: epoch, report: r, reply: reply}, reply)
	if askErr != nil {
		return askErr
	}
	return err
}

type report struct {
	machine string
	epoch   uint64
	report  schema.Report
	reply   chan<- error
	news    bool // there is something to decide
}

func (m *report) handle(ctx context.Context, o *owner) error {
	var err error
	m.news, err = o.master.Report(m.machine, m.epoch, m.report, o.cfg.Now())
	m.reply <- err
	return o.carryOut(ctx)
}

// Usage takes what a machine uses, unless epoch is not that of its newest
// connection. It waits for the owner, and decides nothing.
func (l *Loop) Usage(ctx context.Context, epoch uint64, u *schema.MachineUsage) error {
	return l.send(ctx, usage{epoch, u})
}

type usage struct {
	epoch uint64
	usage *schema.MachineUsage
}

func (usage) question() {}

func (m usage) handle(_ context.Context, o *owner) error {
	o.master.Usage(m.epoch, m.usage, o.cfg.Now())
	return nil
}

// Usages returns what the cell's machines and tasks use, as they said last. The
// value is the caller's.
func (l *Loop) Usages(ctx context.Context) (*status.Usage, error) {
	reply := make(chan *status.Usage, 1)
	return ask(ctx, l, usageQuestion{reply}, reply)
}

type usageQuestion struct{ reply chan<- *status.Usage }

func (usageQuestion) question() {}

func (m usageQuestion) handle(_ context.Context, o *owner) error {
	m.reply <- status.DescribeUsage(o.master.State(), o.master.Observed(), o.cfg.Now())
	return nil
}

// Leave says that a machine's connection of the given epoch has ended.
func (l *Loop) Leave(machine string, epoch uint64) {
	// The link ends its sessions after ctx has ended, so none is passed:
	// send returns when Run has ended at the latest.
	_ = l.send(context.Background(), leave{machine, epoch})
}

type leave struct {
	machine string
	epoch   uint64
}

func (m leave) handle(_ context.Context, o *owner) error {
	o.master.Leave(m.machine, m.epoch)
	return nil
}

// Status returns the cell at this moment, and a channel that is closed when there
// is a newer version. The value is shared and must not be written to.
func (l *Loop) Status(ctx context.Context) (s *status.Status, newer <-chan struct{}, err error) {
	reply := make(chan statusAnswer, 1)
	a, err := ask(ctx, l, statusQuestion{reply: reply}, reply)
	return a.status, a.newer, err
}

type statusAnswer struct {
	status *status.Status
	newer  <-chan struct{}
}

type statusQuestion struct{ reply chan<- statusAnswer }

func (statusQuestion) question() {}

func (m statusQuestion) handle(_ context.Context, o *owner) error {
	m.reply <- statusAnswer{o.master.Status(o.cfg.Now()), o.changed}
	return nil
}

// Why explains a job or task by its name, user/job or user/job/index; false if
// the cell knows of no such thing. For a task, machine may be one to ask about.
func (l *Loop) Why(ctx context.Context, name, machine string) (status.Explanation, bool, error) {
	reply := make(chan whyAnswer, 1)
	a, err := ask(ctx, l, whyQuestion{name, machine, reply}, reply)
	return a.explanation, a.known, err
}

type whyAnswer struct {
	explanation status.Explanation
	known       bool
}

type whyQuestion struct {
	name, machine string
	reply         chan<- whyAnswer
}

func (whyQuestion) question() {}

func (m whyQuestion) handle(_ context.Context, o *owner) error {
	e, known := o.master.Why(m.name, m.machine, o.cfg.Now())
	m.reply <- whyAnswer{e, known}
	return nil
}

// Locate returns the machine of a task's newest run that the state knows of, ""
// if it knows of none; of the oldest from a generation on, if one is given.
func (l *Loop) Locate(ctx context.Context, task schema.TaskName, from uint64) (machine string, err error) {
	reply := make(chan string, 1)
	return ask(ctx, l, locateQuestion{task, from, reply}, reply)
}

type locateQuestion struct {
	task  schema.TaskName
	from  uint64
	reply chan<- string
}

func (locateQuestion) question() {}

func (m locateQuestion) handle(_ context.Context, o *owner) error {
	m.reply <- o.master.State().Locate(m.task, m.from)
	return nil
}

// Applied returns the commit whose data is in the store, "" before the first.
func (l *Loop) Applied(ctx context.Context) (commit string, err error) {
	reply := make(chan string, 1)
	return ask(ctx, l, appliedQuestion{reply}, reply)
}

type appliedQuestion struct{ reply chan<- string }

func (appliedQuestion) question() {}

func (m appliedQuestion) handle(_ context.Context, o *owner) error {
	m.reply <- o.master.State().Head.Commit
	return nil
}
