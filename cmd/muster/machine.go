package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/musterhq/muster/cmd/internal/screen"
	"github.com/musterhq/muster/reconciler/web/client"
	"github.com/musterhq/muster/schema"
)

func newMachine(std stdio) *cobra.Command {
	c := &cobra.Command{
		Use:        "machine",
		SuggestFor: []string{"node", "host"},
		Short:      "administer machines",
		Example:    `  muster machine forget m7 --reason "its disk is broken"`,
	}
	c.AddCommand(newForget(std))
	return c
}

func newForget(std stdio) *cobra.Command {
	var m masterFlag
	var out *outputFlag
	var reason string
	var yes bool
	c := &cobra.Command{
		Use:        "forget MACHINE",
		SuggestFor: []string{"delete", "purge", "remove", "rm"},
		Short:      "remove a machine from the cell for good",
		Long: `Remove a machine from the cell for good, or free its name for another machine. All of
its tasks are rescheduled at once, including those that must never run twice
(neverTwice) and those that stay with their sticky directory. So make sure first that
none of them is still running. If there are tasks to reschedule they are listed, and
nothing is done without --yes.

The name is then free for an agent with another id, or one that joins for the first
time. If the previous agent connects again while the name is free, it joins as a new
machine, and the tasks that it still runs are stopped.

A machine whose agent is connected cannot be forgotten: it would join again. A machine
that a commit declares gone (gone: true in its machine object) is forgotten without
this command once it is silent. Requires the role operator.`,
		Example: `  muster machine forget m7 --reason "its disk is broken"
  muster machine forget m7 --reason "reinstalled" --yes`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			name := args[0]
			if err := schema.CheckName(name); err != nil {
				return invalid("muster status lists the machines", "machine: %w", err)
			}
			if err := schema.CheckReason(reason); err != nil {
				return invalid("give a reason on one line: --reason TEXT", "muster machine forget %s: %w", name, err)
			}
			cl, err := m.client()
			if err != nil {
				return err
			}
			f, err := forgets(cmd.Context(), cl, name, reason, yes)
			if err != nil {
				return err
			}
			if out.value == "json" {
				if err := printJSON(std.out, f); err != nil {
					return err
				}
			} else {
				sayForgetting(std, f)
			}
			if !f.Done {
				return &failure{code: exitDiffers, err: fmt.Errorf("machine %s is not forgotten: its tasks would be rescheduled", name), hint: "when it is certain that none of them is still running, add --yes"}
			}
			return nil
		},
	}
	m.add(c)
	out = addOutput(c, "text", "json")
	c.Flags().StringVar(&reason, "reason", "", "reason, on one line, shown in status and events; required")
	c.Flags().BoolVar(&yes, "yes", false, "confirm that its tasks are rescheduled; required if it has any")
	return c
}

// forgets asks what forgetting a machine would do, and for it unless that takes a
// yes which was not given.
func forgets(ctx context.Context, cl *client.Client, machine, reason string, yes bool) (*schema.Forgetting, error) {
	if !yes {
		would, err := cl.Forget(ctx, machine, reason, true)
		if err != nil || len(would.Tasks) > 0 {
			return would, err
		}
	}
	return cl.Forget(ctx, machine, reason, false)
}

// sayForgetting prints what was done, or would be.
func sayForgetting(std stdio, f *schema.Forgetting) {
	is, are := "is forgotten", "are rescheduled"
	if !f.Done {
		is, are = "would be forgotten", "would be rescheduled"
	}
	screen.Printf(std.out, "machine %s %s (%s)\n", f.Machine, is, f.Place)
	if len(f.Tasks) == 0 {
		return
	}
	screen.Printf(std.out, "%s %s: %s\n", schema.Count(len(f.Tasks), "task"), are, someOf(f.Tasks))
	if len(f.NeverTwice) > 0 {
		screen.Printf(std.out, "of these must never run twice: %s\n", someOf(f.NeverTwice))
	}
}

// someOf lists the first of names.
func someOf(names []string) string {
	const most = 10
	if n := len(names) - most; n > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), n)
	}
	return strings.Join(names, ", ")
}
