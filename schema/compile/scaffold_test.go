package compile_test

import (
	"regexp"
	"strings"
	"testing"

	"cuelang.org/go/encoding/yaml"

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
		limits = limits.Add(j.Task.Resources.Times(j.Tasks))
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

var pinned = regexp.MustCompile(`^\s*- uses: \S+@[0-9a-f]{40} # v[0-9.]+$`)

// TestScaffoldWorkflows reads the workflows as YAML. Their actions are pinned, and
// all do the same check.
func TestScaffoldWorkflows(t *testing.T) {
	t.Parallel()
	files, err := scaffold.Files(scaffold.DefaultModule, "local")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for name, b := range files {
		if !strings.HasSuffix(name, ".yml") {
			continue
		}
		n++
		if _, err := yaml.Extract(name, b); err != nil {
			t.Error(err)
		}
		if !strings.Contains(string(b), "sh .ci/validate") {
			t.Errorf("%s does not run .ci/validate", name)
		}
		if !strings.Contains(string(b), "sh .ci/plan ") {
			t.Errorf("%s does not run .ci/plan", name)
		}
		for line := range strings.Lines(string(b)) {
			if strings.Contains(line, "uses:") && !pinned.MatchString(strings.TrimSuffix(line, "\n")) {
				t.Errorf("%s: %q is not pinned to a commit", name, line)
			}
		}
	}
	if n != 4 {
		t.Errorf("%d workflows, want 4", n)
	}
}
