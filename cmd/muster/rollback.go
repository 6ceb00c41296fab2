package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/musterhq/muster/cmd/internal/gitprogram"
	"github.com/musterhq/muster/cmd/internal/screen"
	"github.com/musterhq/muster/reconciler"
	"github.com/musterhq/muster/reconciler/git"
	"github.com/musterhq/muster/reconciler/intent"
	"github.com/musterhq/muster/schema"
	"github.com/musterhq/muster/schema/compile"
)

func newRollback(std stdio) *cobra.Command {
	var r rollback
	var out *outputFlag
	c := &cobra.Command{
		Use:        "rollback USER/JOB | COMMIT [DIR]",
		SuggestFor: []string{"revert", "undo"},
		Short:      "create a commit that reverts a change, on a branch",
		Long: `Create a commit that reverts COMMIT, or the newest commit that changed USER/JOB, on a
new branch of the config repository at DIR (default: the current directory), and print
how to push it. It is the commit that git revert would make. Nothing is pushed, and the
work tree, the index and the current branch are not touched.

The commit of a job is searched for in the compiled data, back from HEAD: comments, and
objects that only move between files, are not changes. If that commit changed other
objects too, they are listed and nothing is written, unless --all reverts them as well.

Nothing is written if later commits changed the same lines, or if the result has errors
that HEAD has not. Exits 1 when there is nothing to revert.`,
		Example: `  muster rollback search/web          the newest commit that changed the job
  muster rollback HEAD --dry-run      what that would change
  muster rollback 1f00aa3 fleet`,
		Args: cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			r.dir = operand(args[1:])
			err := r.run(cmd.Context(), args[0])
			var input *failure
			if err != nil && !errors.As(err, &input) {
				return err
			}
			if len(r.mistakes) > 0 {
				printDiagnostics(std.err, screen.Painter(isTerminal(std.err)), r.mistakes, r.files)
			}
			if err != nil {
				return err
			}
			return r.print(std, out.value)
		},
	}
	c.Flags().BoolVar(&r.all, "all", false, "revert the changes to other objects too")
	c.Flags().BoolVarP(&r.DryRun, "dry-run", "n", false, "write nothing, only print what would change")
	c.Flags().StringVar(&r.Branch, "branch", "", "name of the new branch (default muster/rollback-, the job's name and the commit)")
	out = addOutput(c, "text", "json")
	return c
}

// maxLook is how many commits are compiled to find the one that changed a job.
const maxLook = 200

// rollback is one run of the command, and what it prints as JSON.
type rollback struct {
	Reverts string `json:"reverts"`          // the commit that is taken back
	Commit  string `json:"commit,omitempty"` // the new one; none with --dry-run
	Branch  string `json:"branch"`
	Subject string `json:"subject"`
	DryRun  bool   `json:"dryRun"`
	Next    string `json:"next"`
	// What the new commit changes of HEAD.
	intent.Comparison

	all      bool
	dir      string
	repo     *git.Repo
	clone    *gitprogram.Clone
	compiler *compile.Compiler
	mistakes []schema.Diagnostic
	files    map[string]schema.File
}

func (r *rollback) run(ctx context.Context, what string) (err error) {
	if r.repo, err = git.Open(ctx, git.Config{URL: r.dir, Log: slog.New(slog.DiscardHandler)}); err != nil {
		return &failure{code: exitInvalid, err: err}
	}
	head, err := r.repo.Resolve(ctx, "HEAD")
	if err != nil {
		return &failure{code: exitInvalid, err: err}
	}
	compiler, done, err := withCache(r.dir)
	if err != nil {
		return err
	}
	defer done()
	r.compiler = compiler
	if r.clone, err = gitprogram.Open(ctx, r.dir); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.clone.Close()) }()
	name := ""
	if user, job, ok := strings.Cut(what, "/"); ok && schema.CheckName(user) == nil && schema.CheckName(job) == nil {
		name = job + "-"
		r.Reverts, err = r.find(ctx, what)
	} else if r.Reverts, err = r.repo.Resolve(ctx, what); err != nil {
		err = &failure{code: exitInvalid, err: fmt.Errorf("neither a job, as USER/JOB, nor a commit: %w", err)}
	}
	if err != nil {
		return err
	}
	r.Branch = cmp.Or(r.Branch, fmt.Sprintf("muster/rollback-%s%.7s", name, r.Reverts))
	if r.clone.Branch(ctx, r.Branch) {
		return invalid("name another with --branch; or remove it: git branch -D "+r.Branch, "there is a branch %s already", r.Branch)
	}
	if err := r.revert(ctx, head); err != nil || r.DryRun {
		return err
	}
	return r.clone.Publish(ctx, r.Branch)
}

// find returns the newest commit that changed a job, or an alloc set. Commits in which
// its directory does not compile are passed over, as the cell does.
func (r *rollback) find(ctx context.Context, name string) (string, error) {
	commits, err := r.clone.History(ctx, maxLook+1)
	if err != nil {
		return "", err
	}
	is := func(key string) bool { return strings.HasSuffix(key, "/"+name) }
	var head, next *compiledRepo
	at := 0 // next in commits
	for i, commit := range commits {
		tree, err := r.repo.Tree(ctx, commit)
		if err != nil {
			return "", err
		}
		c, err := compileTree(ctx, r.compiler, tree, reconciler.Take)
		if err != nil {
			return "", err
		}
		if head == nil {
			head = c
		}
		if errs, _ := count(c.diagnostics); errs > 0 && !declares(c, is) {
			continue
		}
		if next != nil {
			if found, err := r.changed(c, next, commits[at:i], name); found || err != nil {
				return commits[at], err
			}
		}
		next, at = c, i
	}
	errs, _ := count(head.diagnostics)
	switch {
	case len(commits) > maxLook:
		return "", invalid("name the commit to revert: muster rollback COMMIT", "none of the last %d commits has changed %s", maxLook, name)
	case declares(head, is):
		return "", invalid("change it in the repository, and commit", "no commit has changed %s since the first declared it", name)
	case errs > 0:
		return "", invalid("muster validate --rev HEAD lists them; a commit is named by its hash", "no commit declares %s, as far as it can be read: HEAD has errors", name)
	}
	return "", invalid("muster render lists the jobs; a commit is named by its hash", "no commit declares %s", name)
}

