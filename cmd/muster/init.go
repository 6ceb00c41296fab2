package main

import (
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/musterhq/muster/cmd/internal/repofiles"
	"github.com/musterhq/muster/cmd/internal/screen"
	"github.com/musterhq/muster/reconciler/git"
	"github.com/musterhq/muster/schema/scaffold"
)

func newInit(std stdio) *cobra.Command {
	var r initRun
	var hook bool
	var out *outputFlag
	c := &cobra.Command{
		Use:   "init [DIR]",
		Short: "create a config repository",
		Long: `Create a config repository in DIR (default: the current directory): the schema, a
cell, two teams with quotas and example jobs, a library that they share, a pre-commit
hook, and workflows for GitHub, GitLab, Gitea and Forgejo that check pull requests. If
DIR is not in a git repository, one is created, and the files are its first commit. In
an existing repository nothing is committed.

Either all files are written or none. Existing files are never overwritten: files that
conflict are listed and nothing is written, unless --keep is given, which keeps them. A
file with the same content does not conflict.

The hook runs muster validate before each commit. It is enabled by core.hooksPath,
unless the repository has hooks of its own, which are left alone. In a clone, enable it
with muster init --hook.`,
		Example: "  muster init fleet && muster dev fleet\n  muster init --module git.example.com/platform/fleet --cell eu-1\n" +
			"  muster init --hook          in a clone: check each commit",
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if r.Dir = operand(args); r.Dir == "" {
				return invalid("leave it out for the current directory", "muster init: DIR is empty")
			}
			if hook {
				for _, other := range []string{"module", "cell", "keep"} {
					if cmd.Flags().Changed(other) {
						return invalid("leave one of them out", "--hook writes no files, and --%s is about those", other)
					}
				}
				return runHook(std, r.Dir, out.value)
			}
			if err := r.run(); err != nil {
				return err
			}
			return r.print(std, out.value)
		},
	}
	c.Flags().StringVar(&r.Module, "module", scaffold.DefaultModule, "CUE module path of the repository")
	c.Flags().StringVar(&r.Cell, "cell", "local", "name of the cell")
	c.Flags().BoolVar(&r.keep, "keep", false, "keep existing files, and write the others")
	c.Flags().BoolVar(&hook, "hook", false, "write nothing, but enable the pre-commit hook in DIR, a clone of a config repository")
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
	// Commit is the first commit, "" if none was made.
	Commit string `json:"commit"`
	// Hook says whether git runs the hook; if not, HookNote says why.
	Hook     bool   `json:"hook"`
	HookNote string `json:"hookNote,omitempty"`

	keep     bool
	unsigned bool // the commit has no author that git knows
	pending  bool // there is something to commit
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
		return &failure{code: exitInvalid, err: err, hint: "name a writable directory, or one that does not exist yet"}
	}
	if len(r.Kept) > 0 && !r.keep {
		return invalid("move them away, or name another directory; --keep leaves them as they are and writes the rest",
			"in %s there is already: %s; nothing was written", r.Dir, strings.Join(r.Kept, ", "))
	}
	maps.DeleteFunc(files, func(name string, _ repofiles.File) bool { return under(name, r.Kept) })
	r.Kept = append([]string{}, r.Kept...) // never null
	r.Files = append([]string{}, slices.Sorted(maps.Keys(files))...)
	r.pending = slices.ContainsFunc(r.Files, func(name string) bool {
		_, err := os.Lstat(filepath.Join(r.Dir, filepath.FromSlash(name)))
		return err != nil
	})
	if r.Repository, err = repositoryOf(r.Dir); err != nil {
		return err
	}
	r.RepositoryMade = r.Repository == ""
	if r.RepositoryMade {
		r.Repository = r.Dir
	}
	if err := repofiles.Add(r.Dir, files, r.finish(files)); err != nil {
		return &failure{code: exitInvalid, err: err, hint: "name a writable directory"}
	}
	return nil
}

