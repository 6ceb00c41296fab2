package compile_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"golang.org/x/tools/txtar"

	"github.com/musterhq/muster/schema"
	"github.com/musterhq/muster/schema/compile"
	"github.com/musterhq/muster/schema/valid"
)

// jsonSchema returns the compiled schema of the document that render prints.
func jsonSchema(t *testing.T) *jsonschema.Schema {
	t.Helper()
	b, err := compile.JSONSchema()
	if err != nil {
		t.Fatal(err)
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	const url = "https://muster.test/render.json"
	c := jsonschema.NewCompiler()
	c.DefaultDraft(jsonschema.Draft2020)
	if err := c.AddResource(url, doc); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile(url)
	if err != nil {
		t.Fatal(err) // also when it is no schema by the meta-schema of its draft
	}
	return s
}

// accepts returns why a schema refuses a document, nil if it does not.
func accepts(t *testing.T, s *jsonschema.Schema, doc string) error {
	t.Helper()
	v, err := jsonschema.UnmarshalJSON(strings.NewReader(doc))
	if err != nil {
		t.Fatalf("%v: %s", err, doc)
	}
	return s.Validate(v)
}

// TestJSONSchemaGoldens: the data of each golden that compiles is valid by the
// exported schema.
func TestJSONSchemaGoldens(t *testing.T) {
	t.Parallel()
	s := jsonSchema(t)
	files, err := filepath.Glob("testdata/good/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no goldens: %v", err)
	}
	for _, file := range files {
		ar, err := txtar.ParseFile(file)
		if err != nil {
			t.Fatal(err)
		}
		found := false
		for _, f := range ar.Files {
			if f.Name == "data" {
				found = true
				if err := accepts(t, s, string(f.Data)); err != nil {
					t.Errorf("%s: %v", file, err)
				}
			}
		}
		if !found {
			t.Errorf("%s has no data", file)
		}
	}
}

// least is the least that each kind takes, as data.
var least = map[schema.Kind]string{
	schema.KindCell: `{"network":{"range":"10.0.0.0/8","range6":"fd00::/16"}}`, schema.KindMachine: `{"cell":"c"}`, schema.KindPriority: `{"value":250}`, schema.KindTenant: `{"paths":["a"]}`,
	schema.KindQuota:    `{"user":"a","cell":"c","band":"free"}`,
	schema.KindService:  `{"user":"a","cell":"c","selector":"x=y","ports":{"http":{"port":80}}}`,
	schema.KindAllocSet: `{"user":"a","cell":"c","resources":{"cpuMilli":1,"ramBytes":1048576,"diskBytes":0}}`, schema.KindJob: `{"user":"a","cell":"c","task":{"process":{"command":["x"]},"isolation":{"network":"own"}}}`,
}

// TestJSONSchemaBounds probes each field of each kind with values within and
// beyond its bounds: the exported schema refuses what the rules refuse.
func TestJSONSchemaBounds(t *testing.T) {
	t.Parallel()
	s := jsonSchema(t)
	for i, kind := range schema.Kinds() {
		t.Run(string(kind), func(t *testing.T) {
			p := &jsonProbe{t: t, schema: s, kind: kind, list: i}
			p.field(nil, valid.Of(kind))
			if p.refused < 4 {
				t.Errorf("only %d values were refused", p.refused)
			}
		})
	}
}

// jsonProbe puts values at data paths of an object and asks both.
type jsonProbe struct {
	t       *testing.T
	schema  *jsonschema.Schema
	kind    schema.Kind
	list    int // which list of the document
	refused int
	judged  []judged // all that was asked
}

// judged is a document and whether the schema accepts it.
type judged struct {
	Doc      json.RawMessage `json:"doc"`
	Accepted bool            `json:"accepted"`
}

func (p *jsonProbe) field(path []string, r *valid.Rule) {
	p.t.Helper()
	p.ask(append(path, "no-such-field"), 1)
	for _, f := range r.Fields {
		at := slices.Concat(path, []string{f.Name})
		for _, v := range probes(f.Rule) {
			p.ask(at, v)
		}
		if f.Rule.Type == valid.Struct {
			p.field(at, f.Rule)
		}
	}
}

// probes returns values at, within and beyond the bounds of a rule, and of other
// types.
func probes(r *valid.Rule) []any {
	num := func(n int64) any { return json.Number(fmt.Sprint(n)) }
	out := []any{true, nil, "no such word", num(-1), json.Number("1.5"), []any{num(1)}, map[string]any{"a b": "x"}}
	switch r.Type {
	case valid.Bool:
		for _, w := range r.Words {
			out = append(out, w)
		}
	case valid.Int, valid.Priority:
		out = append(out, num(r.Min-1), num(r.Min), num(r.Max), num(r.Max+1), "UPPER")
	case valid.String:
		out = append(out, "a", "/a", "", "-a", strings.Repeat("a", int(r.Max)), strings.Repeat("a", int(r.Max)+1))
	case valid.Time:
		out = append(out, "1970-01-01T00:00:00Z", "1969-12-31T23:00:00-01:00", "9999-12-31T23:59:59Z", "2027-04-01T00:00:00.123456789+02:00", "2028-02-29T12:00:00Z",
			"1969-07-20T20:17:40Z", "1969-12-30T23:00:00Z", "0999-01-01T00:00:00Z", "2027-04-01", "2027-04-01 00:00:00Z", "2027-13-01T00:00:00Z", "2027-04-01T24:00:00Z", "2027-04-01T00:00:00", "",
			"2027-04-01T00:00:00Z ")
	case valid.List:
		many := make([]any, r.Max+1)
		for i := range many {
			many[i] = fmt.Sprintf("e%d", i)
		}
		out = append(out, []any{}, []any{"a"}, many, many[:r.Max])
		if r.Unique {
			out = append(out, []any{"a", "a"})
		}
	case valid.Map:
		many := map[string]any{}
		for i := range r.Max {
			many[fmt.Sprintf("k%d", i)] = "x"
		}
		more := maps.Clone(many)
		more["more"] = "x"
		out = append(out, many, more, map[string]any{"A_1": "x"}, map[string]any{"A": num(1)}, map[string]any{"MUSTER_X": "x"}, map[string]any{"": "x"},
			map[string]any{"machine": "x"}, map[string]any{"a": strings.Repeat("x", int(r.Elem.Max)+1)})
	}
	return out
}

