package cut_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"

	"github.com/musterhq/muster/schema/compile/cut"
)

// TestData leaves the part with the first word "GO" out of files: what is left has its place, and can be read.
func TestData(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		data    string
		element bool
		want    any
	}{
		"block list, first":   {"- GO: api\n  port: 1\n\n  # said of it\n  sub:\n    a: 1\n- name: web\n", true, list{fields{"name": "web"}}},
		"block list, last":    {"- name: web\n- GO: api\n  port: 1\n", true, list{fields{"name": "web"}}},
		"first field of it":   {"- GO: api\n  port: 1\n- name: web\n", false, list{fields{"port": 1}, fields{"name": "web"}}},
		"last field of it":    {"- name: api\n  GO: {a: 1}\n- name: web\n", false, list{fields{"name": "api"}, fields{"name": "web"}}},
		"list not indented":   {"rows:\n- name: web\n- GO: api\n  port: 1\nother: 2\n", true, fields{"rows": list{fields{"name": "web"}}, "other": 2}},
		"only one":            {"rows:\n- GO: api\nother: 2\n", true, fields{"rows": list{}, "other": 2}},
		"only one, indented":  {"rows:\n  - GO: api\n", true, fields{"rows": list{}}},
		"only field":          {"rows:\n  GO: api\nother: 2\n", false, fields{"rows": fields{}, "other": 2}},
		"list in a list":      {"- - GO: a\n    b: 1\n  - name: c\n- - name: d\n", true, list{list{fields{"name": "c"}}, list{fields{"name": "d"}}}},
		"text of lines":       {"rows:\n  GO: |\n    - a\n    b: c\n  next: 1\n", false, fields{"rows": fields{"next": 1}}},
		"text of many words":  {"GO: a\n  b\n  c\nnext: 1\n", false, fields{"next": 1}},
		"list that goes":      {"GO:\n- a\n- b\nnext: 1\n", false, fields{"next": 1}},
		"dash by itself":      {"- name: web\n-\n  # GO - on\n  GO: api\n  port: 1\n- name: db\n", true, list{fields{"name": "web"}, fields{"name": "db"}}},
		"anchor":              {"- &a\n  GO: api\n- name: db\n", true, list{fields{"name": "db"}}},
		"flow in a block":     {"rows:\n  - {name: web}\n  - {GO: api}\n", true, fields{"rows": list{fields{"name": "web"}}}},
		"flow":                {"rows: [{name: \"a]\"}, {GO: 'it''s, {'}, {name: c}]\n", true, fields{"rows": list{fields{"name": "a]"}, fields{"name": "c"}}}},
		"flow, last":          {"rows: [{name: a}, {GO: b}]\n", true, fields{"rows": list{fields{"name": "a"}}}},
		"flow, field":         {"rows: {GO: [1, 2], é: {a: 1}}\n", false, fields{"rows": fields{"é": fields{"a": 1}}}},
		"flow, behind others": {"rows: {é: {a: 1}, GO: don't}\n", false, fields{"rows": fields{"é": fields{"a": 1}}}},
		"JSON":                {"{\n\t\"rows\": [\n\t\t{\"name\": \"\\\"\"}, {\"GO\": 1}\n\t],\n\t\"b\": 1\n}\n", true, fields{"rows": list{fields{"name": `"`}}, "b": 1}},
		"JSON, field":         {"{\n\t\"GO\": {\"a\": [1]},\n\t\"b\": 1\n}\n", false, fields{"b": 1}},
		"document":            {"name: a\n---\nGO: b\n---\nname: c\n", true, list{fields{"name": "a"}, fields{"name": "c"}}},
		"document, first":     {"GO: a\n---\nname: b\n---\nname: c\n", true, list{fields{"name": "b"}, fields{"name": "c"}}},
		"document, last":      {"---\nname: a\n---\nname: b\n---\nGO: c\nd: e\n", true, list{fields{"name": "a"}, fields{"name": "b"}}},
		"several":             {"- name: a\n- GO: b\n  c: 1\n- GO: d\n", true, list{fields{"name": "a"}}},
		"all":                 {"rows:\n- GO: b\n  c: 1\n- GO: d\n", true, fields{"rows": list{}}},
		"several in flow":     {`[{"name": 1}, {"GO": 1}, {"GO": [2, {}]}]`, true, list{fields{"name": 1}}},
		"all in flow":         {`{"rows": [{"GO": 1}, {"GO": [2, {}]}]}`, true, fields{"rows": list{}}},
		"windows":             {"- GO: a\r\n  b: 1\r\n- name: c\r\n", true, list{fields{"name": "c"}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			at := placesOf(t, []byte(c.data), c.element)
			fields, elements := at, []cut.Place(nil)
			if c.element {
				fields, elements = nil, at
			}
			out, ok := cut.Data([]byte(c.data), fields, elements)
			if len(at) == 0 || !ok {
				t.Fatalf("is not found at %v in:\n%s", at, c.data)
			}
			if len(out) != len(c.data) {
				t.Fatalf("what stays moved:\n%s\n%s", c.data, out)
			}
			for i := range out {
				if out[i] != c.data[i] && !strings.ContainsRune(" []{}", rune(out[i])) {
					t.Fatalf("what stays is another at %d:\n%s\n%s", i, c.data, out)
				}
			}
			if diff := cmp.Diff(c.want, read(t, out)); diff != "" {
				t.Fatalf("%s\n%s", out, diff)
			}
		})
	}
}

type (
	fields = map[string]any
	list   = []any
)

// read returns the data of a file, as a list if it has several documents.
func read(t *testing.T, data []byte) any {
	t.Helper()
	var all list
	for d := yaml.NewDecoder(bytes.NewReader(data)); ; {
		var v any
		if err := d.Decode(&v); err != nil {
			if err.Error() != "EOF" {
				t.Fatalf("%v:\n%s", err, data)
			}
			break
		}
		all = append(all, v)
	}
	if len(all) == 1 {
		return all[0]
	}
	return all
}

// placesOf returns where the fields "GO" are, or the elements of lists or the documents that begin with one.
func placesOf(t *testing.T, data []byte, element bool) (out []cut.Place) {
	t.Helper()
	var find func(n *yaml.Node)
	find = func(n *yaml.Node) {
		for _, in := range n.Content {
			if n.Kind == yaml.MappingNode && in.Value == "GO" {
				at := in
				if element {
					at = n
				}
				out = append(out, cut.Place{Line: at.Line, Column: at.Column})
			}
			find(in)
		}
	}
	for d := yaml.NewDecoder(bytes.NewReader(data)); ; {
		var n yaml.Node
		if d.Decode(&n) != nil {
			return out
		}
		find(&n)
	}
}

func TestNotThere(t *testing.T) {
	t.Parallel()
	for _, data := range []string{"", "a: [", "- a: 1\n", "\t- x\n", "{"} {
		for line := range 3 {
			if out, ok := cut.Data([]byte(data), nil, []cut.Place{{Line: line, Column: 7}}); ok || string(out) != data {
				t.Errorf("of %q it left %q", data, out)
			}
		}
	}
}
