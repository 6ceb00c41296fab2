package compile

import (
	"bytes"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/musterhq/muster/schema"
	"github.com/musterhq/muster/schema/compile/syntax"
)

// unit is one directory of the tree: what is compiled, cached and blamed.
type unit struct {
	dir   string
	first string // path of its first file
	node  *node  // what it is evaluated as; nil if diags has an error
	bytes int    // of its files
	owner string // whose it is, once that is known
	key   string
	diags []schema.Diagnostic // what is wrong before anything is evaluated
	// awaits is the directory whose mistakes are the only ones among diags; "" if there is none.
	awaits string
	// below says that diags hold for all directories below dir too.
	below bool
}

// parent returns the nearest directory above with files of the same package,
// "" for none.
func (u *unit) parent() string {
	if u.node.up == nil {
		return ""
	}
	return u.node.up.dir
}

// folder is a directory with CUE files.
type folder struct {
	dir   string
	files []source // by path
	nodes []*node  // one for each package; more than one is a mistake
}

// source is one CUE file.
type source struct {
	path string
	hash string
	*header
}

// planner finds the units of one tree. Once plan has returned it is not
// written, so that several goroutines may ask it for files.
type planner struct {
	tree   schema.Tree
	known  *known
	limits Limits
	module string // the module's path
	// qualified is that with its major version.
	qualified string
	vendor    vendor // the modules of others
	paths     []string
	folders   map[string]*folder
	targets   map[string]*folder  // by import path
	nested    []string            // directories with a module of their own
	policies  []*node             // packages whose policies hold for others; they are few
	refused   []*unit             // subtrees that nothing is read of
	unjudged  []schema.Diagnostic // policies of directories that are refused
	hints     int                 // searches for a near import path so far
	formerly  *string             // see former; nil before it is looked for
	loops     map[*node]*loop     // of what leads to them
}

// known is what is remembered of files from one tree to the next.
type known struct {
	headers map[string]*header // by file hash
	modules map[string]module  // by file hash
}

func newKnown() *known {
	return &known{headers: map[string]*header{}, modules: map[string]module{}}
}

// forget drops what a tree does not have, when there is much of it.
func (k *known) forget(tree schema.Tree) {
	if len(k.headers) <= 4*len(tree.Files)+1000 {
		return
	}
	kept := newKnown()
	for name, f := range tree.Files {
		if h, ok := k.headers[f.Hash]; ok && strings.HasSuffix(name, ".cue") {
			kept.headers[f.Hash] = h
		}
	}
	*k = *kept
}

// plan returns the units of a tree by directory, or what is wrong with the
// repository as a whole.
func plan(tree schema.Tree, k *known, limits Limits) (*planner, []*unit, []schema.Diagnostic) {
	tree.Diagnostics = slices.Clone(tree.Diagnostics)
	for i := range tree.Diagnostics {
		tree.Diagnostics[i] = tree.Diagnostics[i].Printable()
	}
	p := &planner{tree: tree, known: k, limits: limits, folders: map[string]*folder{}, targets: map[string]*folder{}}
	if d := p.readModule(); d != nil {
		return p, nil, []schema.Diagnostic{*d}
	}
	p.readVendored()
	units := p.sortFiles()
	if len(p.vendor.diags) > 0 {
		units = append(units, &unit{dir: path.Dir(moduleFile), diags: p.vendor.diags})
	}
	p.refuse()
	units = append(units, p.refused...)
	p.link()
	rules := p.rules()
	for _, dir := range slices.Sorted(maps.Keys(p.folders)) {
		if inPkg(dir) {
			continue // it is looked at where it is imported, and declares nothing
		}
		u := p.unit(p.folders[dir])
		for _, s := range p.folders[dir].files {
			u.bytes += len(p.tree.Files[s.path].Data)
		}
		if u.node != nil {
			u.key = u.node.key(rules)
		}
		units = append(units, u)
	}
	units = oneEach(units)
	diags := p.sameButCase()
	if len(units) == 0 {
		diags = append(diags, schema.Diagnostic{
			Severity: schema.Warning, Rule: schema.RuleRepository, Position: schema.Position{Path: moduleFile, Line: 1, Column: 1},
			Message: "the repository has no CUE files, so it declares nothing",
		})
	}
	return p, units, diags
}