// ask gives an object with a value at a path to the rules and to the schema.
func (p *jsonProbe) ask(path []string, v any) {
	p.t.Helper()
	if p.kind == schema.KindAllocSet && slices.Equal(path, []string{"spread", "repair"}) {
		return // true is refused since it has no effect there, which the schema of spread does not know
	}
	if len(path) == 2 && path[0] == "spread" && path[1] == "targets" {
		return // their sum has to be 100, which no schema says
	}
	least := least[p.kind]
	if p.kind == schema.KindSecret {
		file, err := os.ReadFile("../sops/testdata/yaml.enc")
		if err != nil {
			p.t.Fatal(err)
		}
		least = fmt.Sprintf(`{"user":"a","cell":"c","sops":%s}`, schema.Canonical(string(file)))
	}
	parsed, err := valid.Parse([]byte(least))
	if err != nil {
		p.t.Fatal(err)
	}
	object := parsed.(map[string]any)
	at := object
	for _, name := range path[:len(path)-1] {
		inner, ok := at[name].(map[string]any)
		if !ok {
			inner = map[string]any{}
			switch name {
			case "http", "tcp":
				inner["port"] = "p"
			case "exec":
				inner["command"] = []any{"x"}
			case "spread":
				inner["maxSkew"] = map[string]any{"A": json.Number("1")} // of which minDomains are
			}
			at[name] = inner
		}
		at = inner
	}
	if len(path) == 3 && path[1] == "health" && !slices.Contains([]string{"http", "tcp", "exec"}, path[2]) {
		at["http"] = map[string]any{"port": "p"} // it has exactly one check
	}
	at[path[len(path)-1]] = v
	if p.kind == schema.KindJob && len(path) > 2 && path[1] == "health" { // it names a port, which must be there
		object["task"].(map[string]any)["resources"] = map[string]any{"ports": []any{"p", "a"}}
	}
	if path[0] == "drain" && path[len(path)-1] == "atOnce" { // of many machines
		object["match"] = "rack=a"
	}
	if path[len(path)-1] == "wholeCores" { // it bears on cpuMilli
		at["cpuMilli"] = json.Number("1000")
	}
	_, problems := valid.Object(p.kind, "x", object)
	object["name"] = "x"
	lists := []string{"cells", "machines", "priorities", "tenants", "quotas", "secrets", "services", "allocsets", "jobs"}
	doc := map[string]any{}
	for i, l := range lists {
		doc[l] = []any{}
		if i == p.list {
			doc[l] = []any{object}
		}
	}
	text := schema.Canonical(doc)
	refusal := accepts(p.t, p.schema, string(text))
	p.judged = append(p.judged, judged{text, refusal == nil})
	if refusal != nil {
		p.refused++
	}
	if (refusal != nil) != (len(problems) > 0) && !between(path, v) {
		p.t.Errorf("%s.%s = %.60v: the rules say %v, the schema %v", p.kind, strings.Join(path, "."), v, problems, refusal)
	}
}

// between reports whether a value is one of the few that only the rules refuse.
func between(path []string, v any) bool {
	s, _ := v.(string)
	at := strings.Join(path, ".")
	_, isStruct := v.(map[string]any)
	switch at {
	case "task.stop.timeoutSeconds": // it bears on a command
		return true
	case "task.stop.delaySeconds": // it is a part of the grace period
		return true
	case "age", "sops", "secrets.recipients": // they have a format
		return !strings.HasPrefix(fmt.Sprint(v), "map") || at == "secrets.recipients"
	case "task.health.http.port", "task.health.tcp.port": // it is declared
		return s != ""
	case "match", "selector": // it has a grammar
		return s != ""
	case "task.health", "spread.targets": // it has exactly one check; they are 100 together
		return isStruct
	}
	return at == "task.resources.portNumbers" // they are declared
}

// TestJSONSchemaNames: the lists of the document are those of the kinds, and an
// object needs its name.
func TestJSONSchemaNames(t *testing.T) {
	t.Parallel()
	s := jsonSchema(t)
	empty := `{"cells":[],"machines":[],"priorities":[],"tenants":[],"quotas":[],"allocsets":[],"jobs":[]}`
	if err := accepts(t, s, empty); err != nil {
		t.Error(err)
	}
	for _, doc := range []string{
		`{}`, `[]`, strings.Replace(empty, `"cells":[]`, `"cells":[{}]`, 1), strings.Replace(empty, `"cells":[]`, `"cells":[{"name":"A"}]`, 1),
		strings.Replace(empty, `}`, `,"pods":[]}`, 1),
	} {
		if accepts(t, s, doc) == nil {
			t.Errorf("accepted: %s", doc)
		}
	}
}
