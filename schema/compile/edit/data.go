package edit

import (
	"bytes"
	"encoding/json"
	"path"
	"strings"

	"cuelang.org/go/cue/ast"
	cuejson "cuelang.org/go/encoding/json"
	"cuelang.org/go/encoding/yaml"

	"github.com/musterhq/muster/schema"
	"github.com/musterhq/muster/schema/lazyregexp"
)

// replaceData replaces a value in a file of JSON or YAML. Where a scalar ends is a guess in
// YAML: the first that changes this value and nothing else is taken.
func replaceData(src []byte, at schema.Position, v Value) ([]byte, error) {
	before, err := leaves(at.Path, src)
	if err != nil {
		return nil, err
	}
	from, ok := offset(src, at)
	if !ok {
		return nil, schema.Hintf("change it there", "%s: there is no such place", at)
	}
	text, err := json.Marshal(v.Data)
	if err != nil {
		return nil, err
	}
	shared := src[from] == '&' || src[from] == '*'
	for _, s := range spans(src, from, path.Ext(at.Path) == ".json") {
		for _, form := range forms(string(src[s.from:s.to]), string(text), v.Data) {
			out := s.replace(src, form)
			after, err := leaves(at.Path, out)
			if err != nil {
				continue
			}
			n, ok := changed(before, after, v.Data)
			if ok && n <= 1 {
				return out, nil
			}
			shared = shared || ok
		}
	}
	if shared && path.Ext(at.Path) != ".json" {
		return nil, schema.Hintf("change it there, which changes the others too; or write the value out where it is to differ",
			"%s: other values may be this one too, by an anchor of YAML", at)
	}
	return nil, schema.Hintf("change it there", "%s: only a text, a number, true or false in one line can be set there", at)
}

// offset returns where a line and column are in a text.
func offset(src []byte, at schema.Position) (int, bool) {
	from := 0
	for range at.Line - 1 {
		next := bytes.IndexByte(src[from:], '\n')
		if next < 0 {
			return 0, false
		}
		from += next + 1
	}
	from += at.Column - 1
	return from, at.Line > 0 && at.Column > 0 && from < len(src)
}

// spans returns the pieces of a line that a value may be that begins at an offset.
func spans(src []byte, from int, isJSON bool) (out []span) {
	line := src[from:]
	if end := bytes.IndexByte(line, '\n'); end >= 0 && !isJSON {
		line = line[:end]
	}
	d := json.NewDecoder(bytes.NewReader(line))
	var raw json.RawMessage
	if err := d.Decode(&raw); err == nil {
		out = append(out, span{from, from + int(d.InputOffset())})
	}
	if isJSON {
		return out
	}
	if m := quotedYAML.Find(line); m != nil {
		return append(out, span{from, from + len(m)})
	}
	plain := strings.TrimRight(strings.SplitN(string(line), " #", 2)[0], " \t\r")
	out = append(out, span{from, from + len(plain)})
	if end := strings.IndexAny(plain, ",]}"); end > 0 { // within [ ] or { }
		out = append(out, span{from, from + len(strings.TrimRight(plain[:end], " \t"))})
	}
	return out
}

var quotedYAML = lazyregexp.New(`^('([^']|'')*'|"([^"\\]|\\.)*")`)

// forms returns how a value may be written in place of old: as old is, if that will do.
func forms(old, text string, v any) []string {
	s, isText := v.(string)
	switch {
	case !isText || strings.HasPrefix(old, `"`):
		return []string{text}
	case strings.HasPrefix(old, "'"):
		return []string{"'" + strings.ReplaceAll(s, "'", "''") + "'", text}
	case strings.ContainsAny(old, `"{[`) || strings.TrimSpace(s) != s:
		return []string{text}
	}
	return []string{s, text}
}

// leaf is a label or a value of a file.
type leaf struct {
	kind  string
	value string
}

// leaves returns what a file says, in its order.
func leaves(name string, src []byte) (out []leaf, err error) {
	var n ast.Node
	if path.Ext(name) == ".json" {
		n, err = cuejson.Extract(name, src)
	} else {
		n, err = yaml.Extract(name, src)
	}
	if err != nil {
		return nil, err
	}
	ast.Walk(n, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.Field:
			label, _, _ := ast.LabelName(n.Label)
			out = append(out, leaf{kind: "label", value: label})
			out = append(out, valueLeaves(n.Value)...)
			return false
		case ast.Expr:
			out = append(out, valueLeaves(n)...)
			return false
		case *ast.Comment:
			out = append(out, leaf{kind: "comment", value: n.Text})
		}
		return true
	}, nil)
	return out, nil
}

func valueLeaves(e ast.Expr) (out []leaf) {
	switch e := e.(type) {
	case *ast.StructLit:
		out = append(out, leaf{kind: "{"})
		for _, d := range e.Elts {
			if f, ok := d.(*ast.Field); ok {
				label, _, _ := ast.LabelName(f.Label)
				out = append(append(out, leaf{kind: "label", value: label}), valueLeaves(f.Value)...)
			}
		}
		return append(out, leaf{kind: "}"})
	case *ast.ListLit:
		out = append(out, leaf{kind: "["})
		for _, elem := range e.Elts {
			out = append(out, valueLeaves(elem)...)
		}
		return append(out, leaf{kind: "]"})
	}
	text := ""
	if b, err := formatNode(e); err == nil {
		text = b
	}
	return []leaf{{kind: "value", value: text}}
}

// changed returns how many values of a file differ from those that it had; false if anything else does, or if one is
// not v.
func changed(before, after []leaf, v any) (n int, ok bool) {
	want := string(schema.Canonical(v))
	if _, isList := v.([]any); isList || len(before) != len(after) {
		return 0, false
	}
	for i, b := range before {
		a := after[i]
		if b.kind == a.kind && b.value == a.value {
			continue
		}
		now, err := Literal(a.value)
		if n++; a.kind != "value" || err != nil || string(schema.Canonical(now.Data)) != want {
			return n, false
		}
	}
	return n, true
}
