package compile

import (
	"bytes"
	"cmp"
	"maps"
	"path"
	"slices"
	"strings"

	"cuelang.org/go/cue/ast"
	"cuelang.org/go/cue/parser"

	"github.com/musterhq/muster/schema"
	"github.com/musterhq/muster/schema/compile/cut"
	"github.com/musterhq/muster/schema/compile/lax"
	"github.com/musterhq/muster/schema/valid"
)

// A mistake in one object can hide that of another: CUE gives up more than the object, and what only
// follows from the one mistake looks like what the other one is. So a package with mistakes is
// evaluated again without the objects that they are in, and without what refers to these.

const (
	// maxApart bounds how often a package is evaluated again for what stands beside its mistakes.
	maxApart = 2
	// apartShare is the part of the package's limit of allocations up to which it is: to be
	// beyond the limit would say less than the first mistakes.
	apartShare = 8
)

// uncovered adds to the mistakes of a package those that these hide in other objects. Where it is not known
// which declarations the mistakes are in, or what else depends on these, it adds none: the files of parent
// directories may use what is left out.
func uncovered(req request, strict *loaded, found []mistake) []mistake {
	if req.Test != "" || len(found) == 0 {
		return found
	}
	mayLook := func() bool {
		return len(found) < maxDiagnostics && allocated()-req.Began <= uint64(req.Limits.AllocBytes)/apartShare
	}
	var t trial
	found = withImported(req, strict, unknownOnce(strict, sameAgain(strict, found)), mayLook)
	if len(found) > 1 && mayLook() {
		t = try(req, found)
		found = t.causes()
	}
	if len(found) > 1 && mayLook() {
		found = withoutRows(req, strict, found)
	}
	anywhere := func(d mistake) bool {
		return d.form == unusedName || d.form == unusedImport || // what would use it may be in any object
			strings.HasSuffix(d.Path, ".cue") && path.Dir(d.Path) != req.Dir // whatever is made from a library has it
	}
	if req.Parent != "" || slices.ContainsFunc(found, anywhere) {
		return found
	}
	known := len(found)
	s := separate(req)
	for n := 0; s != nil && n < maxApart; n++ {
		if !mayLook() || !s.cut(found) || !s.declares() {
			break
		}
		fresh, _ := mistakesOf(s.rest())
		fresh = slices.DeleteFunc(fresh, func(d mistake) bool { return !s.hidden(d, found) })
		if len(fresh) == 0 {
			break
		}
		found = checksOnce(strict, append(found, fresh...))
	}
	if mayLook() {
		if t.found == nil || len(found) > known {
			t = try(req, found)
		}
		found = append(found, t.behind(req)...)
	}
	return found
}

// mayFollow reports whether a mistake is perhaps there only since something stands in the place of what another one is.
func (m mistake) mayFollow(o mistake) bool {
	switch {
	case within(o.Field, m.Field):
		return true
	case o.Rule == schema.RuleUnknownField:
		return o.Path == m.Path && o.Line == m.Line
	case m.Rule == schema.RuleOutOfRange && slices.Contains(strings.FieldsFunc(m.takes, isBound), o.meant):
		return true // the bound is the number that stands there
	}
	// With one of several words, and with true or false, come other fields than with another one, or with the default.
	return o.chosen && (m.Rule == schema.RuleUnknownField && (m.form != closedField || m.about == "") || m.Rule == schema.RuleMissingField)
}

// isBound reports whether a character is of what is around numbers in bounds.
func isBound(r rune) bool { return strings.ContainsRune("<>=&|() ", r) }

// mistakesOf returns what is wrong with a package; false if the evaluator fails on it, which is nothing that is
// wrong with what the package is a part of.
func mistakesOf(req request) (found []mistake, ok bool) {
	defer func() {
		if recover() != nil {
			found, ok = nil, false
		}
	}()
	l := loadPackage(req, req.Dir, nil)
	if len(l.errs) > 0 {
		l = unconditional(req, l)
		return withoutResults(l, withMisfits(l, mistakes(req, l))), true
	}
	c := collect(req, l, nil)
	return slices.Concat(with(intent(l), append(c.diags, c.missing...)), misfits(l)), true
}

// separation is a package whose declarations can be left out one by one.
type separation struct {
	req    request
	files  []*splitFile
	pieces []*piece
}

// piece is a declaration, or one of the objects of a kind that are declared together.
type piece struct {
	written
	file       *splitFile
	begin, end schema.Position
	uses       map[string]bool // identifiers
	gives      map[string]bool // labels in a comprehension at the top
	embeds     bool            // it may give any field
	top        string          // the field at the top; "" of what is embedded
	object     string          // its data path, or that of another field at the top; "" if it may be several
	gone       bool
}

// contains reports whether a position lies in a piece.
func (u *piece) contains(p schema.Position) bool {
	before := func(a, b schema.Position) bool { return cmp.Or(a.Line-b.Line, a.Column-b.Column) < 0 }
	return p.Path == u.begin.Path && !before(p, u.begin) && before(p, u.end)
}

// has reports whether a mistake is of the data of a piece.
func (u *piece) has(d mistake) bool {
	return u.object != "" && d.Field != "" && within(d.Field, u.object)
}

