package main

import "github.com/spf13/cobra"

func newSchema(std stdio) *cobra.Command {
	c := &cobra.Command{
		Use:     "schema",
		Short:   "the definitions of what a config repository may declare",
		Example: "  muster schema update fleet\n  muster schema export > muster.schema.json",
	}
	c.AddCommand(newSchemaUpdate(std), newSchemaExport(std))
	return c
}
