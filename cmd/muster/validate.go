package main

import (
	"cmp"
	"context"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/musterhq/muster/cmd/internal/screen"
	"github.com/musterhq/muster/reconciler"
	"github.com/musterhq/muster/reconciler/git"
	"github.com/musterhq/muster/schema"
	"github.com/musterhq/muster/schema/compile"
)

func newValidate(std stdio) *cobra.Command {
	var v validation
	var at string
	var out, colour *outputFlag
	c := &cobra.Command{
		Use:   "validate [DIR]",
		Short: "check a config repository without a cell, as the master will",
		Long: `Check the config repository at DIR (default: the current directory) as the master
will: compile it, and check ownership and quota. It needs no cell, so it cannot check
that the machines have the capacity for the quotas. Quotas that are valid now count, or
those at the time of --at. The tests of the repository are run, too: see muster test.
Exits 2 when there is an error.

Where it refuses an image that has a tag and no digest, it asks the registry what the tag
stands for, so that the error has the reference to write, or says why it is not known.
That takes at most 5 s and never changes the verdict; --offline leaves it out. Registries
that want a user get what docker login has stored, as from muster image pin.

What a package was compiled to is remembered in the directory of git, for as long as
nothing changes that it depends on: the next time only what changed is compiled. Where
nothing has changed, and no quota has begun or ended, so is what the check found.

With --cell only what is for one of the cells is checked, and what holds in all of them:
tenants, priorities, policies, tests, and packages that do not compile, since what they hold
is not known.

Formats: text is for people, json has stable field names, github prints annotations for
a GitHub workflow, and sarif (2.1.0) is for code scanning. All but text have the rule of
each error: a stable id to count, filter and suppress by. Lines and columns count from 1, columns in bytes for text and
json, in characters for github, in UTF-16 code units for sarif.`,
		Example: "  muster validate fleet\n  muster validate -o github          in a workflow of a pull request\n" +
			"  muster validate -o sarif > muster.sarif\n" +
			"  muster validate --at 2027-04-01T00:00:00Z    what will be valid then\n" +
			"  muster validate --cell eu-1        what is for the cell eu-1",
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			when, err := timeOf(at, cmd.Flags().Changed("at"))
			if err != nil {
				return err
			}
			c, err := v.run(cmd.Context(), operand(args), when)
			if err != nil {
				return err
			}
			return printVerdict(std, out.value, coloured(colour.value, std.out), c)
		},
	}
	colour = &outputFlag{value: "auto", formats: []string{"auto", "always", "never"}}
	c.Flags().Var(colour, "color", "colour of text: auto (on a terminal, unless NO_COLOR is set), always, never")
	c.Flags().StringVar(&v.rev, "rev", "", "commit, branch or tag to check instead of the work tree")
	c.Flags().BoolVar(&v.tests, "tests", true, "run the tests in files _test.cue, too; a test that fails is an error")
	c.Flags().StringVar(&v.cell, "cell", "", "check only what is for this cell, and what holds in all cells")
	c.Flags().StringVar(&at, "at", "", "time (RFC 3339) to check quotas for, instead of now")
	c.Flags().BoolVar(&v.noCache, "no-cache", false, "compile all packages anew, and remember none")
	addOffline(c, &v.offline)
	out = addOutput(c, "text", "json", "github", "sarif")
	return c
}

// validation is how a repository is checked.
type validation struct {
	rev                     string // "" is the work tree
	cell                    string // "" is all cells
	tests, noCache, offline bool
}

// validateGC is how much memory, in percent of what is alive, validation makes before garbage
// is collected: it is soon over, and collecting is a fifth of what it does beside its children.
const validateGC = 400

// run checks the repository at dir for a time.
func (v *validation) run(ctx context.Context, dir string, when time.Time) (*compiledRepo, error) {
	defer debug.SetGCPercent(debug.SetGCPercent(validateGC))
	tree, err := readTree(ctx, dir, v.rev)
	if err != nil {
		return nil, err
	}
	var cache *fileCache
	if !v.noCache {
		cache = openCache(dir)
	}
	c, err := v.check(ctx, cache, dir, tree, when)
	if err != nil {
		return nil, err
	}
	tagHints{v.offline, tagPatience}.fill(ctx, c.diagnostics)
	return c, nil
}

