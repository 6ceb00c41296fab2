package compile_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"golang.org/x/tools/txtar"

	"github.com/musterhq/muster/schema"
	"github.com/musterhq/muster/schema/compile"
)

// FuzzCompile compiles any text as a file beside a good package, in a child:
// Compile never errs, the good package keeps its data, and every diagnostic has
// a position and can be shown.
func FuzzCompile(f *testing.F) {
	files, err := filepath.Glob("testdata/*/*.txtar")
	if err != nil {
		f.Fatal(err)
	}
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		for _, part := range txtar.Parse(b).Files {
			if strings.HasPrefix(part.Name, "teams/a/") {
				f.Add("teams/a/a.cue", string(part.Data))
			}
		}
	}
	for _, part := range []map[string]map[string]string{nested(), texts(), imported(), embedding()} {
		for _, h := range part {
			if text, ok := h["p.cue"]; ok && len(text) < 2000 {
				f.Add("teams/a/a.cue", text)
			}
		}
	}
	c := compiler(f, compile.Config{Limits: compile.Limits{CPU: time.Second, Wall: 20 * time.Second, HeapBytes: 256 << 20}})
	good := "package good\n\ncell: local: {}\n"
	f.Fuzz(func(t *testing.T, name, text string) {
		if name == "good/good.cue" || strings.HasPrefix(name, "cue.mod/") || strings.HasPrefix(name, compile.SchemaDir+"/") || name == "good" {
			return
		}
		out, err := c.Compile(t.Context(), tree(map[string]string{name: text, "good/good.cue": good}))
		if err != nil {
			t.Fatal(err)
		}
		taken := false
		for _, p := range out.Packages {
			taken = taken || p.Dir == "good" && (p.Package != nil || filepath.Dir(name) == "good")
			if (p.Package == nil) != hasError(p.Diagnostics) {
				t.Errorf("%s has both data and errors, or neither: %v", p.Dir, p.Diagnostics)
			}
		}
		if !taken {
			t.Errorf("the good package has no data: %v", compile.Diagnostics(out))
		}
		ruled(t, out)
		for _, d := range compile.Diagnostics(out) {
			if d.Path == "" || d.Line < 1 || d.Column < 1 || d.Message == "" || len(d.Error()) > 4000 || !utf8.ValidString(d.Error()+d.Hint) {
				t.Errorf("a diagnostic that cannot be shown: %+v", d)
			}
		}
	})
}

// errorsOf returns what Compile reports that is more than a warning.
func errorsOf(out schema.Compiled) []schema.Diagnostic {
	return slices.DeleteFunc(compile.Diagnostics(out), func(d schema.Diagnostic) bool { return d.Severity != schema.Error })
}

func hasError(diags []schema.Diagnostic) bool {
	for _, d := range diags {
		if d.Severity == schema.Error {
			return true
		}
	}
	return false
}
