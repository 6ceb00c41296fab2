package compile_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/musterhq/muster/schema/compile"
)

// TestHostileModule gives module files that no honest repository has: what is
// wrong is said at its place, and nothing is fetched.
func TestHostileModule(t *testing.T) {
	t.Parallel()
	c := compiler(t, compile.Config{})
	for _, test := range []struct{ module, want string }{
		{"", `1:1: the file has no module path`},
		{"module: \"example.com/config@v0\"\n", `1:1: invalid module file: `},
		{"module: \"example.com/config@v0\"\nlanguage: version: \"v0.99.0\"\n", `version`},
		{"module: \"example.com/config@v0\"\nlanguage: version: \"latest\"\n", `version`},
		{"module: \"nodomain\"\nlanguage: version: \"v0.17.0\"\n", `1:`},
		{"module: \"../../etc@v0\"\nlanguage: version: \"v0.17.0\"\n", `1:`},
		{"module: 7\nlanguage: version: \"v0.17.0\"\n", `1:9: invalid module file: `},
		{"module: {\n", `invalid module file: `},
		{"import \"list\"\nmodule: \"example.com/config@v0\"\n", `invalid module file: `},
		{"module: \"example.com/\\(1+1)@v0\"\nlanguage: version: \"v0.17.0\"\n", `invalid module file: `},
		{"module: \"\xff\"\n", `1:10: the file is not valid UTF-8`},
		{"module: \"a\x00b\"\n", `1:`},
		{"// " + strings.Repeat("x", 5<<20), `1:1: the file has`},
		{strings.Repeat("{", 100_000), `invalid module file: `},
		{strings.Repeat("a: ", 100_000), `invalid module file: `},
	} {
		out, err := c.Compile(t.Context(), tree(map[string]string{"cue.mod/module.cue": test.module, "a/a.cue": "package a\n"}))
		if err != nil {
			t.Fatal(err)
		}
		if len(out.Packages) > 0 || len(out.Diagnostics) != 1 {
			t.Errorf("%.60q: %d packages, diagnostics %v", test.module, len(out.Packages), out.Diagnostics)
			continue
		}
		d := out.Diagnostics[0]
		if d.Path != "cue.mod/module.cue" || d.Line < 1 || d.Column < 1 || !strings.Contains(d.Error(), strings.TrimPrefix(test.want, "1:1: the file has no module path")) {
			t.Errorf("%.60q: %v, want %s", test.module, d, test.want)
		}
	}
	// Dependencies are declared as other tools do it, and not fetched.
	deps := module + "deps: \"github.com/evil/module@v1\": v: \"v1.0.0\"\nsource: kind: \"git\"\n"
	out, err := c.Compile(t.Context(), tree(map[string]string{
		"cue.mod/module.cue": deps, "good/a.cue": "package good\n\n" + fmt.Sprintf(runs, `"x"`),
		"bad/a.cue": "package bad\n\nimport \"github.com/evil/module@v1\"\n\n_x: module\n",
	}))
	if err != nil {
		t.Fatal(err)
	}
	want := `bad/a.cue:3:8: error import
	cannot find package "github.com/evil/module@v1": it is not in this repository, and no other packages are downloaded
	want a path such as "example.com/config/muster"
	hint: muster vendor URL@VERSION brings its module into this repository
bad: no data
good: 1 objects
	good/a.cue:3:6: job local/a/web
`
	if diff := cmp.Diff(want, show(out)); diff != "" {
		t.Error(diff)
	}
}

