package compile

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"cuelang.org/go/cue"
	"cuelang.org/go/cue/ast"
	"cuelang.org/go/cue/build"
	"cuelang.org/go/cue/cuecontext"
	"cuelang.org/go/cue/errors"
	"cuelang.org/go/cue/load"
	"cuelang.org/go/cue/token"

	"github.com/musterhq/muster/schema"
	"github.com/musterhq/muster/schema/compile/lax"
	"github.com/musterhq/muster/schema/compile/policytext"
	"github.com/musterhq/muster/schema/compile/syntax"
	"github.com/musterhq/muster/schema/compile/terms"
	"github.com/musterhq/muster/schema/compile/trace"
	"github.com/musterhq/muster/schema/valid"
)

// objects returns the objects of a package, or what is wrong with it. also may be nil.
func objects(req request, strict *loaded, also func(request, *loaded, []mistake) []mistake) response {
	if len(strict.errs) > 0 {
		theirs := withoutFollowing(strict)
		theirFault := faultOf(strict)
		strict = unconditional(req, strict)
		found := withoutResults(strict, withMisfits(strict, mistakes(req, strict)))
		if also != nil {
			found = also(req, strict, found)
		}
		found = slices.DeleteFunc(atDefaults(strict, found), theirFault)
		return response{Diagnostics: tidy(append(found, theirs...))}
	}
	c := collect(req, strict, nil)
	others, definitions := overlooked(strict)
	c.diags = slices.Concat(with(intent(strict), append(c.diags, c.missing...)), undefinedNames(strict), ineffective(strict), misfits(strict), others)
	if len(c.diags) == 0 && req.Parent != "" {
		c.dropInherited(collect(req, loadPackage(req, req.Parent, nil), nil))
	}
	ps := &policies{}
	if len(c.diags) == 0 && (len(req.Policies) > 0 && len(c.objects) > 0 || slices.Contains(req.Policies, req.Dir)) {
		if ps = loadPolicies(req, strict); len(ps.diags) > 0 {
			return response{Diagnostics: append(ps.diags, tidy(slices.Concat(c.warnings, ps.warnings))...)}
		}
		c.diags = ps.apply(c)
	}
	c.diags = append(c.diags, slices.Concat(c.warnings, ps.warnings)...)
	resp := response{Objects: c.objects, Diagnostics: tidy(atDefaults(strict, c.diags)), Policies: ps.own, PolicyPaths: append(ps.paths, definitions...)}
	if slices.ContainsFunc(resp.Diagnostics, isError) {
		resp.Objects = nil
	}
	return resp
}

// with adds to the mistakes that only the syntax shows those that it does not
// explain.
func with(intents, found []mistake) []mistake {
	return append(intents, slices.DeleteFunc(found, func(d mistake) bool { return covered(intents, d) })...)
}

// mistakes returns what is wrong with a package that CUE finds errors in. It is
// evaluated again with lax definitions and without what CUE stumbles over, so
// that the strict pass can say the rest: each mistake in its own words where it
// has any, else in those of CUE.
func mistakes(req request, strict *loaded) []mistake {
	certain, wide, m := relaxed(req, strict)
	if wide == nil {
		return diagnose(strict, strict.errs)
	}
	c := collect(req, wide, strict)
	strictly := diagnose(strict, strict.errs)
	c.diags = slices.DeleteFunc(c.diags, func(d mistake) bool { return m.blanks[d.Position] || m.blanks[d.from] || overtaken(d, strictly) })
	theirs := slices.DeleteFunc(diagnose(wide, withoutUndecided(wide.errs, strict.errs)), func(d mistake) bool {
		if d.Rule == schema.RuleNotSet && slices.ContainsFunc(strictly, func(s mistake) bool { return s.Field == d.Field }) {
			return true // the strict definitions say what it may be
		}
		if d.form == closedField && !slices.ContainsFunc(strict.errs, notAllowedAt(d.Field)) {
			return true // only since the definitions of the schema have no fields now
		}
		if d.form == unusedName && strict.built && !slices.ContainsFunc(strictly, func(s mistake) bool { return s.Position == d.Position }) {
			return true // only since what used it is left out
		}
		if slices.ContainsFunc(strictly, func(s mistake) bool { return betterThan(s, d) }) {
			return true
		}
		if d.Rule == schema.RuleCheck && len(certain) == 0 && !slices.ContainsFunc(strictly, func(s mistake) bool { return s.Hint == d.Hint }) {
			return true // it looks at what was taken out
		}
		return m.blanks[d.Position] || slices.ContainsFunc(certain, func(m mistake) bool { return covers(m, d) })
	})
	mine := slices.Concat(certain, c.diags)
	if !m.open {
		mine = append(mine, c.missingBeside(slices.Concat(theirs, certain, slices.DeleteFunc(slices.Clone(strictly), isMissing)))...)
	}
	return with(intent(strict), twice(strict, causes(strict, wide, joined(mine, theirs, strictly))))
}

