package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/musterhq/muster/schema"
)

// followWait is how long one question for further events waits.
const followWait = 20 * time.Second

func newEvents(std stdio) *cobra.Command {
	var m masterFlag
	var out *outputFlag
	var follow bool
	q := schema.EventQuery{Newest: true}
	c := &cobra.Command{
		Use:     "events [USER/JOB | USER/JOB/INDEX | MACHINE]",
		Short:   "print the cell's history",
		Example: "  muster events search/web\n  muster events -f -o json",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 {
				switch strings.Count(args[0], "/") {
				case 0:
					q.Machine = args[0]
				case 1:
					q.Job = args[0]
				default:
					q.Task = args[0]
				}
			}
			cl, err := m.client()
			if err != nil {
				return err
			}
			wait := time.Duration(0)
			for {
				records, err := cl.Events(cmd.Context(), q, wait)
				if err != nil {
					if cmd.Context().Err() != nil {
						return nil //nolint:nilerr // the user has seen enough
					}
					return err
				}
				for i := range records {
					if err := printEvent(std, out.value, &records[i]); err != nil {
						return err
					}
					q.After = records[i].ID
				}
				if !follow {
					return nil
				}
				q.Newest, q.Limit, wait = false, 0, followWait
			}
		},
	}
	m.add(c)
	out = addOutput(c, "text", "json")
	c.Flags().BoolVarP(&follow, "follow", "f", false, "go on as more happens")
	c.Flags().IntVar(&q.Limit, "limit", 100, "how many of the newest to print; 0 for all that are held in memory")
	return c
}

// printEvent writes one event: a line of text, or of JSON.
func printEvent(std stdio, format string, e *schema.EventRecord) error {
	if format == "json" {
		return json.NewEncoder(std.out).Encode(e)
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
	_, err := fmt.Fprintf(std.out, "%s %-8s %s%s\n", e.At.UTC().Format("2006-01-02T15:04:05.000Z"), e.Kind, what, e.Message)
	return err
}