// TestPlaces compiles what lies where CUE, or a tool, would look otherwise.
func TestPlaces(t *testing.T) {
	t.Parallel()
	good := "package good\n\n" + fmt.Sprintf(runs, `"x"`)
	const evil = "package good\n\njob: evil: {user: \"a\", cell: \"local\", task: process: command: [\"x\"]}\n"
	const onlyGood = "good: 1 objects\n\tgood/a.cue:3:6: job local/a/web\n"
	for _, test := range []struct {
		name  string
		files map[string]string
		want  string
	}{
		{"files for tools and tests", map[string]string{"good/x_tool.cue": evil, "good/x_test.cue": evil + "!!!", "good/_x.cue": evil, "good/.x.cue": evil}, onlyGood},
		{"hidden directories", map[string]string{".git/x.cue": evil, "_lib/x.cue": evil, "good/.cache/x.cue": evil}, onlyGood},
		{"other files", map[string]string{"good/x.json": "{", "good/x.yaml": "\t", "good/x.CUE": evil, "good/x.cue.orig": evil}, onlyGood},
		{"names for other systems", map[string]string{"con/aux.cue": "package con\n", "nul.cue": "package config\n", "a./b.cue": "package a\n", "-rf/-x.cue": "package x\n"}, onlyGood},
		{"a vendored package", map[string]string{
			"cue.mod/pkg/github.com/x/y/y.cue": "package y\n\n#Y: 1\n", "cue.mod/gen/z/z.cue": "package z\n", "cue.mod/usr/z/z.cue": "package z\n",
			"v/v.cue": "package v\n\nimport \"github.com/x/y\"\n\n_y: y.#Y\n",
		}, "v/v.cue:3:8: error import\n\tcannot find package \"github.com/x/y\": it is in cue.mod/pkg, and cue.mod/vendor.json does not list it\n\twant a path such as \"example.com/config/muster\"\n" +
			"\thint: muster vendor DIR, or muster vendor URL@VERSION\n" + onlyGood + "v: no data\n"},
		{"a byte order mark", map[string]string{"b/b.cue": "\ufeffpackage b\r\n\r\njob: api: {user: \"a\", cell: \"local\", task: process: command: [\"x\"]}\r\n"}, "b: 1 objects\n\tb/b.cue:3:6: job local/a/api\n" + onlyGood},
		{"case", map[string]string{"Good/a.cue": "package good\n", "x/A.cue": "package x\n", "x/a.cue": "package x\n"}, "good/a.cue:1:1: warning repository\n\tthe names Good and good differ only in case: some systems cannot hold both\n\thint: rename one of them\n" +
			"x/a.cue:1:1: warning repository\n\tthe names A.cue and a.cue differ only in case: some systems cannot hold both\n\thint: rename one of them\n" + onlyGood},
		{"a standard name", map[string]string{"strings/strings.cue": "package strings\n", "s/s.cue": "package s\n\nimport \"strings\"\n\n_s: strings.ToUpper(\"x\")\n"}, onlyGood},
		{"an import one directory too short", map[string]string{"lib/std/std.cue": "package std\n", "s/s.cue": "package s\n\nimport \"example.com/config/std\"\n\n_s: std\n"}, `s/s.cue:3:8: error import
	cannot find package "example.com/config/std": the repository has no CUE files in std
	want a directory with CUE files
	hint: did you mean "example.com/config/lib/std"?
` + onlyGood + "s: no data\n"},
		{"an import of another module path", map[string]string{"s/s.cue": "package s\n\nimport \"example.org/config/muster\"\n\n_s: muster\n"}, `s/s.cue:3:8: error import
	cannot find package "example.org/config/muster": it is not in this repository, and no other packages are downloaded
	want a path such as "example.com/config/muster"
	hint: did you mean "example.com/config/muster"?
` + onlyGood + "s: no data\n"},
		{"an import without the module", map[string]string{"s/s.cue": "package s\n\nimport \"muster\"\n\n_s: muster\n"}, `s/s.cue:3:8: error import
	cannot find package "muster": CUE's standard library does not have it
	want a path such as "example.com/config/muster"
	hint: did you mean "example.com/config/muster"?
` + onlyGood + "s: no data\n"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			test.files["good/a.cue"] = good
			out, err := compiler(t, compile.Config{}).Compile(t.Context(), tree(test.files))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, show(out)); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
		})
	}
}

// TestWeb compiles packages that import one another in every way there is: the
// plan of a tree must not take longer than its size allows.
func TestWeb(t *testing.T) {
	t.Parallel()
	const n = 600
	files := map[string]string{"good/a.cue": "package good\n\n" + fmt.Sprintf(runs, `"x"`)}
	for i := range n {
		var all, next strings.Builder
		fmt.Fprintf(&all, "package w\n\nimport (\n")
		for j := range n {
			fmt.Fprintf(&all, "\tx%d \"example.com/config/web/%d:w\"\n", j, j)
		}
		files[fmt.Sprintf("web/%d/w.cue", i)] = all.String() + ")\n"
		fmt.Fprintf(&next, "package c\n\nimport x \"example.com/config/chain/%d:c\"\n\n#N: x.#N\n", (i+1)%n)
		files[fmt.Sprintf("chain/%d/c.cue", i)] = next.String()
	}
	out, err := compiler(t, compile.Config{}).Compile(t.Context(), tree(files))
	if err != nil {
		t.Fatal(err)
	}
	bad := 0
	for _, p := range out.Packages {
		if len(p.Diagnostics) == 1 && strings.Contains(p.Diagnostics[0].Message, "packages import each other: ") {
			bad++
		} else if p.Package == nil {
			t.Fatalf("%s: %v", p.Dir, p.Diagnostics)
		}
	}
	if bad != 2*n {
		t.Errorf("%d packages are in a cycle, want %d", bad, 2*n)
	}
}
