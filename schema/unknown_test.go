package schema_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/musterhq/muster/schema"
)

// stored is one of each kind of document, with all kinds of values inside.
func stored() map[string]any {
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	job := schema.JobName{Cell: "c", User: "u", Job: "web"}
	return map[string]any{
		"head": &schema.Head{
			Commit: "c1", Packages: map[string]schema.Digest{"a": "sha256:1", "b": "sha256:2"},
			Stale: map[string][]schema.Diagnostic{"b": {{Severity: schema.Error, Message: "no"}, {Severity: schema.Error, Message: "never"}}},
			Held:  &schema.Held{Guards: []schema.Guard{{Name: schema.GuardName{Kind: schema.GuardCell}, Tasks: 3}}, Jobs: []schema.HeldJob{{Job: "u/web", Tasks: 3}, {Job: "u/api", Tasks: 1}}},
		},
		"job": &schema.JobRecord{Name: job, Admitted: "sha256:3", Origin: schema.Position{Path: "a/x.cue", Line: 3, Column: 1}, Since: at, Whole: &schema.Whole{Since: at.Add(-time.Hour), Of: at}},
		"chunk": &schema.Chunk{Job: job, Tasks: []schema.TaskRecord{
			{Index: 0, Generation: 7, Machine: "m1", Ports: schema.PortsOf(map[string]int{"http": 80}), At: at, Stop: &schema.Cause{Kind: schema.CauseUpdate, At: at}},
			{Index: 2, Generation: 9, Avoid: map[string]time.Time{"m1": at}, Causes: []schema.Cause{{Kind: schema.CauseFailed, At: at}, {Kind: schema.CauseUpdate, Exit: &schema.Exit{Code: 3}}}},
			{Index: 3},
		}},
		"machine": &schema.MachineRecord{MachineInfo: schema.MachineInfo{Name: "m1", Attributes: map[string]string{"os": "linux"}, Devices: []schema.DeviceGroup{{Kind: "gpu"}}}, Epoch: 3},
		"package": &schema.Package{Dir: "a", Objects: schema.Objects{Jobs: []schema.Job{{Name: "web", Tasks: 3}, {Name: "api"}}}},
		"data":    &schema.Job{Name: "web", User: "u", Cell: "c", Task: schema.TaskSpec{Process: schema.Process{Command: []string{"a", "b"}}}},
		"suspend": &schema.Suspension{Name: "u/web", Reason: "x", By: "anna", Since: at},
		"restart": &schema.RestartRequest{Name: "u/web", Reason: "x", By: "anna", At: at, After: 7, Tasks: 3},
		"counter": new(uint64),
	}
}

// dicts are values of the above that are maps by name: what is in them is not a
// field, and so is never unknown.
var dicts = []string{"packages", "stale", "ports", "avoid", "attributes", "env", "labels", "origins"}

// spoil puts unknown fields into some of the objects of a document.
func spoil(t *rapid.T, v any, dict bool) (added int) {
	switch v := v.(type) {
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(v)) {
			added += spoil(t, v[name], slices.Contains(dicts, name))
		}
		if !dict && rapid.Bool().Draw(t, "spoil") {
			v["later"+fmt.Sprint(rapid.IntRange(0, 9).Draw(t, "field"))] = rapid.SampledFrom([]any{
				1, "x", nil, json.Number("12345678901234567890"), []any{1, map[string]any{"a": 1}}, map[string]any{"deep": map[string]any{"er": true}}, "",
			}).Draw(t, "value")
			added++
		}
	case []any:
		for _, e := range v {
			added += spoil(t, e, false)
		}
	}
	return added
}

// fresh returns a zero value of v's type, and the plain tree of v.
func fresh(t *rapid.T, v any) (zero func() any, tree any) {
	if err := json.Unmarshal(schema.Canonical(v), &tree); err != nil {
		t.Fatal(err)
	}
	switch v.(type) {
	case *schema.Head:
		return func() any { return new(schema.Head) }, tree
	case *schema.JobRecord:
		return func() any { return new(schema.JobRecord) }, tree
	case *schema.Chunk:
		return func() any { return new(schema.Chunk) }, tree
	case *schema.MachineRecord:
		return func() any { return new(schema.MachineRecord) }, tree
	case *schema.Package:
		return func() any { return new(schema.Package) }, tree
	case *schema.Suspension:
		return func() any { return new(schema.Suspension) }, tree
	case *schema.RestartRequest:
		return func() any { return new(schema.RestartRequest) }, tree
	case *schema.Job:
		return func() any { return new(schema.Job) }, tree
	}
	return func() any { return new(uint64) }, tree
}

