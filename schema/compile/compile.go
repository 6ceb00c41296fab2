package compile

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"iter"
	"log/slog"
	"maps"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/musterhq/muster/schema"
	"github.com/musterhq/muster/schema/valid"
)

// Config says how a Compiler works.
type Config struct {
	// Exe and Args start a child: a program that calls Child with its stdin
	// and stdout. Exe is an absolute path.
	Exe  string
	Args []string
	// Workers is how many children may work at once; 0 means 2.
	Workers int
	// Idle is how long a child is kept for the next tree when there is nothing to do; 0: none is.
	Idle   time.Duration
	Limits Limits
	Log    *slog.Logger // nil for none
	Store  Store        // of outcomes, beyond the life of the Compiler; nil for none
}

// Compiler compiles trees and remembers what it has compiled. One goroutine
// uses it at a time.
type Compiler struct {
	cfg     Config
	known   *known                   // of files
	cache   map[string]*entry        // by unit key
	crashed map[string]bool          // directories whose compilation a child did not survive: compiled last
	slow    map[string]time.Duration // of units, by key: the processor time that was not enough
	took    map[string]time.Duration // by directory: the processor time of the last package there, as far as is known
	flights flights                  // of what takes long, what goes on
	spares  spares
	round   int // counts the calls of Compile
}

// entry is a compiled package in the cache.
type entry struct {
	pkg         schema.CompiledPackage
	bytes       int             // of canonical data, also of what drop has taken away
	tenants     []schema.Tenant // of a package that may declare who owns what
	round       int             // of its last use
	tried       int             // round in which it was evaluated
	tooMuch     bool            // its evaluation exceeded a limit
	policy      schema.Position // of the policy that was too much with it; the zero Position if none was
	cost        cost            // of its evaluation
	again       bool            // the outcome may have been bad luck
	stored      bool            // Config.Store has it
	policyPaths []policyPath    // that its policies name
}

// held is how much data of the package is in memory.
func (e *entry) held() int {
	if e.pkg.Package == nil {
		return 0
	}
	return e.bytes
}

// drop forgets the data of a package that is refused. How much it is stays known, so that
// whether it is refused depends on nothing but the tree.
func (e *entry) drop() {
	if e.held() > 0 {
		e.pkg = schema.CompiledPackage{Dir: e.pkg.Dir}
	}
}

// lacking reports whether a package has to be evaluated before it can be taken.
func (e *entry) lacking() bool { return e == nil || e.bytes > e.held() }

const (
	// keepRounds is for how many further trees a package is remembered that
	// they do not have: enough for a commit and its revert.
	keepRounds = 8
	// keepBytes is how much data of these is kept.
	keepBytes = 32 << 20
	// retries is how many packages whose outcome may have been bad luck are
	// evaluated again with each further tree.
	retries = 4
)