// sameButCase returns warnings of names that a file system which takes no notice
// of case cannot hold beside each other.
func (p *planner) sameButCase() (diags []schema.Diagnostic) {
	lower := map[string]string{}
	check := func(dir, name, at string) {
		low := path.Join(dir, strings.ToLower(name))
		if other, ok := lower[low]; ok && len(diags) < maxDiagnostics {
			diags = append(diags, schema.Diagnostic{
				Severity: schema.Warning, Rule: schema.RuleRepository, Position: schema.Position{Path: at, Line: 1, Column: 1},
				Message: fmt.Sprintf("the names %s and %s differ only in case: some systems cannot hold both", other, name),
				Hint:    "rename one of them",
			})
		}
		lower[low] = name
	}
	for _, dir := range slices.Sorted(maps.Keys(p.folders)) {
		check("", dir, p.folders[dir].files[0].path)
		for _, s := range p.folders[dir].files {
			check(dir, path.Base(s.path), s.path)
		}
	}
	return diags
}

// oneEach sorts units and joins those of the same directory: a refused one has
// priority over the rest of its directory.
func oneEach(units []*unit) []*unit {
	slices.SortStableFunc(units, func(a, b *unit) int { return strings.Compare(a.dir, b.dir) })
	var out []*unit
	for _, u := range units {
		last := len(out) - 1
		switch {
		case last < 0 || out[last].dir != u.dir:
			out = append(out, u)
		case len(u.diags) > 0:
			out[last].diags = append(out[last].diags, u.diags...)
			out[last].below = out[last].below || u.below
		}
	}
	return out
}

// isEmpty reports whether a tree has no file that matters.
func isEmpty(tree schema.Tree) bool { return len(tree.Files) == 0 }

// readModule finds the module's path.
func (p *planner) readModule() *schema.Diagnostic {
	d := &schema.Diagnostic{
		Severity: schema.Error, Rule: schema.RuleRepository, Position: schema.Position{Path: moduleFile, Line: 1, Column: 1},
		Hint: "run muster init to create a repository",
	}
	if isEmpty(p.tree) {
		d.Message = "the repository is empty"
		return d
	}
	f, ok := p.tree.Files[moduleFile]
	if !ok {
		d.Message, d.Expected = "the repository is not a CUE module: the file does not exist", "a file that names the module"
		return d
	}
	m, ok := p.known.modules[f.Hash]
	if !ok {
		m = parseModule(f.Data, p.limits.FileBytes)
		p.known.modules[f.Hash] = m
	}
	p.module, p.qualified = m.path, m.qualified
	return m.err
}

// badUnit is a directory with a file whose path is at fault: only that is
// refused, since every team can commit such a file.
func badUnit(name string, rule schema.Rule, what string) *unit {
	name = schema.Printable(name)
	d := schema.Diagnostic{
		Severity: schema.Error, Rule: rule, Position: schema.Position{Path: name, Line: 1, Column: 1}, Message: what, Hint: "rename it",
	}
	return &unit{dir: path.Dir(name), diags: []schema.Diagnostic{d}}
}

// sortFiles groups the CUE files by directory, and returns the units that are
// refused for the paths of their files.
func (p *planner) sortFiles() (units []*unit) {
	for name, file := range p.tree.Files {
		if !strings.HasSuffix(name, ".cue") {
			continue
		}
		if lib := p.vendor.library(name); inPkg(name) && (lib == nil || lib.fault != nil) {
			continue // nobody can import it
		}
		if rule, what := badPath(name); what != "" {
			units = append(units, badUnit(name, rule, what))
			continue
		}
		if dir, ok := strings.CutSuffix(name, "/"+moduleFile); ok && !inPkg(name) {
			p.nested = append(p.nested, dir)
		}
		if ignored(name) {
			continue
		}
		dir := path.Dir(name)
		f := p.folders[dir]
		if f == nil {
			f = &folder{dir: dir}
			p.folders[dir] = f
		}
		f.files = append(f.files, source{path: name, hash: file.Hash})
	}
	for _, f := range p.folders {
		slices.SortFunc(f.files, func(a, b source) int { return strings.Compare(a.path, b.path) })
	}
	slices.Sort(p.nested)
	slices.SortFunc(units, func(a, b *unit) int { return a.diags[0].Compare(b.diags[0]) })
	return units
}

