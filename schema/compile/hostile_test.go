package compile_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/musterhq/muster/schema"
	"github.com/musterhq/muster/schema/compile"
)

// doubling makes n lines in which each value is built from two of the one
// before.
func doubling(n int, first, each string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "package p\n\n_a0: %s\n", first)
	for i := 1; i <= n; i++ {
		p := fmt.Sprintf("_a%d", i-1)
		fmt.Fprintf(&b, "_a%d: %s\n", i, strings.ReplaceAll(each, "P", p))
	}
	return b.String()
}

const runs = "job: web: {user: \"a\", cell: \"local\", task: process: command: [%s]}\n"

// hostile are packages that are to be feared, by directory. Each must end
// within the limits, with an error, and do no harm to the package beside it.
func hostile() map[string]map[string]string {
	one := func(s string) map[string]string { return map[string]string{"p.cue": s} }
	imports := "package p\n\nimport (\n\t\"list\"\n\t\"strings\"\n)\n\n_l: list\n_s: strings\n"
	return map[string]map[string]string{
		"laughs":       one(doubling(40, "\"ha\"", "[P, P]") + "job: web: labels: x: _a40\n"),
		"laughs-map":   one(doubling(30, "{x: \"ha\"}", "{a: P, b: P}") + "job: web: _a30\n"),
		"strings":      one(doubling(40, "\"haha\"", "\"\\(P)\\(P)\"") + fmt.Sprintf(runs, "_a40")),
		"range":        one(imports + "job: web: labels: x: list.Range(0, 1000000000, 1)\n"),
		"repeat":       one(imports + fmt.Sprintf(runs, "strings.Repeat(\"x\", 3000000000)")),
		"nested-for":   one(imports + "_r: list.Range(0, 3000, 1)\njob: {for a in _r for b in _r for c in _r if a*b*c == 7 {\"j-\\(a)-\\(b)-\\(c)\": {}}}\n"),
		"product":      one("package p\n\n_d: " + strings.Repeat("(1 | 2 | 3 | 4) + ", 16) + "1\njob: web: tasks: _d\n"),
		"disjunctions": one("package p\n\n" + disjunctions(14) + "job: web: _x\n"),
		"deep":         one("package p\n\njob: web: " + strings.Repeat("{a: ", 5000) + "1" + strings.Repeat("}", 5000) + "\n"),
		"deep-lists":   one("package p\n\njob: web: labels: x: " + strings.Repeat("[", 100000) + strings.Repeat("]", 100000) + "\n"),
		"parentheses":  one("package p\n\njob: web: tasks: " + strings.Repeat("(", 200000) + "1" + strings.Repeat(")", 200000) + "\n"),
		"operators":    one("package p\n\njob: web: tasks: " + strings.Repeat("1+", 200000) + "1\n"),
		"minus":        one("package p\n\njob: web: tasks: " + strings.Repeat("-", 200000) + "1\n"),
		"cycle":        one("package p\n\n#X: {n: #X}\njob: web: #X\n"),
		"infinite":     one("package p\n\n#F: {n: int, out: (#F & {\"n\": n + 1}).out}\njob: web: tasks: (#F & {n: 0}).out\n"),
		"long-string":  one("package p\n\n" + fmt.Sprintf(runs, "\""+strings.Repeat("x", 3<<20)+"\"")),
		"long-name":    one("package p\n\njob: \"" + strings.Repeat("x", 1<<20) + "\": {}\n"),
		"huge-file":    one("package p\n\n// " + strings.Repeat("x", 5<<20) + "\n"),
		"huge-number":  one("package p\n\njob: web: tasks: 1" + strings.Repeat("0", 100000) + "\n"),
		"exponent":     one("package p\n\njob: web: tasks: 1e100000\n"),
		"many-objects": one(imports + "for i in list.Range(0, 30000, 1) {cell: \"c\\(i)\": {}}\n"),
		"invalid-utf8": one("package p\n\njob: web: \xff\xfe\n"),
		"nul":          one("package p\n\njob: web: \x00\n"),
		"utf8-value":   one("package p\n\n" + fmt.Sprintf(runs, `'\xff\xfe'`)),
		"import-self":  one("package p\n\nimport \"example.com/config/import-self:p\"\n\n_x: p\n"),
		"embed-up":     one("@extern(embed)\n\npackage p\n\n_x: _ @embed(file=\"../../cue.mod/module.cue\",type=text)\n"),
		"embed-abs":    one("@extern(embed)\n\npackage p\n\n_x: _ @embed(file=\"/etc/passwd\",type=text)\n"),
		"remote":       one("package p\n\nimport \"github.com/evil/module@v1\"\n\n_x: module\n"),
		"exec":         one("package p\n\nimport \"tool/exec\"\n\n_x: exec.Run & {cmd: \"id\"}\njob: web: _x\n"),
	}
}

