package policytext

import (
	"slices"
	"strconv"
	"strings"

	"cuelang.org/go/cue/ast"
	"cuelang.org/go/cue/literal"
	"cuelang.org/go/cue/token"

	"github.com/musterhq/muster/schema"
	"github.com/musterhq/muster/schema/compile/lax"
	"github.com/musterhq/muster/schema/valid"
)

// Number makes the names of built-in priorities numbers, as objects have them: in what the policies demand of a
// priority, and where they compare one. What they refer to is copied there, and stays as it is otherwise.
func (s *Source) Number() {
	change := func() {
		s.compared(func(e *ast.Expr, rule *valid.Rule) {
			if rule.Type == valid.Priority {
				*e = s.words(*e, 0, false, number)
			}
		})
		for _, d := range s.demands {
			if d.rule.Type == valid.Priority {
				*d.value = other(*d.value, 0)
			}
		}
	}
	for _, f := range s.files { // an import that only names of priorities were taken from is no longer used
		if len(s.fields(nil)) > 0 {
			inner := change
			change = func() { lax.Change(f, inner) }
		}
	}
	change()
}

// number makes the name of a built-in priority its number.
func number(lit *ast.BasicLit) {
	if word, ok := text(lit); ok {
		if floor, ok := schema.Band(word).Floor(); ok {
			lit.Kind, lit.Value = token.INT, strconv.Itoa(int(floor))
		}
	}
}

// other lets a priority that must not be a certain number be a name, and one that must not be a name be a number.
func other(e ast.Expr, depth int) ast.Expr {
	if depth > maxDepth {
		return e
	}
	switch x := e.(type) {
	case *ast.ParenExpr:
		x.X = other(x.X, depth+1)
	case *ast.BinaryExpr:
		if x.Op == token.AND || x.Op == token.OR {
			x.X, x.Y = other(x.X, depth+1), other(x.Y, depth+1)
		}
	case *ast.UnaryExpr:
		lit, ok := x.X.(*ast.BasicLit)
		if !ok || x.Op != token.NEQ {
			break
		}
		basic := "int"
		if lit.Kind == token.INT {
			basic = "string"
		}
		return &ast.ParenExpr{Lparen: x.OpPos, X: &ast.BinaryExpr{X: x, OpPos: x.OpPos, Op: token.OR, Y: &ast.Ident{NamePos: x.OpPos, Name: basic}}, Rparen: x.OpPos}
	}
	return e
}

// Word is what a policy says of a field that is true of none.
type Word struct {
	Text string
	Pos  token.Pos
	Rule *valid.Rule // of the field
	// Unknown is set if Text is the name of a field that a struct by Rule does not have, and Mistyped if it is a value of
	// another type. Otherwise it is a word that a field by Rule does not have.
	Unknown, Mistyped bool
	Used              ast.Expr // of an Unknown one what the policy writes
}

// Strangers returns the texts that policies compare fields with which have other words; of a priority those that are
// no built-in one's name. It returns what fields of other types are compared with, and the fields that are looked for
// where there is none of the name, too. The field below _policy that they are in has the name policy.
func (s *Source) Strangers(policy string) (out []Word) {
	in := s.fields([]string{policy})
	seen := map[token.Pos]bool{}
	add := func(w Word) {
		if !seen[w.Pos] {
			seen[w.Pos] = true
			out = append(out, w)
		}
	}
	s.compared(func(e *ast.Expr, rule *valid.Rule) {
		if rule.Type != valid.Enum && rule.Type != valid.Priority || !within(in, (*e).Pos()) {
			return
		}
		s.words(*e, 0, false, func(lit *ast.BasicLit) {
			if word, ok := text(lit); ok && !slices.Contains(rule.Words, word) {
				add(Word{Text: word, Pos: lit.Pos(), Rule: rule})
			}
		})
	})
	for _, f := range in {
		ast.Walk(f, func(n ast.Node) bool {
			s.never(n, add)
			return true
		}, nil)
	}
	return out
}

// never adds what a node looks for, or compares with, that is never there.
func (s *Source) never(n ast.Node, add func(Word)) {
	switch n := n.(type) {
	case *ast.SelectorExpr:
		if w, ok := s.unknown(n); ok {
			add(w)
		}
	case *ast.BinaryExpr:
		if w, ok := s.mistyped(n.X, n.Op, n.Y); ok {
			add(w)
		}
		if w, ok := s.mistyped(n.Y, n.Op, n.X); ok && n.Op != token.MAT && n.Op != token.NMAT {
			add(w)
		}
	}
}

