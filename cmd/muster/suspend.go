package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

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
		Short:      "keep commits from a job, or from the whole cell, in an emergency",
		Long: `Leave a job, or an alloc set, as it is until muster resume, or for as long as
--for says: no commit changes, moves or removes anything of it, a rollout stops where
it is, and the cell moves none of its tasks by choice. What fails or is lost is still
healed, with the data that it had. With all no commit is applied: the newest is
compiled, and waits.

It changes nothing of what is desired, and outlasts the master. Who, when and why is
told by muster status, why, wait and events, and by the metric muster_suspended for
as long as it lasts. Of a job that is suspended already it changes the reason and the
end. It takes the role operator.`,
		Example: `  muster suspend search/web --reason "incident 4711: no rollouts tonight"
  muster suspend all --for 2h --reason "the config repository is being repaired"`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkSuspendable(args[0]); err != nil {
				return err
			}
			if err := schema.CheckReason(reason); err != nil {
				return invalid("say in one line why, for those who find it suspended: --reason TEXT", "muster suspend %s: %w", args[0], err)
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
			_, err = fmt.Fprintf(std.out, "%s is %s\nmuster resume %s ends it\n", suspended(args[0]), x, args[0])
			return err
		},
	}
	m.add(c)
	out = addOutput(c, "text", "json")
	c.Flags().StringVar(&reason, "reason", "", "why, in one line, for those who find it suspended; it must be given")
	c.Flags().DurationVar(&lasts, "for", 0, "how long it lasts, such as 2h (default: until muster resume)")
	return c
}

func newResume(std stdio) *cobra.Command {
	var m masterFlag
	var out *outputFlag
	c := &cobra.Command{
		Use:   "resume USER/JOB | all",
		Short: "end a suspension",
		Long: `End what muster suspend began: what the newest commit says of the job, or of the
cell, is done from then on. A job that was suspended by its own name outlasts the
suspension of all, and is resumed by its own name. What is not suspended stays as it
is, and that is no error.`,
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
			fmt.Fprintf(std.out, "%s%s\n", suspended(args[0]), said)
			for _, name := range r.Still {
				fmt.Fprintf(std.err, "muster: %s is still suspended: muster resume %s ends that\n", suspended(name), name)
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