// disjunctions makes a product of n disjunctions of structs.
func disjunctions(n int) string {
	var b strings.Builder
	b.WriteString("_x: {}\n")
	for i := range n {
		fmt.Fprintf(&b, "_x: {a%d: 1, c?: int} | {a%d: 2, b%d: 3, c?: string} | {a%d: 3}\n", i, i, i, i)
	}
	return b.String()
}

// TestHostile compiles all hostile packages in one commit, each of which must
// be refused within its limits, together with a good one.
func TestHostile(t *testing.T) {
	t.Parallel()
	limits := compile.Limits{CPU: time.Second, Wall: 30 * time.Second, HeapBytes: 256 << 20}
	files := map[string]string{"good/a.cue": "package good\n\n" + fmt.Sprintf(runs, `"x"`)}
	dirs := hostile()
	for dir, h := range dirs {
		for name, s := range h {
			files[dir+"/"+name] = s
		}
	}
	stop := watchChildren(t)
	start := time.Now()
	out, err := compiler(t, compile.Config{Limits: limits}).Compile(t.Context(), tree(files))
	if err != nil {
		t.Fatal(err)
	}
	took := time.Since(start)
	for _, p := range out.Packages {
		switch {
		case p.Dir == "good":
			if p.Package == nil || len(p.Package.Objects.Jobs) != 1 {
				t.Errorf("the good package has no data: %v", p.Diagnostics)
			}
		case dirs[p.Dir] == nil:
		case len(p.Diagnostics) == 0 || p.Package != nil:
			t.Errorf("%s was taken", p.Dir)
		default:
			d := p.Diagnostics[0]
			if testing.Verbose() {
				t.Logf("%s: %.200s", p.Dir, d.Error())
			}
			if d.Path == "" || d.Line == 0 || d.Column == 0 || len(d.Error()) > 1000 {
				t.Errorf("%s: no position: %v", p.Dir, d)
			}
			if strings.Contains(d.Message, "unexpectedly") {
				t.Errorf("%s: not a cause that a user can act on: %v", p.Dir, d)
			}
		}
	}
	// Two at a time, each at most its processor time, on a machine that
	// others use too.
	if most := time.Duration(len(dirs)) * limits.Wall; took > most {
		t.Errorf("took %v, more than %v", took, most)
	}
	child, _ := stop()
	t.Logf("%d packages in %v, largest child %d MiB", len(dirs), took, child>>20)
}

// TestManyFiles compiles a directory of more files than a package may have.
func TestManyFiles(t *testing.T) {
	t.Parallel()
	files := map[string]string{"good/a.cue": "package good\n\n" + fmt.Sprintf(runs, `"x"`)}
	for i := range 100_000 {
		files[fmt.Sprintf("p/f%d.cue", i)] = "package p\n"
	}
	out, err := compiler(t, compile.Config{}).Compile(t.Context(), tree(files))
	if err != nil {
		t.Fatal(err)
	}
	got := show(out)
	want := "p/f0.cue:1:1: error\n\tthe directory has 100000 CUE files, more than 10000\n\thint: split it\n" +
		"good: 1 objects\n\tgood/a.cue:3:6: job local/a/web\np: no data\n"
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// TestHostilePaths gives trees with file names that no honest commit has.
func TestHostilePaths(t *testing.T) {
	t.Parallel()
	c := compiler(t, compile.Config{})
	for _, name := range []string{"../a.cue", "/etc/a.cue", "a//b.cue", "a/../b.cue", "./a.cue", "a\\b.cue", "a\nb.cue", "\xff.cue", "a:b/c.cue", strings.Repeat("d/", 100) + "a.cue"} {
		out, err := c.Compile(t.Context(), tree(map[string]string{name: "package p\n"}))
		if err != nil {
			t.Fatal(err)
		}
		bad := 0
		for _, p := range out.Packages {
			if p.Dir != compile.SchemaDir && p.Package == nil && len(p.Diagnostics) == 1 && p.Diagnostics[0].Severity == schema.Error {
				bad++
			}
		}
		if len(out.Packages) != 2 || bad != 1 || len(out.Diagnostics) > 0 {
			t.Errorf("%q: %+v", name, out.Packages)
		}
	}
	for _, name := range []string{"-a/b.cue", "a b/c.cue", "ä/b.cue", "a.b/c.cue", "%2e%2e/a.cue", "~/a.cue", "a'b/c.cue", "...x/a.cue"} {
		out, err := c.Compile(t.Context(), tree(map[string]string{name: "package p\n\ncell: local: {}\n"}))
		if err != nil {
			t.Fatal(err)
		}
		if d := compile.Diagnostics(out); len(d) > 0 && !strings.HasPrefix(name, ".") {
			t.Errorf("%q: %v", name, d)
		}
	}
}