// notAllowedAt returns a function that reports whether CUE says of the data at a
// path that it is not allowed.
func notAllowedAt(field string) func(errors.Error) bool {
	return func(e errors.Error) bool {
		return fieldPath(e.Path()) == field && strings.Contains(errorText(e), "not allowed")
	}
}

// relaxed evaluates a package until it holds no more names that CUE does not
// know, and returns what these are. wide is nil if the package cannot be built
// whatever is left out: a file does not parse.
func relaxed(req request, strict *loaded) (certain []mistake, wide *loaded, m *recovery) {
	m = newRecovery()
	m.never, m.faulty = strict.never, strict.faulty
	wide = strict
	for range maxRecoveries {
		fresh := m.learn(wide.errs)
		if len(fresh) == 0 && wide != strict || len(fresh) == 0 && !strict.built {
			break
		}
		for _, e := range fresh {
			if strings.HasPrefix(errorText(e), "imported and not used") && used(req, position(e.Position())) {
				continue // only since what used it is left out
			}
			if m := undefined.FindStringSubmatch(errorText(e)); m != nil && wide != strict && strict.built && !strings.HasPrefix(m[1], "#") && !wide.where.mine(position(e.Position()).Path) {
				continue // only since what a library says of the value that it would be in is taken out
			}
			if d, _ := wide.diagnostic(e); !m.explained(d, certain) && !m.follows(wide, d.Position) {
				certain = append(certain, d)
			}
		}
		wide = loadPackage(req, req.Dir, m)
	}
	certain = misnamed(strict, certain)
	if !wide.built {
		return nil, nil, m
	}
	return certain, wide, m
}

// loaded is a package as CUE sees it.
type loaded struct {
	req   request
	dir   string
	inst  *build.Instance
	value cue.Value
	// context is that of value.
	context *cue.Context
	built   bool // value is worth looking at, whatever errs says
	lax     bool // the definitions of the schema accept anything
	errs    []errors.Error
	where   *positions
	never   map[schema.Position]bool // conditions that count as false
	words   map[string]*syntax.File  // of files that do not parse
	// scopes are packages in which expressions of theirs are evaluated.
	scopes    map[*build.Instance]scope
	libraries libraries
	faulty    places             // of libraries that are wrong by themselves
	policies  *policytext.Source // nil if it has none
}

// wording returns a file as words. Many errors are of the same file.
func (l *loaded) wording(path string) *syntax.File {
	s, ok := l.words[path]
	if !ok {
		s = syntax.Read(path, l.req.Files[path])
		if l.words == nil {
			l.words = map[string]*syntax.File{}
		}
		l.words[path] = s
	}
	return s
}

// loading returns how the package in dir is loaded, with m as loadPackage says.
func loading(req request, dir string, m *recovery) *load.Config {
	cfg := &load.Config{
		FS: newMemFS(req.Files), FromFSPath: inRepository, Dir: "/" + dir, ModuleRoot: "/",
		Env: []string{"CUE_REGISTRY=none", "CUE_CACHE_DIR=/nonexistent", "HOME=/nonexistent"},
	}
	if m != nil {
		cfg.ParseFile = m.parse
	}
	if req.Test != "" && dir == req.Dir {
		cfg.Tests, cfg.ParseFile = true, withTest(req.Test, cfg.ParseFile)
	}
	return cfg
}

