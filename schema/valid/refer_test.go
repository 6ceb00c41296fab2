package valid_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/musterhq/muster/schema"
	"github.com/musterhq/muster/schema/valid"
)

func priorities(values map[string]schema.Priority) *schema.Package {
	p := &schema.Package{Dir: ".", Origins: map[schema.ObjectKey]schema.Position{}}
	for name, v := range values {
		p.Objects.Priorities = append(p.Objects.Priorities, schema.NamedPriority{Name: name, Value: v})
		p.Origins[schema.ObjectKey{Kind: schema.KindPriority, Name: name}] = schema.Position{Path: "x.cue", Line: 1, Column: 1}
	}
	return p
}

// naming is a package of a job for each name, which has it as its priority.
func naming(names ...string) *schema.Package {
	p := &schema.Package{Dir: "a", Origins: map[schema.ObjectKey]schema.Position{}}
	for i, name := range names {
		j := schema.Job{Name: fmt.Sprint("j", i), User: "a", Cell: "c", Priority: schema.PriorityNamed}
		key := schema.ObjectKey{Kind: schema.KindJob, Name: j.ID().String()}
		p.Objects.Jobs = append(p.Objects.Jobs, j)
		p.Origins[key] = schema.Position{Path: "a/x.cue", Line: i + 1, Column: 1}
		p.References = append(p.References, schema.Reference{
			From: key, Field: "priority", To: schema.ObjectKey{Kind: schema.KindPriority, Name: name},
			At: schema.Position{Path: "a/x.cue", Line: i + 1, Column: 12},
		})
	}
	return p
}

func TestResolve(t *testing.T) {
	t.Parallel()
	p, admin := naming("gold", "golt", "silver", "gold"), priorities(map[string]schema.Priority{"gold": 270, "bronze": 0})
	before := schema.DigestOf(p)
	o, wrong := valid.NamesOf([]*schema.Package{p, admin}).Resolve(p)
	if schema.DigestOf(p) != before {
		t.Error("the package was written to")
	}
	var got []schema.Priority
	for _, j := range o.Jobs {
		got = append(got, j.Priority)
	}
	if want := []schema.Priority{270, schema.PriorityNamed, schema.PriorityNamed, 270}; !slices.Equal(got, want) {
		t.Errorf("priorities %v: want %v", got, want)
	}
	want := map[schema.ObjectKey][]schema.Diagnostic{}
	for i, hint := range map[int]string{
		1: "did you mean gold?",
		2: `declare it in the root package or in cells/, as in priority: "silver": muster.#Priority & {value: 250}`,
	} {
		want[p.References[i].From] = []schema.Diagnostic{{
			Severity: schema.Error, Rule: schema.RuleUndefined, Position: p.References[i].At, Field: fmt.Sprintf("job.j%d.priority", i),
			Message:  fmt.Sprintf("no priority %q is declared", p.References[i].To.Name),
			Expected: `"free", "batch", "production", "monitoring", a declared priority ("bronze", "gold"), or an integer from 0 to 399`, Hint: hint,
		}}
	}
	if diff := cmp.Diff(want, wrong); diff != "" {
		t.Error(diff)
	}
}

// TestResolveUnknown: a stored reference may be one that only another version
// of the schema has.
func TestResolveUnknown(t *testing.T) {
	t.Parallel()
	p := naming("gold")
	p.References[0].Field, p.References[0].To = "task.secrets.3", schema.ObjectKey{Kind: "secret", Name: "c/a/key"}
	_, wrong := valid.NamesOf([]*schema.Package{p}).Resolve(p)
	ds := wrong[p.References[0].From]
	if len(ds) != 1 || ds[0].Message != `no secret "key" is declared` || ds[0].Expected == "" || ds[0].Hint == "" {
		t.Errorf("%+v", ds)
	}
}

// TestReferences finds the names where they are, and no built-in ones.
func TestReferences(t *testing.T) {
	t.Parallel()
	for priority, want := range map[string][]valid.Reference{
		`"urgent"`: {{Path: []string{"priority"}, To: schema.ObjectKey{Kind: schema.KindPriority, Name: "urgent"}}},
		`"batch"`:  nil, `250`: nil,
	} {
		out, problems := valid.Object(schema.KindJob, "web", parse(t, strings.Replace(good, `"batch"`, priority, 1)))
		if len(problems) > 0 {
			t.Fatal(problems)
		}
		if diff := cmp.Diff(want, valid.References(schema.KindJob, out)); diff != "" {
			t.Errorf("priority %s: %s", priority, diff)
		}
		var o schema.Objects
		if err := valid.Append(&o, schema.KindJob, schema.Canonical(out)); err != nil {
			t.Fatal(err)
		}
		if named := o.Jobs[0].Priority == schema.PriorityNamed; named != (want != nil) {
			t.Errorf("priority %s is %d in the type", priority, o.Jobs[0].Priority)
		}
	}
}
