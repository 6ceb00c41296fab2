package main

import (
	"github.com/spf13/cobra"

	"github.com/musterhq/muster/schema/compile"
)

func newSchemaExport(std stdio) *cobra.Command {
	c := &cobra.Command{
		Use:   "export",
		Args:  cobra.NoArgs,
		Short: "print a JSON Schema of the compiled data, for tools without CUE",
		Long: `Print a JSON Schema (draft 2020-12) of the document that muster render prints:
every object with its fields, their bounds, patterns, defaults and comments. A
document that it refuses is refused by muster too. What it accepts may still be
refused, for what ties fields together (such as the port of a health check), and
for texts whose bytes are bounded: JSON Schema counts their characters.`,
		Example: "  muster schema export --format jsonschema > muster.schema.json\n  muster render fleet | check-jsonschema --schemafile muster.schema.json -",
		RunE: func(*cobra.Command, []string) error {
			b, err := compile.JSONSchema()
			if err != nil {
				return err
			}
			_, err = std.out.Write(b)
			return err
		},
	}
	format := &outputFlag{value: "jsonschema", formats: []string{"jsonschema"}}
	c.Flags().Var(format, "format", "format of what is printed: jsonschema")
	return c
}
