package rules

import (
	"go/ast"
	"go/token"
	"path"
	"regexp"
	"slices"
	"strings"
)

// topLevel is what the root directory may hold, besides dotfiles and bin.
var topLevel = []string{
	"cmd", "docs", "examples", "nodeagent", "placement", "reconciler", "schema",
	"go.mod", "go.sum", "Makefile",
	"README.md", "LICENSE", "CHANGELOG.md", "CONTRIBUTING.md",
}

func checkTopLevel(t *tree) []fault {
	var out []fault
	for _, name := range t.top {
		if !slices.Contains(topLevel, name) {
			out = append(out, fault{name, "not in the list of what the root directory holds: a reader learns the tree from it, so it stays short"})
		}
	}
	for _, f := range t.files {
		if f.dir == "." {
			out = append(out, fault{f.path, "Go file at the root: the module is not a package"})
		}
	}
	return out
}

// drawers are names that say nothing: what is in such a package could be in
// any other.
var drawers = []string{"util", "utils", "common", "helper", "helpers", "types", "misc", "base", "shared", "lib", "pkg", "internals"}

func checkNames(t *tree) []fault {
	var out []fault
	for dir, files := range t.packages() {
		if name := path.Base(dir); slices.Contains(drawers, name) || slices.Contains(drawers, files[0].ast.Name.Name) {
			out = append(out, fault{dir, "a package called " + name + " is a drawer for anything: name what it holds"})
		}
	}
	for _, f := range t.files {
		if f.generated || f.test {
			continue
		}
		for _, d := range f.ast.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				if rest, ok := strings.CutPrefix(d.Name.Name, "Get"); ok && rest != "" && token.IsExported(rest) {
					out = append(out, t.fault(d, "%s: an accessor has no Get prefix", d.Name.Name))
				}
			case *ast.GenDecl:
				for _, s := range d.Specs {
					if s, ok := s.(*ast.TypeSpec); ok && emptySuffix(s.Name.Name) != "" {
						out = append(out, t.fault(s, "type %s: %s says nothing about what it is", s.Name.Name, emptySuffix(s.Name.Name)))
					}
				}
			}
		}
	}
	return out
}

// emptySuffix returns the end of name that adds no meaning to it, or "".
func emptySuffix(name string) string {
	for _, s := range []string{"Impl", "Helper", "Base", "Manager", "Util"} {
		if strings.HasSuffix(name, s) && name != s {
			return s
		}
	}
	return ""
}

// The longest that a file and the body of a function may be, in lines. What is
// longer is two things. 50 is the habit for functions; the rest is margin.
const (
	maxFileLines = 600
	maxFuncLines = 60
)

func checkLengths(t *tree) []fault {
	var out []fault
	for _, f := range t.files {
		if f.generated {
			continue
		}
		if f.lines > maxFileLines {
			out = append(out, fault{f.path, "file is longer than 600 lines: split it by noun"})
		}
		if f.test {
			continue // a table of cases is long and easy to read
		}
		for _, d := range f.ast.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok || fn.Body == nil {
				continue
			}
			lines := t.fset.Position(fn.Body.Rbrace).Line - t.fset.Position(fn.Body.Lbrace).Line - 1
			if lines > maxFuncLines {
				out = append(out, t.fault(fn, "%s has %d lines: at most %d, 50 as a habit", fn.Name.Name, lines, maxFuncLines))
			}
		}
	}
	return out
}

func checkPackageDocs(t *tree) []fault {
	var out []fault
	for dir, files := range t.packages() {
		var doc *file
		for _, f := range files {
			switch {
			case f.ast.Doc == nil || f.generated:
			case path.Base(f.path) == "doc.go", path.Base(f.path) == "main.go" && f.ast.Name.Name == "main":
				doc = f
			default:
				out = append(out, fault{f.path, "package comment outside of doc.go: go doc would join the two"})
			}
		}
		if doc == nil {
			out = append(out, fault{dir, "no doc.go with a package comment: purpose, what goes in, what comes out, concurrency, and what it must never do"})
			continue
		}
		text, name := doc.ast.Doc.Text(), doc.ast.Name.Name
		switch {
		case name == "main" && !strings.HasPrefix(text, "Command "+path.Base(dir)+" "):
			out = append(out, fault{doc.path, "package comment of a command begins with: Command " + path.Base(dir)})
		case name != "main" && !strings.HasPrefix(text, "Package "+name+" "):
			out = append(out, fault{doc.path, "package comment begins with: Package " + name})
		case name != "main" && len(text) < 200: // a command's --help says the rest
			out = append(out, fault{doc.path, "package comment is too short to say purpose, data in and out, concurrency, and what the package must never do"})
		}
	}
	return out
}

func checkDocComments(t *tree) []fault {
	var out []fault
	for _, f := range t.files {
		if f.test || f.generated {
			continue
		}
		for _, d := range f.ast.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				if d.Name.IsExported() && exportedReceiver(d) && !known(d) && d.Doc == nil {
					out = append(out, t.fault(d, "%s has no doc comment", d.Name.Name))
				}
			case *ast.GenDecl:
				out = append(out, undocumented(t, d)...)
			}
		}
	}
	return out
}