// separate returns the declarations of a package, nil if what one of them says may be of any of the others.
func separate(req request) *separation {
	s := &separation{req: req}
	for _, name := range filesOf(req.Files, req.Dir) {
		file, err := parser.ParseFile(name, req.Files[name])
		if err != nil {
			return nil
		}
		f := &splitFile{name: name, data: req.Files[name]}
		s.files = append(s.files, f)
		for _, d := range file.Decls {
			if !s.decl(f, d) {
				return nil
			}
		}
	}
	return s
}

// decl notes a declaration, and reports whether it can be left out.
func (s *separation) decl(f *splitFile, d ast.Decl) bool {
	switch d := d.(type) {
	case *ast.Package, *ast.CommentGroup, *ast.Attribute:
		return true
	case *ast.ImportDecl:
		return f.imported(d)
	case *ast.LetClause:
		s.add(f, d, d.Ident.Name, "")
		return true
	case *ast.EmbedDecl:
		s.add(f, d, "", "").embeds = true
		return true
	case *ast.Comprehension:
		s.add(f, d, "", "").gives = givenBy(d)
		return true
	case *ast.Field:
		return named(d) && s.field(f, d)
	}
	return false
}

// field notes a field at the top, each object for itself if it is a kind.
func (s *separation) field(f *splitFile, d *ast.Field) bool {
	top := lax.Label(d)
	body, ok := d.Value.(*ast.StructLit)
	if valid.Of(schema.Kind(top)) == nil {
		s.add(f, d, top, top)
		return true
	}
	if !ok || len(d.Attrs) > 0 {
		s.add(f, d, top, "")
		return true
	}
	for _, e := range body.Elts {
		object, at := "", ast.Node(e)
		if field, ok := e.(*ast.Field); ok {
			if !named(field) {
				return false // a pattern says something of all
			}
			object = fieldPath([]string{top, lax.Label(field)})
		}
		if len(body.Elts) == 1 {
			at = d
		}
		s.add(f, at, top, object)
	}
	return true
}

// givenBy returns the labels of all fields in a comprehension.
func givenBy(c *ast.Comprehension) map[string]bool {
	labels := map[string]bool{}
	ast.Walk(c.Value, func(n ast.Node) bool {
		if f, ok := n.(*ast.Field); ok {
			labels[lax.Label(f)] = true
		}
		return true
	}, nil)
	return labels
}

func (s *separation) add(f *splitFile, n ast.Node, top, object string) *piece {
	u := &piece{file: f, begin: position(n.Pos()), end: position(n.End()), uses: map[string]bool{}, top: top, object: object}
	u.written = written{name: lastOf(object), from: n.Pos().Offset(), to: n.End().Offset()}
	identifiersOf(n, u.uses)
	s.pieces = append(s.pieces, u)
	return u
}

// cut leaves out what mistakes are in, and what refers to it. It reports whether all of that is known.
func (s *separation) cut(found []mistake) bool {
	for _, d := range found {
		known := false
		for _, u := range s.pieces {
			if u.contains(d.Position) || u.has(d) {
				u.gone, known = true, true
			}
		}
		if !known {
			return false
		}
	}
	names := map[string]bool{}
	for before := -1; before < len(names); {
		before = len(names)
		for _, u := range s.pieces {
			if u.gone = u.gone || u.usesAny(names); u.gone {
				names[u.top], names[u.name] = true, true
				maps.Copy(names, u.gives)
			}
		}
	}
	return !slices.ContainsFunc(s.pieces, func(u *piece) bool { return u.gone && u.embeds })
}

// usesAny reports whether a piece refers to one of some names.
func (u *piece) usesAny(names map[string]bool) bool {
	for name := range u.uses {
		if names[name] {
			return true
		}
	}
	return false
}

// declares reports whether there may be objects in what is left.
func (s *separation) declares() bool {
	return slices.ContainsFunc(s.pieces, func(u *piece) bool { return !u.gone && (u.top == "" || valid.Of(schema.Kind(u.top)) != nil) })
}

// rest returns the request for what is left, which stays where it is.
func (s *separation) rest() request {
	req := s.req
	req.Files = maps.Clone(req.Files)
	for _, f := range s.files {
		var gone []written
		kept, lost := map[string]bool{}, map[string]bool{}
		for _, u := range s.pieces {
			switch {
			case u.file != f:
			case u.gone:
				gone = append(gone, u.written)
				maps.Copy(lost, u.uses)
			default:
				maps.Copy(kept, u.uses)
			}
		}
		data := bytes.Clone(f.data)
		for _, w := range f.withImports(gone, kept, lost) {
			cut.Blank(data, w.from, w.to)
		}
		req.Files[f.name] = data
	}
	return req
}

// hidden reports whether a mistake of what is left is one that the others have hidden: not one that
// is there since something is left out, or that is the same as one of them.
func (s *separation) hidden(d mistake, found []mistake) bool {
	switch d.form {
	case unusedImport, badImport, undefinedName, unusedName, absentDefinition:
		return false
	}
	lacks := d.Rule == schema.RuleMissingField || d.Rule == schema.RuleNotSet
	top, _, _ := strings.Cut(d.Field, ".")
	left := false
	for _, u := range s.pieces {
		if u.gone && (u.has(d) || lacks && u.object == "" && (u.top == "" || u.top == top)) {
			return false
		}
		left = left || !u.gone && (u.contains(d.Position) || !strings.HasSuffix(d.Path, ".cue") && u.has(d))
	}
	return left && !slices.ContainsFunc(found, func(o mistake) bool {
		return o.Position == d.Position || lacks && o.Rule == d.Rule && o.Hint == d.Hint && lastOf(o.Field) == lastOf(d.Field)
	})
}
