package main

import (
	"fmt"

	"github.com/spf13/cobra"
)

func newReconcile(std stdio) *cobra.Command {
	var m masterFlag
	var out *outputFlag
	c := &cobra.Command{
		Use:   "reconcile",
		Short: "make the master look at its repository now",
		Long: `Make the master look at its repository now instead of at the next poll. It changes
nothing of what is desired: only a commit does.`,
		Example: "  muster reconcile && muster wait",
		RunE: func(cmd *cobra.Command, _ []string) error {
			cl, err := m.client()
			if err != nil {
				return err
			}
			if err := cl.Reconcile(cmd.Context()); err != nil {
				return err
			}
			if out.value == "json" {
				return printJSON(std.out, struct {
					Requested bool `json:"requested"`
				}{true})
			}
			_, err = fmt.Fprintln(std.out, "the master looks at its repository")
			return err
		},
	}
	m.add(c)
	out = addOutput(c, "text", "json")
	return c
}