// unknown returns the name that a selector looks for in a struct that never has it.
func (s *Source) unknown(n *ast.SelectorExpr) (Word, bool) {
	name, _, err := ast.LabelName(n.Sel)
	rule := s.rule(n.X)
	if err != nil || rule == nil || rule.Type != valid.Struct || rule.Has(name) || strings.HasPrefix(name, "_") || strings.HasPrefix(name, "#") {
		return Word{}, false
	}
	if id, ok := n.X.(*ast.Ident); ok && name == "name" && valid.Of(schema.Kind(id.Name)) != nil {
		return Word{}, false
	}
	return Word{Text: name, Pos: n.Sel.Pos(), Rule: rule, Unknown: true, Used: n}, true
}

// mistyped returns the literal that a field of another type is compared with.
func (s *Source) mistyped(of ast.Expr, op token.Token, with ast.Expr) (Word, bool) {
	lit, ok := with.(*ast.BasicLit)
	rule := s.rule(of)
	if !ok || rule == nil || !slices.Contains([]token.Token{token.EQL, token.NEQ, token.LSS, token.LEQ, token.GTR, token.GEQ, token.MAT, token.NMAT}, op) {
		return Word{}, false
	}
	var wrong bool
	switch rule.Type {
	case valid.Int, valid.Bool, valid.List, valid.Map, valid.Struct:
		wrong = lit.Kind == token.STRING
	case valid.Enum, valid.String, valid.Time:
		wrong = lit.Kind == token.INT || lit.Kind == token.FLOAT
	}
	return Word{Text: lit.Value, Pos: lit.Pos(), Rule: rule, Mistyped: true}, wrong
}

// within reports whether a position is in one of several fields.
func within(in []*ast.Field, at token.Pos) bool {
	for _, f := range in {
		if f.Pos().Filename() == at.Filename() && f.Pos().Offset() <= at.Offset() && at.Offset() < f.End().Offset() {
			return true
		}
	}
	return false
}

// text returns what a literal says.
func text(lit *ast.BasicLit) (word string, ok bool) {
	if lit.Kind != token.STRING {
		return "", false
	}
	word, err := literal.Unquote(lit.Value)
	return word, err == nil
}

// compared calls f for each expression that has to be a value of a field of an object, or is compared with one, and
// the rule of the field.
func (s *Source) compared(f func(e *ast.Expr, rule *valid.Rule)) {
	for _, d := range s.demands {
		f(d.value, d.rule)
	}
	for _, top := range s.fields(nil) {
		ast.Walk(top, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.BinaryExpr:
				s.operands(n, f)
			case *ast.CallExpr:
				s.arguments(n, f)
			}
			return true
		}, nil)
	}
}

// operands is compared for those of an operator.
func (s *Source) operands(n *ast.BinaryExpr, f func(e *ast.Expr, rule *valid.Rule)) {
	if n.Op == token.MAT || n.Op == token.NMAT {
		return
	}
	x, y := s.rule(n.X), s.rule(n.Y)
	if x == nil && y != nil {
		f(&n.X, y)
	}
	if y == nil && x != nil {
		f(&n.Y, x)
	}
}

// arguments is compared for those of a call that takes a field of an object as it is, or in a list with others.
func (s *Source) arguments(n *ast.CallExpr, f func(e *ast.Expr, rule *valid.Rule)) {
	if !lists(n) {
		return
	}
	for i := range n.Args {
		rule := s.rule(n.Args[i])
		if rule == nil {
			continue
		}
		for j := range n.Args {
			if s.rule(n.Args[j]) == nil {
				f(&n.Args[j], rule)
			}
		}
		return
	}
}

// lists reports whether a call compares a value with those of a list.
func lists(n *ast.CallExpr) bool {
	name, _, err := ast.LabelName(callee(n))
	return err == nil && name == "Contains" && len(n.Args) == 2
}

// callee returns the label of the function of a call.
func callee(n *ast.CallExpr) ast.Label {
	switch fun := n.Fun.(type) {
	case *ast.Ident:
		return fun
	case *ast.SelectorExpr:
		return fun.Sel
	}
	return ast.NewIdent("_")
}

