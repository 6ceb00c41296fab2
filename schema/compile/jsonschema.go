package compile

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"

	"cuelang.org/go/cue/ast"
	"cuelang.org/go/cue/token"

	"github.com/musterhq/muster/schema"
	"github.com/musterhq/muster/schema/compile/lax"
	"github.com/musterhq/muster/schema/valid"
)

// JSONSchema returns a JSON Schema (draft 2020-12) of what a repository compiles
// to: the document that `muster render` prints. It is made of the rules of
// schema/valid, which bound the data, and of the definitions of schema/cue,
// which have its comments and patterns.
//
// It says all that one value can be judged by, with two exceptions: JSON Schema
// counts characters where the rules count bytes, so that a bound of a text may
// be too wide; and it knows nothing of what ties fields together, such as the
// port of a health check.
func JSONSchema() ([]byte, error) {
	g := &jsonSchema{defs: map[string]any{}}
	properties := map[string]any{}
	var required []string
	for _, f := range reflect.VisibleFields(reflect.TypeFor[schema.Objects]()) {
		key, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		kind := kindOfList(key)
		if kind == "" {
			return nil, fmt.Errorf("no kind has the list %q", key)
		}
		properties[key] = map[string]any{
			"type": "array", "items": g.object(kind), "description": fmt.Sprintf("All objects of kind %s, sorted.", kind),
		}
		if options != "omitempty" {
			required = append(required, key)
		}
	}
	doc := map[string]any{
		"$schema":     "https://json-schema.org/draft/2020-12/schema",
		"$id":         "https://github.com/musterhq/muster/schema/render.json",
		"title":       "what a muster config repository declares",
		"description": "The document that `muster render` prints: the objects of a repository by kind, with all defaults filled in.",
		"type":        "object", "properties": properties, "required": required, "additionalProperties": false,
		"$defs": g.defs,
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	err := e.Encode(doc)
	return b.Bytes(), err
}

// kindOfList returns the kind whose objects are in the list of this name.
func kindOfList(key string) schema.Kind {
	for _, k := range schema.Kinds() {
		if stem := string(k[:len(k)-1]); strings.HasPrefix(key, stem) {
			return k
		}
	}
	return ""
}

// jsonSchema gathers the schemas of definitions.
type jsonSchema struct{ defs map[string]any }

// object returns a reference to the schema of a kind's objects. Each has its
// key in the repository as its name.
func (g *jsonSchema) object(k schema.Kind) any {
	name := k.Definition()
	ref := g.value(valid.Of(k), ast.NewIdent(name))
	def, ok := g.defs[name[1:]].(map[string]any)
	if !ok {
		return ref
	}
	named := g.value(valid.NameRule(), ast.NewIdent("#Name"))
	named["description"] = "name is the key of the object in the repository."
	if fields, ok := def["properties"].(map[string]any); ok {
		fields["name"] = named
	}
	if required, ok := def["required"].([]string); ok {
		def["required"] = append([]string{"name"}, required...)
	} else {
		def["required"] = []string{"name"}
	}
	return ref
}

// timePattern is what a time of RFC 3339 looks like, of the years from 1970 in UTC, which
// by the clock of its zone may be the last day of 1969. It is a pattern and no format,
// since many validators know no formats.
const timePattern = `^(1969-12-31|(19[7-9][0-9]|[2-9][0-9]{3})-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01]))` +
	`T([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\.[0-9]+)?(Z|[-+]([01][0-9]|2[0-3]):[0-5][0-9])$`

// value returns the schema of what a rule accepts, which e defines in CUE.
func (g *jsonSchema) value(r *valid.Rule, e ast.Expr) map[string]any {
	name, isRef := e.(*ast.Ident)
	e = resolve(e)
	switch r.Type {
	case valid.Struct:
		if isRef {
			return g.reference(r, strings.TrimPrefix(name.Name, "#"), e)
		}
		return g.structure(r, e)
	case valid.Map:
		keys, elem := patternField(e)
		s := map[string]any{"type": "object", "additionalProperties": g.value(r.Elem, elem), "maxProperties": r.Max}
		names := map[string]any{}
		addPatterns(names, keys)
		s["propertyNames"] = names
		return s
	case valid.List:
		s := map[string]any{"type": "array", "items": g.value(r.Elem, element(e)), "minItems": r.Min, "maxItems": r.Max}
		if r.Unique {
			s["uniqueItems"] = true
		}
		return s
	case valid.Bool:
		if len(r.Words) > 0 {
			return map[string]any{"anyOf": []any{map[string]any{"type": "boolean"}, map[string]any{"type": "string", "enum": r.Words}}}
		}
		return map[string]any{"type": "boolean"}
	case valid.Int:
		return map[string]any{"type": "integer", "minimum": r.Min, "maximum": r.Max}
	case valid.Enum:
		return map[string]any{"type": "string", "enum": r.Words}
	case valid.Priority:
		names := map[string]any{"type": "string", "enum": r.Words}
		if r.Refers != "" {
			names = g.value(valid.NameRule(), ast.NewIdent("#Name"))
		}
		return map[string]any{"anyOf": []any{map[string]any{"type": "integer", "minimum": r.Min, "maximum": r.Max}, names}}
	case valid.Time:
		return map[string]any{"type": "string", "pattern": timePattern}
	case valid.Free:
		return map[string]any{"type": "object"}
	}
	s := map[string]any{"type": "string", "minLength": r.Min, "maxLength": r.Max}
	addPatterns(s, e)
	return s
}

// reference puts the schema of a definition among the others, once.
func (g *jsonSchema) reference(r *valid.Rule, name string, e ast.Expr) map[string]any {
	if _, ok := g.defs[name]; !ok {
		g.defs[name] = nil // taken
		s := g.structure(r, e)
		s["description"] = docOf(lax.Declared()["#"+name])
		g.defs[name] = s
	}
	return map[string]any{"$ref": "#/$defs/" + name}
}

func (g *jsonSchema) structure(r *valid.Rule, e ast.Expr) map[string]any {
	properties := map[string]any{}
	var required []string
	for _, f := range r.Fields {
		written := writtenAs(e, f.Name)
		s := g.value(f.Rule, written.Value)
		s["description"] = docOf(written)
		if f.Default != nil && f.DefaultBeside == nil { // else the description alone says it
			s["default"] = f.Default
		}
		if f.Required {
			required = append(required, f.Name)
		}
		properties[f.Name] = s
		if f.Former != "" { // releases before wrote it
			former := g.value(f.Rule, written.Value)
			former["description"], former["deprecated"] = docOf(writtenAs(e, f.Former)), true
			properties[f.Former] = former
		}
	}
	s := map[string]any{"type": "object", "properties": properties, "additionalProperties": false}
	if required != nil {
		s["required"] = required
	}
	return s
}

// resolve returns what a definition's name stands for.
func resolve(e ast.Expr) ast.Expr {
	if id, ok := e.(*ast.Ident); ok {
		if f, ok := lax.Declared()[id.Name]; ok {
			return f.Value
		}
	}
	return e
}

// writtenAs returns the field of a struct in the definitions. TestDrift sees to it
// that each rule has one.
func writtenAs(e ast.Expr, name string) *ast.Field {
	if s, ok := e.(*ast.StructLit); ok {
		for _, d := range s.Elts {
			if f, ok := d.(*ast.Field); ok && lax.Label(f) == name {
				return f
			}
		}
	}
	return &ast.Field{Label: ast.NewIdent(name), Value: ast.NewIdent("_")}
}

// patternField returns what a struct's keys and values must be.
func patternField(e ast.Expr) (keys, elem ast.Expr) {
	if s, ok := e.(*ast.StructLit); ok {
		for _, d := range s.Elts {
			if f, ok := d.(*ast.Field); ok {
				if l, ok := f.Label.(*ast.ListLit); ok && len(l.Elts) == 1 {
					return l.Elts[0], f.Value
				}
			}
		}
	}
	return ast.NewIdent("_"), ast.NewIdent("_")
}

// element returns what the elements of a list must be.
func element(e ast.Expr) ast.Expr {
	if l, ok := e.(*ast.ListLit); ok && len(l.Elts) > 0 {
		if more, ok := l.Elts[len(l.Elts)-1].(*ast.Ellipsis); ok && more.Type != nil {
			return more.Type
		}
	}
	return ast.NewIdent("_")
}

// addPatterns adds to the schema of a text the regular expressions that e
// demands and forbids.
func addPatterns(s map[string]any, e ast.Expr) {
	switch e := resolve(e).(type) {
	case *ast.BinaryExpr:
		if e.Op == token.AND {
			addPatterns(s, e.X)
			addPatterns(s, e.Y)
		}
	case *ast.ParenExpr:
		addPatterns(s, e.X)
	case *ast.UnaryExpr:
		lit, ok := e.X.(*ast.BasicLit)
		if !ok {
			return
		}
		var text string
		if err := json.Unmarshal([]byte(lit.Value), &text); err != nil {
			return // no plain text
		}
		switch e.Op {
		case token.MAT:
			s["pattern"] = ecma(text)
		case token.NMAT:
			s["not"] = map[string]any{"pattern": ecma(text)}
		}
	}
}

// ecma returns a regular expression of RE2 as one of ECMA 262 with the flag u, as
// validators read it: they agree on what the definitions use, but for brackets in a class,
// which are to be escaped.
func ecma(re2 string) string {
	var b strings.Builder
	class, first := false, false // within a class, and nothing of it seen
	for i := 0; i < len(re2); i++ {
		c := re2[i]
		switch {
		case c == '\\' && i+1 < len(re2):
			b.WriteByte(c)
			i++
			c, first = re2[i], false
		case !class:
			class, first = c == '[', c == '['
		case c == '^' && first && re2[i-1] == '[':
		case c == '[', c == ']' && first:
			b.WriteByte('\\')
			first = false
		default:
			class, first = c != ']', false
		}
		b.WriteByte(c)
	}
	return b.String()
}

// docOf returns the comment of a field or definition in one line.
func docOf(f *ast.Field) string {
	var parts []string
	for _, g := range ast.Comments(f) {
		if g.Doc {
			parts = append(parts, strings.Fields(g.Text())...)
		}
	}
	return strings.Join(parts, " ")
}
