package compile

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"cuelang.org/go/cue"
	"cuelang.org/go/cue/ast"
	"cuelang.org/go/cue/token"

	"github.com/musterhq/muster/schema"
	"github.com/musterhq/muster/schema/compile/cut"
	"github.com/musterhq/muster/schema/compile/lax"
	"github.com/musterhq/muster/schema/compile/trace"
	"github.com/musterhq/muster/schema/compile/walk"
	"github.com/musterhq/muster/schema/valid"
)

// What a library or a policy says of an object that is computed shows where the object is, which is one place for all rows
// of a table. Which of the rows it is of is found by trial: the package is evaluated without one after the other.

const (
	// mostBlamed bounds of how many mistakes of a package the row is looked for, and mostTrials how often the package is
	// evaluated for each.
	mostBlamed, mostTrials = 2, 10
	// leastNarrowed is of how many rows those are left out first that a mistake is not of.
	leastNarrowed = 8
)

// blaming looks for the data that mistakes of a package are of.
type blaming struct {
	req      request
	l        *loaded
	found    []schema.Diagnostic
	evaluate func(request) []schema.Diagnostic
	left     int  // of the trials
	narrowed bool // some rows were left out for those of a mistake
	// of is the package, or what the trials of a mistake are of. control is what an evaluation of it says that looks for
	// no more beside the first mistakes, as the trials do.
	of      request
	control []schema.Diagnostic
}

// toRows moves mistakes that show where objects are computed to what is written of these, without which the mistake is
// gone and there is no other one. evaluate returns what is wrong with a package.
func toRows(req request, l *loaded, found []schema.Diagnostic, evaluate func(request) []schema.Diagnostic) []schema.Diagnostic {
	b := &blaming{req: req, l: l, evaluate: evaluate}
	b.found = slices.DeleteFunc(slices.Clone(found), func(d schema.Diagnostic) bool { // a check that is said of the data, too
		return d.Rule == schema.RuleCheck && b.vague(d) && slices.ContainsFunc(found, func(o schema.Diagnostic) bool {
			of, from := objectOf(d.Field), objectOf(o.Field)
			if !ofObject(o.Field) && slices.Contains(wordsOf(o.Field), lastOf(of)) {
				from = of // it is of what the object is made of
			}
			return of != "" && of == from && o.Rule == d.Rule && o.Message == d.Message && o.Hint == d.Hint && !b.vague(o)
		})
	})
	blamed := 0
	for i := 0; i < len(b.found) && blamed < mostBlamed; i++ {
		d := b.found[i]
		inLibrary := d.Rule == schema.RuleMissingField && d.Severity == schema.Error && !l.where.mine(d.Path) && !l.where.schema(d.Path)
		if inLibrary || b.vague(d) {
			blamed++
			i = b.blame(i)
		}
	}
	return b.found
}

// blame moves one mistake, if what it is of can be found, and returns where in the list it is then.
func (b *blaming) blame(i int) int {
	d := b.found[i]
	m, ok := b.notGiven(d)
	if !ok {
		m, ok = b.inCall(d)
	}
	if ok {
		b.found[i] = m
		return i
	}
	if !b.vague(d) {
		return i
	}
	if d.Rule == schema.RuleNotSet || d.Rule == schema.RuleUndefined {
		return i // without any row of a table there is nothing of it, whichever lacks what
	}
	in := func(list []schema.Diagnostic, o schema.Diagnostic) bool {
		return slices.ContainsFunc(list, func(a schema.Diagnostic) bool { return same(a, o) })
	}
	b.of, b.control = b.req, b.evaluate(b.req)
	if alone, ok := b.beside(d); ok {
		if control := b.evaluate(alone); in(control, d) && !slices.ContainsFunc(control, b.isNew) {
			b.of, b.control = alone, control
		}
	}
	if !in(b.control, d) {
		return i // that it is gone in a trial would say nothing
	}
	b.left, b.narrowed = mostTrials, false
	var row *row
	var after []schema.Diagnostic
	for _, rows := range b.roots(d) {
		if row == nil {
			row, after = b.search(d, rows)
		}
	}
	if row == nil {
		return i
	}
	place, at := row.place(), d.Position
	b.found = slices.DeleteFunc(b.found, func(o schema.Diagnostic) bool {
		return o != d && o.Rule == d.Rule && o.Message == d.Message && in(b.control, o) && !in(after, o) && b.vague(o)
	})
	i = slices.Index(b.found, d)
	b.found[i].Position = place
	if place.Line != at.Line && d.Hint == "" {
		b.found[i].Hint = fmt.Sprintf("it shows at %s", at)
	}
	return i
}

