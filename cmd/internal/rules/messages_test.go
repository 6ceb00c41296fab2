package rules

import (
	"go/ast"
	"go/token"
	"path"
	"slices"
	"strconv"
	"strings"
)

// Words are for people: what is decided is decided by types and fields. So a
// diagnostic says its rule where it is made, and no code looks into a message.

// ruled are the types whose literals name a rule, by the directory that declares
// them.
var ruled = map[string]string{"Diagnostic": "schema", "Problem": "schema/valid"}

// checkRuled finds diagnostics that are made without a rule.
func checkRuled(t *tree) []fault {
	var out []fault
	for _, f := range t.files {
		if f.test || f.generated {
			continue
		}
		check := func(typ ast.Expr, lit *ast.CompositeLit) {
			name, dir := typeName(f, typ)
			if ruled[name] != dir || dir == "" || len(lit.Elts) == 0 || hasKey(lit, "Rule") {
				return
			}
			out = append(out, t.fault(lit, "a %s without Rule: whoever makes it knows which it is", name))
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			lit, ok := n.(*ast.CompositeLit)
			if !ok {
				return true
			}
			check(lit.Type, lit)
			for _, e := range lit.Elts { // a list's or map's elements may leave the type out
				if kv, ok := e.(*ast.KeyValueExpr); ok {
					e = kv.Value
				}
				if inner, ok := e.(*ast.CompositeLit); ok && inner.Type == nil {
					check(elementOf(lit.Type), inner)
				}
			}
			return true
		})
	}
	return out
}

// typeName returns the name of a type and the directory that declares it, as far as
// that is this module's.
func typeName(f *file, typ ast.Expr) (name, dir string) {
	switch x := typ.(type) {
	case *ast.Ident:
		return x.Name, f.dir
	case *ast.SelectorExpr:
		pkg, _ := x.X.(*ast.Ident)
		for _, s := range f.ast.Imports {
			d, isOurs := ours(imported(s))
			if pkg != nil && isOurs && (s.Name == nil && path.Base(d) == pkg.Name || s.Name != nil && s.Name.Name == pkg.Name) {
				return x.Sel.Name, d
			}
		}
	}
	return "", ""
}

// elementOf returns the type of the elements of a list or map type, without a
// pointer.
func elementOf(typ ast.Expr) ast.Expr {
	var elem ast.Expr
	switch x := typ.(type) {
	case *ast.ArrayType:
		elem = x.Elt
	case *ast.MapType:
		elem = x.Value
	}
	if star, ok := elem.(*ast.StarExpr); ok {
		return star.X
	}
	return elem
}

func hasKey(lit *ast.CompositeLit, name string) bool {
	return slices.ContainsFunc(lit.Elts, func(e ast.Expr) bool {
		kv, ok := e.(*ast.KeyValueExpr)
		if !ok {
			return true // by position: all of them
		}
		key, ok := kv.Key.(*ast.Ident)
		return ok && key.Name == name
	})
}

// hintFile is where a message and its hint become one text.
const hintFile = "schema/hint.go"

// checkHints finds texts that have a hint in them: it is a field of its own, of an
// error (schema.Hintf) or an answer, until it is printed. Commands print.
func checkHints(t *tree) []fault {
	var out []fault
	for _, f := range t.files {
		if f.test || f.generated || f.path == hintFile {
			continue
		}
		command := strings.HasPrefix(f.path, "cmd/")
		ast.Inspect(f.ast, func(n ast.Node) bool {
			lit, ok := n.(*ast.BasicLit)
			if !ok || lit.Kind != token.STRING {
				return true
			}
			if text, err := strconv.Unquote(lit.Value); err == nil && (strings.Contains(text, "\nhint:") || !command && strings.HasPrefix(text, "hint:")) {
				out = append(out, t.fault(lit, "a hint within a text: make it a field, with schema.Hintf, or print it with schema.WithHint"))
			}
			return true
		})
	}
	return out
}

// sentences are the fields that hold words for people.
var sentences = []string{"Message", "HealthMessage", "Reason", "Hint", "Expected", "Note", "Notes", "Waiting"}

// searches are the functions of package strings, and the methods of a regular
// expression, that look for something in a text.
var searches = []string{
	"Contains", "ContainsAny", "ContainsFunc", "ContainsRune", "Count", "Cut", "CutPrefix", "CutSuffix", "EqualFold", "Fields", "HasPrefix", "HasSuffix", "Index", "IndexAny", "IndexByte",
	"LastIndex", "Split", "SplitN", "SplitSeq", "MatchString", "FindString", "FindStringIndex", "FindStringSubmatch", "FindAllString",
}

// mayRead are the files that may look into what such a field holds, each with the
// reason.
var mayRead = map[string]string{
	"schema/compile/diagnose.go":      "what CUE says has no types: its words are all there is",
	"schema/compile/explain.go":       "what CUE says has no types: its words are all there is",
	"schema/compile/syntax/syntax.go": "what CUE's parser says has no types: its words are all there is",
	"cmd/internal/screen/status.go":   "layout: the first line of a text is shown",
	"cmd/internal/sim/oracle.go":      "history as a user reads it: only its words distinguish a stop from its end",
}

// checkMessages finds code that searches what is said to people, or compares it with
// fixed words.
func checkMessages(t *tree) []fault {
	var out []fault
	for _, f := range t.files {
		if f.test || f.generated || mayRead[f.path] != "" {
			continue
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.CallExpr:
				fun, ok := n.Fun.(*ast.SelectorExpr)
				if !ok || !slices.Contains(searches, fun.Sel.Name) {
					return true
				}
				for _, a := range n.Args {
					if name := sentence(a); name != "" {
						out = append(out, t.fault(n, "%s looks into %s, which is for people: decide by a type or a field", fun.Sel.Name, name))
					}
				}
			case *ast.BinaryExpr:
				for _, sides := range [][2]ast.Expr{{n.X, n.Y}, {n.Y, n.X}} {
					if name := sentence(sides[0]); name != "" && (n.Op == token.EQL || n.Op == token.NEQ) && fixed(f, sides[1]) {
						out = append(out, t.fault(n, "%s is compared with fixed words, and is for people: decide by a type or a field", name))
					}
				}
			}
			return true
		})
	}
	return out
}

// sentence returns the name of the field that e reads, if it is one for people.
func sentence(e ast.Expr) string {
	if s, ok := e.(*ast.SelectorExpr); ok && slices.Contains(sentences, s.Sel.Name) {
		return s.Sel.Name
	}
	return ""
}

// fixed reports whether e is a text that is written down, other than "", or a
// constant of another package of ours.
func fixed(f *file, e ast.Expr) bool {
	switch x := e.(type) {
	case *ast.BasicLit:
		return x.Kind == token.STRING && strings.Trim(x.Value, "\"`") != ""
	case *ast.SelectorExpr:
		_, dir := typeName(f, x)
		return dir != ""
	}
	return false
}
