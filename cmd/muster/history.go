package main

import (
	"cmp"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/musterhq/muster/cmd/internal/screen"
	"github.com/musterhq/muster/reconciler/history"
	"github.com/musterhq/muster/reconciler/plan"
	"github.com/musterhq/muster/schema/lazyregexp"
)

var commitPrefix = lazyregexp.New(`^[0-9a-f]{1,64}$`)

func newHistory(std stdio) *cobra.Command {
	var m masterFlag
	var limit int
	var all bool
	var out *outputFlag
	c := &cobra.Command{
		Use:   "history [COMMIT]",
		Short: "show what was planned for a commit, and what then happened",
		Long: `Show what was planned for a commit, and what the cell then did, side by side: which tasks
did something else than the plan says, and what in the events says why, such as a machine
that was lost meanwhile. Without COMMIT, the newest commits are listed.

The master that leads plans each commit by itself, on the cell as it is just before it
takes it, and keeps that for the newest 200 commits. What happened is read from the events,
until all is as desired, or another commit is applied, or an hour after the plan ends. That
tasks were changed in place is not in the events, and taken for granted.

Exits 1 when a task did something else.`,
		Example: `  muster history
  muster history 1f00aa3
  muster history 1f00aa3 -o json`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if limit < 1 || limit > maxHistory {
				return invalid("such as -n 20", "-n %d: want 1 to %d", limit, maxHistory)
			}
			if len(args) == 1 && !commitPrefix.MatchString(args[0]) {
				return invalid("muster history lists the newest", "%q: want a commit's hash, or the beginning of one", args[0])
			}
			cl, err := m.client()
			if err != nil {
				return err
			}
			if len(args) == 0 {
				var list []history.Entry
				if err := cl.History(cmd.Context(), "", limit, &list); err != nil {
					return err
				}
				return printCommits(std, list, out.value)
			}
			var x history.Comparison
			if err := cl.History(cmd.Context(), args[0], 0, &x); err != nil {
				return err
			}
			if err := printHistory(std, &x, out.value, all); err != nil {
				return err
			}
			if x.Different > 0 {
				return &failure{code: exitDiffers}
			}
			return nil
		},
	}
	m.add(c)
	c.Flags().IntVarP(&limit, "limit", "n", 20, "how many commits are listed")
	c.Flags().BoolVar(&all, "all", false, "show all tasks, however many lines that takes")
	out = addOutput(c, "text", "json")
	return c
}

// maxHistory is how many commits a master keeps.
const maxHistory = 200

func printCommits(std stdio, list []history.Entry, format string) error {
	if format == "json" {
		return printJSON(std.out, list)
	}
	t := screen.Table{Columns: []screen.Column{
		{Head: "COMMIT", Always: true},
		{Head: "SEEN", Always: true, Rank: 1},
		{Head: "STATE", Always: true},
		{Head: "TASKS", Always: true},
		{Head: "AS PLANNED", Always: true},
		{Head: "OTHERWISE", Always: true},
		{Head: "CHANGE", Least: 8, Rank: 2},
	}}
	for i := range list {
		e := &list[i]
		row := []string{short(e.Commit), e.Seen.Local().Format(time.DateTime), string(e.State), strconv.Itoa(e.Tasks), strconv.Itoa(e.Same), strconv.Itoa(e.Different), e.By.Subject}
		if e.Ending == "" {
			row[3], row[4], row[5] = "no plan", "-", "-"
		}
		cells := make([]screen.Cell, 0, len(row))
		for _, text := range row {
			cells = append(cells, screen.Cell{Text: text})
		}
		t.Rows = append(t.Rows, cells)
	}
	_, err := io.WriteString(std.out, t.Text(columns(std.out, false), screen.Painter(false)))
	return err
}

// listed is how many tasks are listed without --all.
const listed = 20

func printHistory(std stdio, x *history.Comparison, format string, all bool) error {
	if format == "json" {
		return printJSON(std.out, x)
	}
	width, most := columns(std.out, false), listed
	if all {
		most = 0
	}
	var b strings.Builder
	say := func(format string, args ...any) {
		b.WriteString(screen.Wrap("", "  ", fmt.Sprintf(format, args...), width))
	}
	whose := ""
	if x.By.Author != "" {
		whose = fmt.Sprintf(", by %s: %q", x.By.Author, x.By.Subject)
	}
	say("commit %s%s", short(x.Commit), whose)
	say("seen %s, when %s was applied: %s%s", x.Seen.Format(time.RFC3339), short(x.Base), x.State, tookOf(x))
	for _, n := range x.Notes {
		say("%s", n)
	}
	if x.Plan != nil {
		say("plan: %s", screen.PlanHead(x.Plan))
	}
	if x.Result != nil {
		b.WriteString(screen.History(x.Result, x.Plan != nil, width, most))
	}
	_, err := io.WriteString(std.out, b.String())
	return err
}

// tookOf says how long a commit has been at work.
func tookOf(x *history.Comparison) string {
	if x.Until.IsZero() {
		return ""
	}
	took := " after " + x.Until.Sub(x.Seen).Round(100*time.Millisecond).String()
	if x.State == history.Converged && x.Ending == plan.Settled {
		took += fmt.Sprintf(" (planned: %s at the least)", cmp.Or(time.Duration(x.Seconds*float64(time.Second)).Round(100*time.Millisecond), 0))
	}
	return took
}
