package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/musterhq/muster/cmd/internal/screen"
	"github.com/musterhq/muster/reconciler/web/client"
	"github.com/musterhq/muster/schema"
)

func newEvents(std stdio) *cobra.Command {
	var m masterFlag
	var out *outputFlag
	var follow bool
	var l labelFlag
	q := client.EventQuery{EventQuery: schema.EventQuery{Newest: true}}
	c := &cobra.Command{
		Use:   "events [USER/JOB | USER/JOB/INDEX | MACHINE]",
		Short: "print the events of the cell",
		Long: `Print the events of the cell, one per line, oldest first. On a terminal, or if COLUMNS
is set, long lines are wrapped, except with -o wide.`,
		Example: "  muster events search/web\n  muster events -l tier=front\n  muster events -f -o json\n  muster events --kind suspend",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 {
				about(&q.EventQuery, args[0])
			}
			q.Selector = l.selector
			if q.Limit < 0 {
				return invalid("such as --limit 20; 0 for all that are held in memory", "--limit %d: want at least 0", q.Limit)
			}
			if err := checkKind(q.Kind); err != nil {
				return err
			}
			cl, err := m.client()
			if err != nil {
				return err
			}
			return printEvents(cmd.Context(), std, cl, eventOutput{q, out.value, follow})
		},
	}
	m.add(c)
	l.add(c)
	out = addOutput(c, "text", "wide", "json")
	c.Flags().BoolVarP(&follow, "follow", "f", false, "keep printing new events")
	c.Flags().IntVar(&q.Limit, "limit", 100, "how many of the newest to print; 0 for all that are held in memory")
	c.Flags().StringVar((*string)(&q.Kind), "kind", "", "only events of this kind, such as fail, hold, suspend or exec")
	return c
}

// checkKind errs unless a kind is one of an event, or none is wanted.
func checkKind(k schema.EventKind) error {
	if k == "" || slices.Contains(schema.EventKinds(), k) {
		return nil
	}
	return invalid("one of "+strings.Join(kindNames(), ", "), "--kind %q is not a kind of event", k)
}

func kindNames() []string {
	var out []string
	for _, k := range schema.EventKinds() {
		out = append(out, string(k))
	}
	return out
}

// about narrows a query to a machine, a job or a task.
func about(q *schema.EventQuery, name string) {
	switch strings.Count(name, "/") {
	case 0:
		q.Machine = name
	case 1:
		q.Job = name
	default:
		q.Task = name
	}
}

// eventOutput says which events are printed, and how.
type eventOutput struct {
	query  client.EventQuery
	format string
	follow bool
}

// printEvents prints the events there are, and with follow those that come until
// ctx ends.
func printEvents(ctx context.Context, std stdio, cl *client.Client, o eventOutput) error {
	if o.follow {
		ctx, stop := whileRead(ctx, std.out)
		defer stop()
		for e, err := range cl.EventChanges(ctx, o.query, patient(std)) {
			if err == nil {
				err = printEvent(std, o.format, e)
			}
			if err != nil {
				return unread(ctx, err)
			}
		}
		return unread(ctx, nil)
	}
	records, err := cl.Events(ctx, o.query, 0)
	for i := range records {
		if err == nil {
			err = printEvent(std, o.format, &records[i])
		}
	}
	return err
}

// retryFor is for how long a command that watches tries a master again that does not
// answer any more: another one leads long before.
const retryFor = 10 * time.Minute

// patient returns how a watch goes on that is interrupted: until somebody ends it, or for
// long, and what keeps it is said beside what it prints.
func patient(std stdio) client.Watch {
	return client.Watch{Patience: retryFor, Say: func(text string) { screen.Printf(std.err, "muster: %s\n", text) }}
}

// printEvent writes one event: a line of text, or of JSON.
func printEvent(std stdio, format string, e *schema.EventRecord) error {
	if format == "json" {
		return writeJSON(std.out, e, "")
	}
	what := e.Task
	for _, s := range []string{e.Job, e.Machine} {
		if what == "" {
			what = s
		}
	}
	if e.Machine != "" && what != e.Machine {
		what += " on " + e.Machine
	}
	if what != "" {
		what += ": "
	}
	if e.Commit != "" {
		what = "commit " + short(e.Commit) + " " + what
	}
	head := fmt.Sprintf("%s %-8s ", e.At.UTC().Format("2006-01-02T15:04:05.000Z"), e.Kind)
	_, err := io.WriteString(std.out, screen.Fold(head, what+e.Message, lineCells(std.out, format == "wide")))
	return err
}
