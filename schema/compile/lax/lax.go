package lax

import (
	"path"
	"slices"
	"strings"
	"sync"

	"cuelang.org/go/cue/ast"
	"cuelang.org/go/cue/ast/astutil"
	"cuelang.org/go/cue/parser"

	schemacue "github.com/musterhq/muster/schema/cue"
)

// Dir is the directory of a repository that holds its copy of the definitions.
const Dir = "muster"

// IsDir reports whether a directory of a repository is Dir, or what is that to a module in
// cue.mod/pkg.
func IsDir(dir string) bool {
	return dir == Dir || path.Base(dir) == Dir && strings.HasPrefix(dir, "cue.mod/pkg/")
}

// maxDepth bounds the walk through nested expressions.
const maxDepth = 100

// When a package has errors it is loaded a second time with lax definitions:
// #Job and its like accept anything. What is then still an error is one of the
// user's own CUE; all else is found by the strict pass, one diagnostic for one
// mistake, where CUE would report several for one bad number and none for an
// unknown field beside it.

// Declared holds the embedded definitions by name.
var Declared = sync.OnceValue(func() map[string]*ast.Field {
	m := map[string]*ast.Field{}
	for name, text := range schemacue.Files() {
		f, err := parser.ParseFile(name, text, parser.ParseComments)
		if err != nil {
			panic("schema/cue: " + err.Error()) // embedded, and tested
		}
		for _, d := range f.Decls {
			if field, ok := d.(*ast.Field); ok {
				m[Label(field)] = field
			}
		}
	}
	return m
})

// IsEmbedded reports whether a file of Dir is one that muster writes, and not the user's
// own.
func IsEmbedded(name string) bool { return schemacue.Has(name) }

// Definitions holds the names of the embedded definitions, and whether they
// are structs.
var Definitions = sync.OnceValue(func() map[string]bool {
	m := map[string]bool{}
	for name, field := range Declared() {
		_, m[name] = field.Value.(*ast.StructLit)
	}
	return m
})

// Parse parses a file with lax definitions.
func Parse(name string, src any, cfg parser.Config) (*ast.File, error) {
	f, err := parser.ParseFile(name, src, cfg)
	if err != nil {
		return f, err
	}
	if !IsDir(strings.TrimPrefix(path.Dir(name), "/")) {
		widen(f)
		return f, nil
	}
	before := identifiers(f)
	for _, d := range f.Decls {
		field, ok := d.(*ast.Field)
		if !ok {
			continue
		}
		isStruct, ok := Definitions()[Label(field)]
		switch {
		case isStruct:
			field.Value = ast.NewStruct(&ast.Ellipsis{})
		case ok:
			field.Value = ast.NewIdent("_")
		}
	}
	dropImports(f, before) // which the strict definitions alone used
	return f, nil
}

// identifiers returns the names that a file refers to.
func identifiers(f *ast.File) map[string]bool {
	m := map[string]bool{}
	ast.Walk(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.ImportDecl:
			return false
		case *ast.Ident:
			m[n.Name] = true
		}
		return true
	}, nil)
	return m
}

// Label returns the name of a field, "" if it is computed or a pattern.
func Label(f *ast.Field) string {
	name, _, err := ast.LabelName(f.Label)
	if err != nil {
		return ""
	}
	return name
}

// Change changes a file, and makes it whole again: names are resolved again, and imports that only what
// is no longer there used are dropped.
func Change(f *ast.File, change func()) {
	before := identifiers(f)
	change()
	dropImports(f, before)
	resolve(f)
}

// dropImports drops the imports of a file that only what was there before used.
func dropImports(f *ast.File, before map[string]bool) {
	after := identifiers(f)
	for d := range f.ImportDecls() {
		d.Specs = slices.DeleteFunc(d.Specs, func(s *ast.ImportSpec) bool {
			info, err := astutil.ParseImportSpec(s)
			return err == nil && before[info.Ident] && !after[info.Ident]
		})
	}
}
