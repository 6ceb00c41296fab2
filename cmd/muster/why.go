package main

import (
	"context"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/musterhq/muster/cmd/internal/screen"
	"github.com/musterhq/muster/reconciler/status"
	"github.com/musterhq/muster/reconciler/web/client"
	"github.com/musterhq/muster/schema"
)

func newWhy(std stdio) *cobra.Command {
	var m lookFlag
	var l labelFlag
	var machine string
	var out *outputFlag
	c := &cobra.Command{
		Use:   "why USER/JOB[/INDEX] | service USER/NAME | machine NAME | -l LABELS",
		Short: "explain the state of a job, a task, a service or a machine",
		Long: `Explain the state of a job or a task, or of each job that --selector matches (a list
with -o json). For a task this includes the score of its machine and of the best other
one; --machine says whether a given machine would accept the task, and which tasks it
would preempt there. For a service: which tasks are its endpoints, which are not and why,
and which machines do not send their connections on. For a machine: whether its tasks move
away so that it can be switched off, and why not (rebalance.emptyBelow of the cell).

On a terminal, or if COLUMNS is set, long lines are wrapped, except with -o wide.`,
		Example: "  muster why search/web/3 --machine m-17\n  muster why search/web\n  muster why search/web/3 -o json\n  muster why -l tier=front\n  muster why service search/front\n  muster why machine m-17",
		Args:    cobra.MaximumNArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case len(args) == 2 || len(args) == 1 && whyKinds[args[0]] != "":
				if err := checkWhyKind(args, !l.selector.Empty() || machine != ""); err != nil {
					return err
				}
			case len(args) == 1 && !l.selector.Empty():
				return invalid("leave one of them out", "muster why: both %s and --selector are given", args[0])
			case len(args) == 0 && l.selector.Empty():
				return invalid("such as muster why search/web, or muster why -l tier=front", "muster why: which job? neither a name nor --selector is given")
			}
			if machine != "" && (len(args) == 0 || strings.Count(args[0], "/") != 2) {
				return invalid("such as muster why search/web/3 --machine m-17", "muster why: --machine asks about one task, USER/JOB/INDEX")
			}
			cl, err := m.client()
			if err != nil {
				return err
			}
			if len(args) == 2 {
				return whyKind(cmd.Context(), cl, args, explainTo{std.out, out.value})
			}
			if len(args) == 1 {
				job, index, err := parseWhat(args[0])
				if err != nil {
					return err
				}
				return whyOne(cmd.Context(), cl, client.WhyQuery{Job: job, Index: index, Machine: machine}, explainTo{std.out, out.value})
			}
			return whyMany(cmd.Context(), cl, l.group(nil), explainTo{std.out, out.value})
		},
	}
	m.add(c)
	l.add(c)
	c.Flags().StringVar(&machine, "machine", "", "machine to check for whether it would accept the task")
	out = addOutput(c, "text", "wide", "json")
	return c
}

// explainTo is where explanations go, and as what.
type explainTo struct {
	w      io.Writer
	format string
}

func whyOne(ctx context.Context, cl *client.Client, q client.WhyQuery, to explainTo) error {
	why, err := cl.Why(ctx, q)
	if err != nil {
		return err
	}
	if to.format == "json" {
		return printJSON(to.w, why)
	}
	return printWhy(to, why)
}

// whyKinds are the words before a name that is not of a job, with an example of each.
var whyKinds = map[string]string{"service": "muster why service search/front", "machine": "muster why machine m-17"}

// checkWhyKind errs unless args are such a word and what may be a name, without flags of what else is explained.
func checkWhyKind(args []string, flags bool) error {
	kind, example := args[0], whyKinds[args[0]]
	hint := "such as " + example
	switch {
	case example == "":
		return invalid("such as "+whyKinds["service"]+", or "+whyKinds["machine"], "muster why: unexpected argument %q", args[1])
	case len(args) == 1:
		return invalid(hint, "muster why %s: which %[1]s?", kind)
	case flags:
		return invalid(hint, "muster why %s: --selector and --machine are about jobs and tasks", kind)
	case kind == "machine":
		if err := schema.CheckName(args[1]); err != nil {
			return invalid(hint, "muster why machine: %w", err)
		}
	}
	return nil
}

// whyKind explains a service or a machine.
func whyKind(ctx context.Context, cl *client.Client, args []string, to explainTo) error {
	if args[0] == "machine" {
		return whyOne(ctx, cl, client.WhyQuery{Index: -1, Machine: args[1]}, to)
	}
	return whyService(ctx, cl, args[1], to)
}

func whyService(ctx context.Context, cl *client.Client, name string, to explainTo) error {
	if err := checkService(ctx, cl, name); err != nil {
		return err
	}
	why, err := cl.WhyService(ctx, name)
	if err != nil {
		return err
	}
	if to.format == "json" {
		return printJSON(to.w, why)
	}
	return printLines(to, why.Lines())
}

func whyMany(ctx context.Context, cl *client.Client, g status.Group, to explainTo) error {
	s, _, err := cl.Status(ctx, client.StatusQuery{Group: g})
	if err != nil {
		return err
	}
	names := s.JobNames()
	all := make([]*status.Explanation, 0, len(names))
	for _, name := range names {
		why, err := cl.Why(ctx, client.WhyQuery{Job: name, Index: -1})
		if err != nil {
			return err
		}
		all = append(all, why)
	}
	if to.format == "json" {
		return printJSON(to.w, all)
	}
	for _, why := range all {
		if err := printWhy(to, why); err != nil {
			return err
		}
	}
	return nil
}

func printWhy(to explainTo, why *status.Explanation) error { return printLines(to, why.Lines()) }

func printLines(to explainTo, list []string) error {
	var b strings.Builder
	width := lineCells(to.w, to.format == "wide")
	for _, said := range list {
		for i, line := range strings.Split(said, "\n") {
			if i > 0 && !strings.HasPrefix(line, " ") {
				line = "    " + line // of a text that has several
			}
			text := strings.TrimLeft(line, " ")
			b.WriteString(screen.Fold(line[:len(line)-len(text)], text, width))
		}
	}
	_, err := io.WriteString(to.w, b.String())
	return err
}

// parseWhat parses USER/JOB or USER/JOB/INDEX; index is -1 for a job.
func parseWhat(s string) (job string, index int, err error) {
	parts := strings.Split(s, "/")
	index = -1
	if len(parts) == 3 {
		if index, err = schema.ParseIndex(parts[2]); err != nil {
			return "", 0, invalid("a task is USER/JOB/INDEX, such as search/web/0", "%q: %w", s, err)
		}
		parts = parts[:2]
	}
	if len(parts) != 2 {
		return "", 0, invalid("a job is USER/JOB, a task USER/JOB/INDEX, such as search/web/0", "%q is neither a job nor a task", s)
	}
	for _, p := range parts {
		if err := schema.CheckName(p); err != nil {
			return "", 0, invalid("a job is USER/JOB, a task USER/JOB/INDEX, such as search/web/0", "%q: %w", s, err)
		}
	}
	return parts[0] + "/" + parts[1], index, nil
}
