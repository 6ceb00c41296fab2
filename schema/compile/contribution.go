package compile

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"slices"
	"strings"

	"cuelang.org/go/cue"
	"cuelang.org/go/cue/ast"

	"github.com/musterhq/muster/schema"
	"github.com/musterhq/muster/schema/compile/terms"
	"github.com/musterhq/muster/schema/valid"
)

// ErrNoField says that an object has no such field, set or by default.
var ErrNoField = errors.New("there is no such field")

// Role is what a place does to a value.
type Role string

// The roles.
const (
	Sets     Role = "sets"     // the value stands there
	Defaults Role = "defaults" // what the value is unless it is set
	Limit    Role = "limits"   // what the value may be
	Schema   Role = "schema"   // the default of the schema, which is nowhere in the repository
)

// Contribution is one place that a value comes from.
type Contribution struct {
	Role Role `json:"role"`
	// Position is the zero Position for Schema.
	schema.Position
	Text string `json:"text"` // what is written there, in one line, shortened
}

// FieldSource is a value of an object and where it comes from.
type FieldSource struct {
	Field  string         `json:"field"` // data path in the object
	Value  string         `json:"value"` // as JSON, shortened
	Places []Contribution `json:"places"`
}

// question asks a child for the sources of the fields of an object.
type question struct {
	Kind  schema.Kind `json:"kind"`
	Name  string      `json:"name"`
	Field string      `json:"field"` // "" for all
}

// Sources returns where the values of an object of a tree come from: of the field at a data
// path, or of all for "". It compiles the package of the object alone; the package must
// be free of errors. It errs with ErrNoField.
func (c *Compiler) Sources(ctx context.Context, tree schema.Tree, dir string, key schema.ObjectKey, field string) ([]FieldSource, error) {
	p, units, _ := plan(tree, c.known, c.cfg.Limits)
	at := slices.IndexFunc(units, func(u *unit) bool { return u.dir == dir && u.node != nil })
	if at < 0 {
		return nil, fmt.Errorf("package %s: does not compile", dir)
	}
	b := &batch{c: c, p: p, deaths: map[string]int{}}
	req, trouble := b.request(units[at])
	if trouble != nil {
		return nil, trouble
	}
	req.Ask = &question{Kind: key.Kind, Name: key.Declared(), Field: field}
	empty, err := os.MkdirTemp("", "muster-compile-")
	if err != nil {
		return nil, fmt.Errorf("make a directory for a compile child: %w", err)
	}
	defer func() { _ = os.Remove(empty) }()
	w, err := startWorker(ctx, c.cfg.Exe, c.cfg.Args, empty)
	if err != nil {
		return nil, err
	}
	resp, died, err := w.do(ctx, req)
	switch {
	case err != nil:
		return nil, err
	case died != nil:
		return nil, fmt.Errorf("package %s: %s", dir, died.why)
	}
	w.close()
	if len(resp.Diagnostics) > 0 {
		return nil, resp.Diagnostics[0]
	}
	if len(resp.Sources) == 0 {
		return nil, ErrNoField
	}
	return resp.Sources, nil
}

// answer finds the sources of a package that compiles.
func answer(req request, l *loaded) response {
	q := req.Ask
	x := &exporter{left: req.Limits.OutputBytes}
	top := []string{string(q.Kind), q.Name}
	data, _ := valid.Object(q.Kind, q.Name, x.plain(l.where.value(top), 0))
	var out []FieldSource
	var walk func(at []string, v any)
	walk = func(at []string, v any) {
		if m, ok := v.(map[string]any); ok && len(m) > 0 {
			for _, name := range sortedKeys(m) {
				walk(append(slices.Clone(at), name), m[name])
			}
			return
		}
		field := fieldPath(append(slices.Clone(top), at...))[len(fieldPath(top))+1:]
		if q.Field != "" && !within(field, q.Field) {
			return
		}
		out = append(out, FieldSource{Field: field, Value: terms.Clip(string(schema.Canonical(v))), Places: l.contributions(append(slices.Clone(top), at...))})
	}
	delete(data, "name")
	walk(nil, any(data))
	for i := range out {
		for j := range out[i].Places {
			out[i].Places[j].Path = whole(req, out[i].Places[j].Path)
		}
	}
	return response{Sources: out}
}

func sortedKeys(m map[string]any) []string {
	names := make([]string, 0, len(m))
	for name := range m {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// contributions returns the places of the value at a path: those of the package itself
// first, then those of what it imports, then those of the schema.
func (l *loaded) contributions(at []string) []Contribution {
	v := l.where.value(at)
	if !v.Exists() {
		return []Contribution{{Role: Schema, Text: "the default of the schema"}}
	}
	var out []Contribution
	for _, leaf := range leaves(v, 0) {
		c := contribution(leaf)
		if f, ok := l.where.index()[c.Position]; ok && c.Role == Limit {
			c.Text = terms.Clip(terms.Text(f.Value)) // all that is written there
		}
		same := func(o Contribution) bool { return o.Path == c.Path && o.Line == c.Line && o.Role == c.Role }
		if c.Path != "" && !slices.ContainsFunc(out, same) {
			out = append(out, c)
		}
	}
	if !slices.ContainsFunc(out, func(c Contribution) bool { return c.Role == Sets || c.Role == Defaults }) && !v.IsConcrete() {
		out = append(out, Contribution{Role: Schema, Text: "the default of the schema"})
	}
	rank := func(c Contribution) int {
		switch dir := path.Dir(c.Path); {
		case c.Path == "":
			return 3
		case dir == l.dir || !strings.HasSuffix(c.Path, ".cue"):
			return 0
		case dir == SchemaDir:
			return 2
		}
		return 1
	}
	slices.SortStableFunc(out, func(a, b Contribution) int { return rank(a) - rank(b) })
	return out
}

// leaves returns what a value is joined of.
func leaves(v cue.Value, depth int) []cue.Value {
	op, all := v.Expr()
	if op != cue.AndOp || depth > maxDepth {
		return []cue.Value{v}
	}
	var out []cue.Value
	for _, leaf := range all {
		out = append(out, leaves(leaf, depth+1)...)
	}
	return out
}

// contribution says what one of the places of a value does.
func contribution(leaf cue.Value) Contribution {
	c := Contribution{Role: Limit, Position: valueAt(leaf)}
	// A name stands for what is elsewhere: that is where somebody would change it.
	if target := cue.Dereference(leaf); target.Exists() {
		if pos := valueAt(target); pos.Path != "" {
			c.Position, leaf = pos, target
		}
	}
	switch src := leaf.Source().(type) {
	case *ast.Field:
		if src.Value != nil {
			c.Text = terms.Clip(terms.Text(src.Value))
		}
	case ast.Expr:
		c.Text = terms.Clip(terms.Text(src))
	}
	if c.Text == "" {
		c.Text = terms.Clip(strings.Join(strings.Fields(fmt.Sprint(leaf)), " "))
	}
	switch d, isDefault := leaf.Default(); {
	case isDefault && d.IsConcrete() && strings.Contains(c.Text, "*"):
		c.Role = Defaults
	case leaf.IsConcrete() && !isDefault:
		c.Role = Sets
	}
	return c
}
