package loop

import (
	"context"
	"time"

	"github.com/musterhq/muster/reconciler/model"
	"github.com/musterhq/muster/schema"
)

// HeadSeen takes what is new about the repository: another head, or other trouble with it.
func (l *Loop) HeadSeen(ctx context.Context, s model.Seen) error {
	return l.send(ctx, headSeen{s})
}

type headSeen struct{ model.Seen }

func (m headSeen) handle(ctx context.Context, o *owner) error {
	o.master.Head(m.Seen, o.cfg.Now())
	return o.carryOut(ctx)
}

// Looked says that the repository is as HeadSeen said last, and was last known to be so at
// the given time.
func (l *Loop) Looked(ctx context.Context, at time.Time) error {
	return l.send(ctx, looked{at})
}

// looked is a question: there is nothing to decide.
type looked struct{ at time.Time }

func (m looked) answer(o *owner) {
	o.master.Looked(m.at)
	o.reading = nil
}

// CompileFailed says that a commit could not be compiled for a reason that is not in the
// commit. It is shown until the commit is adopted, or another is the head.
func (l *Loop) CompileFailed(ctx context.Context, commit string, err error) error {
	return l.send(ctx, compileFailed{commit, err})
}

type compileFailed struct {
	commit string
	err    error
}

func (m compileFailed) handle(ctx context.Context, o *owner) error {
	o.master.CompileFailed(m.commit, m.err)
	return o.carryOut(ctx)
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
// errs with a *schema.BehindError when the machine was sent more than the store
// knows, and with a *schema.TakenError when another agent has the name. ctx is that of its
// session: if that has ended by the time it is the machine's turn, it gets no epoch, and Join
// errs with the cause. When very many join at once, the store has time for those that wait.
func (l *Loop) Join(ctx context.Context, info schema.MachineInfo) (uint64, error) {
	reply := make(chan joinAnswer, 1)
	a, err := ask(context.WithoutCancel(ctx), l, join{info, ctx, reply}, reply)
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
	info    schema.MachineInfo
	session context.Context //nolint:containedctx // of the message, which waits in the inbox
	reply   chan<- joinAnswer
}

func (m join) handle(ctx context.Context, o *owner) error {
	select {
	case <-m.session.Done():
		m.reply <- joinAnswer{err: context.Cause(m.session)}
		return nil
	default:
	}
	if !o.master.MayJoin(&m.info) {
		if err := o.welcome(ctx); err != nil {
			return err
		}
	}
	epoch, refused := o.master.Join(m.info, o.cfg.Now())
	o.joins = append(o.joins, joined{joinAnswer{epoch, refused}, m.reply})
	return nil
}

// joined is the answer to a join, which waits until that is stored.
type joined struct {
	answer joinAnswer
	reply  chan<- joinAnswer
}

// welcome stores the joins that were taken, together, and answers them.
func (o *owner) welcome(ctx context.Context) error {
	if len(o.joins) == 0 {
		return nil
	}
	if err := o.carryOut(ctx); err != nil {
		return err
	}
	for _, j := range o.joins {
		j.reply <- j.answer
	}
	o.joins = nil
	return nil
}

// UpdateSessions takes updates of sessions of a link shard, and returns for each why the session
// is to end: nil for most.
func (l *Loop) UpdateSessions(ctx context.Context, all []model.SessionUpdate) ([]error, error) {
	reply := make(chan []error, 1)
	return ask(ctx, l, sessionUpdates{all, reply}, reply)
}

type sessionUpdates struct {
	all   []model.SessionUpdate
	reply chan<- []error
}

func (m sessionUpdates) handle(ctx context.Context, o *owner) error {
	refused := make([]error, len(m.all))
	for i := range m.all {
		refused[i] = o.master.UpdateSession(&m.all[i], o.cfg.Now())
	}
	m.reply <- refused
	return o.carryOut(ctx)
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

func (m locateQuestion) answer(o *owner) {
	m.reply <- o.master.State().Locate(m.task, m.from)
}

// Sources says from where a machine gets an image or a package.
func (l *Loop) Sources(ctx context.Context, q schema.SourceQuestion) (schema.SourceAnswer, error) {
	reply := make(chan schema.SourceAnswer, 1)
	return ask(ctx, l, sourceQuestion{q, reply}, reply)
}

type sourceQuestion struct {
	schema.SourceQuestion
	reply chan<- schema.SourceAnswer
}

func (m sourceQuestion) answer(o *owner) {
	m.reply <- o.master.Sources(&m.SourceQuestion, o.cfg.Now())
}

// Applied returns the commit whose data is in the store, "" before the first.
func (l *Loop) Applied(ctx context.Context) (commit string, err error) {
	reply := make(chan string, 1)
	return ask(ctx, l, appliedQuestion{reply}, reply)
}

type appliedQuestion struct{ reply chan<- string }

func (m appliedQuestion) answer(o *owner) {
	m.reply <- o.master.State().Head.Commit
}

// versionKey returns the key of the versions of secrets, as it is stored.
func (l *Loop) versionKey(ctx context.Context) (sealed string, err error) {
	reply := make(chan string, 1)
	return ask(ctx, l, versionKeyQuestion{reply}, reply)
}

type versionKeyQuestion struct{ reply chan<- string }

func (m versionKeyQuestion) answer(o *owner) { m.reply <- o.master.State().Secrets.VersionKey }
