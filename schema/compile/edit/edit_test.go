package edit

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/musterhq/muster/schema"
)

// TestInsert: where a field is put that is not set, of job web: ‹task.x› = 1.
func TestInsert(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		in, want string
		matched  int
	}{
		"braces":    {"job: web: {\n\ttasks: 2 // two\n\t// the end\n}\n", "job: web: {\n\ttasks: 2 // two\n\ttask: x: 1\n\t// the end\n}\n", 0},
		"deeper":    {"job: web: a.#B & {\n\ttask: {\n\t\ty: 2\n\n\t\t// z is z\n\t\tz: 3\n\t}\n}\n", "job: web: a.#B & {\n\ttask: {\n\t\ty: 2\n\n\t\t// z is z\n\t\tz: 3\n\t\tx: 1\n\t}\n}\n", 1},
		"one line":  {"job: web: {tasks: 2}\n", "job: web: {tasks: 2, task: x: 1}\n", 0},
		"empty":     {"job: {\n\tweb: {}\n}\n", "job: {\n\tweb: {task: x: 1}\n}\n", 0},
		"chain":     {"job: web: task: y: 2 // why\n\njob: api: tasks: 3\n", "job: web: task: y: 2 // why\njob: web: task: x: 1\n\njob: api: tasks: 3\n", 1},
		"short":     {"job: {web: task: y: 2, api: tasks: 3}\n", "job: {web: task: y: 2, web: task: x: 1, api: tasks: 3}\n", 1},
		"name only": {"job: web: lib.#Web\n", "job: web: lib.#Web & {task: x: 1}\n", 0},
		"open":      {"job: web: {\n\t...\n}\n", "job: web: {\n\ttask: x: 1\n\t...\n}\n", 0},
		"default":   {"job: web: task: x: *2 | int // two\n", "job: web: task: x: 1 // two\n", 2},
		"two":       {"job: web: user: \"a\"\n\njob: web: {\n\ttask: y: 2\n}\n", "job: web: user: \"a\"\n\njob: web: {\n\ttask: y: 2\n\ttask: x: 1\n}\n", 1},
		"no format": {"job:   web: {\n  tasks:   2\n  }\n", "job:   web: {\n  tasks:   2\n  task: x: 1\n  }\n", 0},
		"text":      {"job: web: {\n\ta: \"\"\"\n\t\tone\n\t\t}\n\t\t\"\"\"\n}\n", "job: web: {\n\ta: \"\"\"\n\t\tone\n\t\t}\n\t\t\"\"\"\n\ttask: x: 1\n}\n", 0},
		"quoted":    {"job: \"web\": {\n\t\"task\": {y: 2}\n}\n", "job: \"web\": {\n\t\"task\": {y: 2, x: 1}\n}\n", 1},
		"no line":   {"job: web: task: y: 2", "job: web: task: y: 2\njob: web: task: x: 1\n", 1},
		"computed":  {"job: web: task: x: _n\n", "", -1},
		"elsewhere": {"job: api: tasks: 1\n", "", -1},
		"rows":      {"for k, v in rows {job: (k): tasks: v}\n", "", -1},
	} {
		got, matched, err := Insert("a.cue", []byte(tt.in), []string{"job", "web"}, []string{"task", "x"}, Value{Data: 1, CUE: "1"})
		if diff := cmp.Diff(tt.want, string(got)); diff != "" || err != nil || matched != tt.matched {
			t.Errorf("%s: matched %d, %v (-want +got):\n%s", name, matched, err, diff)
		}
	}
}

