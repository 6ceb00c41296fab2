package policytext

import (
	"slices"
	"strings"

	"cuelang.org/go/cue/ast"
	"cuelang.org/go/cue/ast/astutil"
	"cuelang.org/go/cue/build"
	"cuelang.org/go/cue/token"

	"github.com/musterhq/muster/schema"
	"github.com/musterhq/muster/schema/compile/lax"
	"github.com/musterhq/muster/schema/compile/walk"
	"github.com/musterhq/muster/schema/valid"
)

// Field is the hidden field that holds policies: no data, and open.
const Field = "_policy"

// maxDepth bounds the walk through nested expressions and references.
const maxDepth = 100

// Source is what is written of the policies of a package.
type Source struct {
	in    *build.Instance
	files []*ast.File // of the package itself, without its tests
	// rules are those of the data that an expression stands for, also of the fields, let clauses and variables
	// whose value it is.
	rules map[ast.Node]*valid.Rule
	// demands are the expressions that the policies write in the place of a field of an object.
	demands []demand
	given   map[ast.Node]*given // by the let clause, or the variable
}

// given is what a let clause, or a variable that goes through the elements of a list, has its value of.
type given struct {
	value *ast.Expr
	uses  map[*ast.Ident]bool // that are not known to be compared with a priority
}

// demand is what a policy writes in the place of a field.
type demand struct {
	value *ast.Expr
	rule  *valid.Rule
}

// Read reads the policies of a package: the top-level fields Field of its files, without its tests.
func Read(in *build.Instance) *Source {
	s := &Source{in: in, rules: map[ast.Node]*valid.Rule{}, given: map[ast.Node]*given{}}
	for _, f := range in.Files {
		if !strings.HasSuffix(f.Filename, "_test.cue") {
			s.files = append(s.files, f)
		}
	}
	for _, top := range s.fields(nil) {
		ast.Walk(top, func(n ast.Node) bool {
			f, ok := n.(*ast.Field)
			if !ok || f.Value == nil {
				return true
			}
			if rule := valid.Of(schema.Kind(lax.Label(f))); rule != nil && s.rules[f.Value] == nil {
				s.assign(f.Value, rule, 0)
			}
			return true
		}, nil)
	}
	for range 3 { // a name for a name
		for _, top := range s.fields(nil) {
			ast.Walk(top, s.name, nil)
		}
	}
	return s
}

// fields returns the fields of the package at a path below Field.
func (s *Source) fields(below []string) (out []*ast.Field) {
	for _, f := range s.files {
		out = append(out, walk.Find(f.Decls, append([]string{Field}, below...))...)
	}
	return out
}

// assign notes the rule of what an expression demands, and of all in it.
func (s *Source) assign(e ast.Expr, rule *valid.Rule, depth int) {
	if rule == nil || depth > maxDepth {
		return
	}
	s.rules[e] = rule
	switch e := e.(type) {
	case *ast.ParenExpr:
		s.assign(e.X, rule, depth+1)
	case *ast.UnaryExpr:
		if e.Op == token.MUL {
			s.assign(e.X, rule, depth+1)
		}
	case *ast.BinaryExpr:
		if e.Op == token.AND || e.Op == token.OR {
			s.assign(e.X, rule, depth+1)
			s.assign(e.Y, rule, depth+1)
		}
	case *ast.ListLit:
		for _, element := range e.Elts {
			if ellipsis, ok := element.(*ast.Ellipsis); ok {
				element = ellipsis.Type
			}
			if element != nil {
				s.assign(element, rule.Elem, depth+1)
			}
		}
	case *ast.StructLit:
		for _, d := range e.Elts {
			s.declared(d, rule, depth)
		}
	}
}

// declared is assign for a declaration of a struct.
func (s *Source) declared(d ast.Decl, rule *valid.Rule, depth int) {
	switch d := d.(type) {
	case *ast.EmbedDecl:
		s.assign(d.Expr, rule, depth+1)
	case *ast.Comprehension:
		s.assign(d.Value, rule, depth+1)
	case *ast.Field:
		name := lax.Label(d)
		if d.Value == nil || IsHidden(d) || strings.HasPrefix(name, "_") {
			return
		}
		in := ruleOf(rule, name)
		if in == nil {
			return
		}
		s.rules[d] = in
		s.demands = append(s.demands, demand{&d.Value, in})
		s.assign(d.Value, in, depth+1)
	}
}

