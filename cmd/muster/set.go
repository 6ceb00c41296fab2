package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/rogpeppe/go-internal/diff"
	"github.com/spf13/cobra"

	"github.com/musterhq/muster/cmd/internal/screen"
	"github.com/musterhq/muster/reconciler"
	"github.com/musterhq/muster/schema"
	"github.com/musterhq/muster/schema/atomicfile"
	"github.com/musterhq/muster/schema/compile"
)

func newSet(std stdio) *cobra.Command {
	var dir string
	var dry bool
	var out *outputFlag
	c := &cobra.Command{
		Use:   "set JOB FIELD VALUE",
		Short: "change one value of a job in the file that sets it",
		Long: `Change one value of a job in the config repository, for people and for bots: in the CUE
file that sets it, in a file of YAML or JSON that this embeds, or, where nothing of the
job's own package sets it, by a new line of the job, which sets the parameter if a template takes
the field from one. Comments, order and format stay as they are, and nothing is committed.

The repository is compiled with the change before anything is written: unless its data is the
same but for this field, nothing is. So it is refused where a template sets the value (it
says where), where it is computed, and where others have their value from the same place, such as
another field from the same parameter. An expression of literals alone, such as 2 * 3, is not computed:
it is replaced. One with a name in it, such as 64 * _Mi, is.

Nothing is written either if muster validate --offline would find an error that it does not find now,
such as that the job is over its quota then, or that a test fails: that error is printed.

JOB is a name, or USER/JOB where several users have a job of that name. FIELD is written
as muster explain prints it. VALUE is a text where the field is one, else as in CUE: 3,
64Mi, true, ["a", "b"].`,
		Example: "  muster set web tasks 5\n  muster set search/web task.container.image registry.example/web:1.7@sha256:…\n" +
			"  muster set web 'labels.\"example.com/team\"' search --dry-run",
		Args: cobra.ExactArgs(3),
		RunE: func(cmd *cobra.Command, args []string) error {
			change, err := setField(cmd.Context(), dir, args)
			if err != nil {
				return err
			}
			changed := !bytes.Equal(change.Old, change.New)
			if changed && !dry {
				if err := writeChange(filepath.Join(dir, filepath.FromSlash(change.Path)), change); err != nil {
					return err
				}
			}
			d := string(diff.Diff("a/"+change.Path, change.Old, "b/"+change.Path, change.New))
			switch {
			case out.value == "json":
				return printJSON(std.out, setResult{Version: outputVersion, Position: change.Position, Changed: changed, Written: changed && !dry, Diff: d})
			case !changed:
				screen.Printf(std.out, "%s: %s of %s has this value already\n", change.Position, args[1], args[0])
			case dry:
				screen.Printf(std.out, "%s", screen.Painted(screen.PrintableLines(d)))
			default:
				screen.Printf(std.out, "%s: %s of %s is %s now\n", change.Position, args[1], args[0], args[2])
			}
			return nil
		},
	}
	c.Flags().StringVar(&dir, "repo", ".", "directory of the config repository")
	c.Flags().BoolVarP(&dry, "dry-run", "n", false, "write nothing, and print the difference")
	out = addOutput(c, "text", "json")
	return c
}

// setResult is what muster set prints as JSON.
type setResult struct {
	schema.Position // of the value before; line 0 if it was not set

	Version int    `json:"version"`
	Changed bool   `json:"changed"`
	Written bool   `json:"written"`
	Diff    string `json:"diff"`
}

// whyNoJob says of a job that is not in what compiles what is wrong, if anything is: with that job, as far as is known.
func whyNoJob(err error, job string, all []schema.Diagnostic) error {
	errs := slices.DeleteFunc(slices.Clone(all), func(d schema.Diagnostic) bool { return d.Severity != schema.Error })
	if !errors.Is(err, errNoJob) || len(errs) == 0 {
		return err
	}
	short := job[strings.LastIndex(job, "/")+1:]
	at := slices.IndexFunc(errs, func(d schema.Diagnostic) bool {
		return d.Field == "job."+short || strings.HasPrefix(d.Field, "job."+short+".")
	})
	if at < 0 {
		return err
	}
	return invalid("correct that first, as muster validate shows: of a package with an error no job can be set", "%w %q: %s", errNoJob, job, errs[at])
}

// setField finds the change after which a field has a value: args are job, field and value.
func setField(ctx context.Context, dir string, args []string) (compile.Change, error) {
	tree, err := readWorkTree(dir)
	if err != nil {
		return compile.Change{}, err
	}
	compiler, done, err := withCache(dir)
	if err != nil {
		return compile.Change{}, err
	}
	defer done()
	c, err := compileTree(ctx, compiler, tree, reconciler.Take)
	if err != nil {
		return compile.Change{}, err
	}
	pkg, key, err := findJob(c.compiled, args[0])
	if err != nil {
		return compile.Change{}, whyNoJob(err, args[0], c.diagnostics)
	}
	change, err := compiler.Set(ctx, tree, compile.Assignment{Dir: pkg, Key: key, Field: args[1], Value: args[2]})
	if err == nil && !bytes.Equal(change.Old, change.New) {
		err = passes(ctx, compiler, tree, change)
	}
	if _, ok := errors.AsType[*schema.HintedError](err); ok {
		return change, &failure{code: exitInvalid, err: err}
	}
	return change, err
}

// passes errs, with a hint, if muster validate finds an error with the change that it does not find without:
// what the whole repository must keep to, such as quotas, and tests of templates.
func passes(ctx context.Context, compiler *compile.Compiler, tree schema.Tree, change compile.Change) error {
	after := tree
	after.Files = maps.Clone(tree.Files)
	after.Files[change.Path] = schema.File{Hash: string(schema.DigestBytes(change.New)), Data: change.New}
	found, err := errorsIn(ctx, compiler, after)
	if err != nil || len(found) == 0 {
		return err
	}
	known, err := errorsIn(ctx, compiler, tree)
	if err != nil {
		return err
	}
	for _, d := range found {
		if !slices.ContainsFunc(known, func(k schema.Diagnostic) bool { return k.Path == d.Path && k.Rule == d.Rule && k.Field == d.Field }) {
			return schema.Hintf(cmp.Or(d.Hint, "nothing is written; choose another value"), "with this value: %w", d)
		}
	}
	return nil
}

// errorsIn returns the errors that muster validate finds now without a registry.
func errorsIn(ctx context.Context, compiler *compile.Compiler, tree schema.Tree) ([]schema.Diagnostic, error) {
	c, err := compileTree(ctx, compiler, tree, func(c schema.Compiled) (schema.Objects, []schema.Diagnostic) {
		return reconciler.Check(c, time.Now())
	})
	if err != nil {
		return nil, err
	}
	if err := c.tested(ctx, compiler); err != nil {
		return nil, err
	}
	return slices.DeleteFunc(c.diagnostics, func(d schema.Diagnostic) bool { return d.Severity != schema.Error }), nil
}

// writeChange writes a file that still is as it was read.
func writeChange(name string, change compile.Change) error {
	info, err := os.Stat(name)
	if err != nil {
		return err
	}
	if now, err := os.ReadFile(name); err != nil || !bytes.Equal(now, change.Old) {
		return &failure{code: exitCouldNot, err: fmt.Errorf("%s has changed since it was read", name), hint: "run it again"}
	}
	return atomicfile.Write(name, change.New, info.Mode().Perm())
}