// beside returns the package without what its other mistakes are in, false if that is not known: beside them it is not
// looked for what is not given, so that any row seems to be the one without which the mistake is gone.
func (b *blaming) beside(d schema.Diagnostic) (request, bool) {
	var others []mistake
	for _, o := range b.found {
		if o != d && o.Severity == schema.Error {
			others = append(others, mistake{Diagnostic: o})
		}
	}
	s := separate(b.req)
	if len(others) == 0 || s == nil || !s.cut(others) || !s.declares() || !b.mayTry() {
		return b.req, false
	}
	return s.rest(), true
}

// vague reports whether a mistake is where the package computes an object, and not where it writes the data of it.
func (b *blaming) vague(d schema.Diagnostic) bool {
	switch d.Rule {
	case schema.RuleCheck, schema.RulePolicy, schema.RuleMissingField, schema.RuleNotSet, schema.RuleUndefined:
	default:
		return false
	}
	where := b.l.where
	if d.Severity == schema.Error && d.Rule == schema.RulePolicy && !where.mine(d.Path) && !where.schema(d.Path) {
		return true // where a library makes the object
	}
	if d.Severity != schema.Error || !where.mine(d.Path) || !strings.HasSuffix(d.Path, ".cue") {
		return false
	}
	if d.Rule == schema.RuleUndefined { // else a name is not there that is written
		return where.computes(d.Position) || iterates(where, d.Position)
	}
	if where.computes(d.Position) || where.refersAt(d.Position) || d.Line == 1 && d.Column == 1 {
		return true
	}
	f, ok := where.index()[d.Position]
	if !ok {
		return false
	}
	if in := parent(d.Field); d.Rule == schema.RuleMissingField && lastOf(in) != lax.Label(f) && ofObject(in) && objectOf(d.Field) != in {
		return position(f.Label.Pos()) == d.Position
	}
	if d.Rule != schema.RuleCheck || isKindName(lax.Label(f)) || position(f.Label.Pos()) != d.Position {
		return false
	}
	return atTop(where, f) || structOf(f.Value) != nil || ofObject(d.Field) && d.Field == objectOf(d.Field)
}

// notGiven returns a mistake of what has no value as one of the required field that is not given, in a hidden field from which
// the object is computed, if there is one such field.
func (b *blaming) notGiven(d schema.Diagnostic) (schema.Diagnostic, bool) {
	if d.Rule == schema.RuleCheck || d.Rule == schema.RulePolicy || !b.l.built {
		return d, false
	}
	words := wordsOf(d.Field)
	all := slices.DeleteFunc(trace.NotGiven(b.l.value), func(o trace.Origin) bool {
		labels := labelsOf(o.Path)
		inHidden := len(labels) > 0 && strings.HasPrefix(labels[0], "_") && slices.ContainsFunc(labels[1:], func(s string) bool { return slices.Contains(words, s) })
		return !inHidden && !(ofObject(d.Field) && within(fieldPath(labels), objectOf(d.Field)))
	})
	return b.lacks(d, b.l, all)
}