// undocumented returns a fault for each exported name of d that neither has a
// comment of its own nor stands in a group that has one.
func undocumented(t *tree, d *ast.GenDecl) []fault {
	var out []fault
	for _, s := range d.Specs {
		switch s := s.(type) {
		case *ast.TypeSpec:
			if s.Name.IsExported() && d.Doc == nil && s.Doc == nil {
				out = append(out, t.fault(s, "type %s has no doc comment", s.Name.Name))
			}
		case *ast.ValueSpec:
			for _, n := range s.Names {
				if n.IsExported() && d.Doc == nil && s.Doc == nil && s.Comment == nil {
					out = append(out, t.fault(s, "%s %s has no doc comment", d.Tok, n.Name))
				}
			}
		}
	}
	return out
}

// known reports whether d is a method of which its interface says it all.
func known(d *ast.FuncDecl) bool {
	return d.Recv != nil && slices.Contains([]string{"Error", "Unwrap", "Len", "Less", "Swap"}, d.Name.Name)
}

// exportedReceiver reports whether d is a function, or a method of an exported
// type.
func exportedReceiver(d *ast.FuncDecl) bool {
	if d.Recv == nil {
		return true
	}
	x := d.Recv.List[0].Type
	for {
		switch e := x.(type) {
		case *ast.StarExpr:
			x = e.X
		case *ast.IndexExpr:
			x = e.X
		case *ast.IndexListExpr:
			x = e.X
		case *ast.Ident:
			return e.IsExported()
		default:
			return true
		}
	}
}

// architecturePage has a word on each package.
const architecturePage = "docs/architecture.md"

func checkArchitecture(t *tree) []fault {
	var out []fault
	for dir := range t.packages() {
		if !strings.Contains(t.arch, "`"+dir+"`") {
			out = append(out, fault{dir, "has no paragraph in " + architecturePage})
		}
	}
	return out
}

// named is what a page names of a core, as in `reconciler.Master`.
var named = regexp.MustCompile("`((?:schema|placement|reconciler|nodeagent)(?:/[a-z]+)*)\\.([A-Z][A-Za-z]*)`")

// namedFile matches a Go file that the page names by its path.
var namedFile = regexp.MustCompile("`([a-z]+/[a-zA-Z/-]+\\.go)`")

// mentioned is what a comment names of a core, as in "see intent.Adopt".
var mentioned = regexp.MustCompile(`\b(schema|placement|reconciler|model|intent|quota|control|facts|draft|snapshot|nodeagent)\.([A-Z][A-Za-z]*)`)

// declarations returns the names that packages declare, by directory.
func (t *tree) declarations() map[[2]string]bool {
	declared := map[[2]string]bool{}
	for _, f := range t.files {
		if f.test {
			continue
		}
		for _, d := range f.ast.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				declared[[2]string{f.dir, d.Name.Name}] = true
			case *ast.GenDecl:
				for _, spec := range d.Specs {
					switch s := spec.(type) {
					case *ast.TypeSpec:
						declared[[2]string{f.dir, s.Name.Name}] = true
					case *ast.ValueSpec:
						for _, n := range s.Names {
							declared[[2]string{f.dir, n.Name}] = true
						}
					}
				}
			}
		}
	}
	return declared
}

// checkMentioned: what a comment names of a core is there, also after it has moved.
func checkMentioned(t *tree) []fault {
	known := map[string]bool{}
	for d := range t.declarations() {
		known[path.Base(d[0])+"."+d[1]] = true
	}
	var out []fault
	for _, f := range t.files {
		for _, group := range f.ast.Comments {
			for _, c := range group.List {
				for _, m := range mentioned.FindAllString(c.Text, -1) {
					if !known[m] {
						out = append(out, t.fault(c, "a comment names %s, which is not declared", m))
					}
				}
			}
		}
	}
	return out
}

func checkNamed(t *tree) []fault {
	declared := t.declarations()
	var out []fault
	for _, m := range named.FindAllStringSubmatch(t.arch, -1) {
		if !declared[[2]string{m[1], m[2]}] {
			out = append(out, fault{architecturePage, "names " + m[0] + ", which is not declared"})
		}
	}
	for _, m := range namedFile.FindAllStringSubmatch(t.arch, -1) {
		if !slices.ContainsFunc(t.files, func(f *file) bool { return f.path == m[1] }) && path.Base(m[1]) != "NAME.go" { // which is to be made
			out = append(out, fault{architecturePage, "names the file " + m[1] + ", which is not there"})
		}
	}
	return out
}

// dependencyPage says of each direct dependency why it is there.
const dependencyPage = "docs/decisions/0001-dependencies.md"

func checkDependencies(t *tree) []fault {
	var out []fault
	direct, required := map[string]bool{}, map[string]bool{}
	for line := range strings.Lines(t.gomod) {
		f := strings.Fields(line)
		if len(f) > 0 && f[0] == "require" {
			f = f[1:]
		}
		if len(f) >= 2 && strings.HasPrefix(f[1], "v") {
			required[f[0]] = true
			direct[f[0]] = len(f) == 2 // else "// indirect" follows
		}
	}
	for d := range direct {
		if direct[d] && !strings.Contains(t.deps, "`"+d+"`") {
			out = append(out, fault{dependencyPage, "no line for the direct dependency " + d})
		}
	}
	for line := range strings.Lines(t.deps) {
		if rest, ok := strings.CutPrefix(line, "| `"); ok {
			if d, _, _ := strings.Cut(rest, "`"); !required[d] {
				out = append(out, fault{dependencyPage, "a line for " + d + ", which go.mod does not require"})
			}
		}
	}
	return out
}