// New returns a Compiler.
func New(cfg Config) *Compiler {
	if cfg.Workers <= 0 {
		cfg.Workers = 2
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	cfg.Limits = cfg.Limits.withDefaults()
	return &Compiler{cfg: cfg, known: newKnown(), cache: map[string]*entry{}, crashed: map[string]bool{}, slow: map[string]time.Duration{}, took: map[string]time.Duration{}, flights: flights{}}
}

// Compile compiles a tree: each package to its data or to what is wrong with
// it. It errs when ctx is done or a child cannot be started, never because of
// what the tree holds. When ctx is done, what takes long goes on, for a tree that has it,
// too, until Close.
func (c *Compiler) Compile(ctx context.Context, tree schema.Tree) (schema.Compiled, error) {
	return c.compile(ctx, tree, &batch{})
}

// Quick compiles of a tree what takes little, so that this need not wait for the rest: each
// package is given a twentieth of its processor time, 1 s by default, and where there are others
// the packages of one owner together twice that, and what needs more has one diagnostic that says so, as has what was too much for its child before and may have been
// bad luck. The outcome is Partial if there is anything of the kind: Compile then gives the tree's
// outcome, and does not evaluate again what is known by now. It errs as Compile does.
func (c *Compiler) Quick(ctx context.Context, tree schema.Tree) (schema.Compiled, error) {
	return c.compile(ctx, tree, &batch{pace: quickPace(c.cfg.Limits)})
}

// Urgent does what Quick does of the packages in some directories, and of those that say who owns
// what; of the others it gives what is known already. The outcome is Partial if that is not all.
func (c *Compiler) Urgent(ctx context.Context, tree schema.Tree, dirs []string) (schema.Compiled, error) {
	return c.compile(ctx, tree, &batch{pace: quickPace(c.cfg.Limits), among: dirs})
}

// Parts compiles a tree as Compile does, but gives ever more of it, so that what takes little need not wait for
// the rest: first the packages that take no more than a hundredth of their processor time, 200 ms by default, then a
// twentieth, a quarter, and all; and sooner where some are found to take longer, those first that took little when they
// were last evaluated. Each but the last is Partial, and says of the packages that it leaves for later that it
// does. What is the same as before is not given again. When ctx is done, or the loop over it ends, what takes
// long goes on, as with Compile. It errs as Compile does, and ends with that.
func (c *Compiler) Parts(ctx context.Context, tree schema.Tree) iter.Seq2[schema.Compiled, error] {
	return func(yield func(schema.Compiled, error) bool) {
		left := -1 // packages of the part before
		ps := append(paces(c.cfg.Limits), pace{})
		for i, further := 0, false; i < len(ps); further = true {
			b := &batch{pace: ps[i], further: further}
			out, err := c.compile(ctx, tree, b)
			same := len(b.later) == left
			if !b.ended() || i > 0 && same { // the shortest slice all are given
				i++
			}
			if err == nil && out.Partial && same {
				continue
			}
			if left = len(b.later); !yield(out, err) || err != nil || !out.Partial {
				return
			}
		}
	}
}

// compile compiles a tree as b says.
func (c *Compiler) compile(ctx context.Context, tree schema.Tree, b *batch) (schema.Compiled, error) {
	if !b.further {
		c.round++
	}
	defer c.spares.rest(c.cfg.Idle)
	out := schema.Compiled{Commit: tree.Commit, By: tree.By, Empty: isEmpty(tree)}
	p, units, diags := plan(tree, c.known, c.cfg.Limits)
	out.Diagnostics = slices.Concat(slices.DeleteFunc(slices.Clone(p.tree.Diagnostics), isError), diags)
	c.flights.keep(keysOf(units))
	recall(c, units)
	b.c, b.p, b.deaths, b.later, b.put, b.took = c, p, map[string]int{}, map[*unit]bool{}, map[string]int{}, map[string]time.Duration{}
	b.blamed = blamed{}
	refused, err := b.evaluate(ctx, units)
	c.forget(tree, units) // also when it was cancelled, as many commits in a row may be
	if err != nil {
		return schema.Compiled{}, err
	}
	keep(c, units)
	for _, u := range units {
		out.Packages = append(out.Packages, b.outcome(u, refused, units))
	}
	blameOnce(out.Packages)
	warnOnce(out.Packages)
	if b.pace.slice == 0 {
		clear(c.slow)
		c.flights.keep(nil)
	}
	out.Partial = len(b.later) > 0
	return out, nil
}

// Close ends what goes on after a Compile that was cancelled, and the children that are kept.
// The Compiler may be used on.
func (c *Compiler) Close() {
	c.flights.keep(nil)
	c.spares.keep(0)
}

func keysOf(units []*unit) map[string]bool {
	keys := make(map[string]bool, len(units))
	for _, u := range units {
		keys[u.key] = true
	}
	return keys
}

// outcome returns what became of a unit; refused are those that are not to be taken.
func (b *batch) outcome(u *unit, refused map[*unit]schema.Diagnostic, units []*unit) schema.CompiledPackage {
	e := b.c.cache[u.key]
	if d, ok := refused[u]; ok {
		return failed(u, d)
	}
	switch {
	case b.heldUp(u):
		return b.awaiting(u)
	case u.node == nil:
		return schema.CompiledPackage{Dir: u.dir, Below: u.below, Diagnostics: u.diags, Awaits: u.awaits}
	case e.lacking() && b.later[u]:
		d := firstOf(u.first, schema.RulePending, fmt.Sprintf("what %s has takes long, so this package is compiled after the rest of the commit", u.owner))
		return failed(u, withHint(d, "wait; until then its last version is kept"))
	case e.lacking():
		d := firstOf(u.first, schema.RuleInternal, "the package was not compiled together with the rest of the commit")
		return failed(u, withHint(d, "the next commit tries again; report this as a bug"))
	}
	pkg := e.pkg
	wrong := slices.Concat(b.undeclared(e.policyPaths, units), unimported(e.policyPaths, u, units))
	pkg.Diagnostics = slices.Concat(u.diags, pkg.Diagnostics, nowhere(e.policyPaths, units), wrong) // all but the second and the last are warnings
	if slices.ContainsFunc(wrong, isError) {
		pkg.Package = nil
	}
	return pkg
}

// unimported returns the definitions of a unit that hold policies and that no package may take.
func unimported(paths []policyPath, u *unit, units []*unit) (out []schema.Diagnostic) {
	for _, p := range paths {
		if p.What == nameOfPolicies && !slices.ContainsFunc(units, func(other *unit) bool {
			return other.node == nil || slices.ContainsFunc(other.node.imports, func(n *node) bool { return n.dir == u.dir })
		}) {
			out = append(out, holdsNothing(p.Path, p.At))
		}
	}
	return out
}

// undeclared returns the priorities that policies compare one with, and that there are not. A package that does not
// compile may declare one whose name it has.
func (b *batch) undeclared(paths []policyPath, units []*unit) (out []schema.Diagnostic) {
	if !slices.ContainsFunc(paths, func(p policyPath) bool { return p.What == nameOfPriority }) {
		return nil
	}
	declared := map[string]bool{}
	var failed [][]byte
	for _, u := range units {
		e := b.c.cache[u.key]
		switch {
		case u.node == nil:
		case e == nil || e.pkg.Package == nil:
			for _, f := range u.node.files {
				failed = append(failed, b.p.tree.Files[f.path].Data)
			}
		default:
			for i := range e.pkg.Package.Objects.Priorities {
				declared[e.pkg.Package.Objects.Priorities[i].Name] = true
			}
		}
	}
	for _, p := range paths {
		if p.What != nameOfPriority || declared[p.Path] || slices.ContainsFunc(failed, func(data []byte) bool { return bytes.Contains(data, []byte(p.Path)) }) {
			continue
		}
		d := schema.Diagnostic{
			Severity: p.Severity, Rule: schema.RulePolicy, Position: p.At, Field: policyField,
			Message: fmt.Sprintf("compares a priority with %q, which no priority is called", p.Path), Expected: "free, batch, production, monitoring, or a declared priority",
		}
		if near := cmp.Or(p.Near, valid.Nearest(p.Path, slices.Sorted(maps.Keys(declared)))); near != "" {
			d.Hint = fmt.Sprintf("did you mean %q?", near)
		}
		out = append(out, d)
	}
	return out
}

// nowhere warns of the paths that policies name, and that no package lies below.
func nowhere(paths []policyPath, units []*unit) (out []schema.Diagnostic) {
	for _, p := range paths {
		if p.What == "" && !slices.ContainsFunc(units, func(u *unit) bool { return below(u.dir, p.Path) }) {
			out = append(out, schema.Diagnostic{
				Severity: schema.Warning, Rule: schema.RuleNoEffect, Position: p.At,
				Message: fmt.Sprintf("directory %s has no packages", p.Path), Hint: "correct the path, or remove it",
			})
		}
	}
	return out
}

// forget drops what no recent tree had. The units are those of the tree.
func (c *Compiler) forget(tree schema.Tree, units []*unit) {
	crashed, slow, took := map[string]bool{}, map[string]time.Duration{}, map[string]time.Duration{}
	for _, u := range units {
		if c.crashed[u.dir] {
			crashed[u.dir] = true
		}
		if used, ok := c.slow[u.key]; ok {
			slow[u.key] = used
		}
		if last, ok := c.last(u); ok {
			took[u.dir] = last
		}
	}
	c.crashed, c.slow, c.took = crashed, slow, took
	for k, e := range c.cache {
		if c.round-e.round > keepRounds {
			delete(c.cache, k)
		}
	}
	c.forgetLarge()
	c.known.forget(tree)
}

// last returns the processor time of a unit's package, as far as is known, or of the one before it in the
// directory.
func (c *Compiler) last(u *unit) (time.Duration, bool) {
	if e := c.cache[u.key]; e != nil {
		return e.cost.CPU, true
	}
	if used, ok := c.slow[u.key]; ok {
		return used, true
	}
	used, ok := c.took[u.dir]
	return used, ok
}

// forgetLarge drops packages that the last tree did not have, the oldest first, when these
// are much data.
func (c *Compiler) forgetLarge() {
	var old []string
	bytes := 0
	for k, e := range c.cache {
		if e.round < c.round {
			old = append(old, k)
			bytes += e.held()
		}
	}
	slices.SortFunc(old, func(a, b string) int {
		return cmp.Or(cmp.Compare(c.cache[a].round, c.cache[b].round), strings.Compare(a, b))
	})
	dropped := false
	for _, k := range old {
		if bytes <= keepBytes {
			break
		}
		bytes -= c.cache[k].held()
		delete(c.cache, k)
		dropped = true
	}
	if dropped {
		debug.FreeOSMemory() // it was much, and the next commit may be long in coming
	}
}

// warnOnce reports a former name in a library once, in the package that it stands in, and
// not in each that makes objects from it.
func warnOnce(packages []schema.CompiledPackage) {
	home := map[string]*schema.CompiledPackage{}
	for i := range packages {
		home[packages[i].Dir] = &packages[i]
	}
	said := map[schema.Position]bool{}
	for i := range packages {
		p := &packages[i]
		elsewhere := func(d schema.Diagnostic) bool { return d.Rule == schema.RuleDeprecated && dirOf(d) != p.Dir }
		if !slices.ContainsFunc(p.Diagnostics, elsewhere) {
			continue
		}
		all := p.Diagnostics // the cache's: it must not be changed
		p.Diagnostics = slices.DeleteFunc(slices.Clone(all), elsewhere)
		for _, d := range all {
			if !elsewhere(d) || said[d.Position] {
				continue
			}
			said[d.Position] = true
			to := cmp.Or(home[dirOf(d)], p)
			to.Diagnostics = append(slices.Clip(to.Diagnostics), d)
		}
	}
}

// blameOnce removes from each package the mistakes that lie in another one and
// are reported there, and what follows from these; a package that has no other says what it
// waits for.
func blameOnce(packages []schema.CompiledPackage) {
	r := reportedIn(packages)
	for i := range packages {
		p := &packages[i]
		var first *schema.Diagnostic // of those that lie elsewhere
		list := make([]schema.Diagnostic, 0, len(p.Diagnostics))
		for _, d := range p.Diagnostics {
			d.Position = r.place(p.Dir, d)
			if of, ok := r.first[dirOf(d)]; ok && d.Rule == schema.RuleDependency && dirOf(d) != p.Dir {
				d = of
			}
			if dirOf(d) == p.Dir || !r.at[d.Position] || d.Rule == schema.RuleLimit { // which no package imports
				list = append(list, d)
			} else if first == nil && isError(d) {
				first = &d
			}
		}
		if first == nil {
			continue
		}
		// What CUE has given up has no fields.
		p.Diagnostics = slices.DeleteFunc(list, func(d schema.Diagnostic) bool { return d.Rule == schema.RuleUnknownField && d.Expected == "" })
		if !slices.ContainsFunc(p.Diagnostics, isError) {
			first.Rule, first.Message = schema.RuleDependency, fmt.Sprintf("depends on %s, which does not compile: %s", dirOf(*first), first.Message)
			p.Diagnostics, p.Awaits = append([]schema.Diagnostic{*first}, p.Diagnostics...), dirOf(*first)
		}
	}
}

// reported are the mistakes that are reported in the package that they lie in.
type reported struct {
	at   map[schema.Position]bool
	said map[[2]string]schema.Position // by field and message
	of   map[[2]string]schema.Position // by directory and field
	// first is the first of a package that does not wait for others, by its directory.
	first map[string]schema.Diagnostic
}

func reportedIn(packages []schema.CompiledPackage) reported {
	r := reported{map[schema.Position]bool{}, map[[2]string]schema.Position{}, map[[2]string]schema.Position{}, map[string]schema.Diagnostic{}}
	for _, p := range packages {
		for _, d := range p.Diagnostics {
			if !isError(d) || dirOf(d) != p.Dir {
				continue
			}
			r.at[d.Position] = true
			if _, ok := r.first[p.Dir]; !ok && d.Rule != schema.RuleDependency {
				r.first[p.Dir] = d
			}
			r.of[[2]string{p.Dir, d.Field}] = d.Position
			if !nowhereIn(d) {
				r.said[[2]string{d.Field, d.Message}] = d.Position
			}
		}
	}
	return r
}

// place returns where a mistake of the package in a directory is: where the same one is reported, if it is not known, or
// where another package reports what is wrong with its own field.
func (r reported) place(dir string, d schema.Diagnostic) schema.Position {
	if at, ok := r.of[[2]string{dirOf(d), d.Field}]; ok && dirOf(d) != dir && !r.at[d.Position] && strings.HasPrefix(d.Field, "#") {
		return at
	}
	if at, ok := r.said[[2]string{d.Field, d.Message}]; ok && d.Field != "" && nowhereIn(d) {
		return at
	}
	return d.Position
}

// nowhereIn reports whether it is not known where in its file a mistake is.
func nowhereIn(d schema.Diagnostic) bool { return d.Line == 1 && d.Column == 1 }
