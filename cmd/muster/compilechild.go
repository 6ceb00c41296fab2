package main

import (
	"github.com/spf13/cobra"

	"github.com/musterhq/muster/schema/compile"
)

// newCompileChild is what muster runs itself as to evaluate CUE: CUE cannot be
// cancelled or bounded, a process can.
func newCompileChild(std stdio) *cobra.Command {
	return &cobra.Command{
		Use:    "compile-child",
		Short:  "evaluate packages that come on stdin",
		Hidden: true,
		RunE:   func(*cobra.Command, []string) error { return compile.Child(std.in, std.out) },
	}
}
