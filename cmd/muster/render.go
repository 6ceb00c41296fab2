package main

import (
	"bytes"
	"encoding/json"

	"github.com/spf13/cobra"

	"github.com/musterhq/muster/cmd/internal/screen"
	"github.com/musterhq/muster/reconciler"
	"github.com/musterhq/muster/schema"
)

func newRender(std stdio) *cobra.Command {
	var rev string
	var pretty bool
	c := &cobra.Command{
		Use:   "render [DIR]",
		Short: "print the data that a config repository compiles to",
		Long: `Print the data that the config repository at DIR (default: the current directory)
compiles to: one canonical JSON document, objects by kind as sorted lists. Without
--rev it is the work tree that is compiled, with it a commit.

To a pipe or a file it is written on one line, as the master stores it: the same data
gives the same bytes. On a terminal, or with --pretty, it is indented. A field that is
left out has its default, which is in the schema reference.`,
		Example: "  muster render fleet | jq '.jobs[].name'\n  muster render fleet --rev main~1\n  muster render fleet --pretty > fleet.json",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := compileRepo(cmd.Context(), operand(args), rev, reconciler.Take)
			if err != nil {
				return err
			}
			if errs, _ := count(c.diagnostics); errs > 0 {
				printDiagnostics(std.err, screen.Painter(isTerminal(std.err)), c.diagnostics, c.tree.Files)
				return &failure{code: exitInvalid}
			}
			data := schema.Canonical(c.objects.Unsealed())
			if !cmd.Flags().Changed("pretty") && isTerminal(std.out) || pretty {
				var b bytes.Buffer
				if err := json.Indent(&b, data, "", "  "); err != nil {
					return err
				}
				data = b.Bytes()
			}
			_, err = tamed(std.out).Write(append(data, '\n'))
			return err
		},
	}
	addOutput(c, "json")
	c.Flags().BoolVar(&pretty, "pretty", false, "indent the document (default on a terminal)")
	c.Flags().StringVar(&rev, "rev", "", "commit, branch or tag to compile instead of the work tree")
	return c
}
