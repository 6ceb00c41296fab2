package main

import "github.com/spf13/cobra"

func newSchema(std stdio) *cobra.Command {
	c := &cobra.Command{
		Use:     "schema",
		Short:   "manage the CUE definitions of a config repository",
		Example: "  muster schema update fleet\n  muster schema export > muster.schema.json",
	}
	c.AddCommand(newSchemaUpdate(std), newSchemaExport(std))
	return c
}