// packageFiles returns the files of CUE of a request's package, of those with policies, and of all that these import,
// without evaluating them.
func packageFiles(req request) (files []*ast.File) {
	for _, dir := range append([]string{req.Dir}, req.Policies...) {
		files = append(files, allFiles(load.Instances(patterns(req, dir), loading(req, dir, nil))[0])...)
	}
	return files
}

// loadPackage loads and evaluates the package in dir, in a context of its own:
// contexts keep all that they ever saw. With m it has lax definitions and
// lacks what that leaves out.
func loadPackage(req request, dir string, m *recovery) *loaded {
	l := &loaded{req: req, dir: dir, lax: m != nil && !m.firm, inst: load.Instances(patterns(req, dir), loading(req, dir, m))[0]}
	l.where = newPositions(l)
	if l.inst.Err != nil {
		l.errs = errors.Errors(l.inst.Err)
		return l
	}
	if slices.Contains(req.Policies, dir) {
		l.policies = policytext.Read(l.inst)
		l.policies.Number()
	}
	l.context = cuecontext.New()
	l.value = l.context.BuildInstance(l.inst)
	l.built = true
	if err := l.value.Validate(cue.Concrete(true)); err != nil {
		l.errs = explained(errors.Errors(err))
		l.errs = trace.Narrow(l.errs, func(at []string) cue.Value { return trace.Lookup(l.value, at, l.inst.ID()) })
		l.errs = trace.Required(l.value, l.errs, l.where.mine)
	}
	if m != nil {
		l.errs = m.faulty.without(l.errs)
		withoutTemplates(l)
		return l
	}
	functions, matches := terms.Uses(allFiles(l.inst))
	if functions {
		l.errs = append(l.errs, l.further(trace.Arguments, cue.Hidden(true))...)
	}
	if matches {
		l.errs = append(l.errs, l.further(trace.Unmatched)...)
		l.errs = append(l.errs, l.further(func(v cue.Value) []errors.Error { return trace.Unallowed(v, l.where.mine) }, cue.Hidden(true))...)
	}
	withoutTemplates(l)
	return l
}

// further returns what is found wrong with what the package's objects give to templates, and is not
// among its errors.
func (l *loaded) further(find func(cue.Value) []errors.Error, which ...cue.Option) (out []errors.Error) {
	known := map[string]bool{}
	for _, e := range l.errs {
		known[e.Error()] = true
	}
	top, err := l.value.Fields(which...)
	for err == nil && top.Next() {
		for _, e := range find(top.Value()) {
			if !known[e.Error()] && (!trace.IsMoved(e) || calls(l, e)) {
				out = append(out, e)
			}
		}
	}
	return out
}

// patterns returns what to load for the package in dir: "." and then, since
// CUE 0.17.1 unifies a package with files of the directories above but does not
// find what only these import ("no dependency found"), these directories too.
// They are parsed, not evaluated.
func patterns(req request, dir string) []string {
	dirs := map[string]bool{}
	for name := range req.Files {
		if strings.HasSuffix(name, ".cue") && !ignored(name) && !inPkg(name) {
			dirs[path.Dir(name)] = true
		}
	}
	up := map[string]bool{}
	for d := range dirs {
		for a := d; a != "."; {
			if a = path.Dir(a); dirs[a] && a != dir {
				up[a] = true
			}
		}
	}
	out := []string{"."}
	for _, a := range slices.Sorted(maps.Keys(up)) {
		out = append(out, path.Join("/", a))
	}
	return out
}

// collection is what a package declares, and what is wrong with it.
type collection struct {
	from    *loaded
	strict  *loaded // if from is lax
	objects []object
	diags   []mistake
	missing []mistake // required fields that are not there
	// warnings are of fields under a former name.
	warnings []mistake
	warned   map[schema.Position]bool // where these are
}

