package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/musterhq/muster/cmd/internal/screen"
	"github.com/musterhq/muster/reconciler"
	"github.com/musterhq/muster/schema"
	"github.com/musterhq/muster/schema/compile"
)

func newExplain(std stdio) *cobra.Command {
	e := &explain{std: std}
	c := &cobra.Command{
		Use:   "explain JOB [FIELD]",
		Short: "print where the values of a job come from",
		Long: `Print each value of a job, or that of FIELD and of what is in it, with every place that
contributes to it: what the job itself says, what the templates that it is made from say,
and what the schema allows. A place sets the value, gives a default that others may
change, limits what the value may be, takes it from another one, such as a parameter, whose
places follow, or is used to compute it, such as an element of a list. Of a field that nothing sets
the place is where the schema declares it. JOB is a name, or USER/JOB where several users have a
job of that name.

In a package with mistakes, values that are wrong are listed with what is wrong, and with
all places that contribute to them, so with both sides of a conflict. What no place can be
named for is printed on stderr.`,
		Example: "  muster explain web task.resources.ramBytes\n  muster explain search/web -o json",
		Args:    cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			e.job = args[0]
			if len(args) > 1 {
				e.field = args[1]
			}
			return e.run(cmd.Context())
		},
	}
	c.Flags().StringVar(&e.dir, "repo", ".", "directory of the config repository")
	c.Flags().StringVar(&e.rev, "rev", "", "commit, branch or tag to look at instead of the work tree")
	e.out = addOutput(c, "text", "json")
	return c
}

// explain is one call of muster explain.
type explain struct {
	std        stdio
	rev, dir   string
	out        *outputFlag
	job, field string // as the user named them
	compiler   *compile.Compiler
	repo       *compiledRepo
}

// explained is what muster explain prints as JSON.
type explained struct {
	Version int                   `json:"version"`
	Job     string                `json:"job"` // USER/JOB, or JOB if the user is not known
	Fields  []compile.FieldSource `json:"fields"`
	// Diagnostics are the errors that keep the package from being compiled, if they may have to do
	// with the job.
	Diagnostics []schema.Diagnostic `json:"diagnostics"`
	from        compile.Explanation
}

func (e *explain) run(ctx context.Context) error {
	var err error
	if e.repo, err = compileRepo(ctx, e.dir, e.rev, reconciler.Take); err != nil {
		return err
	}
	compiler, done, err := withCache(e.dir)
	if err != nil {
		return err
	}
	defer done()
	defer compiler.Close()
	e.compiler = compiler
	r, err := e.find(ctx)
	switch {
	case errors.Is(err, compile.ErrNoField):
		return invalid("muster explain "+e.job+" lists the fields that are set", "job %s has no field %q that is set or has a default", e.job, e.field)
	case err != nil:
		return err
	case e.out.value == "json":
		return printJSON(e.std.out, r)
	}
	return e.print(r)
}

// find explains the one job of the name.
func (e *explain) find(ctx context.Context) (*explained, error) {
	dir, key, err := findJob(e.repo.compiled, e.job)
	missing := errors.Is(err, errNoJob)
	if err != nil && !missing {
		return nil, err
	}
	var found *explained
	if !missing {
		from, err := e.compiler.Sources(ctx, e.repo.tree, dir, key, e.field)
		if err != nil {
			return nil, e.failed(err)
		}
		found = newExplained(key.Declared(), from)
	}
	if !missing && strings.Contains(e.job, "/") {
		return found, nil // it has one owner
	}
	unread, errs := "", []error(nil)
	for i := range e.repo.compiled.Packages {
		p := &e.repo.compiled.Packages[i]
		if p.Package != nil {
			continue
		}
		r, err := e.broken(ctx, p.Dir)
		switch {
		case errors.Is(err, compile.ErrNoObject):
		case errors.Is(err, compile.ErrUnread):
			unread = cmp.Or(unread, p.Dir)
		case err != nil:
			errs = append(errs, err)
		case found != nil:
			return nil, invalid("write USER/JOB", "%s: several jobs have this name, such as %s and %s", e.job, found.Job, r.Job)
		default:
			found = r
		}
	}
	switch {
	case found != nil:
		return found, nil
	case len(errs) > 0:
		return nil, errs[0]
	}
	return nil, e.unknown(unread)
}

