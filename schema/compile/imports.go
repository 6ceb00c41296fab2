package compile

import (
	"bytes"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"cuelang.org/go/cue/ast"

	"github.com/musterhq/muster/schema"
	"github.com/musterhq/muster/schema/valid"
	"github.com/musterhq/muster/schema/vendored"
)

// importSpec is one import as written.
type importSpec struct {
	path         string
	line, column int
}

// importDir returns the directory that an import path means within the module,
// false if it is outside.
func importDir(module, p string) (string, bool) {
	ip := ast.ParseImportPath(p)
	if ip.Path == module {
		return ".", true
	}
	rest, ok := strings.CutPrefix(ip.Path, module+"/")
	if !ok {
		return "", false
	}
	return path.Clean(rest), true
}

// proper reports whether an import path says where it leads by itself.
func proper(importPath string) bool {
	return !path.IsAbs(importPath) && !slices.ContainsFunc(strings.Split(importPath, "/"), func(s string) bool { return s == "." || s == ".." })
}

// target returns the directory that an import path means, nil if the repository
// does not have it.
func (p *planner) target(importPath string) *folder {
	f, ok := p.targets[importPath]
	if !ok {
		if dir, ours := importDir(p.module, importPath); ours && proper(importPath) {
			f = p.folders[dir]
		} else if dir := p.vendor.dir(ast.ParseImportPath(importPath).Path); dir != "" && proper(importPath) {
			f = p.folders[dir]
		}
		p.targets[importPath] = f
	}
	return f
}

// checkImports returns what is wrong with the imports of n's files, which the
// child could not say as well: it sees only what n depends on.
func (p *planner) checkImports(n *node) (diags []schema.Diagnostic) {
	cycle := n.inCycle
	for _, s := range n.files {
		for _, spec := range s.imports {
			d := p.checkImport(spec)
			if d == nil && cycle {
				if d = p.checkCycle(spec); d != nil {
					cycle = false // one is enough
				}
			}
			if d == nil {
				continue
			}
			d.Severity = schema.Error
			if d.Path == "" {
				d.Position = schema.Position{Path: s.path, Line: spec.line, Column: spec.column}
			} else if slices.ContainsFunc(diags, func(said schema.Diagnostic) bool { return said.Position == d.Position }) {
				continue
			}
			if diags = append(diags, *d); len(diags) >= maxDiagnostics {
				return diags
			}
		}
	}
	return diags
}

func (p *planner) checkImport(spec importSpec) *schema.Diagnostic {
	if found := p.target(spec.path) != nil; found || p.spoiled(spec.path) { // which the unit says
		return nil
	}
	ip := ast.ParseImportPath(spec.path)
	element, _, _ := strings.Cut(ip.Path, "/")
	example := fmt.Sprintf("a path such as %q", path.Join(p.module, SchemaDir))
	switch dir, ours := importDir(p.module, spec.path); {
	case !proper(ip.Path):
		return &schema.Diagnostic{
			Rule: schema.RuleImport, Message: fmt.Sprintf("import path %q is relative or absolute", clip(spec.path)), Expected: example,
			Hint: "begin with the module's path, in every directory",
		}
	case ours && slices.ContainsFunc(p.refused, func(u *unit) bool { return u.dir == dir || u.below && below(dir, u.dir) }):
		return &schema.Diagnostic{Rule: schema.RuleImport, Message: fmt.Sprintf("imports %s, which is not read", dir), Hint: "correct the error of that directory first"}
	case ours:
		return &schema.Diagnostic{
			Rule: schema.RuleImport, Message: fmt.Sprintf("cannot find package %q: the repository has no CUE files in %s", clip(spec.path), clip(dir)),
			Expected: "a directory with CUE files", Hint: p.nearImport(ip.Path),
		}
	case p.renamedFrom(ip.Path):
		return &schema.Diagnostic{
			Rule: schema.RuleImport, Position: p.modulePosition(), Field: "module",
			Message: fmt.Sprintf("the module is %q, and the imports of its packages begin with %q", p.module, p.former()),
			Hint:    fmt.Sprintf("write module: %q, or change the imports", strings.Replace(p.qualified, p.module, p.former(), 1)),
		}
	case strings.Contains(element, ".") && !p.replaces():
		d := &schema.Diagnostic{
			Rule: schema.RuleImport, Message: fmt.Sprintf("cannot find package %q: it is not in this repository, and no other packages are downloaded", clip(spec.path)),
			Expected: example, Hint: p.nearImport(ip.Path),
		}
		switch lib := p.vendor.library(ip.Path); {
		case lib != nil:
			d.Message = fmt.Sprintf("cannot find package %q: %s has no CUE files there", clip(spec.path), lib.Called())
			d.Expected, d.Hint = "a directory below "+lib.Dir(), p.nearVendored(ip.Path, lib)
		case len(p.below(path.Join(vendored.Dir, ip.Path))) > 0:
			d.Message = fmt.Sprintf("cannot find package %q: it is in cue.mod/pkg, and %s does not list it", clip(spec.path), vendored.File)
			d.Hint = "muster vendor DIR, or muster vendor URL@VERSION"
		case d.Hint == "":
			d.Hint = "muster vendor URL@VERSION brings its module into this repository"
		}
		return d
	case element != "" && !strings.Contains(element, ".") && element != p.module && !slices.Contains(standard, ip.Path):
		d := &schema.Diagnostic{
			Rule: schema.RuleImport, Message: fmt.Sprintf("cannot find package %q: CUE's standard library does not have it", clip(spec.path)), Expected: example,
		}
		if near := valid.Nearest(ip.Path, standard); near != "" {
			d.Hint = fmt.Sprintf("did you mean %q?", near)
		} else if f := p.folders[path.Clean(ip.Path)]; f != nil {
			d.Hint = fmt.Sprintf("did you mean %q?", path.Join(p.module, f.dir))
		}
		return d
	}
	return nil
}

