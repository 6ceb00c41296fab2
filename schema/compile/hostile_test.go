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

// TestHostile compiles all hostile packages in one commit, each of which must
// be refused within its limits, together with a good one.
func TestHostile(t *testing.T) {
	t.Parallel()
	limits := compile.Limits{CPU: 500 * time.Millisecond, Wall: 5 * time.Minute, HeapBytes: 192 << 20}
	// The good one comes first, before the others have used up the patience.
	files := map[string]string{"0/a.cue": "package good\n\n" + fmt.Sprintf(runs, `"x"`)}
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
	ruled(t, out)
	for _, p := range out.Packages {
		switch {
		case p.Dir == "0":
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
			if d.Rule == schema.RuleInternal {
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
	want := "p/f0.cue:1:1: error limit\n\tthe directory has 100000 CUE files, more than 10000\n\thint: split it\n" +
		"good: 1 objects\n\tgood/a.cue:3:6: job local/a/web\np: no data\n"
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// TestHostilePaths gives trees with file names that no honest commit has.
func TestHostilePaths(t *testing.T) {
	t.Parallel()
	c := compiler(t, compile.Config{})
	for _, name := range []string{"../a.cue", "/etc/a.cue", "a//b.cue", "a/../b.cue", "./a.cue", "a\\b.cue", "a\nb.cue", "x\x1b[2K\rcell local/a.cue", "\xff.cue", "a:b/c.cue", strings.Repeat("d/", 100) + "a.cue"} {
		out, err := c.Compile(t.Context(), tree(map[string]string{name: "package p\n"}))
		if err != nil {
			t.Fatal(err)
		}
		ruled(t, out)
		bad := 0
		for _, p := range out.Packages {
			if p.Dir != compile.SchemaDir && p.Package == nil && len(p.Diagnostics) == 1 && p.Diagnostics[0].Severity == schema.Error {
				bad++
				if where := p.Dir + p.Diagnostics[0].Path; schema.Printable(where) != where {
					t.Errorf("%q is at %q", name, where)
				}
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