// lacks returns a mistake of what has no value as one of the required field that is not given, if there is one such field in
// the package's own files among some.
func (b *blaming) lacks(d schema.Diagnostic, l *loaded, all []trace.Origin) (schema.Diagnostic, bool) {
	var found []mistake
	for _, o := range all {
		labels := labelsOf(o.Path)
		if len(labels) == 0 {
			continue
		}
		m := sayNotGiven(l, fieldPath(labels[:min(2, len(labels))]), o)
		sels, name := o.Path.Selectors(), labels[len(labels)-1]
		if s, ok := writtenStruct(l, l.value.LookupPath(cue.MakePath(sels[:len(sels)-1]...)), name); ok && s.near == "" {
			m.Position, m.Field, m.Message = s.label, fieldPath(labels), fmt.Sprintf("the parameter %s is not set", name)
		}
		if b.l.where.mine(m.Path) && !slices.ContainsFunc(found, func(o mistake) bool { return o.Position == m.Position }) {
			found = append(found, m)
		}
	}
	if len(found) != 1 || b.vague(found[0].Diagnostic) || b.isMade(found[0].Position) {
		return d, false
	}
	m := found[0].Diagnostic
	if object := objectOf(d.Field); strings.HasPrefix(m.Field, probePrefix) && object != "" {
		m.Field = object
	}
	if lastOf(m.Field) == lastOf(d.Field) { // which is said in the words of the schema
		at := m.Position
		m = d
		m.Position = at
	}
	m.Path = b.l.where.data.whole(m.Path)
	return m, true
}

// isMade reports whether a position is in what a comprehension of the package makes, or in a field that is only there to look
// at an expression: it is that of no row.
func (b *blaming) isMade(at schema.Position) bool {
	if !strings.HasSuffix(at.Path, ".cue") {
		return false
	}
	f := b.l.where.fileOf(at)
	if end := position(f.End()); end.Compare(at) < 0 {
		return true
	}
	made := false
	ast.Walk(f, func(n ast.Node) bool {
		if c, ok := n.(*ast.Comprehension); ok && c.Value != nil {
			from, to := position(c.Value.Pos()), position(c.Value.End())
			made = made || from.Compare(at) <= 0 && at.Compare(to) < 0
		}
		return !made
	}, nil)
	return made
}

