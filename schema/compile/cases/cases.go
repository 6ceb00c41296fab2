package cases

import (
	"slices"
	"strconv"
	"strings"

	"cuelang.org/go/cue/ast"
	"cuelang.org/go/cue/token"

	"github.com/musterhq/muster/schema/compile/lax"
)

// A test is a field of the top-level field test, by its name:
//
//	test: "a service has two tasks": {
//		job: web: #Service & {user: "example"}
//		want: job: web: tasks: 2
//	}
//
// What it declares beside what it expects is data of the package while the test runs: its
// fields become top-level fields of the file.

// Field is the top-level field that holds tests, and Hidden the one that holds what the test
// that runs expects.
const (
	Field  = "test"
	Hidden = "_musterTest"
)

// The fields of a test that say what it expects.
const (
	Want  = "want"  // data, of which each field must be as it says
	Has   = "has"   // data paths that must be there
	Lacks = "lacks" // data paths that must not be there
	Fails = "fails" // parts of the texts of the errors that are expected, each of one
)

// Case is one test.
type Case struct {
	Name string
	At   token.Pos
	// Has, Lacks and Fails are lists of texts that are written out.
	Has, Lacks, Fails []Text
	HasWant           bool
	// Wrong is what is wrong with the test itself.
	Wrong []Text
	body  *ast.StructLit
}

// Text is a text and where it stands.
type Text struct {
	Text string
	At   token.Pos
}

// IsTest reports whether a file is one of tests.
func IsTest(name string) bool { return strings.HasSuffix(name, "_test.cue") }

// Of returns the tests of a file, in their order. One of several parts in a file is several.
func Of(f *ast.File) (out []Case) {
	for _, d := range f.Decls {
		if !isTests(d) {
			continue
		}
		tests, ok := d.(*ast.Field).Value.(*ast.StructLit)
		if !ok {
			out = append(out, Case{At: d.Pos(), Wrong: []Text{{"want a struct with tests by name: test: NAME: {…}", d.Pos()}}})
			continue
		}
		for _, t := range tests.Elts {
			field, ok := t.(*ast.Field)
			body, isStruct := (*ast.StructLit)(nil), false
			if ok {
				body, isStruct = field.Value.(*ast.StructLit)
			}
			if !isStruct || lax.Label(field) == "" {
				out = append(out, Case{At: t.Pos(), Wrong: []Text{{"want a test that is written out: NAME: {…}", t.Pos()}}})
				continue
			}
			c := Case{Name: lax.Label(field), At: field.Label.Pos(), body: body}
			c.read()
			out = append(out, c)
		}
	}
	return out
}

func isTests(d ast.Decl) bool {
	field, ok := d.(*ast.Field)
	return ok && lax.Label(field) == Field
}

// expects reports whether a declaration of a test says what it expects.
func expects(d ast.Decl) bool {
	field, ok := d.(*ast.Field)
	return ok && slices.Contains([]string{Want, Has, Lacks, Fails}, lax.Label(field))
}

func (c *Case) read() {
	for _, d := range c.body.Elts {
		if !expects(d) {
			continue
		}
		field := d.(*ast.Field) //nolint:forcetypeassert // expects says so
		switch lax.Label(field) {
		case Want:
			c.HasWant = true
		case Has:
			c.Has = append(c.Has, c.texts(field)...)
		case Lacks:
			c.Lacks = append(c.Lacks, c.texts(field)...)
		case Fails:
			c.Fails = append(c.Fails, c.texts(field)...)
		}
	}
	if len(c.Fails) > 0 && (c.HasWant || len(c.Has)+len(c.Lacks) > 0) {
		c.Wrong = append(c.Wrong, Text{"a test that expects errors has no data to look at: want, has and lacks are for others", c.At})
	}
}

// texts returns the texts of a field: one, or a list.
func (c *Case) texts(field *ast.Field) (out []Text) {
	elts := []ast.Expr{field.Value}
	if list, ok := field.Value.(*ast.ListLit); ok {
		elts = list.Elts
	}
	for _, e := range elts {
		lit, ok := e.(*ast.BasicLit)
		s, err := "", error(nil)
		if ok {
			s, err = strconv.Unquote(lit.Value)
		}
		if !ok || err != nil || s == "" {
			c.Wrong = append(c.Wrong, Text{lax.Label(field) + " is a text, or a list of texts, that are written out", e.Pos()})
			continue
		}
		out = append(out, Text{s, e.Pos()})
	}
	return out
}

// Select leaves in a file of tests only those of one name, as top-level fields, and what
// they expect in the field Hidden.
func Select(f *ast.File, name string) {
	lax.Change(f, func() {
		var decls []ast.Decl
		for _, d := range f.Decls {
			if !isTests(d) {
				decls = append(decls, d)
			}
		}
		for _, c := range Of(f) {
			if c.Name != name || c.body == nil {
				continue
			}
			expected := &ast.StructLit{Lbrace: c.body.Lbrace, Rbrace: c.body.Rbrace}
			for _, d := range c.body.Elts {
				if expects(d) {
					expected.Elts = append(expected.Elts, d)
				} else {
					decls = append(decls, d)
				}
			}
			decls = append(decls, &ast.Field{Label: ast.NewIdent(Hidden), Value: expected})
		}
		f.Decls = decls
	})
}
