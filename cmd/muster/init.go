package main

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	"github.com/musterhq/muster/reconciler/git"
	"github.com/musterhq/muster/schema/scaffold"
)

func newInit(std stdio) *cobra.Command {
	var module, cell string
	c := &cobra.Command{
		Use:   "init [DIR]",
		Short: "write a config repository to start from",
		Long: `Write a config repository to DIR (default: the current directory): the schema, a
cell, a team with a job that runs, a workflow that validates pull requests. A git
repository is made if DIR is in none. No file that is there is touched.`,
		Example: "  muster init fleet && cd fleet && git add -A && git commit -m 'a cell'\n  muster init --module git.example.com/platform/fleet --cell eu-1",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			return initRepo(std, operand(args), module, cell)
		},
	}
	c.Flags().StringVar(&module, "module", scaffold.DefaultModule, "CUE module path of the repository")
	c.Flags().StringVar(&cell, "cell", "local", "name of the cell")
	return c
}

func initRepo(std stdio, dir, module, cell string) error {
	files, err := scaffold.Files(module, cell)
	if err != nil {
		return &failure{code: exitInvalid, err: err, hint: "muster init --help shows the flags"}
	}
	paths := slices.Sorted(maps.Keys(files))
	for _, p := range paths {
		// Nothing is written unless all of it can be.
		if _, err := os.Lstat(filepath.Join(dir, filepath.FromSlash(p))); !errors.Is(err, fs.ErrNotExist) {
			if err != nil {
				return err
			}
			return invalid("name a directory without these files", "%s is there already; nothing was written", filepath.Join(dir, p))
		}
	}
	for _, p := range paths {
		to := filepath.Join(dir, filepath.FromSlash(p))
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil { //nolint:gosec // a source tree
			return err
		}
		if err := os.WriteFile(to, files[p], 0o644); err != nil { //nolint:gosec // a source tree
			return err
		}
		fmt.Fprintln(std.out, filepath.Join(dir, p))
	}
	inside, err := insideRepository(dir)
	if err != nil {
		return err
	}
	if !inside {
		if err := git.Init(dir, "main"); err != nil {
			return err
		}
		fmt.Fprintf(std.err, "made a git repository in %s\n", dir)
	}
	fmt.Fprintf(std.err, "next: cd %s && git add -A && git commit -m 'a cell' && muster dev\n", dir)
	return nil
}

// insideRepository reports whether dir or a directory above it has a .git.
func insideRepository(dir string) (bool, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return false, err
	}
	for at := abs; ; at = filepath.Dir(at) {
		_, err := os.Lstat(filepath.Join(at, ".git"))
		switch {
		case err == nil:
			return true, nil
		case !errors.Is(err, fs.ErrNotExist):
			return false, err
		case at == filepath.Dir(at):
			return false, nil
		}
	}
}