// check returns what is wrong with a tree, if it can as an earlier check has found it;
// cache may be nil.
func (v *validation) check(ctx context.Context, cache *fileCache, dir string, tree schema.Tree, when time.Time) (*compiledRepo, error) {
	key := v.key(dir, tree)
	if cache != nil {
		if f := remembered(cache, key, when); f != nil {
			return &compiledRepo{dir: dir, tree: tree, diagnostics: f.Diagnostics, sums: f.Sums}, nil
		}
		defer cache.prune(cacheBytes)
	}
	compiler, err := newCompiler(cache)
	if err != nil {
		return nil, err
	}
	var unknown error
	c, err := compileTree(ctx, compiler, tree, func(c schema.Compiled) (schema.Objects, []schema.Diagnostic) {
		if v.cell != "" {
			c, unknown = inCell(c, v.cell)
		}
		return reconciler.Check(c, when)
	})
	if err := cmp.Or(err, unknown); err != nil {
		return nil, err
	}
	c.dir = dir
	if err := c.beside(ctx, v.rev, compiler, v.tests); err != nil {
		return nil, err
	}
	c.sums = c.sum()
	if f := foundAt(c, when); f != nil && cache != nil {
		remember(cache, key, f)
	}
	return c, nil
}

// inCell returns what of a commit is for a cell. That there is no such cell is said only where
// all packages compile: else it may be in one of the others.
func inCell(c schema.Compiled, cell string) (schema.Compiled, error) {
	only, cells := reconciler.Narrow(c, cell)
	errs, _ := count(c.Mistakes())
	if !slices.Contains(cells, cell) && errs == 0 {
		return c, noSuchCell(cell, cells)
	}
	return only, nil
}

// timeOf returns the time of --at, now if it is not given.
func timeOf(at string, given bool) (time.Time, error) {
	if !given {
		return time.Now(), nil
	}
	when, ok := schema.ParseTime(at)
	if !ok {
		return when, invalid("write it as in 2027-04-01T00:00:00Z, or 2027-04-01T00:00:00+02:00", "--at %q is not a time of RFC 3339", at)
	}
	return when, nil
}