// refuse takes out the directories that could not be read whole, and those that
// are more than a commit may have.
func (p *planner) refuse() {
	for _, d := range p.tree.Diagnostics {
		if !isError(d) {
			continue
		}
		u := &unit{dir: path.Dir(d.Path), below: true, diags: []schema.Diagnostic{d}}
		p.drop(u.dir)
		for dir := range p.folders { // then that is what was read
			u.below = u.below && !below(dir, u.dir)
		}
		p.refused = append(p.refused, u)
	}
	weights := make(map[string]int, len(p.folders))
	for dir, f := range p.folders {
		if inPkg(dir) {
			continue // muster vendor bounds them
		}
		weights[dir] = 1
		if over := len(f.files) - p.limits.Files; over > 0 {
			what := fmt.Sprintf("the directory has %d CUE files, more than %d", len(f.files), p.limits.Files)
			p.refused = append(p.refused, &unit{dir: dir, diags: []schema.Diagnostic{withHint(firstOf(f.files[0].path, schema.RuleLimit, what), "split it")}})
			p.drop(dir)
			delete(weights, dir)
		}
	}
	for _, top := range exclude(weights, p.limits.Packages) {
		n, first := 0, ""
		for dir, f := range p.folders {
			if !below(dir, top) {
				continue
			}
			if n++; first == "" || f.files[0].path < first {
				first = f.files[0].path
			}
			p.drop(dir)
		}
		d := firstOf(first, schema.RuleLimit, fmt.Sprintf("the repository has %d packages, more than %d; the %d below %s are not read", len(weights), p.limits.Packages, n, top))
		p.refused = append(p.refused, &unit{dir: top, below: true, diags: []schema.Diagnostic{withHint(d, "declare several jobs in a directory")}})
	}
}

// drop removes a directory that is refused. What its policies ask of the others is then not
// known, and none may pass for that: as where a policy is broken, all keep their last good
// data.
func (p *planner) drop(dir string) {
	f := p.folders[dir]
	delete(p.folders, dir)
	if f == nil || !first(dir) {
		return
	}
	for _, s := range f.files {
		data := p.tree.Files[s.path].Data
		if at := policyLabel.FindIndex(data); at != nil { // it may be too much to parse
			d := fault(1+bytes.Count(data[:at[1]], []byte("\n")), 1, schema.RulePolicy, "this file is not read, so what its policies ask of other packages is not known")
			d.Path, d.Hint = s.path, "correct the directory; until then all packages keep their last version"
			p.unjudged = append(p.unjudged, *d)
			return
		}
	}
}

func (p *planner) unit(f *folder) *unit {
	u := &unit{dir: f.dir, first: f.files[0].path, diags: slices.Concat(p.check(f), p.unjudged)}
	for _, n := range f.nodes {
		if n.fault != nil && len(u.diags) == 0 {
			awaiting(u, n.fault)
			return u
		}
		u.diags = append(u.diags, p.checkImports(n)...)
	}
	if !slices.ContainsFunc(u.diags, isError) {
		u.node = f.nodes[0]
	}
	return u
}

// check returns what is wrong with the files of a directory as such.
func (p *planner) check(f *folder) (diags []schema.Diagnostic) {
	named := ""
	for _, s := range f.files {
		switch {
		case s.err != nil:
			d := *s.err
			d.Path = s.path
			d.Hint = strings.ReplaceAll(d.Hint, packageHint, syntax.PackageFor(f.dir))
			diags = append(diags, d)
		case s.pkg == "": // no header: the child will say why
		case named == "":
			named = s.path
		case s.pkg != f.nodes[0].pkg:
			diags = append(diags, schema.Diagnostic{
				Severity: schema.Error, Rule: schema.RuleRepository, Position: schema.Position{Path: s.path, Line: 1, Column: 1},
				Message:  fmt.Sprintf("package %s, but %s in the same directory is package %s", s.pkg, named, f.nodes[0].pkg),
				Expected: "one package in a directory", Hint: "move one of them to a directory of its own",
			})
		}
		if s.policy != nil && s.err == nil && !first(f.dir) {
			d := fault(s.policy.Line, s.policy.Column, schema.RuleNoEffect, "policies have no effect here")
			d.Severity, d.Path, d.Hint = schema.Warning, s.path, "declare them in the root package, or in cells/"
			diags = append(diags, *d)
		}
		for _, d := range s.silent {
			d.Path = s.path
			diags = append(diags, d)
		}
		if len(diags) >= maxDiagnostics {
			break
		}
	}
	for _, dir := range p.nested {
		if below(f.dir, dir) {
			d := firstOf(f.files[0].path, schema.RuleRepository, fmt.Sprintf("%s makes this directory a separate module, which muster does not read", path.Join(dir, moduleFile)))
			return append(diags, withHint(d, "remove that file, or move the module to its own repository"))
		}
	}
	return diags
}
