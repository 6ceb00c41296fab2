package compile

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"cuelang.org/go/cue"
	"cuelang.org/go/cue/ast"
	"cuelang.org/go/cue/ast/astutil"
	"cuelang.org/go/cue/errors"
	"cuelang.org/go/cue/parser"
	"cuelang.org/go/cue/token"

	"github.com/musterhq/muster/schema"
	"github.com/musterhq/muster/schema/compile/lax"
	"github.com/musterhq/muster/schema/compile/terms"
	"github.com/musterhq/muster/schema/compile/trace"
	"github.com/musterhq/muster/schema/lazyregexp"
	"github.com/musterhq/muster/schema/valid"
)

// CUE stops at an import that it cannot resolve and gives up an object for one
// name in it that it does not know. So that whoever wrote that also learns what
// else is wrong, the package is evaluated again without these: a recovery says
// which imports and expressions to leave out.

// maxRecoveries bounds how often a package is evaluated again: each time brings to
// light what the names left out before have hidden.
const maxRecoveries = 4

// recovery is what is left out of the files of a package.
type recovery struct {
	imports map[schema.Position]bool // lines with an import, Column 0
	exprs   map[schema.Position]bool // names and selectors
	blanks  map[schema.Position]bool // what now stands in their place
	// open says that a definition was left out, which might have had the
	// fields that are missing now.
	open bool
	// firm says that the definitions are to be as they are written.
	firm bool
	// never are conditions that count as false.
	never map[schema.Position]bool
	// faulty is what is wrong with libraries.
	faulty places
}

func newRecovery() *recovery {
	return &recovery{imports: map[schema.Position]bool{}, exprs: map[schema.Position]bool{}, blanks: map[schema.Position]bool{}}
}

var importTrouble = lazyregexp.New(`^(imported and not used|cannot find package|builtin package .* undefined|relative import|invalid import path)`)

// learn notes what errs blame, and returns those of them that name something
// new to leave out.
func (m *recovery) learn(errs []errors.Error) (fresh []errors.Error) {
	for _, e := range errs {
		text := errorText(e)
		pos := position(e.Position())
		if pos.Path == "" {
			continue
		}
		switch {
		case importTrouble.MatchString(text):
			pos.Column = 0
			if !m.imports[pos] {
				m.imports[pos] = true
				fresh = append(fresh, e)
			}
		case unresolved.MatchString(text), undefined.MatchString(text):
			if !m.exprs[pos] {
				m.exprs[pos] = true
				fresh = append(fresh, e)
			}
		}
	}
	return fresh
}

// explained reports whether one of the mistakes so far explains an error: the rest of
// a word without quotes, or a name that a bad import would have brought.
func (m *recovery) explained(d mistake, certain []mistake) bool {
	if d.form != undefinedName {
		return false
	}
	return slices.ContainsFunc(certain, func(c mistake) bool {
		switch {
		case c.Path != d.Path:
			return false
		case c.form == badImport && c.Field == "":
			return slices.Contains(pathParts(c.about), d.about)
		}
		return c.Line == d.Line && c.Column < d.Column && d.Column < c.Column+c.word
	})
}

// follows reports whether what is selected at a position of a lax package is only not there
// since something was left out of what it is selected from.
func (m *recovery) follows(l *loaded, at schema.Position) (yes bool) {
	broken := func(n ast.Node) (found bool) {
		ast.Walk(n, func(n ast.Node) bool {
			id, ok := n.(*ast.Ident)
			found = found || ok && m.blanks[position(id.Pos())]
			return !found
		}, nil)
		return found
	}
	for _, f := range l.where.files {
		ast.Walk(f, func(n ast.Node) bool {
			s, ok := n.(*ast.SelectorExpr)
			if !ok || position(s.Sel.Pos()) != at {
				return !yes
			}
			yes = broken(s.X)
			if id, ok := s.X.(*ast.Ident); ok && id.Node != nil {
				yes = yes || broken(id.Node)
			}
			return false
		}, nil)
	}
	return yes
}

// unresolvable has the import path of what CUE says of an import that it cannot
// resolve.
var unresolvable = lazyregexp.New(`^(?:cannot find package|builtin package|relative import|invalid import path)[^"]*"([^"]*)"`)

// pathParts returns the elements of an import path.
func pathParts(target string) []string {
	return strings.FieldsFunc(target, func(r rune) bool { return r == '/' || r == ':' || r == '@' })
}