// missingBeside returns what is missing, without what is perhaps there but for
// an error of the value that should hold it.
func (c *collection) missingBeside(errs []mistake) (out []mistake) {
	objects := make([]string, len(errs))
	for i := range errs {
		objects[i] = objectOf(errs[i].Field)
	}
	for _, m := range c.missing {
		object := objectOf(m.Field)
		explained := false
		for i := 0; i < len(errs) && !explained; i++ {
			e := &errs[i]
			same := objects[i] == object
			givenUp := e.Rule == schema.RuleUndefined && !c.from.where.mine(e.Path) && same
			wrongName := e.form == closedField && e.beside() && nearness(c.from.labels(m.Field), append(c.from.labels(e.Field), "")) == 1
			chosen := (same || e.beside()) && branching(c.from, *e, m.Field)
			added := !same && e.beside() && adds(c.from, m)
			explained = e.Field != "" && (within(m.Field, e.Field) || chosen || added || givenUp || wrongName || !c.from.where.mine(m.Path) && e.ofParameter())
		}
		if !explained {
			out = append(out, m)
		}
	}
	return out
}

// collect exports the objects of a package and passes each through the strict
// pass.
func collect(req request, l, strict *loaded) *collection {
	c := &collection{from: l, strict: strict}
	if !l.built {
		return c
	}
	top, err := l.value.Fields()
	if err != nil {
		return c
	}
	x := &exporter{left: req.Limits.OutputBytes}
	fields := map[string]any{}
	var kinds []*cue.Iterator
	for top.Next() {
		if kind, ok := label(top); ok {
			fields[kind] = x.outline(schema.Kind(kind), top.Value())
			at := *top
			kinds = append(kinds, &at)
		}
	}
	bad := map[string]bool{}
	for _, p := range valid.Top(fields) {
		bad[p.Path[0]] = true
		c.add(nil, p)
	}
	for _, at := range kinds {
		kind, _ := label(at)
		objects, err := at.Value().Fields()
		if err != nil || bad[kind] || valid.Of(schema.Kind(kind)) == nil {
			continue
		}
		for objects.Next() {
			if name, ok := label(objects); ok {
				c.object(schema.Kind(kind), name, x.plain(objects.Value(), 0))
			}
		}
	}
	c.definitions(x)
	c.missing = strangers(l, c.missing)
	if what := x.trouble(req.Limits.OutputBytes); what != "" {
		c.diags = append(c.diags, mistake{Diagnostic: firstOf(ownFiles(req)[0], schema.RuleLimit, what)})
	}
	if len(c.objects) > req.Limits.Objects {
		c.diags = append(c.diags, mistake{Diagnostic: tooMany(req, len(c.objects))})
	}
	return c
}

// definitions checks the package's own definitions that are made from those of
// the schema, as far as they say anything: whoever wrote a mistake there learns
// of it there.
func (c *collection) definitions(x *exporter) {
	if c.from.dir == SchemaDir || len(c.from.errs) == 0 && !c.from.lax {
		return // CUE has found nothing, so there is nothing to say better
	}
	for _, f := range c.from.where.files {
		for _, d := range f.Decls {
			field, ok := d.(*ast.Field)
			if !ok || !strings.HasPrefix(lax.Label(field), "#") {
				continue
			}
			kind := madeFrom(field.Value, 0)
			if kind == "" {
				continue
			}
			name := lax.Label(field)
			v := c.from.value.LookupPath(cue.MakePath(cue.Def(name)))
			for _, p := range valid.Partial(kind, x.plain(v, 0)) {
				c.add([]string{name}, p)
			}
		}
	}
}

