package compile

import (
	"bytes"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"cuelang.org/go/cue"
	"cuelang.org/go/cue/build"
	"cuelang.org/go/cue/cuecontext"
	"cuelang.org/go/cue/errors"
	"cuelang.org/go/cue/load"

	"github.com/musterhq/muster/schema"
	"github.com/musterhq/muster/schema/valid"
)

// evaluate compiles one package. It uses nothing but the request, and cannot
// be interrupted: whoever calls it must be able to die.
func evaluate(req request) (resp response) {
	defer func() {
		if p := recover(); p != nil {
			d := firstOf(ownFiles(req)[0], fmt.Sprintf("the CUE evaluator gave up on this package: %v", p))
			d.Hint = "this is a bug of the evaluator; simplify what changed last"
			resp = response{Diagnostics: []schema.Diagnostic{d}}
		}
	}()
	strict := loadPackage(req, req.Dir, false)
	if len(strict.errs) == 0 {
		c := collect(req, strict)
		c.diags = append(c.diags, c.missing...)
		if len(c.diags) == 0 && req.Parent != "" {
			c.dropInherited(collect(req, loadPackage(req, req.Parent, false)))
		}
		if len(c.diags) > 0 {
			return response{Diagnostics: tidy(c.diags)}
		}
		return response{Objects: c.objects}
	}
	diags := diagnose(strict)
	if strict.built {
		second := loadPackage(req, req.Dir, true)
		c := collect(req, second)
		theirs := diagnose(second)
		mine := slices.Concat(c.diags, c.missingBeside(theirs))
		for _, d := range theirs {
			if !slices.ContainsFunc(mine, func(m schema.Diagnostic) bool { return m.Field == d.Field || m.Position == d.Position }) {
				mine = append(mine, d)
			}
		}
		for _, d := range diags {
			if !slices.ContainsFunc(mine, func(m schema.Diagnostic) bool { return covers(m, d) }) {
				mine = append(mine, d)
			}
		}
		diags = mine
	}
	return response{Diagnostics: tidy(diags)}
}

// loaded is a package as CUE sees it.
type loaded struct {
	req   request
	dir   string
	inst  *build.Instance
	value cue.Value
	built bool // value is worth looking at, whatever errs says
	errs  []errors.Error
	where *positions
}

// loadPackage loads and evaluates the package in dir, in a context of its own:
// contexts keep all that they ever saw.
func loadPackage(req request, dir string, laxly bool) *loaded {
	cfg := &load.Config{
		FS: newMemFS(req.Files), Dir: "/" + dir, ModuleRoot: "/",
		Env: []string{"CUE_REGISTRY=none", "CUE_CACHE_DIR=/nonexistent", "HOME=/nonexistent"},
	}
	if laxly {
		cfg.ParseFile = parseLax
	}
	l := &loaded{req: req, dir: dir, inst: load.Instances(patterns(req, dir), cfg)[0]}
	l.where = newPositions(l)
	if l.inst.Err != nil {
		l.errs = errors.Errors(l.inst.Err)
		return l
	}
	l.value = cuecontext.New().BuildInstance(l.inst)
	l.built = true
	if err := l.value.Validate(cue.Concrete(true)); err != nil {
		l.errs = errors.Errors(err)
		l.errs = l.errs[:min(len(l.errs), maxFound)]
	}
	return l
}

// patterns returns what to load for the package in dir: "." and then, since
// CUE 0.17.1 unifies a package with files of the directories above but does not
// find what only these import ("no dependency found"), these directories too.
// They are parsed, not evaluated.
func patterns(req request, dir string) []string {
	dirs := map[string]bool{}
	for name := range req.Files {
		if strings.HasSuffix(name, ".cue") && !ignored(name) {
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
	objects []object
	diags   []schema.Diagnostic
	missing []schema.Diagnostic // required fields that are not there
}

// missingBeside returns what is missing, without what is perhaps there but for
// an error of the value that should hold it.
func (c *collection) missingBeside(errs []schema.Diagnostic) (out []schema.Diagnostic) {
	for _, m := range c.missing {
		if !slices.ContainsFunc(errs, func(e schema.Diagnostic) bool { return e.Field != "" && within(m.Field, e.Field) }) {
			out = append(out, m)
		}
	}
	return out
}

// collect exports the objects of a package and passes each through the strict
// pass.
func collect(req request, l *loaded) *collection {
	c := &collection{from: l}
	if !l.built {
		return c
	}
	top, err := l.value.Fields()
	if err != nil {
		return c
	}
	x := &exporter{left: req.Limits.OutputBytes}
	for top.Next() {
		kind, ok := label(top)
		if !ok {
			continue
		}
		if p := valid.Kind(kind); p != nil {
			c.add([]string{kind}, *p)
			continue
		}
		objects, err := top.Value().Fields()
		if err != nil {
			if v := x.plain(top.Value(), 0); v != any(valid.Broken{}) {
				c.add([]string{kind}, valid.Problem{Message: "is not a struct", Expected: fmt.Sprintf("objects by name, as in %s: NAME: {…}", kind)})
			}
			continue
		}
		for objects.Next() {
			if name, ok := label(objects); ok {
				c.object(schema.Kind(kind), name, x.plain(objects.Value(), 0))
			}
		}
	}
	if what := x.trouble(req.Limits.OutputBytes); what != "" {
		c.diags = append(c.diags, firstOf(ownFiles(req)[0], what))
	}
	if len(c.objects) > req.Limits.Objects {
		d := firstOf(ownFiles(req)[0], fmt.Sprintf("the package declares %d objects, more than %d", len(c.objects), req.Limits.Objects))
		d.Hint = "split it into directories"
		c.diags = append(c.diags, d)
	}
	return c
}

// object checks one object.
func (c *collection) object(kind schema.Kind, name string, data any) {
	out, problems := valid.Object(kind, name, data)
	for _, p := range problems {
		c.add([]string{string(kind), name}, p)
	}
	if out == nil || len(c.diags)+len(c.missing) > 0 || len(c.from.errs) > 0 {
		return
	}
	o := object{Kind: kind, Name: name, Data: schema.Canonical(out), Origin: c.from.where.origin(string(kind), name)}
	for _, r := range valid.References(kind, out) {
		o.Names = append(o.Names, c.from.where.of(slices.Concat([]string{string(kind), name}, r.Path), false))
	}
	c.objects = append(c.objects, o)
}

// add turns a problem of the value at a path into a diagnostic.
func (c *collection) add(at []string, p valid.Problem) {
	if len(c.diags)+len(c.missing) >= maxFound {
		return // enough, and each costs a search
	}
	full := slices.Concat(at, p.Path)
	d := schema.Diagnostic{
		Severity: schema.Error, Field: fieldPath(full), Message: p.Message, Expected: p.Expected, Hint: p.Hint,
	}
	if p.Missing {
		d.Position = c.from.where.enclosing(full)
		c.missing = append(c.missing, d)
		return
	}
	d.Position = c.from.where.of(full, p.Key)
	c.diags = append(c.diags, d)
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
			Severity: schema.Error, Position: c.from.where.of(at, true), Field: fieldPath(at),
			Message: fmt.Sprintf("changes an object of the directory above, declared at %s", theirs.Origin),
			Hint:    "an object belongs to one directory: change it there, or give this package another name",
		}
		c.diags = append(c.diags, d)
	}
	c.objects = kept
}

// ownFiles returns the CUE files of the request's directory, sorted.
func ownFiles(req request) []string {
	return filesOf(req.Files, req.Dir)
}
