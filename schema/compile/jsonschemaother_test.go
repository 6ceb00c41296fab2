package compile_test

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"golang.org/x/tools/txtar"

	"github.com/musterhq/muster/schema"
	"github.com/musterhq/muster/schema/compile"
	"github.com/musterhq/muster/schema/valid"
)

// Validators are rarely written in Go, and their regular expressions are those of
// ECMAScript.

// node runs a script that reads v as JSON.
func node(t *testing.T, script string, v any) {
	t.Helper()
	in, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "node", "-e", `const given = JSON.parse(require("fs").readFileSync(0, "utf8"));`+script)
	cmd.Stdin = bytes.NewReader(in)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}

// exported returns the schema as others get it.
func exported(t *testing.T) json.RawMessage {
	t.Helper()
	b, err := compile.JSONSchema()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestJSONSchemaPatterns: each pattern is a regular expression of ECMA 262, in the mode in
// which validators use them.
func TestJSONSchemaPatterns(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("node"); err != nil {
		t.Skip("needs node (apt-get install nodejs)")
	}
	node(t, `
let found = 0;
(function look(o) {
	if (o === null || typeof o !== "object") return;
	for (const k in o) {
		if (k === "pattern" && typeof o[k] === "string") { new RegExp(o[k], "u"); found++; }
		look(o[k]);
	}
})(given);
if (found < 20) throw new Error("only " + found + " patterns");
const registry = new RegExp(given.$defs.Cell.properties.registries.propertyNames.pattern, "u");
for (const host of ["[::1]", "[::1]:5000", "localhost", "a.example"]) if (!registry.test(host)) throw new Error(host);
for (const host of ["::1", "[", "]", "a"]) if (registry.test(host)) throw new Error(host);
`, exported(t))
}

// TestJSONSchemaAjv: ajv, in its strict mode, takes the schema and judges each good golden
// and all the probes, good and bad, as the other validator does.
func TestJSONSchemaAjv(t *testing.T) {
	t.Parallel()
	if err := exec.CommandContext(t.Context(), "node", "-e", `require("ajv/dist/2020")`).Run(); err != nil {
		t.Skip("needs ajv 8 where node finds it (npm install --prefix DIR ajv@8; export NODE_PATH=DIR/node_modules)")
	}
	var all []judged
	for i, kind := range schema.Kinds() {
		p := &jsonProbe{t: t, schema: jsonSchema(t), kind: kind, list: i}
		p.field(nil, valid.Of(kind))
		all = append(all, p.judged...)
	}
	files, err := filepath.Glob("testdata/good/*.txtar")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range txtar.Parse(b).Files {
			if f.Name == "data" {
				all = append(all, judged{f.Data, true})
			}
		}
	}
	node(t, `
const Ajv = require("ajv/dist/2020");
const say = text => { throw new Error(text); };
const check = new Ajv({strict: true, logger: {log: say, warn: say, error: say}}).compile(given.schema);
for (const g of given.judged) {
	if (check(g.doc) !== g.accepted) throw new Error("not " + g.accepted + ": " + JSON.stringify(g.doc).slice(0, 2000) + JSON.stringify(check.errors));
}
`, map[string]any{"schema": exported(t), "judged": all})
}
