package valid_test

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/musterhq/muster/schema"
	"github.com/musterhq/muster/schema/valid"
)

func parse(t testing.TB, s string) any {
	t.Helper()
	v, err := valid.Parse([]byte(s))
	if err != nil {
		t.Fatal(err)
	}
	return v
}

const good = `{"user":"a","cell":"local","priority":"batch","labels":{"tier":"front"},"task":{"process":{"command":["x","$(MUSTER_PORT_HTTP)"]},` +
	`"resources":{"ports":["http"]},"env":{"A":"$(MUSTER_JOB)"},"health":{"http":{"port":"http"}}}}`

// TestObject checks that what is valid is complete, decodes, and stays as it is
// when it is checked again.
func TestObject(t *testing.T) {
	t.Parallel()
	in := parse(t, good)
	before := string(schema.Canonical(in))
	out, problems := valid.Object(schema.KindJob, "web", in)
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	if string(schema.Canonical(in)) != before {
		t.Error("the input was changed")
	}
	var o schema.Objects
	if err := valid.Append(&o, schema.KindJob, schema.Canonical(out)); err != nil {
		t.Fatal(err)
	}
	j := o.Jobs[0]
	if j.Name != "web" || j.Priority != 100 || j.Tasks != 1 || j.Kind != schema.Service || j.Task.GraceSeconds != 10 || j.Task.Health.HTTP.Path != "/" || j.Update.MaxParallel != 1 {
		t.Errorf("defaults: %+v", j)
	}
	delete(out, "name")
	again, problems := valid.Object(schema.KindJob, "web", out)
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	delete(again, "name")
	if diff := cmp.Diff(out, again); diff != "" {
		t.Error(diff)
	}
}

// TestProblems checks messages that CUE files cannot produce, or not alone.
func TestProblems(t *testing.T) {
	t.Parallel()
	job := func(field string) string {
		return `{"user":"a","cell":"c","task":{"process":{"command":["x"]}},` + field + `}`
	}
	for _, c := range []struct {
		kind  schema.Kind
		data  string
		path  string
		want  string
		count int
	}{
		{schema.KindJob, `null`, "", "is null", 1},
		{schema.KindJob, `{}`, "user", `required field "user" is missing`, 3},
		{schema.KindJob, job(`"tasks":1e3`), "tasks", "1e3 is not an integer", 1},
		{schema.KindJob, job(`"tasks":99999999999999999999999`), "tasks", "out of range", 1},
		{schema.KindJob, job(`"tasks":-0`), "", "", 0},
		{schema.KindJob, job(`"name":"web"`), "name", `unknown field "name"`, 1},
		{schema.KindJob, job(`"kind":"system"`), "", "", 0},
		{schema.KindJob, job(`"kind":"system","tasks":3`), "tasks", `a job of kind "system" has one task on each machine`, 1},
		{schema.KindJob, job(`"priority":true`), "priority", "is the boolean true", 1},
		{schema.KindJob, strings.Replace(good, `$(MUSTER_PORT_HTTP)`, `$$$(MUSTER_PORT_X)`, 1), "task.process.command.1", "is not set", 1},
		{schema.KindJob, strings.Replace(good, `$(MUSTER_PORT_HTTP)`, `$$(MUSTER_PORT_X)`, 1), "", "", 0},
		{schema.KindJob, strings.Replace(good, `"x"`, `"a\u0000b"`, 1), "task.process.command.0", "invalid value", 1},
		{schema.KindJob, job(`"priority":""`), "priority", `invalid value ""`, 1},
		{schema.KindJob, job(`"priority":"0"`), "priority", `invalid value "0"`, 1},
		{schema.KindJob, job(`"annotations":{"a":"b\u001bc"}`), "annotations.a", "invalid value", 1},
		{schema.KindJob, job(`"annotations":{"a":"\ud800"}`), "annotations.a", "invalid value", 1},
		{schema.KindMachine, `{"cell":"c","cordon":1}`, "cordon", "is the number 1", 1},
		{schema.KindMachine, `{"cell":"c","cordon":null}`, "cordon", "is null", 1},
		{schema.KindPriority, `{"value":-1}`, "value", "out of range", 1},
		{schema.KindTenant, `{"paths":["../x"]}`, "paths.0", "invalid value", 1},
		{schema.KindTenant, `{"paths":["."]}`, "", "", 0},
		{schema.KindQuota, `{"user":"a","cell":"c","band":"batch","ramBytes":9223372036854775808}`, "ramBytes", "out of range", 1},
		{schema.KindQuota, `{"user":"a","cell":"c","band":"batch","from":"2027-01-01T00:00:00Z","until":"2027-01-01T01:00:00+01:00"}`, "until", "is not after from", 1},
		{schema.KindQuota, `{"user":"a","cell":"c","band":"batch","from":"2027-01-01t00:00:00z"}`, "from", "invalid value", 1},
		{schema.KindQuota, `{"user":"a","cell":"c","band":"batch","from":"0000-01-01T00:00:00+01:00"}`, "from", "out of range", 1},
		{schema.KindQuota, `{"user":"a","cell":"c","band":"batch","until":"9999-12-31T23:59:59-01:00"}`, "until", "out of range", 1},
		{schema.KindQuota, `{"user":"a","cell":"c","band":"batch","until":1800000000}`, "until", "is the number 1800000000", 1},
		{"pod", `{}`, "pod", `unknown kind "pod"`, 1},
	} {
		_, problems := valid.Object(c.kind, "x", parse(t, c.data))
		if len(problems) != c.count {
			t.Errorf("%s %s: %d problems: %v", c.kind, c.data, len(problems), problems)
			continue
		}
		if c.count > 0 && (strings.Join(problems[0].Path, ".") != c.path || !strings.Contains(problems[0].Message, c.want)) {
			t.Errorf("%s %s: %+v", c.kind, c.data, problems[0])
		}
	}
}

