package loop

import (
	"context"
	"sync"
	"time"

	"github.com/musterhq/muster/reconciler/model"
	"github.com/musterhq/muster/reconciler/status"
)

// reading is the cell at a moment. Whoever asks for it makes of it what it wants to know
// in its own goroutine, so that readers of a large cell do not hold up the owner; what
// several want is made once.
type reading struct {
	in        status.DescribeInput // which nobody writes to
	by        *describer
	once      sync.Once
	described *status.Snapshot
}

// describer describes one reading after the other, and makes again what is new in them.
type describer struct {
	mu sync.Mutex // guards status, which one reading at a time is described by
	status.Describer
}

func (r *reading) describe() *status.Snapshot {
	r.once.Do(func() {
		r.by.mu.Lock()
		defer r.by.mu.Unlock()
		r.described = r.by.Describe(r.in)
	})
	return r.described
}

// readingQuestion asks for the cell as it is after the newest round.
type readingQuestion struct{ reply chan<- readingAnswer }

type readingAnswer struct {
	reading *reading
	newer   <-chan struct{}
}

func (m readingQuestion) answer(o *owner) { m.reply <- readingAnswer{o.read(), o.changed} }

// read returns the reading of now.
func (o *owner) read() *reading {
	if o.reading == nil {
		o.reading = &reading{in: o.master.Snapshot(o.cfg.Now()), by: o.describer}
	}
	return o.reading
}

func (l *Loop) read(ctx context.Context) (readingAnswer, error) {
	reply := make(chan readingAnswer, 1)
	return ask(ctx, l, readingQuestion{reply}, reply)
}

// Snapshot returns the cell at this moment, and a channel that is closed when there
// is a newer version.
func (l *Loop) Snapshot(ctx context.Context) (s *status.Snapshot, newer <-chan struct{}, err error) {
	a, err := l.read(ctx)
	if err != nil {
		return nil, nil, err
	}
	return a.reading.describe(), a.newer, nil
}

// Moment is what the cell is at a moment.
type Moment struct {
	status.DescribeInput
	// LastEvent is the id of the newest record in the log: what the events say up to that is in
	// the state, and what later ones say is not.
	LastEvent uint64
}

// Moment returns what the cell is at this moment, which nobody writes to.
func (l *Loop) Moment(ctx context.Context) (Moment, error) {
	reply := make(chan Moment, 1)
	return ask(ctx, l, momentQuestion{reply}, reply)
}

// momentQuestion asks for the cell with what machines use now, which makes no reading old.
type momentQuestion struct{ reply chan<- Moment }

func (m momentQuestion) answer(o *owner) {
	m.reply <- Moment{o.master.Snapshot(o.cfg.Now()), o.cfg.Events.Last()}
}

// Why explains a job or task by its name, user/job or user/job/index; false if
// the cell knows of no such thing. For a task, machine may be one to ask about; without
// a name it is explained.
func (l *Loop) Why(ctx context.Context, name, machine string) (status.Explanation, bool, error) {
	a, err := l.read(ctx)
	if err != nil {
		return status.Explanation{}, false, err
	}
	e, known := status.Explain(a.reading.in, a.reading.describe(), name, machine)
	return e, known, nil
}

// Usages returns what the cell's machines and tasks use, as they said last. The
// value is the caller's.
func (l *Loop) Usages(ctx context.Context) (*status.Usage, error) {
	a, err := l.usage(ctx)
	if err != nil {
		return nil, err
	}
	return status.DescribeUsage(a.state, a.samples, a.now), nil
}

// JobUsages returns the sums of Usages by job.
func (l *Loop) JobUsages(ctx context.Context) ([]status.JobUsage, error) {
	a, err := l.usage(ctx)
	if err != nil {
		return nil, err
	}
	return status.SumUsage(a.state, a.samples), nil
}

func (l *Loop) usage(ctx context.Context) (usageAnswer, error) {
	reply := make(chan usageAnswer, 1)
	return ask(ctx, l, usageQuestion{reply}, reply)
}

// usageQuestion asks for the samples of now, which are no news, and make no reading old.
type usageQuestion struct{ reply chan<- usageAnswer }

type usageAnswer struct {
	state   *model.State // which nobody writes to
	samples map[string]model.Sample
	now     time.Time
}

func (m usageQuestion) answer(o *owner) {
	now := o.cfg.Now()
	m.reply <- usageAnswer{o.read().in.State, o.master.Observed().Samples(now), now}
}
