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
	// It fits on the smallest of machines: one core and 1 GiB of memory, of which
	// the system and muster need some.
	var sold, limits schema.Resources
	for _, q := range o.Quotas {
		sold.CPUMilli += q.CPUMilli
		sold.RAMBytes += q.RAMBytes
	}
	for _, j := range o.Jobs {
		limits = limits.Add(j.Ask())
	}
	for name, r := range map[string]schema.Resources{"the quotas": sold, "the jobs": limits} {
		if r.CPUMilli == 0 || r.CPUMilli > 800 || r.RAMBytes == 0 || r.RAMBytes > 512<<20 {
			t.Errorf("%s come to %+v", name, r)
		}
	}
	for _, j := range o.Jobs {
		if j.Cell != "berlin-1" {
			t.Errorf("job %s is in cell %s", j.Name, j.Cell)
		}
	}
}
