package compile

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"cuelang.org/go/cue"
	"cuelang.org/go/cue/ast"
	"cuelang.org/go/cue/token"

	"github.com/musterhq/muster/schema"
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
)

// blaming looks for the data that mistakes of a package are of.
type blaming struct {
	req      request
	l        *loaded
	found    []schema.Diagnostic
	evaluate func(request) []schema.Diagnostic
	left     int // of the trials
	// control is what an evaluation says that looks for no more beside the first mistakes, as the trials do.
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
		if d := b.found[i]; b.vague(d) {
			blamed++
			i = b.blame(i)
		}
	}
	return b.found
}

// blame moves one mistake, if what it is of can be found, and returns where in the list it is then.
func (b *blaming) blame(i int) int {
	d := b.found[i]
	if m, ok := b.notGiven(d); ok {
		b.found[i] = m
		return i
	}
	if d.Rule == schema.RuleNotSet || d.Rule == schema.RuleUndefined {
		return i // without any row of a table there is nothing of it, whichever lacks what
	}
	if b.control == nil {
		b.control = b.evaluate(b.req)
	}
	in := func(list []schema.Diagnostic, o schema.Diagnostic) bool {
		return slices.ContainsFunc(list, func(a schema.Diagnostic) bool { return same(a, o) })
	}
	if !in(b.control, d) {
		return i // that it is gone in a trial would say nothing
	}
	b.left = mostTrials
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

// vague reports whether a mistake is where the package computes an object, and not where it writes the data of it.
func (b *blaming) vague(d schema.Diagnostic) bool {
	switch d.Rule {
	case schema.RuleCheck, schema.RulePolicy, schema.RuleMissingField, schema.RuleNotSet, schema.RuleUndefined:
	default:
		return false
	}
	where := b.l.where
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
	var found []mistake
	words := wordsOf(d.Field)
	for _, o := range trace.NotGiven(b.l.value) {
		labels := labelsOf(o.Path)
		inHidden := strings.HasPrefix(labels[0], "_") && slices.ContainsFunc(labels[1:], func(s string) bool { return slices.Contains(words, s) })
		if !inHidden && !(ofObject(d.Field) && within(fieldPath(labels), objectOf(d.Field))) {
			continue
		}
		m := sayNotGiven(b.l, fieldPath(labels[:min(2, len(labels))]), o)
		sels, name := o.Path.Selectors(), labels[len(labels)-1]
		if s, ok := writtenStruct(b.l, b.l.value.LookupPath(cue.MakePath(sels[:len(sels)-1]...)), name); ok && s.near == "" {
			m.Position, m.Field, m.Message = s.label, fieldPath(labels), fmt.Sprintf("the parameter %s is not set", name)
		}
		if b.l.where.mine(m.Path) && !slices.ContainsFunc(found, func(o mistake) bool { return o.Position == m.Position }) {
			found = append(found, m)
		}
	}
	if len(found) != 1 || b.vague(found[0].Diagnostic) {
		return d, false
	}
	m := found[0].Diagnostic
	if lastOf(m.Field) == lastOf(d.Field) { // which is said in the words of the schema
		at := m.Position
		m = d
		m.Position = at
	}
	m.Path = b.l.where.data.whole(m.Path)
	return m, true
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
}

// rank says which rows are tried first.
func (r *row) rank() int {
	if r.named {
		return 1
	}
	return 0
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
	rank := func(of []*row, in *row) []*row {
		for _, r := range of {
			r.named = in != nil && in.named || r.label != "" && (slices.Contains(words, r.label) || strings.Contains(d.Field, r.label))
		}
		slices.SortStableFunc(of, func(x, y *row) int { return cmp.Compare(y.rank(), x.rank()) })
		return of
	}
	rows = rank(rows, nil)
	for len(rows) > 0 && b.left > 0 {
		r := rows[0]
		rows = rows[1:]
		if f, ok := r.node.(*ast.Field); ok && d.Rule != schema.RuleCheck && structOf(f.Value) == nil && len(b.within(r)) == 0 {
			continue // what is missing is not missing for what is there
		}
		left, ok := b.without(d, r)
		switch {
		case ok:
			best, after, rows = r, left, rank(b.within(r), r)
		case best == nil:
			rows = append(rows, rank(b.within(r), r)...)
			slices.SortStableFunc(rows, func(x, y *row) int { return cmp.Compare(y.rank(), x.rank()) })
		}
	}
	if best == nil {
		return nil, nil
	}
	if in := b.within(best); len(in) == 1 && in[0].label == "" { // of a list of one
		best = in[0]
	}
	return best, after
}

// within returns the rows in another one.
func (b *blaming) within(r *row) []*row {
	if f, ok := r.node.(*ast.Field); ok {
		return rowsIn(r.file, f.Value)
	}
	return rowsIn(r.file, r.node)
}

// without returns what is wrong with the package without a row, and reports whether a mistake is gone then, and there is
// no other one.
func (b *blaming) without(d schema.Diagnostic, r *row) ([]schema.Diagnostic, bool) {
	if b.left--; b.left < 0 || allocated()-b.req.Began > uint64(b.req.Limits.AllocBytes)/apartShare {
		return nil, false
	}
	name := fileNamed(b.req, nameOf(r.file))
	req := b.req
	req.Files = maps.Clone(req.Files)
	if strings.HasSuffix(name, ".cue") {
		req.Files[name] = blanked(req.Files[name], r.node.Pos().Offset(), r.node.End().Offset())
	} else {
		req.Files[name] = withoutData(req.Files[name], position(r.node.Pos()), strings.HasSuffix(name, ".json"))
	}
	after := b.evaluate(req)
	known := func(o schema.Diagnostic) bool {
		return o.Severity != schema.Error || slices.ContainsFunc(b.found, func(d schema.Diagnostic) bool { return same(d, o) })
	}
	again := func(o schema.Diagnostic) bool { return same(d, o) } // of this object, or of one that comes from another row
	return after, !slices.ContainsFunc(after, again) && !slices.ContainsFunc(after, func(o schema.Diagnostic) bool { return !known(o) })
}

// same reports whether two mistakes of two evaluations are one.
func same(a, b schema.Diagnostic) bool {
	return a.Rule == b.Rule && a.Message == b.Message && (a.Field == b.Field || a.Position == b.Position)
}

// withoutData returns the text of a file of YAML or JSON without the field or element that begins at a position: with
// spaces in its place.
func withoutData(data []byte, at schema.Position, isJSON bool) []byte {
	lines := bytes.SplitAfter(bytes.Clone(data), []byte("\n"))
	if at.Line < 1 || at.Line > len(lines) || at.Column < 1 || at.Column > len(lines[at.Line-1]) {
		return data
	}
	if isJSON {
		return withoutJSON(data, len(bytes.Join(lines[:at.Line-1], nil))+at.Column-1)
	}
	indent := func(line []byte) int { return len(line) - len(bytes.TrimLeft(line, " ")) }
	end := at.Line
	for end < len(lines) && (indent(lines[end]) >= at.Column || len(bytes.TrimSpace(lines[end])) == 0) {
		end++
	}
	from := len(bytes.Join(lines[:at.Line-1], nil))
	return blanked(data, from, from+len(bytes.Join(lines[at.Line-1:end], nil)))
}

// withoutJSON is withoutData for JSON.
func withoutJSON(data []byte, from int) []byte {
	value := func(from int) int { // returns its end
		d := json.NewDecoder(bytes.NewReader(data[from:]))
		if err := d.Decode(new(json.RawMessage)); err != nil {
			return from
		}
		return from + int(d.InputOffset())
	}
	space := func(data []byte) int { return len(data) - len(bytes.TrimLeft(data, " \t\r\n")) }
	to := value(from)
	if to += space(data[to:]); bytes.HasPrefix(data[to:], []byte(":")) {
		to = value(to + 1)
		to += space(data[to:])
	}
	if before := bytes.TrimRight(data[:from], " \t\r\n"); !bytes.HasPrefix(data[to:], []byte(",")) && bytes.HasSuffix(before, []byte(",")) {
		from = len(before) - 1
	}
	return blanked(data, from, to)
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
