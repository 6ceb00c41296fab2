package loop

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"time"

	"github.com/musterhq/muster/nodeagent/logfile"
	"github.com/musterhq/muster/schema"
)

// followEvery is the time between two looks for more output. A reader does not
// see it; a watch per log would cost the machine more.
const followEvery = 100 * time.Millisecond

// ErrNoLog is in Logs' error when the machine does not hold what was asked for.
// It is a fs.ErrNotExist.
var ErrNoLog error = missing("not on this machine")

type missing string

func (m missing) Error() string { return string(m) }

func (missing) Is(target error) bool { return target == fs.ErrNotExist }

// errNoFile is an ErrNoLog: the run was never so far as to write.
var errNoFile = fmt.Errorf("%w: it did not start", ErrNoLog)

// run is one incarnation, as a reader of logs sees it.
type run struct {
	task        schema.TaskName
	generation  uint64
	incarnation int
	dir         string
}

func (r run) compare(o run) int {
	return cmp.Or(cmp.Compare(r.generation, o.generation), cmp.Compare(r.incarnation, o.incarnation))
}

// logOutput is where a log goes.
type logOutput struct {
	w      io.Writer
	framed bool
	begun  bool
	frame  []byte
}

// begin says that there will be a log.
func (o *logOutput) begin() error {
	if o.begun || !o.framed {
		return nil
	}
	o.begun = true
	_, err := io.WriteString(o.w, schema.LogMagic)
	return err
}

func (o *logOutput) send(c schema.LogChunk) error {
	if !o.framed {
		_, err := o.w.Write(c.Data)
		return err
	}
	o.frame = schema.AppendLogFrame(o.frame[:0], c)
	_, err := o.w.Write(o.frame)
	return err
}

// history is what there is to read of one task.
type history struct {
	runs []run // oldest first
	// live is the run that may still write; zero: none.
	live run
	// more says that another run may come.
	more bool
}

// Logs writes the log that req names to w, until its end or, with Follow, until
// ctx ends, w fails or the machine no longer has the task. Its error is ErrNoLog
// when there is no such run.
func (l *Loop) Logs(ctx context.Context, req schema.LogRequest, w io.Writer) error {
	out := &logOutput{w: w, framed: req.Framed}
	var err error
	if req.Stream, err = schema.ParseLogStream(string(req.Stream)); err != nil {
		return err
	}
	h, err := l.history(ctx, req.Task)
	if err != nil {
		return err
	}
	at, err := h.choose(&req)
	switch {
	case err == nil:
		err = l.copyRun(ctx, at, req, out)
	case req.Follow && h.more && req.From != nil: // its run may be about to start: wait for that, or one after it
		at, err = run{task: req.Task, generation: req.From.Generation, incarnation: req.From.Incarnation - 1}, nil
	case req.Follow && h.more && req.Generation == 0 && req.Incarnation == 0 && !req.Previous:
		at, err = run{task: req.Task}, nil // wait for its first run
	}
	for req.Follow && (err == nil || errors.Is(err, errNoFile)) {
		if err := out.begin(); err != nil {
			return err
		}
		next, nextErr := l.nextRun(ctx, at)
		if nextErr != nil || next == nil {
			return nextErr
		}
		at = *next
		req.Tail, req.From = -1, nil // of a further run, all
		err = l.copyRun(ctx, at, req, out)
	}
	return err
}

// history asks the agent what there is of a task.
func (l *Loop) history(ctx context.Context, task schema.TaskName) (history, error) {
	var h history
	err := l.ask(ctx, func() {
		newest := uint64(0)
		for _, g := range l.owner.agent.All() {
			if g.Assignment.Task != task {
				continue
			}
			generation := g.Assignment.Generation
			for i := range g.Incarnations {
				c := &g.Incarnations[i]
				if c.Busy {
					h.more = true
					continue
				}
				r := run{task, generation, c.Number, incarnationDir(l.owner.disk.dir(task, generation), c.Number)}
				h.runs = append(h.runs, r)
				if c.Exit == nil {
					h.live = r
				}
			}
			newest = max(newest, generation)
			h.more = h.more || g.End == nil
		}
		if v := l.owner.agent.Memory().View; v != nil {
			for i := range v.Assignments {
				a := &v.Assignments[i]
				h.more = h.more || a.Task == task && a.Stop == nil && a.Generation > newest
			}
		}
	})
	slices.SortFunc(h.runs, run.compare)
	return h, err
}

