package main

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/musterhq/muster/cmd/internal/repofiles"
	"github.com/musterhq/muster/reconciler/git"
	"github.com/musterhq/muster/schema/scaffold"
)

func newInit(std stdio) *cobra.Command {
	var r initRun
	var out *outputFlag
	c := &cobra.Command{
		Use:   "init [DIR]",
		Short: "write a config repository to start from",
		Long: `Write a config repository to DIR (default: the current directory): the schema, a
cell, two teams with quotas and jobs that run, a library that they share, a hook
that checks commits, and workflows for GitHub, GitLab, Gitea and Forgejo that check
pull requests. A git repository is made if DIR is in none; nothing is committed.

All is written or nothing. No file that is there is overwritten: what is in the way
is listed, and nothing is written, unless --keep says to go around it. A file that
is there with the same content is not in the way.`,
		Example: "  muster init fleet && cd fleet && git add -A && git commit -m 'a cell'\n  muster init --module git.example.com/platform/fleet --cell eu-1",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			if r.Dir = operand(args); r.Dir == "" {
				return invalid("leave it out for the current directory", "muster init: DIR is empty")
			}
			if err := r.run(); err != nil {
				return err
			}
			return r.print(std, out.value)
		},
	}
	c.Flags().StringVar(&r.Module, "module", scaffold.DefaultModule, "CUE module path of the repository")
	c.Flags().StringVar(&r.Cell, "cell", "local", "name of the cell")
	c.Flags().BoolVar(&r.keep, "keep", false, "leave the files that are there as they are, and write the others")
	out = addOutput(c, "text", "json")
	return c
}

// initRun is one run of init, and what it prints as JSON.
type initRun struct {
	Dir    string   `json:"dir"`
	Module string   `json:"module"`
	Cell   string   `json:"cell"`
	Files  []string `json:"files"` // written, or there with the same content
	Kept   []string `json:"kept"`  // there with another content
	// Repository is the git repository: made here, or one that was there.
	Repository     string `json:"repository"`
	RepositoryMade bool   `json:"repositoryMade"`

	keep bool
}

func (r *initRun) run() error {
	content, err := scaffold.Files(r.Module, r.Cell)
	if err != nil {
		return &failure{code: exitInvalid, err: err, hint: "muster init --help shows the flags"}
	}
	files := map[string]repofiles.File{}
	for name, b := range content {
		files[name] = repofiles.File{Data: b, Mode: scaffold.Mode(name)}
	}
	r.Kept, err = repofiles.InTheWay(r.Dir, files)
	if err != nil {
		return &failure{code: exitInvalid, err: err, hint: "name a directory that can be written, or one that is not there yet"}
	}
	if len(r.Kept) > 0 && !r.keep {
		return invalid("move them away, or name another directory; --keep leaves them as they are and writes the rest",
			"in %s there is already: %s; nothing was written", r.Dir, strings.Join(r.Kept, ", "))
	}
	maps.DeleteFunc(files, func(name string, _ repofiles.File) bool { return under(name, r.Kept) })
	r.Kept = append([]string{}, r.Kept...) // never null
	r.Files = append([]string{}, slices.Sorted(maps.Keys(files))...)
	if r.Repository, err = repositoryOf(r.Dir); err != nil {
		return err
	}
	r.RepositoryMade = r.Repository == ""
	finish := func(string) error { return nil }
	if r.RepositoryMade {
		r.Repository = r.Dir
		finish = func(dir string) error { return git.Init(dir, "main") }
	}
	if err := repofiles.Add(r.Dir, files, finish); err != nil {
		return &failure{code: exitInvalid, err: err, hint: "name a directory that can be written"}
	}
	return nil
}

// under reports whether name is one of paths, or lies below one.
func under(name string, paths []string) bool {
	return slices.ContainsFunc(paths, func(p string) bool { return name == p || strings.HasPrefix(name, p+"/") })
}

func (r *initRun) print(std stdio, format string) error {
	if format == "json" {
		return printJSON(std.out, r)
	}
	for _, name := range r.Files {
		fmt.Fprintln(std.out, filepath.Join(r.Dir, name))
	}
	for _, name := range r.Kept {
		fmt.Fprintf(std.err, "kept as it is: %s\n", filepath.Join(r.Dir, name))
	}
	dir, err := filepath.Abs(r.Dir)
	if err != nil {
		return err
	}
	if r.RepositoryMade {
		fmt.Fprintf(std.err, "made a git repository in %s\n", r.Dir)
	} else if resolved, err := filepath.EvalSymlinks(dir); err == nil && resolved != r.Repository {
		fmt.Fprintf(std.err, "note: %s lies within the git repository %s, and muster follows a repository from its root:\n"+
			"note: run `git init` in it to make it a repository of its own\n", r.Dir, r.Repository)
	}
	cd := ""
	if filepath.Clean(r.Dir) != "." {
		cd = "cd " + r.Dir + " && "
	}
	fmt.Fprintf(std.err, "next: %sgit add -A && git commit -m 'a cell' && muster dev\n", cd)
	return nil
}

// repositoryOf returns the git repository that dir lies in, or will when it is
// made, "" if none.
func repositoryOf(dir string) (string, error) {
	at, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	if resolved, err := filepath.EvalSymlinks(at); err == nil {
		at = resolved
	}
	for ; ; at = filepath.Dir(at) {
		_, err := os.Lstat(filepath.Join(at, ".git"))
		switch {
		case err == nil:
			return at, nil
		case !errors.Is(err, fs.ErrNotExist):
			return "", err
		case at == filepath.Dir(at):
			return "", nil
		}
	}
}