// TestReplace: the value at ‹ is replaced by 5, or by "it's" where there is a text.
func TestReplace(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ file, in, want string }{
		"number":       {"a.cue", "a: ‹3 // three\nbcd: 4\n", "a: 5 // three\nbcd: 4\n"},
		"format":       {"a.cue", "{\n\ta:   ‹3 // three\n\tbcd: 4 // four\n}\n", "{\n\ta:   5 // three\n\tbcd: 4 // four\n}\n"},
		"aligned":      {"a.cue", "a:   ‹333 // three\nbcd: 4   // four\n", "a:   5 // three\nbcd: 4 // four\n"},
		"joined":       {"a.cue", "a: ‹int & 3\n", "a: int & 5\n"},
		"arithmetic":   {"a.cue", "a: ‹3 * 2\n", "a: 5\n"},
		"two texts":    {"a.cue", "a: ‹\"x\" + \"y\"\n", "a: \"it's\"\n"},
		"a name in it": {"a.cue", "_Mi: 2\na: ‹64 * _Mi\n", ""},
		"list":         {"a.cue", "a: ‹[1, 2]\n", "a: 5\n"},
		"comment lost": {"a.cue", "a: ‹[\n\t1, // one\n]\n", ""},
		"computed":     {"a.cue", "a: ‹b + 1\nb: 1\n", ""},
		"alternatives": {"a.cue", "a: ‹*1 | 2\n", ""},
		"nothing":      {"a.cue", "a: 1‹\n", ""},
		"text":         {"a.cue", "a: ‹\"x\"\n", "a: \"it's\"\n"},
		"texts":        {"a.cue", "a: ‹\"\"\"\n\tx\n\t\"\"\"\n", "a: \"it's\"\n"},
		"json":         {"a.json", "{\"a\":  ‹3, \"b\": [4 ]}", "{\"a\":  5, \"b\": [4 ]}"},
		"json text":    {"a.json", "{\"a\":  ‹\"x\\\"\", \"b\": 4}", "{\"a\":  \"it's\", \"b\": 4}"},
		"yaml":         {"a.yaml", "# all\na: ‹3   # three\nb: {c: 4}\n", "# all\na: 5   # three\nb: {c: 4}\n"},
		"yaml flow":    {"a.yaml", "b: {c: ‹4, d: 5}\n", "b: {c: 5, d: 5}\n"},
		"yaml plain":   {"a.yaml", "a: ‹x y # z\n", "a: it's # z\n"},
		"yaml single":  {"a.yml", "a: ‹'x''y' # z\n", "a: 'it''s' # z\n"},
		"yaml double":  {"a.yaml", "a: ‹\"x # y\" # z\n", "a: \"it's\" # z\n"},
		"yaml block":   {"a.yaml", "a: ‹|\n  x\n", ""},
		"yaml anchor":  {"a.yaml", "a: &x ‹3\nb: *x\n", ""},
		"toml":         {"a.toml", "a = ‹3\n", ""},
	} {
		v := Value{Data: 5, CUE: "5"}
		before, _, _ := strings.Cut(tt.in, "‹")
		if strings.Contains(name, "text") || strings.Contains(tt.in, "‹x") || strings.Contains(tt.in, "‹'") || strings.Contains(tt.in, "‹\"") {
			v = Text("it's")
		}
		line := before[strings.LastIndex(before, "\n")+1:]
		at := schema.Position{Path: tt.file, Line: 1 + strings.Count(before, "\n"), Column: 1 + len(line)}
		got, err := Replace([]byte(strings.Replace(tt.in, "‹", "", 1)), at, v)
		if diff := cmp.Diff(tt.want, string(got)); diff != "" || (err == nil) != (tt.want != "") {
			t.Errorf("%s: %v (-want +got):\n%s", name, err, diff)
		}
	}
}

// TestAnchors: what other values are, too, by an anchor of YAML is left, and the message says so.
func TestAnchors(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		in     string
		line   int
		column int
		shared bool
	}{
		"anchor":  {"a: &x 3\nb: *x\n", 1, 7, true},
		"at it":   {"a: &x 3\nb: *x\n", 1, 4, true},
		"merged":  {"a: &x\n  c: 3 # three\nb:\n  <<: *x\n", 2, 6, true},
		"another": {"a: &x 3\nb: *x\nc: |\n  y\n", 3, 4, false},
	} {
		_, err := Replace([]byte(tt.in), schema.Position{Path: "a.yaml", Line: tt.line, Column: tt.column}, Value{Data: 5, CUE: "5"})
		if err == nil || strings.Contains(err.Error(), "anchor") != tt.shared {
			t.Errorf("%s: %v", name, err)
		}
	}
	out, err := Replace([]byte("a: &x 3\nb: *x # b\n"), schema.Position{Path: "a.yaml", Line: 2, Column: 4}, Value{Data: 5, CUE: "5"})
	if want := "a: &x 3\nb: 5 # b\n"; err != nil || string(out) != want {
		t.Errorf("an alias became %q, %v, want %q", out, err, want)
	}
}

// TestYAMLText: a text stays one, whatever it looks like.
func TestYAMLText(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{"1.10": `"1.10"`, "true": `"true"`, "1.7.0": "1.7.0", "a: b": `"a: b"`, " x": `" x"`, "": `""`, "~": `"~"`, "x # y": `"x # y"`, "- a": `"- a"`, "a]": "a]"} {
		got, err := Replace([]byte("a: old # why\nb: 1\n"), schema.Position{Path: "a.yaml", Line: 1, Column: 4}, Text(text))
		if wanted := "a: " + want + " # why\nb: 1\n"; err != nil || string(got) != wanted {
			t.Errorf("%q: %v, %q, want %q", text, err, got, wanted)
		}
	}
}

func TestLiteral(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{"3": "3", "64Mi": "67108864", "-1": "-1", "true": "true", `"a"`: `"a"`, `["a", 1]`: `["a",1]`, "0.5": "0.5"} {
		if v, err := Literal(text); err != nil || string(schema.Canonical(v.Data)) != want {
			t.Errorf("%s: %v, %v", text, v, err)
		}
	}
	for _, text := range []string{"", "x", "{a: 1}", "null", "1 + 1", "[for x in [1] {x}]", "len(\"a\")", `"\(1)"`, "'a'", "int", "]", "1\na: 2"} {
		if v, err := Literal(text); err == nil {
			t.Errorf("%s: %v", text, v)
		}
	}
}