// wordsOf returns the words in a text.
func wordsOf(text string) []string {
	return strings.FieldsFunc(text, func(r rune) bool { return strings.ContainsRune(` ."-_/:\`, r) })
}

// nameOf returns the path of a file.
func nameOf(f *ast.File) string { return strings.TrimPrefix(f.Filename, "/") }

// row is what may be left out of a file: a field, or an element of a list.
type row struct {
	file  *ast.File
	label string
	node  ast.Node
	// named is set if the mistake names it, or what it is in.
	named bool
	// put is set of one that is put off.
	put bool
}

// byRank sorts rows: those that the mistake names are tried first.
func byRank(rows []*row) []*row {
	rank := func(r *row) int {
		if r.named {
			return 0
		}
		return 1
	}
	slices.SortStableFunc(rows, func(x, y *row) int { return cmp.Compare(rank(x), rank(y)) })
	return rows
}

func (r *row) place() schema.Position {
	if f, ok := r.node.(*ast.Field); ok {
		if _, literal := f.Value.(*ast.BasicLit); literal {
			return position(f.Value.Pos())
		}
	}
	return position(r.node.Pos())
}

// roots returns what a mistake may be of: what stands in the field that it is at, or else all data of the package.
func (b *blaming) roots(d schema.Diagnostic) [2][]*row {
	where := b.l.where
	isObject := ofObject(d.Field) && d.Field == objectOf(d.Field)
	if f, ok := where.index()[d.Position]; ok && d.Rule == schema.RuleCheck && !isObject && !where.computes(d.Position) && !where.refersAt(d.Position) {
		return [2][]*row{rowsIn(where.fileOf(d.Position), f.Value)}
	}
	var data, own []*row
	for _, file := range where.own() {
		if !where.mine(nameOf(file)) {
			continue
		}
		if at := b.l.labels(d.Field); isObject {
			for _, f := range walk.Find(file.Decls, at) {
				own = append(own, rowsIn(file, f.Value)...)
			}
		}
		for _, decl := range file.Decls {
			n, ok := decl.(*ast.Field)
			switch {
			case !strings.HasSuffix(file.Filename, ".cue") && !ok:
				data = append(data, rowsIn(file, decl)...) // a list
			case !strings.HasSuffix(file.Filename, ".cue"):
				data = append(data, &row{file: file, label: lax.Label(n), node: n})
			case ok && strings.HasPrefix(lax.Label(n), "_") && lax.Label(n) != policyField:
				own = append(own, rowsIn(file, n.Value)...)
			}
		}
	}
	return [2][]*row{data, own}
}

// rowsIn returns the fields and elements in an expression, without those in other ones of these.
func rowsIn(file *ast.File, e ast.Node) (out []*row) {
	ast.Walk(e, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.Comprehension:
			return false
		case *ast.Field:
			switch n.Label.(type) {
			case *ast.Ident, *ast.BasicLit:
				out = append(out, &row{file: file, label: lax.Label(n), node: n})
			}
			return false
		case *ast.ListLit:
			for _, elt := range n.Elts {
				if _, isStruct := elt.(*ast.StructLit); isStruct {
					out = append(out, &row{file: file, node: elt})
				}
			}
			return false
		}
		return true
	}, nil)
	return out
}

// search returns the smallest of some rows, or of what is in them, without which a mistake is gone and there is no other
// one, and what is wrong then; nil if there is none, or it takes too long to find.
func (b *blaming) search(d schema.Diagnostic, rows []*row) (best *row, after []schema.Diagnostic) {
	words := wordsOf(d.Field + " " + d.Message)
	rank := func(all []*row, in *row) []*row {
		for _, r := range all {
			r.named = in != nil && in.named || r.label != "" && (slices.Contains(words, r.label) || strings.Contains(d.Field, r.label))
		}
		return byRank(all)
	}
	of, rows := b.narrow(d, b.of, rank(rows, nil))
	var values []*row
	for b.left > 0 {
		if len(rows) == 0 && best == nil && !b.l.where.mine(d.Path) {
			rows, values = byRank(values), nil // the object is one that a library makes: a policy may be of what is there
		}
		if len(rows) == 0 {
			break
		}
		r := rows[0]
		rows = rows[1:]
		if d.Rule != schema.RuleCheck && b.isValue(r) && !r.put {
			r.put = true
			values = append(values, r)
			continue // what is missing is not missing for what is there
		}
		left, ok := b.without(d, of, r)
		switch {
		case ok:
			best, after = r, left
			of, rows = b.narrow(d, of, rank(b.within(r), r))
		case best == nil:
			rows = byRank(append(rows, rank(b.within(r), r)...))
		}
	}
	if best == nil {
		return nil, nil
	}
	if b.narrowed { // the trials were of some of the rows
		b.left = max(b.left, 1)
		left, ok := b.without(d, b.of, best)
		if !ok {
			return nil, nil
		}
		after = left
	}
	if in := b.within(best); len(in) == 1 && in[0].label == "" { // of a list of one
		best = in[0]
	}
	return best, after
}

// isValue reports whether a row is a field with a value in which there are no other ones.
func (b *blaming) isValue(r *row) bool {
	f, ok := r.node.(*ast.Field)
	return ok && structOf(f.Value) == nil && len(b.within(r)) == 0
}

// narrow leaves out rows as long as the mistake stays and there is no other one, half of them at a time, and returns the
// package with what is left of them: the trials that follow take less then. Those that the mistake names are the first.
func (b *blaming) narrow(d schema.Diagnostic, of request, rows []*row) (request, []*row) {
	for len(rows) >= leastNarrowed {
		half := len(rows) / 2
		if named := slices.IndexFunc(rows, func(r *row) bool { return !r.named }); named > 0 && named < half {
			half = named
		}
		switch first, rest := rows[:half], rows[half:]; {
		case b.shows(d, &of, rest):
			rows = first
		case b.shows(d, &of, first):
			rows = rest
		default:
			return of, rows
		}
	}
	return of, rows
}

// shows leaves rows out of a package, and reports whether it has a mistake then, and no other one: else it stays as it is.
func (b *blaming) shows(d schema.Diagnostic, of *request, without []*row) bool {
	part := leftOut(*of, without)
	if part.Files == nil || !b.mayTry() {
		return false
	}
	after := b.evaluate(part)
	if slices.ContainsFunc(after, b.isNew) || !slices.ContainsFunc(after, func(o schema.Diagnostic) bool { return same(d, o) && o.Field == d.Field }) {
		return false
	}
	*of, b.narrowed = part, true
	return true
}

// within returns the rows in another one.
func (b *blaming) within(r *row) []*row {
	if f, ok := r.node.(*ast.Field); ok {
		return rowsIn(r.file, f.Value)
	}
	return rowsIn(r.file, r.node)
}

// mayTry reports whether the package may be evaluated once more.
func (b *blaming) mayTry() bool {
	return allocated()-b.req.Began <= uint64(b.req.Limits.AllocBytes)/apartShare
}

// isNew reports whether an error is none of the package as it is.
func (b *blaming) isNew(o schema.Diagnostic) bool {
	return o.Severity == schema.Error && !slices.ContainsFunc(b.found, func(d schema.Diagnostic) bool { return same(d, o) })
}

// without returns what is wrong with a package without a row, and reports whether a mistake is gone then, of this object and
// of others that come from other rows, and there is no other one.
func (b *blaming) without(d schema.Diagnostic, of request, r *row) ([]schema.Diagnostic, bool) {
	if b.left--; b.left < 0 || !b.mayTry() {
		return nil, false
	}
	of = leftOut(of, []*row{r})
	if of.Files == nil {
		return nil, false
	}
	after := b.evaluate(of)
	return after, !slices.ContainsFunc(after, func(o schema.Diagnostic) bool { return same(d, o) || b.isNew(o) })
}

// leftOut returns a package without some rows; without files if it is not known how to leave them out.
func leftOut(of request, rows []*row) request {
	byFile := map[string][]*row{}
	for _, r := range rows {
		name := fileNamed(of, nameOf(r.file))
		byFile[name] = append(byFile[name], r)
	}
	of.Files = maps.Clone(of.Files)
	for name, rows := range byFile {
		if strings.HasSuffix(name, ".cue") {
			data := bytes.Clone(of.Files[name])
			for _, r := range rows {
				cut.Blank(data, r.node.Pos().Offset(), r.node.End().Offset())
			}
			of.Files[name] = data
			continue
		}
		var fields, elements []cut.Place
		for _, r := range rows {
			at := position(r.node.Pos())
			if _, ok := r.node.(*ast.Field); ok {
				fields = append(fields, cut.Place{Line: at.Line, Column: at.Column})
			} else {
				elements = append(elements, cut.Place{Line: at.Line, Column: at.Column})
			}
		}
		data, ok := cut.Data(of.Files[name], fields, elements)
		if !ok {
			of.Files = nil
			return of
		}
		of.Files[name] = data
	}
	return of
}

// same reports whether two mistakes of two evaluations are one.
func same(a, b schema.Diagnostic) bool {
	return a.Rule == b.Rule && a.Message == b.Message && (a.Field == b.Field || a.Position == b.Position)
}

// structOf returns what an expression has of a struct, nil if it is none.
func structOf(e ast.Expr) *ast.StructLit {
	switch x := e.(type) {
	case *ast.StructLit:
		return x
	case *ast.ParenExpr:
		return structOf(x.X)
	case *ast.SelectorExpr:
		return structOf(x.X)
	case *ast.BinaryExpr:
		if x.Op == token.AND {
			return cmp.Or(structOf(x.X), structOf(x.Y))
		}
	}
	return nil
}

// atTop reports whether a field stands at the top of a file.
func atTop(p *positions, f *ast.Field) bool {
	return slices.Contains(p.fileOf(position(f.Pos())).Decls, ast.Decl(f)) && valid.Of(schema.Kind(lax.Label(f))) == nil
}

// iterates reports whether a position is of what a comprehension goes through.
func iterates(p *positions, at schema.Position) (yes bool) {
	ast.Walk(p.fileOf(at), func(n ast.Node) bool {
		if c, ok := n.(*ast.ForClause); ok {
			from, to := position(c.Source.Pos()), position(c.Source.End())
			yes = yes || from.Path == at.Path && from.Compare(at) <= 0 && at.Compare(to) < 0
		}
		return !yes
	}, nil)
	return yes
}