// misnamed folds an import that is not used with a name that is not defined and
// is another one for it, an import is called by the name of its package, or that this import has.
func misnamed(l *loaded, found []mistake) []mistake {
	return slices.DeleteFunc(found, func(d mistake) bool {
		if d.form != unusedImport {
			return false
		}
		explained := false
		for i := range found {
			o := &found[i]
			if o.form == absentDefinition && o.Path == d.Path && slices.Contains(l.definitionsOf(d.about), o.about) {
				o.Hint = fmt.Sprintf("%s is in %q, which line %d imports", o.about, d.about, d.Line)
				explained = true
			}
			if o.form == undefinedName && o.Path == d.Path && slices.Contains(pathParts(d.about), o.about) {
				o.Hint = fmt.Sprintf("the import at line %d has another name; write: import %s %q", d.Line, o.about, d.about)
				if d.alias != "" {
					o.Hint = fmt.Sprintf("the import at line %d gives it the name %s: write %s", d.Line, d.alias, d.alias)
				}
				explained = true
			}
		}
		return explained
	})
}

// parse parses a file of the package with lax definitions, and without what is
// left out.
func (m *recovery) parse(name string, src any, cfg parser.Config) (*ast.File, error) {
	read := lax.Parse
	if m.firm {
		read = parseFirm
	}
	f, err := read(name, src, cfg)
	if err != nil || len(m.imports)+len(m.exprs)+len(m.never) == 0 {
		return f, err
	}
	dropped := map[ast.Node]bool{}
	for _, d := range f.Decls {
		if imports, ok := d.(*ast.ImportDecl); ok {
			kept := imports.Specs[:0]
			for _, spec := range imports.Specs {
				pos := position(spec.Pos())
				pos.Column = 0
				if m.imports[pos] {
					dropped[spec] = true
				} else {
					kept = append(kept, spec)
				}
			}
			imports.Specs = kept
		}
	}
	astutil.Apply(f, func(c astutil.Cursor) bool { return m.leaveOut(c, dropped) }, nil)
	return f, nil
}

// parseFirm parses a file as it is.
func parseFirm(name string, src any, cfg parser.Config) (*ast.File, error) {
	return parser.ParseFile(name, src, cfg)
}

// leaveOut replaces the node at c if it is to be left out.
func (m *recovery) leaveOut(c astutil.Cursor, dropped map[ast.Node]bool) bool {
	switch n := c.Node().(type) {
	case *ast.Comprehension:
		m.falsify(n)
		for _, clause := range n.Clauses {
			if m.within(clause, dropped) && isDecl(c) {
				c.Delete()
				return false
			}
		}
	case *ast.Field:
		if _, plain := n.Label.(*ast.Ident); !plain && m.within(n.Label, dropped) && isDecl(c) {
			c.Delete()
			return false
		}
		if _, plain := n.Label.(*ast.Ident); plain {
			n.Value = m.without(n.Value, dropped)
		}
	case *ast.EmbedDecl:
		if m.names(n.Expr, dropped) {
			n.Expr = m.without(n.Expr, dropped)
		}
	case *ast.BinaryExpr:
		if n.Op != token.AND {
			return true
		}
		n.X, n.Y = m.without(n.X, dropped), m.without(n.Y, dropped)
	case *ast.Ident, *ast.SelectorExpr:
		if e, ok := n.(ast.Expr); ok && m.names(e, dropped) {
			if _, isField := c.Parent().Node().(*ast.Field); !isField {
				c.Replace(m.blank(e))
			}
			return false
		}
	}
	return true
}

// falsify puts a condition that does not hold before each one of a comprehension that counts as false:
// what it refers to is still in use.
func (m *recovery) falsify(n *ast.Comprehension) {
	for i, clause := range n.Clauses {
		if c, ok := clause.(*ast.IfClause); ok && m.never[position(c.Condition.Pos())] {
			n.Clauses = slices.Insert(n.Clauses, i, ast.Clause(&ast.IfClause{If: c.If, Condition: ast.NewBool(false)}))
			return
		}
	}
}

