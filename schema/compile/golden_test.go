package compile_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"

	"github.com/musterhq/muster/schema"
	"github.com/musterhq/muster/schema/compile"
	schemacue "github.com/musterhq/muster/schema/cue"
	"github.com/musterhq/muster/schema/valid"
)

var update = flag.Bool("update", false, "rewrite the golden files")

const module = "module: \"example.com/config@v0\"\nlanguage: version: \"v0.17.0\"\n"

// tree makes a repository of files, with a module and the definitions unless
// they are among them.
func tree(files map[string]string) schema.Tree {
	all := map[string]string{"cue.mod/module.cue": module}
	for name, b := range schemacue.Files() {
		all[compile.SchemaDir+"/"+name] = string(b)
	}
	for name, s := range files {
		all[name] = s
	}
	t := schema.Tree{Commit: "0123", Files: map[string]schema.File{}}
	for name, s := range all {
		t.Files[name] = schema.File{Hash: string(schema.DigestBytes([]byte(s))), Data: []byte(s)}
	}
	return t
}

func compiler(t testing.TB, cfg compile.Config) *compile.Compiler {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cfg.Exe, cfg.Args = exe, []string{childArg}
	return compile.New(cfg)
}

// idling returns a compiler for one small tree after the other, as a master has it: a child
// that has nothing to do waits for the next, since to start one takes longer than to compile.
func idling(t testing.TB) *compile.Compiler {
	t.Helper()
	c := compiler(t, compile.Config{Idle: time.Minute})
	t.Cleanup(c.Close)
	return c
}

// show writes what a commit compiled to as a golden can hold it.
func show(c schema.Compiled) string {
	var b strings.Builder
	for _, d := range append(compile.Diagnostics(c), unresolved(c)...) {
		fmt.Fprintf(&b, "%s: %s %s\n\t%s\n", d.Position, d.Severity, d.Rule, strings.TrimPrefix(d.Field+": "+d.Message, ": "))
		if d.Expected != "" {
			fmt.Fprintf(&b, "\twant %s\n", d.Expected)
		}
		if d.Hint != "" {
			fmt.Fprintf(&b, "\thint: %s\n", d.Hint)
		}
	}
	for _, p := range c.Packages {
		if p.Package == nil {
			fmt.Fprintf(&b, "%s: no data\n", p.Dir)
			continue
		}
		if len(p.Package.Origins) == 0 {
			continue
		}
		fmt.Fprintf(&b, "%s: %d objects\n", p.Dir, len(p.Package.Origins))
		for _, key := range slices.SortedFunc(maps.Keys(p.Package.Origins), func(a, b schema.ObjectKey) int { return strings.Compare(a.String(), b.String()) }) {
			fmt.Fprintf(&b, "\t%s: %s\n", p.Package.Origins[key], key)
		}
	}
	return b.String()
}

// ruled checks that each diagnostic of a commit is of a rule that there is.
func ruled(t *testing.T, c schema.Compiled) {
	t.Helper()
	for _, d := range append(compile.Diagnostics(c), unresolved(c)...) {
		if !slices.ContainsFunc(schema.Rules(), func(r schema.RuleText) bool { return r.Rule == d.Rule }) {
			t.Errorf("%s is of rule %q", d.Error(), d.Rule)
		}
	}
}

// unresolved returns what is wrong with the names between a commit's packages.
func unresolved(c schema.Compiled) []schema.Diagnostic {
	var packages []*schema.Package
	for _, p := range c.Packages {
		if p.Package != nil {
			packages = append(packages, p.Package)
		}
	}
	var out []schema.Diagnostic
	names := valid.NamesOf(packages)
	for _, p := range packages {
		_, wrong := names.Resolve(p)
		for _, ds := range wrong {
			out = append(out, ds...)
		}
	}
	slices.SortFunc(out, schema.Diagnostic.Compare)
	return out
}

// TestGolden compiles each repository of testdata and compares diagnostics and,
// for those in testdata/good, the data.
func TestGolden(t *testing.T) {
	t.Parallel()
	c := idling(t)
	files, err := filepath.Glob("testdata/*/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no goldens: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			ar, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			in := map[string]string{}
			kept := &txtar.Archive{Comment: ar.Comment}
			want := map[string]string{}
			for _, f := range ar.Files {
				if f.Name == "want" || f.Name == "data" {
					want[f.Name] = string(f.Data)
					continue
				}
				in[f.Name] = string(f.Data)
				kept.Files = append(kept.Files, f)
			}
			out, err := c.Compile(t.Context(), tree(in))
			if err != nil {
				t.Fatal(err)
			}
			ruled(t, out)
			got := map[string]string{"want": show(out)}
			if strings.HasPrefix(file, "testdata/good/") {
				var b bytes.Buffer
				if err := json.Indent(&b, schema.Canonical(compile.Merge(out)), "", "  "); err != nil {
					t.Fatal(err)
				}
				got["data"] = b.String() + "\n"
			}
			if *update {
				for _, name := range []string{"want", "data"} {
					if s, ok := got[name]; ok {
						kept.Files = append(kept.Files, txtar.File{Name: name, Data: []byte(s)})
					}
				}
				if err := os.WriteFile(file, txtar.Format(kept), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s (rewrite with -update): -want +got\n%s", file, diff)
			}
		})
	}
}