// changed reports whether a job is another in next than in c. commits are next, and
// those between the two that do not compile: where there are any, nobody can say
// which of them all has changed it, and it errs.
func (r *rollback) changed(c, next *compiledRepo, commits []string, name string) (bool, error) {
	others := intent.Compare(c.compiled, next.compiled, nil).Objects
	found := slices.IndexFunc(others, func(o intent.ObjectChange) bool { return strings.HasSuffix(o.Name, "/"+name) && tasked(o.Kind) })
	switch {
	case found < 0:
		return false, nil
	case len(commits) > 1:
		return false, invalid("name the commit to revert: muster rollback COMMIT",
			"%s was changed by commit %.10s, or by one right before it that has errors where it is declared", name, commits[0])
	}
	return true, r.alone(commits[0], name, slices.Delete(others, found, found+1))
}

func tasked(k schema.Kind) bool { return k == schema.KindJob || k == schema.KindAllocSet }

// declares reports whether c has a job or an alloc set by a name.
func declares(c *compiledRepo, is func(string) bool) bool {
	for i := range c.objects.Jobs {
		if j := &c.objects.Jobs[i]; is("/" + j.User + "/" + j.Name) {
			return true
		}
	}
	for i := range c.objects.AllocSets {
		if a := &c.objects.AllocSets[i]; is("/" + a.User + "/" + a.Name) {
			return true
		}
	}
	return false
}

// alone errs if the commit that changed a job changed other objects, and --all is
// not given.
func (r *rollback) alone(commit, job string, others []intent.ObjectChange) error {
	if len(others) == 0 || r.all {
		return nil
	}
	var names []string
	for i := range others {
		names = append(names, string(others[i].Kind)+" "+others[i].Name)
	}
	return invalid("--all reverts all of it; else change the job in the repository, and commit",
		"commit %.10s, the newest that changed %s, also changed %s", commit, job, strings.Join(names, ", "))
}

// revert makes the commit in the clone and compares it with head.
func (r *rollback) revert(ctx context.Context, head string) error {
	made, err := r.clone.Revert(ctx, r.Reverts)
	var conflict *gitprogram.ConflictError
	switch {
	case errors.As(err, &conflict):
		return invalid("revert the later commits first, or change the files by hand",
			"commit %.10s cannot be reverted by itself: %w; nothing was written", r.Reverts, err)
	case errors.Is(err, gitprogram.ErrNothing):
		return &failure{code: exitDiffers, err: fmt.Errorf("commit %.10s: %w", r.Reverts, err)}
	case err != nil && strings.Contains(err.Error(), "tell me who you are"):
		return invalid("git config --global user.name NAME; git config --global user.email ADDRESS", "git has no author for the commit")
	case err != nil:
		return err
	}
	if r.Subject, err = r.clone.Subject(ctx); err != nil {
		return err
	}
	tree, err := r.repo.Tree(ctx, head)
	if err != nil {
		return err
	}
	now := time.Now()
	check := func(c schema.Compiled) (schema.Objects, []schema.Diagnostic) { return reconciler.Check(c, now) }
	was, err := compileTree(ctx, r.compiler, tree, check)
	if err != nil {
		return err
	}
	if tree, err = readWorkTree(r.clone.Dir); err != nil {
		return err
	}
	is, err := compileTree(ctx, r.compiler, tree, check)
	if err != nil {
		return err
	}
	r.Comparison = intent.Compare(was.compiled, is.compiled, nil)
	if r.mistakes = newMistakes(was.diagnostics, is.diagnostics); len(r.mistakes) > 0 {
		r.files = is.tree.Files
		return invalid("revert what depends on it as well, or change the files by hand",
			"without commit %.10s the repository has errors; nothing was written", r.Reverts)
	}
	if !r.DryRun {
		r.Commit = made
	}
	return r.sayNext(ctx)
}

// newMistakes returns the errors of is that was has not.
func newMistakes(was, is []schema.Diagnostic) (out []schema.Diagnostic) {
	for _, d := range is {
		if d.Severity == schema.Error && !slices.ContainsFunc(was, func(o schema.Diagnostic) bool {
			return o.Severity == d.Severity && o.Path == d.Path && o.Message == d.Message
		}) {
			out = append(out, d)
		}
	}
	return out
}

// sayNext says how the branch gets to where the cell sees it.
func (r *rollback) sayNext(ctx context.Context) error {
	remote, err := r.clone.Remote(ctx)
	at := "git"
	if r.dir != "." {
		at = "git -C " + r.dir
	}
	r.Next = at + " merge " + r.Branch
	if remote != "" {
		r.Next = at + " push " + remote + " " + r.Branch
	}
	return err
}

func (r *rollback) print(std stdio, format string) error {
	if format == "json" {
		return printJSON(std.out, r)
	}
	printComparison(std.out, &difference{Comparison: r.Comparison})
	if r.DryRun {
		screen.Printf(std.out, "not written: %s\n", r.Subject)
		return nil
	}
	screen.Printf(std.out, "branch %s: %.10s %s\n", r.Branch, r.Commit, r.Subject)
	err := screen.Fprintf(std.err, "next: %s\n", r.Next)
	return err
}