// unconditional returns a package without the conditions that CUE cannot decide since what they compare
// is of the wrong type: it gives up all of an object for one, and says what is wrong with the value
// only then. What is wrong with a condition of an object in which nothing else is stays. It returns the
// package itself if there is nothing else wrong.
func unconditional(req request, strict *loaded) *loaded {
	never := map[schema.Position]bool{}
	var undecided []errors.Error
	for _, e := range strict.errs {
		if !undecidable.MatchString(errorText(e)) {
			continue
		}
		undecided = append(undecided, e)
		for _, at := range append([]token.Pos{e.Position()}, errors.Positions(e)...) {
			if c := terms.ConditionAt(strict.where.fileAt(at), at); c.IsValid() {
				never[position(c)] = true
			}
		}
	}
	if len(never) == 0 {
		return strict
	}
	l := loadPackage(req, req.Dir, &recovery{firm: true, never: never})
	if len(l.errs) == 0 || !l.built {
		return strict
	}
	l.never = never
	for _, e := range undecided {
		if of := objectAt(e); !slices.ContainsFunc(l.errs, func(o errors.Error) bool { return objectAt(o) == of }) {
			l.errs = append(l.errs, e)
		}
	}
	return l
}

// objectAt returns the data path of the object that an error is in, or of the field at the top.
func objectAt(e errors.Error) string {
	at := e.Path()
	return fieldPath(at[:min(len(at), 2)])
}

// undecidable is what CUE says of a condition with values of types that it cannot compare.
var undecidable = lazyregexp.New(`invalid operands? .* to '|cannot use .* as type|^invalid argument|in argument [0-9]+ to`)

// isDecl reports whether the node at c is one of the fields of a struct or file.
func isDecl(c astutil.Cursor) bool {
	switch c.Parent().Node().(type) {
	case *ast.File, *ast.StructLit:
		return true
	}
	return false
}

// without returns e, or anything at all in its place if it is to be left out.
func (m *recovery) without(e ast.Expr, dropped map[ast.Node]bool) ast.Expr {
	if !m.names(e, dropped) {
		return e
	}
	m.opened(e)
	return m.blank(e)
}

// blank returns what stands for any value, and notes where: nothing is said of
// that place again.
func (m *recovery) blank(e ast.Expr) ast.Expr {
	m.blanks[position(e.Pos())] = true
	return &ast.Ident{NamePos: e.Pos(), Name: "_"}
}

// opened notes that the fields of a definition are gone.
func (m *recovery) opened(e ast.Expr) {
	if s, ok := e.(*ast.SelectorExpr); ok {
		if x, ok := s.X.(*ast.Ident); ok && x.Name == SchemaDir {
			return // the strict pass has its fields
		}
	}
	if x, ok := e.(*ast.Ident); ok && strings.HasPrefix(x.Name, "#") {
		if _, ok := lax.Definitions()[x.Name]; ok {
			return
		}
	}
	m.open = true
}

// names reports whether e is a name or a selector that is to be left out.
func (m *recovery) names(e ast.Expr, dropped map[ast.Node]bool) bool {
	switch e := e.(type) {
	case *ast.Ident:
		return m.exprs[position(e.Pos())] || e.Node != nil && dropped[e.Node]
	case *ast.SelectorExpr:
		return m.exprs[position(e.Sel.Pos())] || m.names(e.X, dropped)
	case *ast.ParenExpr:
		return m.names(e.X, dropped)
	case *ast.CallExpr:
		return m.names(e.Fun, dropped)
	case *ast.IndexExpr:
		return m.names(e.X, dropped)
	}
	return false
}

// within reports whether anything in n is to be left out.
func (m *recovery) within(n ast.Node, dropped map[ast.Node]bool) bool {
	found := false
	ast.Walk(n, func(n ast.Node) bool {
		if e, ok := n.(ast.Expr); ok && m.names(e, dropped) {
			found = true
		}
		return !found
	}, nil)
	return found
}

// used reports whether the import at a position is used in its file as the user
// wrote it.
func used(req request, at schema.Position) bool {
	f, err := parser.ParseFile(at.Path, req.Files[at.Path])
	if err != nil {
		return false
	}
	found := false
	ast.Walk(f, func(n ast.Node) bool {
		if id, ok := n.(*ast.Ident); ok && id.Node != nil {
			spec, isImport := id.Node.(*ast.ImportSpec)
			found = found || isImport && position(spec.Pos()) == at
		}
		return !found
	}, nil)
	return found
}

