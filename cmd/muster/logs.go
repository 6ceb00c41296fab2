package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"github.com/musterhq/muster/cmd/internal/screen"
	"github.com/musterhq/muster/reconciler/status"
	"github.com/musterhq/muster/reconciler/web/client"
	"github.com/musterhq/muster/schema"
)

const (
	// maxFollowed is how many logs are followed at once: each is a stream on the
	// link to an agent.
	maxFollowed = 100
	maxLogLine  = 64 << 10 // a longer line is printed in parts
)

// logFlags is what was typed.
type logFlags struct {
	request        schema.LogRequest
	stream         string
	stdout, stderr bool
	since          string
}

func newLogs(std stdio) *cobra.Command {
	var m masterFlag
	var l labelFlag
	var f logFlags
	c := &cobra.Command{
		Use:   "logs USER/JOB/INDEX | USER/JOB | -l LABELS",
		Short: "print the logs of tasks",
		Long: `Print the stdout of the newest run of a task; with --stderr its stderr, or with both
flags each stream to the same stream here. --follow continues across restarts of the
task, its agent and the master, and across moves to other machines, until the task has
ended for good.

The newest output of each run is kept, up to the job's task.logs. The logs of a task
that has ended are kept for a day, those of a failed one for a week. If output was lost
to a full disk, the log says so.

On a terminal, control sequences other than colours are printed escaped; elsewhere all
bytes are printed as they were written.

For a job, or the jobs that --selector matches, the logs of all its tasks are printed,
each line with the name of its task as a prefix; with --follow, of the tasks that exist
when the command starts, at most 100.`,
		Example: `  muster logs search/web/0
  muster logs -f search/web/0 --stderr --tail 20
  muster logs search/web/0 --previous
  muster logs -l tier=front --since 5m`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			streams, err := f.parse(time.Now())
			if err != nil {
				return err
			}
			index := -1
			switch {
			case len(args) == 1:
				if _, index, err = parseWhat(args[0]); err != nil {
					return err
				}
			case l.selector.Empty():
				return invalid("such as muster logs search/web/0, or muster logs -l tier=front", "muster logs: which task? neither a name nor --selector is given")
			}
			cl, err := m.client()
			if err != nil {
				return err
			}
			ctx, stop := whileRead(cmd.Context(), std.out)
			defer stop()
			std.out, std.err = tamed(std.out), tamed(std.err)
			if index >= 0 && l.selector.Empty() {
				return unread(ctx, copyTask(ctx, cl, f.logs(args, streams), std))
			}
			return unread(ctx, f.copyGroup(ctx, cl, client.StatusQuery{Group: l.group(args)}, streams, std))
		},
	}
	m.add(c)
	l.add(c)
	f.add(c)
	return c
}

func (f *logFlags) add(c *cobra.Command) {
	r := &f.request
	c.Flags().BoolVarP(&r.Follow, "follow", "f", false, "keep printing new output")
	c.Flags().BoolVar(&f.stdout, "stdout", false, "print stdout; the default")
	c.Flags().BoolVar(&f.stderr, "stderr", false, "print stderr")
	c.Flags().StringVar(&f.stream, "stream", "stdout", "stdout or stderr")
	c.Flags().IntVar(&r.Tail, "tail", -1, "number of last lines to print first; -1 for all")
	c.Flags().StringVar(&f.since, "since", "", "print only output since then: a duration such as 5m, or a time such as 2026-01-02T15:04:05Z")
	c.Flags().BoolVarP(&r.Previous, "previous", "p", false, "the run before the newest")
	c.Flags().IntVar(&r.Incarnation, "incarnation", 0, "which incarnation of the generation; 0 for the newest")
	c.Flags().Uint64Var(&r.Generation, "generation", 0, "which generation; 0 for the newest")
	c.MarkFlagsMutuallyExclusive("stream", "stdout")
	c.MarkFlagsMutuallyExclusive("stream", "stderr")
}

// parse returns the streams that are wanted, and puts --since into the request.
func (f *logFlags) parse(now time.Time) ([]schema.LogStream, error) {
	r := &f.request
	if r.Tail < -1 {
		return nil, invalid("such as --tail 20; -1 for all", "--tail %d: want at least 0", r.Tail)
	}
	if r.Incarnation < 0 {
		return nil, invalid("0 is the newest; --previous is the one before", "--incarnation %d: want a number from 1", r.Incarnation)
	}
	if f.since != "" {
		d, err := time.ParseDuration(f.since)
		r.Since = now.Add(-d)
		ok := err == nil && d >= 0
		if err != nil {
			r.Since, ok = schema.ParseTime(f.since)
		}
		if !ok || r.Since.After(now) {
			return nil, invalid("such as --since 5m, or --since 2026-01-02T15:04:05Z", "--since %q: want how long ago, or a time that is past", f.since)
		}
	}
	stream, err := schema.ParseLogStream(f.stream)
	switch {
	case err != nil:
		return nil, invalid("--stdout --stderr prints both", "--stream: %w", err)
	case f.stdout && f.stderr:
		return []schema.LogStream{schema.Stdout, schema.Stderr}, nil
	case f.stderr:
		return []schema.LogStream{schema.Stderr}, nil
	}
	return []schema.LogStream{stream}, nil
}

// copyGroup writes the logs of the tasks of jobs.
func (f *logFlags) copyGroup(ctx context.Context, cl *client.Client, q client.StatusQuery, streams []schema.LogStream, std stdio) error {
	s, _, err := cl.Status(ctx, q)
	if err != nil {
		return err
	}
	return copyLogs(ctx, cl, f.logs(placed(s), streams), std)
}