// madeFrom returns the kind whose definition an expression is joined with, or
// embeds; "" if there is none.
func madeFrom(e ast.Expr, depth int) schema.Kind {
	if depth > maxDepth {
		return ""
	}
	switch e := e.(type) {
	case *ast.ParenExpr:
		return madeFrom(e.X, depth+1)
	case *ast.BinaryExpr:
		if e.Op == token.AND {
			return cmp.Or(madeFrom(e.X, depth+1), madeFrom(e.Y, depth+1))
		}
	case *ast.StructLit:
		for _, d := range e.Elts {
			if embed, ok := d.(*ast.EmbedDecl); ok {
				if kind := madeFrom(embed.Expr, depth+1); kind != "" {
					return kind
				}
			}
		}
	case *ast.SelectorExpr:
		sel, _, err := ast.LabelName(e.Sel)
		if x, ok := e.X.(*ast.Ident); ok && err == nil && x.Name == SchemaDir && isKind(sel) {
			return schema.Kind(strings.ToLower(strings.TrimPrefix(sel, "#")))
		}
	}
	return ""
}

// object checks one object.
func (c *collection) object(kind schema.Kind, name string, data any) {
	out, problems := valid.Object(kind, name, data)
	for _, p := range problems {
		if p.Warning {
			c.warn([]string{string(kind), name}, p)
		} else {
			c.add([]string{string(kind), name}, p)
		}
	}
	if out == nil || len(c.diags)+len(c.missing) > 0 || len(c.from.errs) > 0 {
		return
	}
	o := object{Kind: kind, Name: name, Data: schema.Canonical(out), Origin: c.from.where.origin(string(kind), name)}
	for _, r := range valid.References(kind, out) {
		o.Names = append(o.Names, c.from.where.of(slices.Concat([]string{string(kind), name}, valid.Given(kind, data, r.Path)), r.Key))
	}
	o.Places = c.from.where.places(kind, name, out)
	c.objects = append(c.objects, o)
}

// add turns a problem of the value at a path into a mistake.
func (c *collection) add(at []string, p valid.Problem) {
	if len(c.diags)+len(c.missing) >= maxFound {
		return // enough, and each costs a search
	}
	full := slices.Concat(at, p.Path)
	if c.strict != nil && p.Rule == schema.RuleNotSet {
		// What constrains it has been taken out of the lax definitions.
		if b, ok := undecided(c.strict.where.value(full)); ok {
			p.Message, p.Hint, p.Constrained = b.Why, b.Hint, b.Constrained
		}
	}
	d := mistake{Diagnostic: schema.Diagnostic{
		Severity: schema.Error, Rule: p.Rule, Field: fieldPath(full), Message: p.Message, Expected: p.Expected, Hint: p.Hint, Image: p.Image,
	}}
	d.widened = c.from.lax && p.Rule == schema.RuleNotSet && c.from.where.value(full).IncompleteKind() == cue.TopKind
	if p.Missing {
		if p.Rule == schema.RuleMissingField {
			d.form = missingField
		}
		d.Position = c.from.where.enclosing(full)
		c.missing = append(c.missing, d)
		return
	}
	if p.Unnamed {
		d.Position = c.from.where.unnamed(full[0])
		c.diags = append(c.diags, d)
		return
	}
	c.place(&d, at, p)
	c.diags = append(c.diags, d)
}