// misfits returns the misspelled fields in the values of a package's let clauses, and what the package writes there and
// a library does not take, of which CUE says nothing if what is selected from them does not need it. Other fields that no
// definition has may be meant for something else.
func misfits(l *loaded) (out []mistake) {
	if !l.built || l.req.Test != "" || l.lax {
		return nil
	}
	lets := trace.LetsOf(l.context, l.inst, l.value, l.req.Files)
	for _, m := range lets.Misfits {
		last := len(m.Below) - 1
		name := m.Path[len(m.Path)-1]
		allowed := trace.Fields(m.Value, m.Below[:last], name)
		d := mistake{Diagnostic: schema.Diagnostic{Severity: schema.Error, Rule: schema.RuleUnknownField, Field: fieldPath(m.Path), Position: position(m.At)}}
		near := valid.Nearest(name, allowed.Fields)
		if !l.where.mine(d.Path) || near == "" && len(allowed.Patterns) == 0 || near != "" && isBeside(l.where, d.Position, near) {
			continue
		}
		sayNotAllowed(l, &d, allowed, nil)
		out = append(out, d)
	}
	return append(out, refused(l, lets)...)
}

// refused returns what the package writes in the values of let clauses, or in a file that it embeds, and a library does
// not take.
func refused(l *loaded, lets trace.Lets) (out []mistake) {
	if len(lets.Errors) == 0 {
		return nil
	}
	of := &loaded{req: l.req, dir: l.dir, inst: lets.Instance, value: lets.Value, context: l.context, built: true, never: l.never}
	of.where = newPositions(of)
	of.where.data = l.where.data
	type written struct {
		field string
		at    schema.Position
	}
	all := map[string]written{}
	errs := slices.DeleteFunc(explained(lets.Errors), func(e errors.Error) bool {
		at, ok := lets.Path(e.Path())
		pos, is := literalIn(l.where, e)
		if ok && is {
			all[fieldPath(e.Path())] = written{fieldPath(at), pos}
		}
		return !ok
	})
	for _, d := range diagnose(of, errs) {
		w, ok := all[d.Field]
		if !ok || !slices.Contains(refusals, d.Rule) {
			continue
		}
		d.Field, d.Position, d.top = w.field, w.at, pathLabel.FindString(w.field)
		if !slices.ContainsFunc(out, func(o mistake) bool { return o.Position == d.Position }) {
			out = append(out, d)
		}
	}
	return out
}

// refusals are the rules that a value breaks by itself.
var refusals = []schema.Rule{schema.RuleWrongType, schema.RuleInvalidValue, schema.RuleOutOfRange, schema.RuleConflict}

// literalIn returns which of the places of an error is a value of those that it names, as the package, or a file that it
// embeds, writes it.
func literalIn(p *positions, e errors.Error) (found schema.Position, ok bool) {
	text := errorText(e)
	for _, tp := range errors.Positions(e) {
		at := position(tp)
		if at.Path == "" || !p.mine(at.Path) {
			continue
		}
		if !strings.HasSuffix(at.Path, ".cue") {
			return at, true
		}
		ast.Walk(p.fileOf(at), func(n ast.Node) bool {
			if b, is := n.(*ast.BasicLit); is && position(b.Pos()) == at && strings.Contains(text, b.Value) {
				found, ok = at, true
			}
			return true
		}, nil)
	}
	return found, ok
}

// ineffective returns the parameters that the package sets and that have no effect: in an object all that no
// definition has, and in what objects are made from those that are probably misspelled.
func ineffective(l *loaded) []mistake {
	hidden := func(top string) bool { return strings.HasPrefix(top, "_") }
	return slices.DeleteFunc(unknownParameters(l.parameters(hidden)), func(d mistake) bool {
		return hidden(d.top) && (d.about == "" || isBeside(l.where, d.Position, d.about))
	})
}

// isBeside reports whether a struct of the package has a field of a name beside the one whose label is at a position.
func isBeside(p *positions, at schema.Position, name string) (yes bool) {
	for _, f := range p.own() {
		ast.Walk(f, func(n ast.Node) bool {
			s, ok := n.(*ast.StructLit)
			if !ok {
				return !yes
			}
			has := func(is func(*ast.Field) bool) bool {
				return slices.ContainsFunc(s.Elts, func(d ast.Decl) bool {
					f, ok := d.(*ast.Field)
					return ok && is(f)
				})
			}
			yes = yes || has(func(f *ast.Field) bool { return position(f.Label.Pos()) == at }) && has(func(f *ast.Field) bool { return lax.Label(f) == name })
			return !yes
		}, nil)
	}
	return yes
}