// FuzzReplace: whatever the file, it is changed in this place or not at all.
func FuzzReplace(f *testing.F) {
	for _, src := range []string{"a: 3 // b\n", "a: {b: [1, \"x\"]}", "a: |\n  x\nb: 'y'\n", "{\"a\": [true, null]}"} {
		f.Add(src, 1, 4, uint8(0))
		f.Add(src, 1, 6, uint8(1))
	}
	f.Fuzz(func(t *testing.T, src string, line, column int, kind uint8) {
		name := []string{"a.cue", "a.json", "a.yaml"}[kind%3]
		out, err := Replace([]byte(src), schema.Position{Path: name, Line: line, Column: column}, Value{Data: 5, CUE: "5"})
		if err != nil {
			return
		}
		if name == "a.cue" {
			if lost, err := lostComment([]byte(src), out); err != nil || lost != "" {
				t.Errorf("%q became %q: %v, lost %q", src, out, err, lost)
			}
			return
		}
		before, _ := leaves(name, []byte(src))
		after, err := leaves(name, out)
		if n, ok := changed(before, after, 5); err != nil || !ok || n > 1 {
			t.Errorf("%q became %q: %v", src, out, err)
		}
	})
}

// TestRename: from is to now, in the field in; what stays is marked with ‹.
func TestRename(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ in, want string }{
		"struct":        {"in: {\n\tfrom: 1 // one\n\tb:    2\n}\n", "in: {\n\tto: 1 // one\n\tb:  2\n}\n"},
		"chain":         {"job: a: in: from: 1\n", "job: a: in: to: 1\n"},
		"quoted":        {"in: \"from\": 1\n", "in: \"to\": 1\n"},
		"constraint":    {"in: {from?: int, from!: int}\n", "in: {to?: int, to!: int}\n"},
		"joined":        {"in: #A & {from: 1}\n", "in: #A & {to: 1}\n"},
		"embedded":      {"in: {#A, {from: 1}}\n", "in: {#A, {to: 1}}\n"},
		"condition":     {"in: {if x {from: 1}}\nx: true\n", "in: {if x {to: 1}}\nx: true\n"},
		"reference":     {"in: {from: 1, c: from + 1}\n", "in: {to: 1, c: to + 1}\n"},
		"selected":      {"in: from: 1\nx: in.from\ny: a.in.from\nz: a[\"in\"][\"from\"]\n", "in: to: 1\nx: in.to\ny: a.in.to\nz: a[\"in\"][\"to\"]\n"},
		"interpolation": {"in: from: 1\nx: \"\\(in.from) s\"\n", "in: to: 1\nx: \"\\(in.to) s\"\n"},
		"alias":         {"in: X=from: 1\n", "in: X=to: 1\n"},
		"no format":     {"in:   {from:1}\n", "in:   {to:1}\n"},
		"another":       {"rows: a: ‹from: 1\nx: rows.a.‹from\n", "rows: a: from: 1\nx: rows.a.from\n"},
		"hidden":        {"in: {_from: 1, #from: 2}\n", "in: {_from: 1, #from: 2}\n"},
		"text":          {"in: x: \"from\" // from\n", "in: x: \"from\" // from\n"},
		"certain":       {"rows: {\n\t«from: 1\n}\n", "rows: {\n\tto: 1\n}\n"},
		"list":          {"in: [{‹from: 1}]\n", "in: [{from: 1}]\n"},
	} {
		src := strings.NewReplacer("‹", "", "«", "").Replace(tt.in)
		known := schema.Position{Path: "a.cue", Line: 2, Column: 2}
		got, left, err := Rename("a.cue", []byte(src), []Name{{In: "in", From: "from", To: "to"}}, func(at schema.Position) bool {
			return at == known && strings.Contains(tt.in, "«")
		})
		if diff := cmp.Diff(tt.want, string(got)); diff != "" || err != nil {
			t.Errorf("%s: %v (-want +got):\n%s", name, err, diff)
		}
		var marked []schema.Position
		for i, line := range strings.Split(tt.in, "\n") {
			if at := strings.Index(line, "‹"); at >= 0 {
				marked = append(marked, schema.Position{Path: "a.cue", Line: i + 1, Column: at + 1})
			}
		}
		if diff := cmp.Diff(marked, left); diff != "" {
			t.Errorf("%s: what stays (-want +got):\n%s", name, diff)
		}
	}
	if _, _, err := Rename("a.cue", []byte("in: {"), nil, nil); err == nil {
		t.Error("what cannot be parsed was changed")
	}
}
