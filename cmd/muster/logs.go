package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/spf13/cobra"

	"github.com/musterhq/muster/reconciler/web/client"
	"github.com/musterhq/muster/schema"
)

const (
	// maxFollowed is how many logs are followed at once: each is a stream on the
	// link to an agent.
	maxFollowed = 100
	maxLogLine  = 64 << 10 // a longer line is printed in parts
)

func newLogs(std stdio) *cobra.Command {
	var m masterFlag
	var l labelFlag
	var stream string
	r := schema.LogRequest{}
	c := &cobra.Command{
		Use:   "logs USER/JOB/INDEX | USER/JOB | -l LABELS",
		Short: "print what tasks wrote",
		Long: `Print what a task wrote to stdout, or with --stream stderr to stderr: the newest
run of it that its machine holds. A task that ended keeps its logs for a day. Of a
job, or of the jobs that --selector picks, it is the logs of all tasks that have
been on a machine, each line after the name of its task; with --follow, of those
that exist when the command starts, at most 100.`,
		Example: `  muster logs search/web/0
  muster logs -f search/web/0 --stream stderr --tail 20
  muster logs -l tier=front --tail 5`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if r.Stream, err = schema.ParseLogStream(stream); err != nil {
				return invalid("want stdout or stderr", "--stream: %w", err)
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
			if index >= 0 && l.selector.Empty() {
				return copyLog(cmd.Context(), cl, logOf{args[0], r}, std.out)
			}
			s, _, err := cl.Status(cmd.Context(), client.StatusQuery{Group: l.group(args)})
			if err != nil {
				return err
			}
			var logs []logOf
			for i := range s.Tasks {
				if s.Tasks[i].Generation > 0 {
					logs = append(logs, logOf{s.Tasks[i].Name, r})
				}
			}
			return copyLogs(cmd.Context(), cl, logs, std)
		},
	}
	m.add(c)
	l.add(c)
	c.Flags().BoolVarP(&r.Follow, "follow", "f", false, "go on as more is written")
	c.Flags().StringVar(&stream, "stream", "stdout", "stdout or stderr")
	c.Flags().IntVar(&r.Tail, "tail", -1, "begin with this many last lines; -1 for all")
	c.Flags().IntVar(&r.Incarnation, "incarnation", 0, "which start within the generation; 0 for the newest")
	c.Flags().Uint64Var(&r.Generation, "generation", 0, "which generation; 0 for the newest")
	return c
}

// logOf is a log that is wanted: what of a task, user/job/index.
type logOf struct {
	task    string
	request schema.LogRequest
}

// copyLog writes a log to w.
func copyLog(ctx context.Context, cl *client.Client, l logOf, w io.Writer) error {
	log, err := cl.Logs(ctx, l.task, l.request)
	if err != nil {
		return err
	}
	defer log.Close()
	if _, err := io.Copy(w, log); err != nil && ctx.Err() == nil {
		return fmt.Errorf("log of %s: %w", l.task, err)
	}
	return nil
}

// copyLogs writes several logs to stdout, each line after the name of its task:
// one after the other, or all at once if they are followed. One that cannot be
// read is told of on stderr, and the others go on.
func copyLogs(ctx context.Context, cl *client.Client, logs []logOf, std stdio) error {
	if len(logs) == 0 {
		return invalid("muster status says what they wait for", "none of these tasks has been on a machine yet")
	}
	follow := logs[0].request.Follow
	if follow && len(logs) > maxFollowed {
		return invalid("name one job or task, or a narrower --selector", "%d logs to follow: want at most %d", len(logs), maxFollowed)
	}
	var mu sync.Mutex // guards std and failed
	failed := 0
	one := func(l logOf) {
		w := &lineWriter{prefix: l.task + " | ", mu: &mu, out: std.out}
		err := errors.Join(copyLog(ctx, cl, l, w), w.end())
		if err != nil && ctx.Err() == nil {
			mu.Lock()
			defer mu.Unlock()
			failed++
			fmt.Fprintf(std.err, "muster: %s: %v\n", l.task, err)
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
	if failed > 0 {
		return fmt.Errorf("%d of %d logs could not be read", failed, len(logs))
	}
	return nil
}

// lineWriter writes whole lines to out, each after a prefix.
type lineWriter struct {
	prefix string
	mu     *sync.Mutex // guards out
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
	w.mu.Lock()
	defer w.mu.Unlock()
	_, err := fmt.Fprintf(w.out, "%s%s\n", w.prefix, line) // one write
	return err
}