// TestBroken checks that a value in error elsewhere is not reported again.
func TestBroken(t *testing.T) {
	t.Parallel()
	in := parse(t, good).(map[string]any)
	in["tasks"] = valid.Broken{}
	in["task"].(map[string]any)["resources"] = valid.Broken{}
	if _, problems := valid.Object(schema.KindJob, "web", in); len(problems) > 0 {
		t.Error(problems)
	}
	in["user"] = valid.Broken{Why: "is only constrained"}
	if _, problems := valid.Object(schema.KindJob, "web", in); len(problems) != 1 || problems[0].Message != "is only constrained" {
		t.Error(problems)
	}
}

func TestNearest(t *testing.T) {
	t.Parallel()
	words := []string{"tasks", "task", "user", "cell", "labels", "ramBytes", "graceSeconds"}
	for in, want := range map[string]string{
		"taks": "tasks", "tsks": "tasks", "Tasks": "tasks", "lables": "labels", "rambytes": "ramBytes", "ram_bytes": "ramBytes",
		"graceSecond": "graceSeconds", "replicas": "", "x": "", "": "", strings.Repeat("a", 1000): "",
	} {
		if got := valid.Nearest(in, words); got != want {
			t.Errorf("Nearest(%q) = %q, want %q", in, got, want)
		}
	}
}

// FuzzObject feeds the strict pass with any JSON: it never panics, what it
// accepts decodes into the types and is accepted again, and what it refuses it
// explains.
func FuzzObject(f *testing.F) {
	f.Add("job", "web", good)
	f.Add("cell", "local", `{"quota":"off"}`)
	f.Add("tenant", "a", `{"paths":["a","b/c"],"users":["x"],"capabilities":["admin"]}`)
	f.Add("quota", "q", `{"user":"a","cell":"c","band":"batch","cpuMilli":5,"jobs":0,"from":"2027-01-01T00:00:00+01:00","until":"2027-01-01T00:00:00Z"}`)
	f.Add("job", "web", `{"user":"a","cell":"c","priority":"urgent","annotations":{"a":"b\nc"},"task":{"process":{"command":["x"]}}}`)
	f.Add("machine", "m-1", `{"cell":"c","labels":{"rack":"r"},"cordon":true}`)
	f.Add("priority", "250", `{"value":250}`)
	f.Add("job", "Web", `{"tasks":1.5,"x":[{"y":null}],"task":{"env":{"":1}}}`)
	f.Fuzz(func(t *testing.T, kind, name, data string) {
		v, err := valid.Parse([]byte(data))
		if err != nil {
			return
		}
		out, problems := valid.Object(schema.Kind(kind), name, v)
		for _, p := range problems {
			if p.Rule == "" || p.Message == "" || len(p.Message) > 500 || !utf8.ValidString(p.Message+p.Hint+p.Expected) {
				t.Errorf("a problem that cannot be shown: %+v", p)
			}
		}
		if len(problems) > 0 {
			return
		}
		b := schema.Canonical(out)
		var o schema.Objects
		if err := valid.Append(&o, schema.Kind(kind), b); err != nil {
			t.Fatalf("accepted, but %v: %s", err, b)
		}
		for _, r := range valid.References(schema.Kind(kind), out) {
			if len(r.Path) == 0 || r.To.Declared() == "" {
				t.Errorf("a reference to nothing: %+v", r)
			}
		}
		var again map[string]any
		if v, err := valid.Parse(b); err != nil {
			t.Fatal(err)
		} else {
			again = v.(map[string]any)
		}
		delete(again, "name")
		twice, problems := valid.Object(schema.Kind(kind), name, again)
		if len(problems) > 0 || !bytes.Equal(schema.Canonical(twice), b) {
			t.Errorf("accepted once, then %v: %s", problems, b)
		}
		if i := slices.Index(schema.Kinds(), schema.Kind(kind)); i < 0 || !json.Valid(b) {
			t.Errorf("kind %q accepted", kind)
		}
	})
}