// maxHints bounds the searches for a near import path in one commit: each
// looks at all directories.
const maxHints = 50

// nearImport returns a hint that names the package of the repository that an
// import path probably means, "" if none is near.
func (p *planner) nearImport(importPath string) string {
	if p.hints++; p.hints > maxHints || len(importPath) > 2*maxLabel {
		return ""
	}
	dirs := make([]string, 0, len(p.folders))
	for dir := range p.folders {
		if !inPkg(dir) {
			dirs = append(dirs, dir)
		}
	}
	slices.Sort(dirs)
	best := ""
	for _, d := range dirs { // the right name in another place, or behind another module
		if best == "" && d != "." && (path.Base(d) == path.Base(importPath) || strings.HasSuffix(importPath, "/"+d)) {
			best = d
		}
	}
	if dir, ours := importDir(p.module, importPath); ours && best == "" {
		best = valid.Nearest(dir, dirs)
	}
	if best == "" {
		return ""
	}
	return fmt.Sprintf("did you mean %q?", path.Join(p.module, best))
}

// nearVendored returns a hint that names the package of a vendored module that an import path
// probably means.
func (p *planner) nearVendored(importPath string, lib *library) string {
	if p.hints++; p.hints > maxHints || len(importPath) > 2*maxLabel {
		return ""
	}
	var paths []string
	for dir := range p.folders {
		if below(dir, lib.Dir()) {
			paths = append(paths, strings.TrimPrefix(dir, vendored.Dir+"/"))
		}
	}
	slices.Sort(paths)
	if near := valid.Nearest(importPath, paths); near != "" {
		return fmt.Sprintf("did you mean %q?", near)
	}
	return fmt.Sprintf("it has %s", strings.Join(paths[:min(len(paths), 5)], ", "))
}

// former returns what stands for the module in the imports of its packages, where none of them has its name; "" if it is
// not several that have the same in its place.
func (p *planner) former() string {
	if p.formerly == nil {
		name := p.findFormer()
		p.formerly = &name
	}
	return *p.formerly
}

func (p *planner) findFormer() (name string) {
	times := 0
	for _, dir := range slices.Sorted(maps.Keys(p.folders)) {
		if inPkg(dir) {
			continue
		}
		for _, s := range p.folders[dir].files {
			for _, spec := range s.imports {
				to := ast.ParseImportPath(spec.path).Path
				if _, ours := importDir(p.module, to); ours {
					return ""
				}
				before := p.standsFor(to)
				if before == "" {
					continue
				}
				if times++; name != "" && name != before {
					return ""
				}
				name = before
			}
		}
	}
	if times < 2 {
		return ""
	}
	return name
}

