package compile

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"cuelang.org/go/cue/ast"
	"cuelang.org/go/cue/errors"
	"cuelang.org/go/cue/format"
	"cuelang.org/go/cue/parser"
	"cuelang.org/go/cue/token"

	"github.com/musterhq/muster/schema"
)

// maxDefinitions is the largest file that Fields reads, in bytes; those of
// muster have a tenth of it.
const maxDefinitions = 256 << 10

// Fields returns what each field of each definition in files says, by its path,
// such as "#Job.tasks": the expression in CUE's own layout, without comments. A
// definition that is no struct stands under its own name. Files are CUE by path;
// they are read, not evaluated, so a reference is shown as it is written. It
// errs with the position of what cannot be read.
func Fields(files map[string][]byte) (map[string]string, error) {
	out := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if n := len(files[name]); n > maxDefinitions {
			return nil, fmt.Errorf("%s has %d bytes, more than %d", name, n, maxDefinitions)
		}
		f, err := parser.ParseFile(name, files[name])
		if err != nil {
			return nil, located(name, err)
		}
		fieldsOf(out, "", f.Decls)
	}
	return out, nil
}

// located returns the first of the mistakes in err, with its place in the file.
func located(name string, err error) error {
	first := errors.Errors(err)[0]
	format, args := first.Msg()
	at := schema.Position{Path: name}
	if p := first.Position(); p.IsValid() {
		at.Line, at.Column = p.Line(), p.Column()
	}
	return fmt.Errorf("%s: %s", at, fmt.Sprintf(format, args...))
}

// fieldsOf adds the fields of decls, which lie at path at.
func fieldsOf(out map[string]string, at string, decls []ast.Decl) {
	if strings.Count(at, ".") > maxDepth {
		return
	}
	for _, d := range decls {
		switch d := d.(type) {
		case *ast.Field:
			fieldOf(out, at, d)
		case *ast.EmbedDecl:
			set(out, at, sourceOf(d.Expr))
		case *ast.Ellipsis:
			set(out, at, "...")
		}
	}
}

func fieldOf(out map[string]string, at string, f *ast.Field) {
	name := sourceOf(f.Label)
	if at == "" && !strings.HasPrefix(name, "#") {
		return // an object, or something hidden
	}
	if at != "" {
		name = at + "." + name
	}
	value := sourceOf(f.Value)
	switch f.Constraint {
	case token.OPTION:
		value = "optional " + value
	case token.NOT:
		value = "required " + value
	default:
		if s, ok := f.Value.(*ast.StructLit); ok && len(s.Elts) > 0 {
			fieldsOf(out, name, s.Elts)
			return
		}
	}
	set(out, name, value)
}

// set sets what is said at a path; what is said in several places is unified.
func set(out map[string]string, at, value string) {
	if at == "" {
		return
	}
	if have, ok := out[at]; ok && have != value {
		value = have + " & " + value
	}
	out[at] = value
}

// sourceOf returns a node as CUE's layout has it, in one line.
func sourceOf(n ast.Node) string {
	ast.Walk(n, func(n ast.Node) bool {
		ast.SetComments(n, nil)
		return true
	}, nil)
	b, err := format.Node(n, format.Simplify())
	if err != nil {
		return "?" // it was parsed: cannot happen
	}
	return strings.Join(strings.Fields(string(b)), " ")
}

// FieldChanges is how one set of definitions differs from another. Each list is
// sorted by path.
type FieldChanges struct {
	Added   []FieldChange `json:"added"`
	Removed []FieldChange `json:"removed"`
	Changed []FieldChange `json:"changed"`
}

// FieldChange is one field; Old or New is "" where there is none.
type FieldChange struct {
	Path string `json:"path"`
	Old  string `json:"old,omitempty"`
	New  string `json:"new,omitempty"`
}

// CompareFields compares two answers of Fields.
func CompareFields(old, now map[string]string) FieldChanges {
	out := FieldChanges{Added: []FieldChange{}, Removed: []FieldChange{}, Changed: []FieldChange{}}
	for _, path := range slices.Sorted(maps.Keys(now)) {
		was, ok := old[path]
		switch c := (FieldChange{Path: path, Old: was, New: now[path]}); {
		case !ok:
			out.Added = append(out.Added, c)
		case was != c.New:
			out.Changed = append(out.Changed, c)
		}
	}
	for _, path := range slices.Sorted(maps.Keys(old)) {
		if _, ok := now[path]; !ok {
			out.Removed = append(out.Removed, FieldChange{Path: path, Old: old[path]})
		}
	}
	return out
}
