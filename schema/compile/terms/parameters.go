package terms

import (
	"slices"
	"strings"

	"cuelang.org/go/cue/ast"
)

// Parameters are the names of parameters in the files that a package is made of. A parameter
// of a template is a definition within it: #size, which an object sets. CUE has no word for
// one: it does not miss one before it needs its value, deep in a library, and takes any other
// beside it.
type Parameters struct {
	Declared map[string]bool // in definitions
	Used     map[string]bool // in an expression
	Given    []Given         // in objects
	labels   map[ast.Node]bool
}

// Given is a parameter that an object sets.
type Given struct {
	Name  string
	Label ast.Node
	// Path is the data path, with "" for a label that is computed.
	Path []string
}

// maxGiven bounds how many parameters of objects are noted.
const maxGiven = 1000

// Objects notes the parameters that the objects of a file set. isKind reports whether a top
// level field holds objects.
func (p *Parameters) Objects(f *ast.File, isKind func(string) bool) {
	var at []string
	ast.Walk(f, func(n ast.Node) bool {
		field, ok := n.(*ast.Field)
		if !ok {
			return true
		}
		name, _, err := ast.LabelName(field.Label)
		if err != nil {
			name = ""
		}
		if len(at) == 0 && !isKind(name) {
			return false // and what is within is not left, either
		}
		at = append(at, name)
		if strings.HasPrefix(name, "#") && len(at) > 1 && len(p.Given) < maxGiven {
			p.Given = append(p.Given, Given{name, field.Label, slices.Clone(at)})
			p.label(field.Label)
		}
		return true
	}, func(n ast.Node) {
		if _, ok := n.(*ast.Field); ok {
			at = at[:len(at)-1]
		}
	})
}

func (p *Parameters) label(n ast.Node) {
	if p.labels == nil {
		p.labels, p.Declared, p.Used = map[ast.Node]bool{}, map[string]bool{}, map[string]bool{}
	}
	p.labels[n] = true
}

// Read notes what a file declares and uses, beside what Objects has noted of it.
func (p *Parameters) Read(f *ast.File) {
	ast.Walk(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.Field:
			id, ok := n.Label.(*ast.Ident)
			if ok && strings.HasPrefix(id.Name, "#") {
				known := p.labels[id]
				p.label(id)
				if !known && !slices.Contains(f.Decls, ast.Decl(n)) {
					p.Declared[id.Name] = true
				}
			}
		case *ast.Ident:
			if strings.HasPrefix(n.Name, "#") && !p.labels[n] {
				p.label(n)
				p.Used[n.Name] = true
			}
		}
		return true
	}, nil)
}
