package loop

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

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
	var err error
	if req.Stream, err = schema.ParseLogStream(string(req.Stream)); err != nil {
		return err
	}
	h, err := l.history(ctx, req.Task)
	if err != nil {
		return err
	}
	at, err := h.choose(req)
	switch {
	case err == nil:
		err = l.copyRun(ctx, at, req, w)
	case req.Follow && h.more && req.Generation == 0 && req.Incarnation == 0:
		at, err = run{task: req.Task}, nil // wait for its first run
	}
	for req.Follow && (err == nil || errors.Is(err, errNoFile)) {
		next, nextErr := l.nextRun(ctx, at)
		if nextErr != nil || next == nil {
			return nextErr
		}
		at = *next
		req.Tail = -1 // of a further run, all
		err = l.copyRun(ctx, at, req, w)
	}
	return err
}

// history asks the loop what there is of a task.
func (l *Loop) history(ctx context.Context, task schema.TaskName) (history, error) {
	var h history
	err := l.call(ctx, func() {
		newest := uint64(0)
		for k, g := range l.held {
			if k.task != task || g.unread {
				continue
			}
			for _, c := range g.Incarnations {
				if c.Busy {
					h.more = true
					continue
				}
				r := run{task, k.generation, c.Number, incarnationDir(g.dir, c.Number)}
				h.runs = append(h.runs, r)
				if c.Exit == nil {
					h.live = r
				}
			}
			newest = max(newest, k.generation)
			h.more = h.more || g.End == nil
		}
		if v := l.memory.view; v != nil {
			for _, a := range v.Assignments {
				h.more = h.more || a.Task == task && a.Stop == nil && a.Generation > newest
			}
		}
	})
	slices.SortFunc(h.runs, run.compare)
	return h, err
}

// choose returns the run that req asks for.
func (h *history) choose(req schema.LogRequest) (run, error) {
	for _, r := range slices.Backward(h.runs) {
		if (req.Generation == 0 || req.Generation == r.generation) && (req.Incarnation == 0 || req.Incarnation == r.incarnation) {
			return r, nil
		}
	}
	what := "task " + req.Task.Short()
	if req.Generation != 0 {
		what += fmt.Sprintf(" generation %d", req.Generation)
	}
	if req.Incarnation != 0 {
		what += fmt.Sprintf(" incarnation %d", req.Incarnation)
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

// copyRun copies the log of r that req names, from its last lines or all of it, to
// its end; when it is followed, until the run has ended.
func (l *Loop) copyRun(ctx context.Context, r run, req schema.LogRequest, w io.Writer) error {
	f, err := os.Open(filepath.Join(r.dir, string(req.Stream)))
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("log of %s generation %d incarnation %d: %w", r.task.Short(), r.generation, r.incarnation, errNoFile)
	}
	if err != nil {
		return err
	}
	defer f.Close()
	if req.Tail >= 0 {
		if err := seekTail(f, req.Tail); err != nil {
			return err
		}
	}
	for {
		live := false
		if req.Follow { // asked before the copy: what is written until its end is seen
			h, err := l.history(ctx, r.task)
			if err != nil {
				return err
			}
			live = h.live == r
		}
		if _, err := io.Copy(w, f); err != nil {
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

func pause(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(followEvery):
		return nil
	}
}

// seekTail moves f to the start of its last n lines. An unfinished line at the
// end counts as one.
func seekTail(f *os.File, n int) error {
	at, err := f.Seek(0, io.SeekEnd)
	if err != nil || n == 0 {
		return err
	}
	block := make([]byte, 32<<10)
	for end := at; at > 0; {
		size := min(at, int64(len(block)))
		at -= size
		b := block[:size]
		if _, err := f.ReadAt(b, at); err != nil {
			return err
		}
		for i := bytes.LastIndexByte(b, '\n'); i >= 0; i = bytes.LastIndexByte(b[:i], '\n') {
			if at+int64(i) == end-1 {
				continue // the end of the last line is not the start of one
			}
			if n--; n == 0 {
				_, err := f.Seek(at+int64(i)+1, io.SeekStart)
				return err
			}
		}
	}
	_, err = f.Seek(0, io.SeekStart)
	return err
}