// ignoredTrailers warns of what the message of a commit says to no effect.
func ignoredTrailers(ctx context.Context, dir, rev string) (out []schema.Diagnostic) {
	repo, err := git.Open(ctx, git.Config{URL: dir, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		return nil // it was read a moment ago, and what is wrong was said
	}
	commit, err := repo.Resolve(ctx, rev)
	if err != nil {
		return nil
	}
	t, err := repo.Trailers(ctx, "", commit)
	if err != nil {
		return nil
	}
	for _, why := range t.Ignored {
		out = append(out, schema.Diagnostic{Severity: schema.Warning, Rule: schema.RuleTrailer, Message: why, Hint: "git commit --amend, before it is pushed"})
	}
	return out
}

// coloured reports whether what is written to w has colour.
func coloured(when string, w io.Writer) screen.Painter {
	return screen.Painter(when == "always" || when == "auto" && isTerminal(w))
}

func printVerdict(std stdio, format string, p screen.Painter, c *compiledRepo) error {
	errs, warnings := count(c.diagnostics)
	var err error
	switch format {
	case "json":
		err = printJSON(std.out, verdict{Version: outputVersion, Valid: errs == 0, Diagnostics: append([]schema.Diagnostic{}, c.diagnostics...)})
	case "github":
		printGitHub(std.out, c)
	case "sarif":
		err = printJSON(std.out, sarifOf(c))
	default:
		printDiagnostics(std.out, p, c.diagnostics, c.tree.Files)
		if len(c.diagnostics) > 1 {
			screen.Printf(std.out, "\n")
		}
		if errs == 0 {
			err = screen.Fprintf(std.out, "%s %s, %s\n", p.Paint(screen.Green, "valid:"), c.sums.text(), schema.Count(warnings, "warning"))
		} else {
			err = screen.Fprintf(std.out, "%s %s in %s, %s\n", p.Paint(screen.Red, "invalid:"), schema.Count(errs, "error"),
				schema.Count(filesWithErrors(c.diagnostics), "file"), schema.Count(warnings, "warning"))
		}
	}
	if err == nil && errs > 0 {
		err = &failure{code: exitInvalid}
	}
	return err
}

// policies counts the policies of a commit.
func policies(c schema.Compiled) (n int) {
	for i := range c.Packages {
		n += c.Packages[i].Policies
	}
	return n
}

// filesWithErrors counts the files that have errors.
func filesWithErrors(ds []schema.Diagnostic) int {
	files := map[string]bool{}
	for _, d := range ds {
		if d.Severity == schema.Error && d.Path != "" {
			files[d.Path] = true
		}
	}
	return len(files)
}

func operand(args []string) string {
	if len(args) == 0 {
		return "."
	}
	return args[0]
}

// compiledRepo is a config repository as a cell that holds nothing would take it.
type compiledRepo struct {
	dir         string // as the user named it
	tree        schema.Tree
	compiled    schema.Compiled
	objects     schema.Objects
	diagnostics []schema.Diagnostic
	tests       int // that were run
	sums        sums
}

// beside adds what is found beside the data: tests that fail, and warnings of what is not
// compiled.
func (c *compiledRepo) beside(ctx context.Context, rev string, compiler *compile.Compiler, tests bool) error {
	if tests {
		if err := c.tested(ctx, compiler); err != nil {
			return err
		}
	}
	if rev != "" {
		c.diagnostics = append(c.diagnostics, ignoredTrailers(ctx, c.dir, rev)...)
	}
	c.diagnostics = append(c.diagnostics, staleDefinitions(c.dir, c.tree.Files)...)
	return nil
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
	compiler, done, err := withCache(dir)
	if err != nil {
		return nil, err
	}
	defer done()
	return compileTree(ctx, compiler, tree, check)
}

// newCompiler returns a compiler whose children are this program; cache may be nil.
func newCompiler(cache *fileCache) (*compile.Compiler, error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cfg := compile.Config{Exe: exe, Args: []string{"compile-child"}, Idle: time.Minute} // children end with this program
	if cache != nil {
		cfg.Store = cache
	}
	return compile.New(cfg), nil
}

// withCache returns a compiler that knows what earlier commands have compiled of the
// repository that dir lies in, and a function to call when it is done.
func withCache(dir string) (*compile.Compiler, func(), error) {
	cache := openCache(dir)
	compiler, err := newCompiler(cache)
	return compiler, func() {
		if cache != nil {
			cache.prune(cacheBytes)
		}
	}, err
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
		return readWorkTree(dir)
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

const nameDir = "name the directory of a config repository; muster init DIR writes one"

// readWorkTree reads the files of the config repository at dir, and says so
// when dir is not the root of one.
func readWorkTree(dir string) (schema.Tree, error) {
	info, err := os.Stat(dir)
	switch {
	case strings.Contains(dir, "://"):
		return schema.Tree{}, invalid("clone the repository, and name its directory", "%s is not a directory", dir)
	case errors.Is(err, fs.ErrNotExist):
		return schema.Tree{}, invalid(nameDir, "there is no directory %q", dir)
	case err != nil:
		return schema.Tree{}, &failure{code: exitInvalid, err: err, hint: nameDir}
	case !info.IsDir():
		return schema.Tree{}, invalid(nameDir, "%s is not a directory", dir)
	}
	tree, err := compile.ReadDir(dir)
	if err != nil {
		return tree, &failure{code: exitInvalid, err: err, hint: nameDir}
	}
	if _, ok := tree.Files["cue.mod/module.cue"]; ok {
		return tree, nil
	}
	if root := rootAbove(dir); root != "" {
		return tree, invalid("name the root of the repository: "+root, "%s lies within a config repository", dir)
	}
	if isFile(filepath.Join(dir, "HEAD")) && len(tree.Files) == 0 {
		return tree, invalid("name a commit of it with --rev, such as --rev HEAD", "%s is a bare git repository, which has no work tree", dir)
	}
	return tree, nil
}

// rootAbove returns the nearest directory above dir that is a CUE module, "" if
// there is none.
func rootAbove(dir string) string {
	at, err := filepath.Abs(dir)
	if err != nil {
		return ""
	}
	for at != filepath.Dir(at) {
		at = filepath.Dir(at)
		if isFile(filepath.Join(at, "cue.mod", "module.cue")) {
			return at
		}
	}
	return ""
}

func isFile(name string) bool {
	info, err := os.Stat(name)
	return err == nil && info.Mode().IsRegular()
}