// words calls f for each literal that an expression has as one of its values, and returns the expression: with copies
// of what it refers to, so that f may change the literals. copied is set within such a copy.
func (s *Source) words(e ast.Expr, depth int, copied bool, f func(*ast.BasicLit)) ast.Expr {
	if depth > maxDepth {
		return e
	}
	if copied {
		e = shallow(e)
	}
	again := func(e ast.Expr) ast.Expr { return s.words(e, depth+1, copied, f) }
	switch x := e.(type) {
	case *ast.BasicLit:
		f(x)
	case *ast.ParenExpr:
		x.X = again(x.X)
	case *ast.UnaryExpr:
		if x.Op != token.MAT && x.Op != token.NMAT {
			x.X = again(x.X)
		}
	case *ast.BinaryExpr:
		if x.Op == token.OR || x.Op == token.AND {
			x.X, x.Y = again(x.X), again(x.Y)
		}
	case *ast.ListLit:
		for i := range x.Elts {
			x.Elts[i] = again(x.Elts[i])
		}
	case *ast.CallExpr:
		for i := range x.Args {
			if chooses(x) {
				x.Args[i] = again(x.Args[i])
			}
		}
	case *ast.Comprehension:
		if body, ok := x.Value.(*ast.StructLit); ok && !copied && len(body.Elts) == 1 {
			if embedded, ok := body.Elts[0].(*ast.EmbedDecl); ok {
				embedded.Expr = again(embedded.Expr)
			}
		}
	case *ast.Ident, *ast.SelectorExpr:
		return s.reference(x, depth, copied, f)
	}
	return e
}

// reference is words for what refers to something.
func (s *Source) reference(e ast.Expr, depth int, copied bool, f func(*ast.BasicLit)) ast.Expr {
	if id, ok := e.(*ast.Ident); ok && !copied && s.variable(id, depth, f) {
		return e
	}
	if to := s.value(e); to != nil && s.referred(e) == nil && s.plain(to, depth) {
		return s.words(to, depth+1, true, f)
	}
	return e
}

// shallow returns a copy of an expression whose operands are those of the original.
func shallow(e ast.Expr) ast.Expr {
	switch x := e.(type) {
	case *ast.BasicLit:
		return &ast.BasicLit{ValuePos: x.ValuePos, Kind: x.Kind, Value: x.Value}
	case *ast.ParenExpr:
		return &ast.ParenExpr{Lparen: x.Lparen, X: x.X, Rparen: x.Rparen}
	case *ast.UnaryExpr:
		return &ast.UnaryExpr{OpPos: x.OpPos, Op: x.Op, X: x.X}
	case *ast.BinaryExpr:
		return &ast.BinaryExpr{X: x.X, OpPos: x.OpPos, Op: x.Op, Y: x.Y}
	case *ast.ListLit:
		return &ast.ListLit{Lbrack: x.Lbrack, Elts: slices.Clone(x.Elts), Rbrack: x.Rbrack}
	case *ast.CallExpr:
		return &ast.CallExpr{Fun: x.Fun, Lparen: x.Lparen, Args: slices.Clone(x.Args), Rparen: x.Rparen}
	}
	return e
}

// chooses reports whether a call has one of its arguments as its value, or is a bound of these.
func chooses(n *ast.CallExpr) bool {
	id, ok := n.Fun.(*ast.Ident)
	return ok && (id.Name == "or" || id.Name == "and" || id.Name == "matchN")
}

// variable is words for what a let clause, or a variable, has its value of, if it is used for nothing else; false if it
// is. Otherwise nothing would refer to it any more.
func (s *Source) variable(id *ast.Ident, depth int, f func(*ast.BasicLit)) bool {
	g := s.given[id.Node]
	if g == nil || id.Node == nil {
		return false
	}
	if delete(g.uses, id); len(g.uses) > 0 {
		return false
	}
	*g.value = s.words(*g.value, depth+1, false, f)
	return true
}

// plain reports whether an expression means the same wherever it stands: literals, and lists and alternatives of them.
func (s *Source) plain(e ast.Expr, depth int) bool {
	if depth > maxDepth {
		return false
	}
	again := func(e ast.Expr) bool { return s.plain(e, depth+1) }
	switch e := e.(type) {
	case *ast.BasicLit:
		return true
	case *ast.ParenExpr:
		return again(e.X)
	case *ast.UnaryExpr:
		return again(e.X)
	case *ast.BinaryExpr:
		return again(e.X) && again(e.Y)
	case *ast.ListLit:
		return all(e.Elts, again)
	case *ast.CallExpr:
		return chooses(e) && all(e.Args, again)
	case *ast.Ident:
		if e.Node == nil && basic[e.Name] {
			return true
		}
		to := s.value(e)
		return to != nil && s.referred(e) == nil && again(to)
	case *ast.SelectorExpr:
		to := s.value(e)
		return to != nil && s.referred(e) == nil && again(to)
	}
	return false
}

// basic are the types that CUE declares, as far as a priority is compared with them.
var basic = map[string]bool{"string": true, "int": true, "number": true}

func all(list []ast.Expr, f func(ast.Expr) bool) bool {
	for _, e := range list {
		if ellipsis, ok := e.(*ast.Ellipsis); ok {
			e = ellipsis.Type
		}
		if e != nil && !f(e) {
			return false
		}
	}
	return true
}
