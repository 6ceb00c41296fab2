package policytext

import (
	"encoding/json"
	"slices"
	"strings"

	"cuelang.org/go/cue"
	"cuelang.org/go/cue/ast"
	cuejson "cuelang.org/go/encoding/json"

	"github.com/musterhq/muster/schema"
	"github.com/musterhq/muster/schema/valid"
)

// closedName is the definition that holds an object's data as a closed struct.
const closedName = "object"

// Object is an object that policies are joined with.
type Object struct {
	Data []byte // JSON

	kind    schema.Kind
	context *cue.Context
	known   map[string]Operands // by what was added
}

// Operands are an object's data as an open and as a closed struct.
type Operands struct{ Open, Closed cue.Value }

// NewObject returns an object of a kind whose data is valid. Its values are of the context.
func NewObject(context *cue.Context, kind schema.Kind, data []byte) *Object {
	return &Object{Data: data, kind: kind, context: context, known: map[string]Operands{}}
}

// With returns the data of an object with empty maps and lists at those of the paths where it has none; false if it has
// all of them.
func (j *Object) With(paths [][]string) (Operands, bool) {
	plain, err := valid.Parse(j.Data)
	if err != nil {
		return Operands{}, false // it is canonical
	}
	var added []string
	for _, path := range paths {
		if addEmpty(plain, valid.Of(j.kind), path) {
			added = append(added, strings.Join(path, "."))
		}
	}
	key := strings.Join(added, " ")
	if o, ok := j.known[key]; ok {
		return o, len(added) > 0
	}
	data, err := json.Marshal(plain)
	if err != nil {
		return Operands{}, false
	}
	expr, err := cuejson.Extract("", data)
	if err != nil {
		return Operands{}, false
	}
	whole := &ast.StructLit{Elts: []ast.Decl{&ast.Field{Label: ast.NewIdent("#" + closedName), Value: expr}}}
	o := Operands{j.context.BuildExpr(expr), j.context.BuildExpr(whole).LookupPath(cue.MakePath(cue.Def(closedName)))}
	j.known[key] = o
	return o, len(added) > 0
}

// addEmpty adds an empty map or list to data by a rule, if it is not there and what holds it is.
func addEmpty(data any, rule *valid.Rule, path []string) bool {
	in, ok := data.(map[string]any)
	if !ok || len(path) == 0 {
		return false
	}
	below, there := in[path[0]]
	rule = ruleOf(rule, path[0])
	switch {
	case len(path) > 1:
		return there && addEmpty(below, rule, path[1:])
	case there || rule == nil:
		return false
	case rule.Type == valid.Map:
		in[path[0]] = map[string]any{}
	default:
		in[path[0]] = []any{}
	}
	return true
}

// ruleOf returns the rule of what is called name in data by a rule; nil if that says nothing of it.
func ruleOf(rule *valid.Rule, name string) *valid.Rule {
	if f := rule.Field(name); f != nil {
		return f.Rule
	}
	if rule == nil {
		return nil
	}
	return rule.Elem
}

// Meets reports whether an object, joined with a policy, meets it: of alternatives that it meets there may be several.
func Meets(v cue.Value) bool { return meets(v, 0) }

func meets(v cue.Value, depth int) bool {
	if v.Validate(cue.Concrete(true)) == nil {
		return true
	}
	if depth > maxDepth {
		return false
	}
	if op, all := v.Eval().Expr(); op == cue.OrOp {
		return slices.ContainsFunc(all, func(v cue.Value) bool { return meets(v, depth+1) })
	}
	if v.Err() != nil {
		return false
	}
	switch v.IncompleteKind() {
	case cue.StructKind:
		it, err := v.Fields(cue.Hidden(true))
		for err == nil && it.Next() {
			if !meets(it.Value(), depth+1) {
				return false
			}
		}
		return err == nil
	case cue.ListKind:
		it, err := v.List()
		for err == nil && it.Next() {
			if !meets(it.Value(), depth+1) {
				return false
			}
		}
		return err == nil
	}
	return false
}
