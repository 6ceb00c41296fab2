package main

import (
	"context"
	"fmt"
	"path"
	"regexp"
	"slices"

	"github.com/spf13/cobra"

	"github.com/musterhq/muster/cmd/internal/screen"
	"github.com/musterhq/muster/reconciler"
	"github.com/musterhq/muster/schema"
	"github.com/musterhq/muster/schema/compile"
)

func newTest(std stdio) *cobra.Command {
	var rev, run string
	var verbose bool
	var out *outputFlag
	c := &cobra.Command{
		Use:   "test [DIR]",
		Short: "run the tests of a config repository: what its templates must give",
		Long: `Run the tests of the config repository at DIR (default: the current directory): those in
its files _test.cue, which are no part of what a cell runs. A test belongs to the package
of its directory, may use all that this has, and says what it expects:

  test: "a service has two tasks": {
      job: web: #StandardService & {user: "example", …}
      want: job: web: tasks: 2          data: each field that is written is as it says
      has: ["job.web.task.health"]      data paths that are there
      lacks: ["job.web.update.canary"]  data paths that are not there
  }
  test: "a service needs a tier": {
      job: web: #StandardService & {user: "example"}
      fails: "tier"                     part of an error that is expected, or a list
  }

Data is as muster render shows it, with the objects of the package beside those of the
test. With fails each error must be expected. A test without any of these passes if there
is no error. muster validate runs all tests, too.

Exits 1 when a test fails, 2 when the repository or a test is not valid.`,
		Example: "  muster test fleet\n  muster test --run 'lib: .*tier'\n  muster test -o json | jq '.tests[] | select(.passed | not)'",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			form, err := regexp.Compile(run)
			if err != nil {
				return invalid("a regular expression, such as 'lib: .*tier'", "--run %q: %w", run, err)
			}
			c, err := compileRepo(cmd.Context(), operand(args), rev, reconciler.Take)
			if err != nil {
				return err
			}
			compiler, done, err := withCache(operand(args))
			if err != nil {
				return err
			}
			defer done()
			results, err := compiler.Test(cmd.Context(), c.tree, form.MatchString)
			if err != nil {
				return err
			}
			if len(results) == 0 && run != "" {
				return invalid("muster test --verbose lists all tests, as DIR: NAME", "--run %q: no test has such a name", run)
			}
			return printTests(std, out.value, verbose, c, results)
		},
	}
	c.Flags().StringVar(&rev, "rev", "", "commit, branch or tag to test instead of the work tree")
	c.Flags().StringVar(&run, "run", "", "run the tests alone that this regular expression matches, as DIR: NAME")
	c.Flags().BoolVarP(&verbose, "verbose", "v", false, "list also the tests that pass")
	out = addOutput(c, "text", "json")
	return c
}

// tested runs all tests of a repository, and adds to its diagnostics why some fail.
func (c *compiledRepo) tested(ctx context.Context, compiler *compile.Compiler) error {
	results, err := compiler.Test(ctx, c.tree, func(string) bool { return true })
	if err != nil {
		return err
	}
	c.addTests(results)
	return nil
}

// addTests adds to the diagnostics why tests fail. What is made from a package with a mistake fails because of that.
func (c *compiledRepo) addTests(results []compile.TestResult) {
	said := map[schema.Diagnostic]bool{}
	place := func(d schema.Diagnostic) schema.Diagnostic {
		return schema.Diagnostic{Severity: d.Severity, Rule: d.Rule, Position: d.Position, Field: d.Field}
	}
	wrong := map[string]bool{} // directories
	at := map[schema.Position]bool{}
	for _, d := range c.diagnostics {
		said[place(d)] = true // without the words, which count packages and name one object
		at[d.Position] = at[d.Position] || d.Severity == schema.Error
		if d.Severity == schema.Error && d.Rule != schema.RulePolicy {
			wrong[path.Dir(d.Path)] = true
		}
	}
	for i := range results {
		c.tests++
		if slices.ContainsFunc(results[i].Uses, func(dir string) bool { return wrong[dir] }) {
			continue
		}
		for _, d := range results[i].Diagnostics {
			follows := d.Rule == schema.RuleDependency && at[d.Position]
			if d.Severity == schema.Error && !follows && !said[place(d)] && !said[d] {
				said[d] = true
				if results[i].Name != "" {
					d.Message = fmt.Sprintf("test %q: %s", results[i].Name, d.Message)
				}
				c.diagnostics = append(c.diagnostics, d)
			}
		}
	}
}

// testReport is what `muster test -o json` prints.
type testReport struct {
	Version int                  `json:"version"`
	Passed  int                  `json:"passed"`
	Failed  int                  `json:"failed"`
	Tests   []compile.TestResult `json:"tests"`
	// Diagnostics are the errors of the repository itself.
	Diagnostics []schema.Diagnostic `json:"diagnostics"`
}

func printTests(std stdio, format string, verbose bool, c *compiledRepo, results []compile.TestResult) error {
	r := testReport{Version: outputVersion, Tests: append([]compile.TestResult{}, results...), Diagnostics: []schema.Diagnostic{}}
	var failed error
	for _, d := range c.diagnostics {
		if d.Severity == schema.Error {
			r.Diagnostics, failed = append(r.Diagnostics, d), &failure{code: exitInvalid}
		}
	}
	for i := range results {
		switch {
		case results[i].Passed:
			r.Passed++
			continue
		case results[i].Name == "":
			failed = &failure{code: exitInvalid}
		case failed == nil:
			failed = &failure{code: exitDiffers}
		}
		r.Failed++
	}
	if format == "json" {
		if err := printJSON(std.out, r); err != nil {
			return err
		}
		return failed
	}
	p := screen.Painter(isTerminal(std.out))
	if len(r.Diagnostics) > 0 {
		printDiagnostics(std.out, p, r.Diagnostics, c.tree.Files)
		screen.Printf(std.out, "\n")
	}
	for i := range results {
		t := &results[i]
		name := fmt.Sprintf("%s: %s", t.Dir, t.Name)
		switch {
		case t.Passed && verbose:
			screen.Printf(std.out, "%s  %s\n", p.Paint(screen.Green, "pass"), name)
		case !t.Passed:
			if t.Name == "" {
				name = t.Dir + ": not a test"
			}
			screen.Printf(std.out, "%s  %s\n", p.Paint(screen.Red, "FAIL"), name)
			printDiagnostics(std.out, p, slices.DeleteFunc(slices.Clone(t.Diagnostics), func(d schema.Diagnostic) bool { return d.Severity != schema.Error }), c.tree.Files)
			screen.Printf(std.out, "\n")
		}
	}
	var err error
	switch {
	case len(results) == 0:
		err = screen.Fprintf(std.out, "no tests: they are in files _test.cue; muster test --help says how\n")
	case r.Failed == 0:
		err = screen.Fprintf(std.out, "%s %s\n", p.Paint(screen.Green, "passed:"), schema.Count(r.Passed, "test"))
	default:
		err = screen.Fprintf(std.out, "%s %d of %s\n", p.Paint(screen.Red, "failed:"), r.Failed, schema.Count(len(results), "test"))
	}
	if err != nil {
		return err
	}
	return failed
}