// choose returns the run that req asks for. If that is one after the place where
// the reader has left off, req begins at its beginning.
func (h *history) choose(req *schema.LogRequest) (run, error) {
	if req.From != nil {
		from := run{generation: req.From.Generation, incarnation: req.From.Incarnation}
		i, found := slices.BinarySearchFunc(h.runs, from, run.compare)
		if !found {
			req.From, req.Tail = nil, -1
		}
		if i < len(h.runs) {
			return h.runs[i], nil
		}
		req.From = &schema.LogPosition{Generation: from.generation, Incarnation: from.incarnation}
		return run{}, fmt.Errorf("log of task %s after generation %d incarnation %d: %w", req.Task.Short(), from.generation, from.incarnation, ErrNoLog)
	}
	previous := req.Previous
	for _, r := range slices.Backward(h.runs) {
		if (req.Generation == 0 || req.Generation == r.generation) && (req.Incarnation == 0 || req.Incarnation == r.incarnation) {
			if !previous {
				return r, nil
			}
			previous = false
		}
	}
	what := "task " + req.Task.Short()
	if req.Generation != 0 {
		what += fmt.Sprintf(" generation %d", req.Generation)
	}
	if req.Incarnation != 0 {
		what += fmt.Sprintf(" incarnation %d", req.Incarnation)
	}
	if req.Previous {
		what += ", the run before the newest"
	}
	return run{}, fmt.Errorf("log of %s: %w", what, ErrNoLog)
}

// nextRun waits for the run after at; nil when there will be none.
func (l *Loop) nextRun(ctx context.Context, at run) (*run, error) {
	for {
		h, err := l.history(ctx, at.task)
		if err != nil {
			return nil, err
		}
		for _, r := range h.runs {
			if r.compare(at) > 0 {
				return &r, nil
			}
		}
		if !h.more {
			return nil, nil
		}
		if err := pause(ctx); err != nil {
			return nil, err
		}
	}
}

// logBuffer is how much of a log is read at once.
const logBuffer = 32 << 10

// copyRun copies the log of r that req names, from its last lines or all of it, to
// its end; when it is followed, until the run has ended.
func (l *Loop) copyRun(ctx context.Context, r run, req schema.LogRequest, out *logOutput) error {
	log, err := logfile.Open(r.dir, string(req.Stream))
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("log of %s generation %d incarnation %d: %w", r.task.Short(), r.generation, r.incarnation, errNoFile)
	}
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }()
	if err := errors.Join(seek(log, req), out.begin()); err != nil {
		return err
	}
	buffer := make([]byte, logBuffer)
	for {
		live := false
		if req.Follow { // asked before the copy: what is written until its end is seen
			h, err := l.history(ctx, r.task)
			if err != nil {
				return err
			}
			live = h.live == r
		}
		if err := r.copy(ctx, log, buffer, out); err != nil {
			return err
		}
		if !live {
			return nil
		}
		if err := pause(ctx); err != nil {
			return err
		}
	}
}

// seek goes to where req begins.
func seek(log *logfile.Reader, req schema.LogRequest) error {
	if req.From != nil {
		return log.SeekOffset(req.From.Offset)
	}
	if !req.Since.IsZero() {
		if err := log.SeekTime(req.Since); err != nil {
			return err
		}
	}
	if req.Tail < 0 {
		return nil
	}
	since := log.Offset()
	if err := log.SeekTail(req.Tail); err != nil || log.Offset() >= since {
		return err
	}
	return log.SeekOffset(since)
}

// copy sends what was written until now.
func (r run) copy(ctx context.Context, log *logfile.Reader, buffer []byte, out *logOutput) error {
	for ctx.Err() == nil {
		n, err := log.Read(buffer)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		at := schema.LogPosition{Generation: r.generation, Incarnation: r.incarnation, Offset: log.Offset() - int64(n)}
		if err := out.send(schema.LogChunk{LogPosition: at, Missed: log.Missed(), Data: buffer[:n]}); err != nil {
			return err
		}
	}
	return context.Cause(ctx)
}

func pause(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(followEvery):
		return nil
	}
}