// broken explains the job in a package that does not compile. It errs with ErrNoObject
// if that has no such job.
func (e *explain) broken(ctx context.Context, dir string) (*explained, error) {
	user, name, ok := strings.Cut(e.job, "/")
	if !ok {
		user, name = "", e.job
	}
	if i := strings.LastIndexByte(name, '/'); i >= 0 { // CELL/USER/JOB
		user, name = name[:i], name[i+1:]
	}
	from, err := e.compiler.Sources(ctx, e.repo.tree, dir, schema.ObjectKey{Kind: schema.KindJob, Name: name}, e.field)
	if err != nil {
		return nil, e.failed(err)
	}
	if user != "" && from.User != "" && user != from.User {
		return nil, compile.ErrNoObject
	}
	return newExplained(name, from), nil
}

// failed names the job in an error that is none of those that say what there is not.
func (e *explain) failed(err error) error {
	switch {
	case errors.Is(err, compile.ErrHidden):
		return invalid("replace it with a secret: see muster validate", "job %s has a secret in clear, and is not shown", e.job)
	case errors.Is(err, compile.ErrNoField), errors.Is(err, compile.ErrNoObject), errors.Is(err, compile.ErrUnread):
		return err
	}
	return fmt.Errorf("explain %s: %w", e.job, err)
}

// unknown says that no job of the name is found. unread is a package that cannot be read, "" for
// none.
func (e *explain) unknown(unread string) error {
	if errs, _ := count(e.repo.diagnostics); errs > 0 {
		printDiagnostics(e.std.err, screen.Painter(isTerminal(e.std.err)), e.repo.diagnostics, e.repo.tree.Files)
	}
	if unread != "" {
		return invalid("correct first what does not parse there", "no package declares a job %q, as far as is known: %s cannot be read", e.job, unread)
	}
	return invalid("muster render lists them", "no package declares a job %q", e.job)
}

func newExplained(name string, from compile.Explanation) *explained {
	r := &explained{Version: outputVersion, Job: name, Fields: from.Fields, Diagnostics: append([]schema.Diagnostic{}, from.Diagnostics...), from: from}
	if from.User != "" {
		r.Job = from.User + "/" + name
	}
	return r
}

// print prints an explanation as text.
func (e *explain) print(r *explained) error {
	if err := printSources(e.std, r.Fields); err != nil || len(r.Diagnostics) == 0 {
		return err
	}
	if others := r.from.Others(); len(others) > 0 && e.field == "" {
		screen.Printf(e.std.err, "\nnot explained, since it is no value of the job:\n\n")
		printDiagnostics(e.std.err, screen.Painter(isTerminal(e.std.err)), others, e.repo.tree.Files)
	}
	return nil
}

// errNoJob says that no package that compiles declares a job of a name.
var errNoJob = errors.New("no package that compiles declares a job")

// findJob returns the directory and the key of the one job of a name in what compiles. It errs with errNoJob.
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
		return "", found, &failure{code: exitInvalid, err: fmt.Errorf("%w %q", errNoJob, name), hint: "muster render lists them"}
	}
	return dir, found, nil
}

// roles are what a place does, in words.
var roles = map[compile.Role]string{
	compile.Sets: "sets it", compile.Defaults: "default", compile.Limit: "limits it", compile.Schema: "nothing sets it",
	compile.Refers: "takes it from", compile.Used: "used in it",
}

func printSources(std stdio, sources []compile.FieldSource) error {
	w := tabwriter.NewWriter(std.out, 0, 0, 2, ' ', 0)
	for _, s := range sources {
		switch {
		case s.Error != "" && s.Value == "":
			screen.Printf(w, "%s: error: %s\n", s.Field, s.Error)
		case s.Error != "":
			screen.Printf(w, "%s: %s, error: %s\n", s.Field, s.Value, s.Error)
		case s.Value == "":
			screen.Printf(w, "%s: error: has no value because of another mistake\n", s.Field)
		default:
			screen.Printf(w, "%s: %s\n", s.Field, s.Value)
		}
		if s.Hint != "" {
			screen.Printf(w, "  hint: %s\n", s.Hint)
		}
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