// withMisfits adds to mistakes what is wrong in let clauses, which may be the reason of what is not given, and of all that is
// made from such a clause.
func withMisfits(l *loaded, found []mistake) []mistake {
	for _, m := range misfits(l) {
		if slices.ContainsFunc(found, func(d mistake) bool { return d.Position == m.Position }) {
			continue
		}
		found = append(slices.DeleteFunc(found, func(d mistake) bool {
			return isMissing(d) && lastOf(d.Field) == m.about || d.form == absentField && d.about == m.about ||
				m.top != "" && (pathLabel.FindString(d.Field) == m.top && d.top == "" || selects(l.where, d.Position, m.top))
		}), m)
	}
	return found
}

// selects reports whether what is selected at a position is selected from what has a name.
func selects(p *positions, at schema.Position, name string) (yes bool) {
	ast.Walk(p.fileOf(at), func(n ast.Node) bool {
		if s, ok := n.(*ast.SelectorExpr); ok && position(s.Sel.Pos()) == at {
			chain := terms.Chain(s)
			yes = yes || len(chain) > 0 && chain[0] == name
		}
		return !yes
	}, nil)
	return yes
}

// isAside reports whether a data path is of a value that a template computes aside, as the arguments of a function that
// it calls are: there is none at the top of the package.
func isAside(l *loaded, field string) bool {
	return l.built && field != "" && depth(field) == 0 && !l.value.LookupPath(cue.MakePath(selectors(l, field)...)).Exists()
}

// ofFailure is what CUE says of a function that fails.
var ofFailure = lazyregexp.New(`^error in call to (?s:.*)`)

// withoutResults returns mistakes without those of what is computed with a value that is wrong itself.
func withoutResults(l *loaded, found []mistake) []mistake {
	wrong := inputsOf(found)
	return slices.DeleteFunc(slices.Clone(found), func(d mistake) bool {
		text := ""
		v := l.where.value(l.labels(d.Field))
		if v.Exists() {
			text, _ = v.String()
		}
		made := d.madeText(text, func(text string) bool { return l.writes(d.Position, strconv.Quote(text)) })
		return wrong.make(d, made, func() func(mistake) bool {
			return sourcesOf(v, func(p cue.Path) string { return fieldPath(labelsOf(p)) })
		})
	})
}

// labelFor returns where the package has the label that a text below it in an object is made of, as a library names a
// volume that is shared like the one in the job; the zero Position if it is made of something else.
func labelFor(p *positions, at []string, text string) (found schema.Position) {
	if len(at) < 4 || !slices.Contains(at[2:len(at)-1], text) {
		return found
	}
	for _, body := range p.bodies[[2]string{at[0], at[1]}] {
		ast.Walk(body, func(n ast.Node) bool {
			if f, ok := n.(*ast.Field); ok && found.Path == "" && lax.Label(f) == text && p.mine(position(f.Label.Pos()).Path) {
				found = position(f.Label.Pos())
			}
			return found.Path == ""
		}, nil)
	}
	return cmp.Or(found, p.labelNamed(text))
}

// declaring returns the field, or the pattern, whose value a position lies in, nil if there is none. The alternatives of an
// element of a list, or of what a function is given, are a field without a label.
func declaring(p *positions, label string, at schema.Position) *ast.Field {
	f := p.holder(label, at)
	if f == nil {
		f = p.pattern(at)
	}
	if u := terms.UnionAt(p.fileOf(at), at.Line, at.Column); f == nil && u != nil {
		f = &ast.Field{Value: u}
	}
	return f
}

// keyGiven returns where the package itself has the label of a value that a library's comprehension at a place takes,
// with its label, from there; the place itself if it does not.
func keyGiven(p *positions, v cue.Value, label string, at schema.Position) schema.Position {
	if p.mine(at.Path) {
		return at
	}
	for _, leaf := range trace.Leaves(v) {
		for _, o := range trace.Origins(leaf) {
			for _, part := range trace.Leaves(o.Value) {
				f, ok := part.Source().(*ast.Field)
				if ok && lax.Label(f) == label && p.mine(position(f.Label.Pos()).Path) {
					return position(f.Label.Pos())
				}
			}
		}
	}
	return at
}

// nearest returns the one of some words that a text is most likely a misspelling of, "" if there is none. Of those of an
// element of a list, which may be letters, one letter is none.
func nearest(f *ast.Field, text string, words []string) string {
	if near := valid.Nearest(text, words); f.Label != nil || len(near) > 1 {
		return near
	}
	return ""
}
