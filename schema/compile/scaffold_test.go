package compile_test

import (
	"testing"

	"github.com/musterhq/muster/schema"
	"github.com/musterhq/muster/schema/compile"
	"github.com/musterhq/muster/schema/scaffold"
)

// TestScaffold compiles what `muster init` writes, with names other than those
// of the templates.
func TestScaffold(t *testing.T) {
	t.Parallel()
	files, err := scaffold.Files("git.example.org/platform/borg-config", "berlin-1")
	if err != nil {
		t.Fatal(err)
	}
	tree := schema.Tree{Files: map[string]schema.File{}}
	for name, b := range files {
		tree.Files[name] = schema.File{Hash: string(schema.DigestBytes(b)), Data: b}
	}
	out, err := compiler(t, compile.Config{}).Compile(t.Context(), tree)
	if err != nil {
		t.Fatal(err)
	}
	if d := compile.Diagnostics(out); len(d) > 0 {
		t.Errorf("diagnostics: %v", d)
	}
	o := compile.Merge(out)
	if len(o.Cells) != 1 || len(o.Tenants) != 2 || len(o.Quotas) != 2 || len(o.Jobs) != 3 {
		t.Errorf("objects: %+v", o)
	}
	for _, j := range o.Jobs {
		if j.Cell != "berlin-1" {
			t.Errorf("job %s is in cell %s", j.Name, j.Cell)
		}
	}
}
