package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/musterhq/muster/reconciler"
	"github.com/musterhq/muster/reconciler/git"
	"github.com/musterhq/muster/schema"
	"github.com/musterhq/muster/schema/compile"
)

func newValidate(std stdio) *cobra.Command {
	var rev, at string
	var out *outputFlag
	c := &cobra.Command{
		Use:   "validate [DIR]",
		Short: "check a config repository as the master will, offline",
		Long: `Check the config repository at DIR (default: the current directory) as the master
will: compile it, and check ownership and quota. It needs no cell, so it does not
know how many machines there are to back the quotas. Quotas count that count now,
or at the time of --at. Exits 2 when something is wrong.`,
		Example: "  muster validate fleet\n  muster validate -o github          in a workflow of a pull request\n" +
			"  muster validate --at 2027-04-01T00:00:00Z    what will be valid then",
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			when := time.Now()
			if cmd.Flags().Changed("at") {
				if err := when.UnmarshalText([]byte(at)); err != nil {
					return invalid("write it as in 2027-04-01T00:00:00Z, or 2027-04-01T00:00:00+02:00", "--at %q is not a time of RFC 3339", at)
				}
			}
			c, err := compileRepo(cmd.Context(), operand(args), rev, func(c schema.Compiled) (schema.Objects, []schema.Diagnostic) {
				return reconciler.Check(c, when)
			})
			if err != nil {
				return err
			}
			c.diagnostics = append(c.diagnostics, staleDefinitions(operand(args), c.tree.Files)...)
			return printVerdict(std, out.value, c)
		},
	}
	c.Flags().StringVar(&rev, "rev", "", "commit, branch or tag to check instead of the work tree")
	c.Flags().StringVar(&at, "at", "", "time (RFC 3339) to check quotas for, instead of now")
	out = addOutput(c, "text", "json", "github")
	return c
}

func printVerdict(std stdio, format string, c *compiledRepo) error {
	errs, warnings := count(c.diagnostics)
	var err error
	switch format {
	case "json":
		err = printJSON(std.out, verdict{Valid: errs == 0, Diagnostics: append([]schema.Diagnostic{}, c.diagnostics...)})
	case "github":
		printGitHub(std.out, c.diagnostics)
	default:
		printDiagnostics(std.out, c.diagnostics, c.tree.Files)
		if errs == 0 {
			fmt.Fprintf(std.out, "valid: %d jobs, %d quotas, %d tenants, %d warnings\n", len(c.objects.Jobs), len(c.objects.Quotas), len(c.objects.Tenants), warnings)
		} else {
			fmt.Fprintf(std.out, "invalid: %d errors, %d warnings\n", errs, warnings)
		}
	}
	if err == nil && errs > 0 {
		err = &failure{code: exitInvalid}
	}
	return err
}

func operand(args []string) string {
	if len(args) == 0 {
		return "."
	}
	return args[0]
}

// compiledRepo is a config repository as a cell that holds nothing would take it.
type compiledRepo struct {
	tree        schema.Tree
	compiled    schema.Compiled
	objects     schema.Objects
	diagnostics []schema.Diagnostic
}

// checker returns the objects of a commit and what is wrong with it.
type checker func(schema.Compiled) (schema.Objects, []schema.Diagnostic)

// compileRepo compiles the work tree at dir, or a commit of its repository, and
// checks it.
func compileRepo(ctx context.Context, dir, rev string, check checker) (*compiledRepo, error) {
	tree, err := readTree(ctx, dir, rev)
	if err != nil {
		return nil, err
	}
	compiler, err := newCompiler()
	if err != nil {
		return nil, err
	}
	return compileTree(ctx, compiler, tree, check)
}

// newCompiler returns a compiler whose children are this program.
func newCompiler() (*compile.Compiler, error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, err
	}
	return compile.New(compile.Config{Exe: exe, Args: []string{"compile-child"}}), nil
}

func compileTree(ctx context.Context, compiler *compile.Compiler, tree schema.Tree, check checker) (*compiledRepo, error) {
	c, err := compiler.Compile(ctx, tree)
	if err != nil {
		return nil, err
	}
	out := &compiledRepo{tree: tree, compiled: c}
	out.objects, out.diagnostics = check(c)
	return out, nil
}

func readTree(ctx context.Context, dir, rev string) (schema.Tree, error) {
	if rev == "" {
		tree, err := compile.ReadDir(dir)
		if err != nil {
			return tree, &failure{code: exitInvalid, err: err, hint: "name the directory of a config repository; muster init DIR writes one"}
		}
		return tree, nil
	}
	repo, err := git.Open(ctx, git.Config{URL: dir, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		return schema.Tree{}, &failure{code: exitInvalid, err: err}
	}
	commit, err := repo.Resolve(ctx, rev)
	if err != nil {
		return schema.Tree{}, &failure{code: exitInvalid, err: err}
	}
	return repo.Tree(ctx, commit)
}