// place says where the problem of the value at a path is.
func (c *collection) place(d *mistake, at []string, p valid.Problem) {
	full := slices.Concat(at, p.Path)
	d.Position = c.from.where.of(full, p.Key)
	if p.Beside != nil {
		d.Position = c.from.where.labelled(full)[0]
		other := c.from.where.labelled(slices.Concat(at, p.Beside))[0]
		if !c.from.where.mine(d.Path) && c.from.where.mine(other.Path) {
			d.Position, other = other, d.Position // what is of a library is for others, too
		}
		d.Message += fmt.Sprintf(", at %s", other)
	}
	if p.Rule == schema.RuleInvalidName && c.from.where.mine(d.Path) && c.from.where.computedAt(full) {
		d.Position = cmp.Or(c.from.where.partOf(full[len(full)-1]), d.Position)
	}
	if p.Rule == schema.RuleNotSet && !c.from.where.mine(d.Path) {
		d.Position = cmp.Or(c.from.where.leaf(full), d.Position)
	}
	if f, ok := c.from.where.index()[d.Position]; p.Rule == schema.RuleUnknownField && ok && lax.Label(f) != full[len(full)-1] && lax.Label(f) != "" {
		d.Position = cmp.Or(c.from.where.anywhere(full[len(full)-1]), d.Position) // of a value that is computed elsewhere
	}
	if _, ok := c.from.where.index()[d.Position]; p.Key && !ok && c.from.where.mine(d.Path) { // of data, of which the value has a place
		d.Position = cmp.Or(c.from.where.labelNamed(full[len(full)-1]), c.from.where.partOf(full[len(full)-1]), d.Position)
	}
	if !c.from.where.mine(d.Path) { // what is made of names in the package is its own
		switch home := c.from.where.enclosing(full); {
		case p.Rule == schema.RuleInvalidName:
			d.Position = cmp.Or(c.from.where.labelNamed(full[len(full)-1]), c.from.where.partOf(full[len(full)-1]), d.Position)
		case p.Rule == schema.RuleUnknownKind && c.from.where.mine(home.Path):
			d.Position = home
		}
	}
	if home := c.from.where.enclosing(full); p.Constrained && !c.from.where.mine(d.Path) && c.from.where.mine(home.Path) {
		d.Message += ", at " + d.Position.String() // which may be as it should: the value belongs here
		d.Position, d.from, d.moved = home, d.Position, true
	}
	if computed := p.Rule == schema.RuleOutOfRange || p.Rule == schema.RuleInvalidValue; computed && c.strict == nil && !p.Key && !c.from.where.mine(d.Path) {
		if pos, ok := c.from.where.given(c.from.where.value(full)); ok { // a library computes it from what the package gives
			d.Position = pos
		}
	}
}

// warn notes that a value is taken all the same: at each place that has it, once for all
// objects that have it from there.
func (c *collection) warn(at []string, p valid.Problem) {
	full := slices.Concat(at, p.Path)
	for _, pos := range c.from.where.labelled(full) {
		if c.warned[pos] || len(c.warnings) >= maxFound {
			continue
		}
		d := mistake{Diagnostic: schema.Diagnostic{
			Severity: schema.Warning, Rule: p.Rule, Position: pos, Field: fieldPath(full), Message: p.Message, Hint: p.Hint,
		}}
		if !c.from.where.mine(d.Path) {
			d.Field = "" // it is the same for all that is made from it
		}
		if c.warned == nil {
			c.warned = map[schema.Position]bool{}
		}
		c.warned[pos] = true
		c.warnings = append(c.warnings, d)
	}
}

// dropInherited removes the objects that the ancestor's files declare, and
// reports those that this directory changes.
func (c *collection) dropInherited(parent *collection) {
	inherited := map[string]object{}
	for _, o := range parent.objects {
		inherited[fieldPath([]string{string(o.Kind), o.Name})] = o
	}
	kept := c.objects[:0]
	for _, o := range c.objects {
		at := []string{string(o.Kind), o.Name}
		theirs, ok := inherited[fieldPath(at)]
		if !ok {
			kept = append(kept, o)
			continue
		}
		if bytes.Equal(o.Data, theirs.Data) {
			continue
		}
		d := schema.Diagnostic{
			Severity: schema.Error, Rule: schema.RuleInherited, Position: c.from.where.of(at, true), Field: fieldPath(at),
			Message: fmt.Sprintf("changes an object of a parent directory, declared at %s", theirs.Origin),
			Hint:    "an object belongs to one directory: change it there, or give this package another name",
		}
		c.diags = append(c.diags, mistake{Diagnostic: d})
	}
	c.objects = kept
}

// ownFiles returns the CUE files of the request's directory, sorted.
func ownFiles(req request) []string {
	return slices.Concat(filesOf(req.Files, req.Dir), testsOf(req))
}

// tooMany says that a package has too many objects.
func tooMany(req request, n int) schema.Diagnostic {
	d := firstOf(ownFiles(req)[0], schema.RuleLimit, fmt.Sprintf("the package declares %d objects, more than %d", n, req.Limits.Objects))
	d.Hint = "split it into directories"
	return d
}