// A document of a later release is read as if it were of this one, and written
// back byte for byte.
func TestUnknownFieldsSurvive(t *testing.T) {
	t.Parallel()
	kinds := stored()
	rapid.Check(t, func(t *rapid.T) {
		v := kinds[rapid.SampledFrom(slices.Sorted(maps.Keys(kinds))).Draw(t, "document")]
		zero, tree := fresh(t, v)
		added := spoil(t, tree, false)
		doc := schema.Canonical(tree)
		got := zero()
		u, err := schema.Decode(doc, got)
		if err != nil {
			t.Fatal(err)
		}
		if (u != nil) != (added > 0) {
			t.Fatalf("%d unknown fields, and Unknown is %v", added, u)
		}
		if d := cmp.Diff(string(schema.Canonical(v)), string(schema.Canonical(got))); d != "" {
			t.Fatalf("known (-want +got)\n%s", d)
		}
		if d := cmp.Diff(string(doc), string(u.Encode(got))); d != "" {
			t.Fatalf("written back (-want +got)\n%s", d)
		}
	})
}

// What is unknown stays with its object while others come, go and change.
func TestUnknownFieldsFollow(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var tasks []any
		want := map[int]string{}
		for i := range rapid.IntRange(1, 6).Draw(t, "tasks") {
			mark := fmt.Sprint("mark", i)
			tasks = append(tasks, map[string]any{"index": i, "later": mark, "stop": map[string]any{"kind": "update", "at": "2026-01-01T00:00:00Z", "later": mark}})
			want[i] = mark
		}
		doc := schema.Canonical(map[string]any{"job": "c/u/web", "number": 0, "tasks": tasks})
		var c schema.Chunk
		u, err := schema.Decode(doc, &c)
		if err != nil {
			t.Fatal(err)
		}
		var kept []schema.TaskRecord
		for _, r := range c.Tasks {
			switch rapid.SampledFrom([]string{"keep", "drop", "change", "resume"}).Draw(t, "fate") {
			case "drop":
				delete(want, r.Index)
				continue
			case "change":
				r.Generation, r.Machine = 99, "m9"
			case "resume":
				r.Stop = nil
			}
			kept = append(kept, r)
		}
		kept = append(kept, schema.TaskRecord{Index: 50})
		c.Tasks = rapid.Permutation(kept).Draw(t, "order")
		var out struct {
			Tasks []struct {
				Index int
				Later string
				Stop  *struct{ Later string }
			}
		}
		if err := json.Unmarshal(u.Encode(&c), &out); err != nil {
			t.Fatal(err)
		}
		for i, r := range out.Tasks {
			if r.Later != want[r.Index] || (r.Stop != nil) != (c.Tasks[i].Stop != nil) || r.Stop != nil && r.Stop.Later != want[r.Index] {
				t.Fatalf("task %d has %+v, want %q", r.Index, r, want[r.Index])
			}
		}
	})
}

// A field that is known is never taken from the document of before, and what is
// no document is an error as ever.
func TestDecode(t *testing.T) {
	t.Parallel()
	var r schema.TaskRecord
	u, err := schema.Decode([]byte(`{"index": 1, "machine": "m1", "causes": [{"kind": "update", "x": 1}, {"kind": "update"}, {"kind": "update", "x": 3}], "x": 0}`), &r)
	if err != nil {
		t.Fatal(err)
	}
	r.Machine, r.Causes = "", r.Causes[:2]
	want := `{"causes":[{"at":"0001-01-01T00:00:00Z","kind":"update","x":1},{"at":"0001-01-01T00:00:00Z","kind":"update"}],"index":1,"x":0}`
	if got := string(u.Encode(&r)); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	for _, doc := range []string{"", "{", "{}x", "[]", `{"index": "a"}`, `{"x": 1} {}`} {
		if _, err := schema.Decode([]byte(doc), &r); err == nil {
			t.Errorf("%q: no error", doc)
		}
	}
	if u, err := schema.Decode([]byte(" {\"index\": 7}\n"), &r); err != nil || u != nil || r.Index != 7 || r.Causes != nil {
		t.Errorf("%+v, %v, %v", r, u, err)
	}
	if !strings.Contains(string((*schema.Unknown)(nil).Encode(&r)), `"index":7`) {
		t.Error("a nil Unknown encodes as Canonical does")
	}
}