// placed returns the tasks that have been on a machine.
func placed(s *status.Status) []string {
	var tasks []string
	for i := range s.Tasks {
		if s.Tasks[i].Generation > 0 {
			tasks = append(tasks, s.Tasks[i].Name)
		}
	}
	return tasks
}

// logs returns what is wanted of tasks: each stream of each.
func (f *logFlags) logs(tasks []string, streams []schema.LogStream) []logOf {
	var list []logOf
	for _, task := range tasks {
		for _, stream := range streams {
			r := f.request
			r.Stream = stream
			list = append(list, logOf{task, r})
		}
	}
	return list
}

// logOf is a log that is wanted: what of a task, user/job/index.
type logOf struct {
	task    string
	request schema.LogRequest
}

// copyLog writes a log to out, and what there is to say beside it to stderr.
func copyLog(ctx context.Context, cl *client.Client, l logOf, out, stderr io.Writer) (int64, error) {
	c := &client.LogCopy{Task: l.task, Request: l.request, Out: out, Say: func(text string) {
		screen.Printf(stderr, "muster: %s\n", text)
	}}
	if err := cl.CopyLog(ctx, c); err != nil {
		if _, ok := errors.AsType[*client.Error](err); ok && c.Bytes() == 0 {
			return 0, err
		}
		return c.Bytes(), fmt.Errorf("log of %s: %w", l.task, err)
	}
	return c.Bytes(), nil
}

// copyTask writes the logs of one task as they are: each stream to our own.
func copyTask(ctx context.Context, cl *client.Client, logs []logOf, std stdio) error {
	var all sync.WaitGroup
	errs := make([]error, len(logs))
	stderr := &lockedWriter{w: std.err}
	for i, l := range logs {
		out := std.out
		if l.request.Stream == schema.Stderr && len(logs) > 1 {
			out = stderr
		}
		one := func() {
			var n int64
			if n, errs[i] = copyLog(ctx, cl, l, out, stderr); n == 0 && errs[i] == nil && len(logs) == 1 && l.request.Stream == schema.Stdout && l.request.Tail != 0 && ctx.Err() == nil {
				screen.Printf(stderr, "muster: nothing of %s on stdout; muster logs --stderr %s prints what it wrote to stderr\n", l.task, l.task)
			}
		}
		if l.request.Follow {
			all.Go(one)
		} else {
			one()
		}
	}
	all.Wait()
	return errors.Join(errs...)
}

// lockedWriter lets several goroutines write.
type lockedWriter struct {
	mu sync.Mutex // guards w
	w  io.Writer
}

func (l *lockedWriter) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(p)
}

// copyLogs writes several logs, each line after the name of its task: one after the other,
// or all at once if they are followed. Logs that cannot be read are reported on stderr, and
// the others continue.
func copyLogs(ctx context.Context, cl *client.Client, logs []logOf, std stdio) error {
	if len(logs) == 0 {
		return invalid("muster status shows what they wait for", "none of these tasks has been on a machine yet")
	}
	follow := logs[0].request.Follow
	if follow && len(logs) > maxFollowed {
		return invalid("name one job or task, or a narrower --selector", "%d logs to follow: want at most %d", len(logs), maxFollowed)
	}
	both := slices.ContainsFunc(logs, func(l logOf) bool { return l.request.Stream != logs[0].request.Stream })
	stdout, stderr := &lockedWriter{w: std.out}, &lockedWriter{w: std.err}
	var failed atomic.Int64
	one := func(l logOf) {
		out := stdout
		if both && l.request.Stream == schema.Stderr {
			out = stderr
		}
		w := &lineWriter{prefix: l.task + " | ", out: out}
		_, err := copyLog(ctx, cl, l, w, stderr)
		if err = errors.Join(err, w.end()); err != nil && ctx.Err() == nil {
			failed.Add(1)
			screen.Printf(stderr, "muster: %s: %v\n", l.task, err)
		}
	}
	var all sync.WaitGroup
	for _, l := range logs {
		if follow {
			all.Go(func() { one(l) })
		} else if ctx.Err() == nil {
			one(l)
		}
	}
	all.Wait()
	if n := failed.Load(); n > 0 {
		return fmt.Errorf("%d of %d logs could not be read", n, len(logs))
	}
	return nil
}

// lineWriter writes whole lines to out, each after a prefix.
type lineWriter struct {
	prefix string
	out    io.Writer
	rest   []byte // of a line that has not ended
}

func (w *lineWriter) Write(p []byte) (int, error) {
	w.rest = append(w.rest, p...)
	for {
		n := bytes.IndexByte(w.rest, '\n') + 1
		if n == 0 && len(w.rest) > maxLogLine {
			n = maxLogLine
		}
		if n == 0 {
			return len(p), nil
		}
		line := bytes.TrimSuffix(w.rest[:n], []byte("\n"))
		if err := w.print(line); err != nil {
			return 0, err
		}
		w.rest = w.rest[n:]
	}
}

// end prints what is left of a line that never ended.
func (w *lineWriter) end() error {
	if len(w.rest) == 0 {
		return nil
	}
	return w.print(w.rest)
}

func (w *lineWriter) print(line []byte) error {
	_, err := io.WriteString(w.out, screen.Printable(w.prefix)+string(line)+"\n") // one write; what a task has written is its own
	return err
}
