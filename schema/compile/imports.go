package compile

import (
	"fmt"
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
				if d = p.checkCycle(n, spec); d != nil {
					cycle = false // one is enough
				}
			}
			if d == nil {
				continue
			}
			d.Severity = schema.Error
			d.Position = schema.Position{Path: s.path, Line: spec.line, Column: spec.column}
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

// checkCycle returns the way from n through an import back to where it was, nil
// if it does not lead there.
func (p *planner) checkCycle(n *node, spec importSpec) *schema.Diagnostic {
	cyclic := func(o *node) bool { return o.inCycle }
	f := p.target(spec.path)
	if f == nil {
		return nil
	}
	at := slices.IndexFunc(f.nodes, cyclic)
	if at < 0 {
		return nil
	}
	const most = 8 // directories in the message
	chain := []string{n.dir}
	seen := map[*node]bool{n: true}
	for o := f.nodes[at]; o != nil && len(chain) < most; {
		chain = append(chain, o.dir)
		if seen[o] {
			break
		}
		seen[o] = true
		needs := o.needs()
		o = nil
		if next := slices.IndexFunc(needs, cyclic); next >= 0 {
			o = needs[next]
		}
	}
	return &schema.Diagnostic{
		Rule: schema.RuleImport, Message: "packages import each other: " + strings.Join(chain, ", "), Hint: "move what both need to a third package",
	}
}
