package main

import (
	"errors"
	"fmt"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/musterhq/muster/cmd/internal/screen"
	"github.com/musterhq/muster/reconciler"
	"github.com/musterhq/muster/schema"
	"github.com/musterhq/muster/schema/compile"
)

func newExplain(std stdio) *cobra.Command {
	var rev, dir string
	var out *outputFlag
	c := &cobra.Command{
		Use:   "explain JOB [FIELD]",
		Short: "print where the values of a job come from",
		Long: `Print each value of a job, or that of FIELD and of what is in it, with every place that
contributes to it: what the job itself says, what the templates that it is made from say,
and what the schema allows. A place sets the value, gives a default that others may
change, or limits what it may be. JOB is a name, or USER/JOB where several users have a
job of that name.`,
		Example: "  muster explain web task.resources.ramBytes\n  muster explain search/web -o json",
		Args:    cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := compileRepo(cmd.Context(), dir, rev, reconciler.Take)
			if err != nil {
				return err
			}
			pkg, key, err := findJob(c.compiled, args[0])
			if err != nil {
				if errs, _ := count(c.diagnostics); errs > 0 {
					printDiagnostics(std.err, screen.Painter(isTerminal(std.err)), c.diagnostics, c.tree.Files)
				}
				return err
			}
			field := ""
			if len(args) > 1 {
				field = args[1]
			}
			compiler, done, err := withCache(dir)
			if err != nil {
				return err
			}
			defer done()
			sources, err := compiler.Sources(cmd.Context(), c.tree, pkg, key, field)
			switch {
			case errors.Is(err, compile.ErrNoField):
				return invalid("muster explain "+args[0]+" lists the fields that are set", "job %s has no field %q that is set or has a default", args[0], field)
			case err != nil:
				return fmt.Errorf("explain %s: %w", args[0], err)
			case out.value == "json":
				return printJSON(std.out, sources)
			}
			return printSources(std, sources)
		},
	}
	c.Flags().StringVar(&dir, "repo", ".", "directory of the config repository")
	c.Flags().StringVar(&rev, "rev", "", "commit, branch or tag to look at instead of the work tree")
	out = addOutput(c, "text", "json")
	return c
}

// findJob returns the directory and the key of the one job of a name.
func findJob(c schema.Compiled, name string) (dir string, found schema.ObjectKey, err error) {
	for i := range c.Packages {
		p := c.Packages[i].Package
		if p == nil {
			continue
		}
		for j := range p.Objects.Jobs {
			id := p.Objects.Jobs[j].ID()
			if name != id.Job && name != id.Short() && name != id.String() {
				continue
			}
			if dir != "" {
				return "", found, invalid("write USER/JOB, or CELL/USER/JOB", "%s: several jobs have this name, such as %s and %s", name, found.Name, id)
			}
			dir, found = p.Dir, schema.ObjectKey{Kind: schema.KindJob, Name: id.String()}
		}
	}
	if dir == "" {
		return "", found, invalid("muster render lists them", "no package that compiles declares a job %q", name)
	}
	return dir, found, nil
}

// roles are what a place does, in words.
var roles = map[compile.Role]string{
	compile.Sets: "sets it", compile.Defaults: "default", compile.Limit: "limits it", compile.Schema: "nothing sets it",
}

func printSources(std stdio, sources []compile.FieldSource) error {
	w := tabwriter.NewWriter(std.out, 0, 0, 2, ' ', 0)
	for _, s := range sources {
		screen.Printf(w, "%s: %s\n", s.Field, s.Value)
		if s.Deprecated != "" {
			screen.Printf(w, "  %s\n", s.Deprecated)
		}
		for _, p := range s.Places {
			at := p.Position.String()
			if at == "" {
				at = "-"
			}
			screen.Printf(w, "  %s\t%s\t%s\n", at, roles[p.Role], p.Text)
		}
	}
	return w.Flush()
}