// standsFor returns what an import path has in the place of the module, if the rest of it is a package of that; "" if
// it is not.
func (p *planner) standsFor(importPath string) string {
	element, _, _ := strings.Cut(importPath, "/")
	if !strings.Contains(element, ".") || !proper(importPath) || p.vendor.library(importPath) != nil {
		return ""
	}
	for n, r := range importPath {
		if r == '/' && p.folders[importPath[n+1:]] != nil {
			return importPath[:n]
		}
	}
	return ""
}

// renamedFrom reports whether an import path is that of a package of the module, with what stands for the module in
// the imports.
func (p *planner) renamedFrom(importPath string) bool {
	return p.former() != "" && p.standsFor(importPath) == p.former()
}

// modulePosition returns where the module's file names it.
func (p *planner) modulePosition() schema.Position {
	data := p.tree.Files[moduleFile].Data
	at := max(bytes.Index(data, []byte("module")), 0)
	line := bytes.LastIndexByte(data[:at], '\n') + 1
	return schema.Position{Path: moduleFile, Line: 1 + bytes.Count(data[:at], []byte("\n")), Column: 1 + at - line}
}

// loop is a way of packages from one back to it.
type loop struct {
	dirs []string
	at   schema.Position // of the import from the first to the next
}

// checkCycle returns the cycle that an import leads to, nil if it leads to none. It is the same for all that do.
func (p *planner) checkCycle(spec importSpec) *schema.Diagnostic {
	f := p.target(spec.path)
	if f == nil {
		return nil
	}
	at := slices.IndexFunc(f.nodes, func(o *node) bool { return o.inCycle })
	if at < 0 {
		return nil
	}
	const most = 8 // directories in the message
	l := p.loopFrom(f.nodes[at])
	return &schema.Diagnostic{
		Rule: schema.RuleImport, Position: l.at, Message: "packages import each other: " + strings.Join(l.dirs[:min(len(l.dirs), most)], ", "),
		Hint: "move what both need to a third package",
	}
}

// loopFrom returns the cycle that the first imports lead to from a package that is in one, or depends on one.
func (p *planner) loopFrom(n *node) *loop {
	var way []*node
	seen := map[*node]int{}
	for o := n; ; {
		if known := p.loops[o]; known != nil {
			p.remember(way, known)
			return known
		}
		if at, ok := seen[o]; ok {
			l := p.loopOf(way[at:])
			p.remember(way, l)
			return l
		}
		seen[o] = len(way)
		way = append(way, o)
		needs := o.needs()
		next := slices.IndexFunc(needs, func(o *node) bool { return o.inCycle })
		if next < 0 {
			return &loop{dirs: []string{n.dir}} // whatever is in a cycle leads on
		}
		o = needs[next]
	}
}

func (p *planner) remember(way []*node, l *loop) {
	if p.loops == nil {
		p.loops = map[*node]*loop{}
	}
	for _, n := range way {
		p.loops[n] = l
	}
}

// loopOf returns the cycle of packages that each need the next, from the first in order that imports the next.
func (p *planner) loopOf(nodes []*node) *loop {
	var l *loop
	for i, n := range nodes {
		next := nodes[(i+1)%len(nodes)]
		at, ok := p.importOf(n, next)
		if !ok || l != nil && l.dirs[0] <= n.dir {
			continue
		}
		l = &loop{at: at}
		for j := range len(nodes) + 1 {
			l.dirs = append(l.dirs, nodes[(i+j)%len(nodes)].dir)
		}
	}
	if l == nil {
		return &loop{}
	}
	return l
}

// importOf returns where a package imports another one.
func (p *planner) importOf(n, other *node) (schema.Position, bool) {
	for _, s := range n.files {
		for _, spec := range s.imports {
			if f := p.target(spec.path); f != nil && slices.Contains(f.nodes, other) {
				return schema.Position{Path: s.path, Line: spec.line, Column: spec.column}, true
			}
		}
	}
	return schema.Position{}, false
}