// finish returns what makes the directory that has the files a repository, if it
// is in none, and its hook one that git runs.
func (r *initRun) finish(files map[string]repofiles.File) func(string) error {
	return func(dir string) error {
		if r.RepositoryMade {
			if err := git.Init(dir, "main"); err != nil {
				return err
			}
			if len(r.Kept) == 0 {
				if err := r.commit(dir, files); err != nil {
					return err
				}
			}
		} else if !r.isRoot() {
			r.HookNote = "the root of the repository is " + r.Repository
			return nil
		}
		_, err := git.UseHooks(dir, hooksDir)
		var taken *git.HooksError
		if errors.As(err, &taken) {
			r.HookNote, err = taken.Error(), nil
		}
		r.Hook = err == nil && r.HookNote == ""
		return err
	}
}

// commit makes the first commit, of the files alone. Without an identity that git
// knows it is in the name of muster: a machine where nobody set one up yet is
// where people begin.
func (r *initRun) commit(dir string, files map[string]repofiles.File) error {
	name, email, err := git.Identity(dir)
	if err != nil {
		return err
	}
	if name == "" || email == "" {
		name, email, r.unsigned = "muster init", "muster-init@localhost", true
	}
	data := map[string][]byte{}
	for name, f := range files {
		data[name] = f.Data
	}
	r.Commit, err = git.Commit(dir, git.Change{Message: "Config of cell " + r.Cell + ", as muster init writes it\n", Files: data, Author: name, Email: email, When: time.Now()})
	r.pending = false
	return err
}

// isRoot reports whether the repository begins at the directory.
func (r *initRun) isRoot() bool {
	dir, err := filepath.Abs(r.Dir)
	if err != nil {
		return false
	}
	if resolved, err := filepath.EvalSymlinks(dir); err == nil {
		dir = resolved
	}
	return dir == r.Repository || r.RepositoryMade
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
		screen.Printf(std.out, "%s\n", filepath.Join(r.Dir, name))
	}
	for _, name := range r.Kept {
		screen.Printf(std.err, "kept as it is: %s\n", filepath.Join(r.Dir, name))
	}
	var next []string
	if filepath.Clean(r.Dir) != "." {
		next = append(next, "cd "+r.Dir)
	}
	switch {
	case r.Commit != "":
		screen.Printf(std.err, "made a git repository in %s, with a first commit\n", r.Dir)
	case r.RepositoryMade:
		screen.Printf(std.err, "made a git repository in %s\n", r.Dir)
	case !r.isRoot():
		screen.Printf(std.err, "note: %s lies within the git repository %s, and muster follows a repository from its root\n", r.Dir, r.Repository)
		next = append(next, "git init")
	}
	if r.unsigned {
		screen.Printf(std.err, "note: git does not know your name: the author of the commit is muster init; set user.name and user.email with git config\n")
	}
	if r.Hook {
		screen.Printf(std.err, "git runs %s/pre-commit before each commit, which checks it\n", hooksDir)
	} else {
		screen.Printf(std.err, "note: git does not run %s/pre-commit: %s\n", hooksDir, r.HookNote)
	}
	if r.pending {
		next = append(next, "git add -A", "git commit -m 'a cell'")
	}
	screen.Printf(std.err, "next: %s\n", strings.Join(append(next, "muster dev"), " && "))
	return nil
}

// hooksDir is where the hooks of a config repository are, from its root.
const hooksDir = ".githooks"

// runHook makes git run the hook of a clone.
func runHook(std stdio, dir, format string) error {
	if !isFile(filepath.Join(dir, hooksDir, "pre-commit")) {
		return invalid("name the root of a config repository; muster init --keep DIR writes what is missing", "%s has no %s/pre-commit", dir, hooksDir)
	}
	made, err := git.UseHooks(dir, hooksDir)
	var taken *git.HooksError
	if errors.As(err, &taken) {
		return invalid("run "+hooksDir+"/pre-commit from your own pre-commit hook", "%s: %w", dir, err)
	}
	if err != nil {
		return &failure{code: exitInvalid, err: err}
	}
	if format == "json" {
		return printJSON(std.out, struct {
			Dir  string `json:"dir"`
			Hook bool   `json:"hook"`
			Made bool   `json:"made"` // it was not in use before
		}{dir, true, made})
	}
	err = screen.Fprintf(std.out, "git runs %s/pre-commit before each commit in %s\n", hooksDir, dir)
	return err
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
