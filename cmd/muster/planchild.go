package main

import (
	"github.com/spf13/cobra"

	"github.com/musterhq/muster/reconciler/history"
)

// newPlanChild is what a master runs itself as to plan a commit: beside it, and with less of
// the processor.
func newPlanChild(std stdio) *cobra.Command {
	return &cobra.Command{
		Use:    "plan-child",
		Short:  "plan a commit that comes on stdin with a cell",
		Hidden: true,
		RunE:   func(*cobra.Command, []string) error { return history.Child(std.in, std.out) },
	}
}