// name notes the rules of what a name within policies stands for.
func (s *Source) name(n ast.Node) bool {
	note := func(n ast.Node, rule *valid.Rule) {
		if rule != nil && s.rules[n] == nil {
			s.rules[n] = rule
		}
	}
	switch n := n.(type) {
	case *ast.Field:
		if n.Value != nil && s.rules[n] == nil {
			rule := s.rule(n.Value)
			note(n, rule)
			note(n.Value, rule)
		}
	case *ast.LetClause:
		note(n, s.rule(n.Expr))
		if s.given[n] == nil {
			s.given[n] = &given{&n.Expr, map[*ast.Ident]bool{}}
		}
	case *ast.ForClause:
		if n.Value == nil {
			break
		}
		if rule := s.rule(n.Source); rule != nil {
			note(n.Value, rule.Elem)
		}
		if s.given[n.Value] == nil {
			s.given[n.Value] = &given{&n.Source, map[*ast.Ident]bool{}}
		}
	case *ast.Ident:
		if g := s.given[n.Node]; g != nil && n.Node != nil {
			g.uses[n] = true
		}
	}
	return true
}

// rule returns the rule of the data that an expression stands for; nil if it is not known to be data of an object.
func (s *Source) rule(e ast.Expr) *valid.Rule {
	if rule := s.rules[e]; rule != nil {
		return rule
	}
	return s.referred(e)
}

// referred is rule for what an expression refers to, whatever it stands in the place of.
func (s *Source) referred(e ast.Expr) *valid.Rule {
	switch e := e.(type) {
	case *ast.ParenExpr:
		return s.rule(e.X)
	case *ast.Ident:
		if rule := s.rules[e.Node]; e.Node != nil && rule != nil {
			return rule
		}
		if f := declaredAs(e); f != nil {
			return s.rules[f]
		}
	case *ast.SelectorExpr:
		name, _, err := ast.LabelName(e.Sel)
		of := s.rule(e.X)
		if err != nil {
			return nil
		}
		return ruleOf(of, name)
	case *ast.IndexExpr:
		if of := s.rule(e.X); of != nil {
			return of.Elem
		}
	case *ast.BinaryExpr:
		if e.Op == token.AND {
			if rule := s.rule(e.X); rule != nil {
				return rule
			}
			return s.rule(e.Y)
		}
	}
	return nil
}

// IsHidden reports whether a field is hidden, or a definition.
func IsHidden(f *ast.Field) bool {
	id, ok := f.Label.(*ast.Ident)
	return ok && (strings.HasPrefix(id.Name, "_") || strings.HasPrefix(id.Name, "#"))
}

// declaredAs returns the field that an identifier refers to; nil if it is none.
func declaredAs(id *ast.Ident) *ast.Field {
	s, ok := id.Scope.(*ast.StructLit)
	if !ok {
		return nil
	}
	return fieldOf(s.Elts, id.Name)
}

// fieldOf returns the first field of a name among declarations.
func fieldOf(decls []ast.Decl, name string) *ast.Field {
	for _, d := range decls {
		if f, ok := d.(*ast.Field); ok && lax.Label(f) == name {
			return f
		}
	}
	return nil
}

// value returns the expression that a reference stands for, as it is written, in the package or in one that it
// imports; nil if that is not known.
func (s *Source) value(e ast.Expr) ast.Expr {
	switch e := e.(type) {
	case *ast.ParenExpr:
		return e.X
	case *ast.Ident:
		switch n := e.Node.(type) {
		case *ast.Ident: // a variable
			return nil
		case *ast.LetClause:
			return n.Expr
		case *ast.Field:
			return n.Value
		case ast.Expr:
			return n
		case nil:
			return top(s.in.Files, e.Name)
		}
	case *ast.SelectorExpr:
		name, _, err := ast.LabelName(e.Sel)
		if err != nil {
			return nil
		}
		if id, ok := e.X.(*ast.Ident); ok {
			if spec, ok := id.Node.(*ast.ImportSpec); ok {
				return top(s.imported(spec), name)
			}
		}
		if in, ok := s.value(e.X).(*ast.StructLit); ok {
			if f := fieldOf(in.Elts, name); f != nil {
				return f.Value
			}
		}
	}
	return nil
}

// top returns the value of the top-level field of a name; nil if there is none.
func top(files []*ast.File, name string) ast.Expr {
	for _, f := range files {
		if field := fieldOf(f.Decls, name); field != nil {
			return field.Value
		}
	}
	return nil
}

// imported returns the files of the package that a file imports.
func (s *Source) imported(spec *ast.ImportSpec) []*ast.File {
	info, err := astutil.ParseImportSpec(spec)
	if err != nil {
		return nil
	}
	at := slices.IndexFunc(s.in.Imports, func(in *build.Instance) bool {
		return ast.ParseImportPath(in.ImportPath).Path == ast.ParseImportPath(info.ID).Path
	})
	if at < 0 {
		return nil
	}
	return s.in.Imports[at].Files
}
