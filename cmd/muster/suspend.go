package main

import (
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/musterhq/muster/cmd/internal/screen"
	"github.com/musterhq/muster/schema"
)

func newSuspend(std stdio) *cobra.Command {
	var m masterFlag
	var out *outputFlag
	var reason string
	var lasts time.Duration
	c := &cobra.Command{
		Use:        "suspend USER/JOB | all",
		SuggestFor: []string{"pause", "freeze"},
		Short:      "stop applying commits to a job, or to the whole cell",
		Long: `Suspend a job or an alloc set until muster resume, or for the duration of --for: no
commit changes, moves or removes it, a rollout in progress pauses, and the cell makes no
voluntary moves of its tasks. Tasks that fail or are lost are still replaced, with the
version that they ran. With all, no commit is applied: the newest one is compiled only.

The desired state does not change, and a suspension survives a restart of the master.
muster status, why, wait and events show who suspended it, when and why, as does the
metric muster_suspended. If the job is suspended already, its reason and end are
replaced. Requires the role operator.`,
		Example: `  muster suspend search/web --reason "incident 4711: no rollouts tonight"
  muster suspend all --for 2h --reason "the config repository is being repaired"`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkSuspendable(args[0]); err != nil {
				return err
			}
			if err := schema.CheckReason(reason); err != nil {
				return invalid("give a reason on one line: --reason TEXT", "muster suspend %s: %w", args[0], err)
			}
			if cmd.Flags().Changed("for") && lasts < time.Second {
				return invalid("such as --for 2h; without it, it lasts until muster resume", "--for %s: want at least 1s", lasts)
			}
			cl, err := m.client()
			if err != nil {
				return err
			}
			x, err := cl.Suspend(cmd.Context(), schema.Suspension{Name: args[0], Reason: reason}, lasts)
			if err != nil {
				return err
			}
			if out.value == "json" {
				return printJSON(std.out, x)
			}
			err = screen.Fprintf(std.out, "%s is %s\nmuster resume %s ends it\n", suspended(args[0]), x, args[0])
			return err
		},
	}
	m.add(c)
	out = addOutput(c, "text", "json")
	c.Flags().StringVar(&reason, "reason", "", "reason, on one line, shown in status and events; required")
	c.Flags().DurationVar(&lasts, "for", 0, "duration, such as 2h (default: until muster resume)")
	return c
}

func newResume(std stdio) *cobra.Command {
	var m masterFlag
	var out *outputFlag
	c := &cobra.Command{
		Use:   "resume USER/JOB | all",
		Short: "end a suspension",
		Long: `Resume a suspended job, or the cell: the newest commit is applied to it from then on. A
job that was suspended by name stays suspended when all is resumed, and is resumed by
name. It is no error if nothing is suspended.`,
		Example: "  muster resume search/web && muster wait search/web",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkSuspendable(args[0]); err != nil {
				return err
			}
			cl, err := m.client()
			if err != nil {
				return err
			}
			r, err := cl.Resume(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			if out.value == "json" {
				return printJSON(std.out, r)
			}
			said := " was not suspended"
			if r.Was != nil {
				said = " is resumed; it was " + r.Was.String()
			}
			screen.Printf(std.out, "%s%s\n", suspended(args[0]), said)
			for _, name := range r.Still {
				screen.Printf(std.err, "muster: %s is still suspended: muster resume %s ends that\n", suspended(name), name)
			}
			return nil
		},
	}
	m.add(c)
	out = addOutput(c, "text", "json")
	return c
}

// suspended names what a suspension is of.
func suspended(name string) string {
	if name == schema.AllJobs {
		return "the cell"
	}
	return "job " + name
}

// checkSuspendable errs unless an operand is a job, or all.
func checkSuspendable(name string) error {
	if name == schema.AllJobs {
		return nil
	}
	const hint = "USER/JOB, such as search/web, or all for every job of the cell"
	switch _, index, err := parseWhat(name); {
	case strings.Count(name, "/") == 0:
		return invalid(hint, "%q is neither a job nor all", name)
	case err == nil && index >= 0:
		return invalid(hint, "%q is a task: jobs are suspended", name)
	default:
		return err
	}
}
