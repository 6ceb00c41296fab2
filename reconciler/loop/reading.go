package loop

import (
	"context"
	"sync"

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

func (m readingQuestion) answer(o *owner) {
	if o.reading == nil {
		o.reading = &reading{in: o.master.Snapshot(o.cfg.Now()), by: o.describer}
	}
	m.reply <- readingAnswer{o.reading, o.changed}
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

// Why explains a job or task by its name, user/job or user/job/index; false if
// the cell knows of no such thing. For a task, machine may be one to ask about.
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
	in, err := l.usage(ctx)
	if err != nil {
		return nil, err
	}
	return status.DescribeUsage(in.State, in.Observed, in.Now), nil
}

// JobUsages returns the sums of Usages by job.
func (l *Loop) JobUsages(ctx context.Context) ([]status.JobUsage, error) {
	in, err := l.usage(ctx)
	if err != nil {
		return nil, err
	}
	return status.SumUsage(in.State, in.Observed, in.Now), nil
}

func (l *Loop) usage(ctx context.Context) (status.DescribeInput, error) {
	reply := make(chan status.DescribeInput, 1)
	return ask(ctx, l, usageQuestion{reply}, reply)
}

// usageQuestion asks for a snapshot of its own: samples are no news, and make no reading
// old.
type usageQuestion struct{ reply chan<- status.DescribeInput }

func (m usageQuestion) answer(o *owner) { m.reply <- o.master.Snapshot(o.cfg.Now()) }
