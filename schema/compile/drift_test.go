package compile_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"cuelang.org/go/cue"
	"cuelang.org/go/cue/build"
	"cuelang.org/go/cue/cuecontext"
	"cuelang.org/go/cue/parser"

	"github.com/musterhq/muster/schema"
	schemacue "github.com/musterhq/muster/schema/cue"
	"github.com/musterhq/muster/schema/sealed"
	"github.com/musterhq/muster/schema/valid"
)

// ageFile returns a valid age file.
func ageFile(t *testing.T) string {
	t.Helper()
	_, r, err := sealed.NewIdentity()
	if err != nil {
		t.Fatal(err)
	}
	text, err := sealed.Seal([]byte("x"), []sealed.Recipient{r}, "c/a")
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// definitions returns the value of the embedded definitions.
func definitions(t *testing.T) cue.Value {
	t.Helper()
	return withDefinitions(t, "")
}

// withDefinitions evaluates the embedded definitions and, beside them, what an
// expression says.
func withDefinitions(t *testing.T, expr string) cue.Value {
	t.Helper()
	inst := build.NewContext().NewInstance("muster", nil)
	files := schemacue.Files()
	for _, name := range slices.Sorted(maps.Keys(files)) {
		f, err := parser.ParseFile(name, files[name], parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		if err := inst.AddSyntax(f); err != nil {
			t.Fatal(err)
		}
	}
	if f, err := parser.ParseFile("example.cue", "package muster\n"+expr); err != nil {
		t.Fatal(err)
	} else if err := inst.AddSyntax(f); err != nil {
		t.Fatal(err)
	}
	v := cuecontext.New().BuildInstance(inst)
	if err := v.Err(); err != nil {
		t.Fatal(err)
	}
	return v
}

// TestDrift holds the CUE definitions, the rules in Go and the types in Go
// together: a field, a bound, a word or a default that is in one and not in
// another fails.
func TestDrift(t *testing.T) {
	t.Parallel()
	defs := definitions(t)
	types := map[schema.Kind]reflect.Type{
		schema.KindCell: reflect.TypeFor[schema.Cell](), schema.KindMachine: reflect.TypeFor[schema.Machine](),
		schema.KindPriority: reflect.TypeFor[schema.NamedPriority](), schema.KindTenant: reflect.TypeFor[schema.Tenant](),
		schema.KindQuota: reflect.TypeFor[schema.Quota](), schema.KindSecret: reflect.TypeFor[schema.Secret](), schema.KindService: reflect.TypeFor[schema.ServiceSpec](), schema.KindAllocSet: reflect.TypeFor[schema.AllocSet](), schema.KindJob: reflect.TypeFor[schema.Job](),
	}
	for _, kind := range schema.Kinds() {
		t.Run(string(kind), func(t *testing.T) {
			typ, ok := types[kind]
			if !ok {
				t.Fatal("the test does not know its type")
			}
			driftWide(t, defName(kind), defs.LookupPath(cue.ParsePath(defName(kind))), valid.Of(kind), typ)
			driftStruct(t, defName(kind), defs.LookupPath(cue.ParsePath(defName(kind))), valid.Of(kind), typ)
		})
	}
}

// defName returns the name of a kind's definition, such as #Job.
func defName(kind schema.Kind) string {
	return kind.Definition()
}

// TestDriftObjects: package schema has a list for each kind, which Append
// fills, Add copies, Each goes through and Sort makes not nil.
func TestDriftObjects(t *testing.T) {
	t.Parallel()
	least := map[schema.Kind]string{
		schema.KindCell: `{}`, schema.KindMachine: `{"cell":"c"}`, schema.KindPriority: `{"value":250}`, schema.KindTenant: `{"paths":["a"]}`,
		schema.KindQuota:    `{"user":"a","cell":"c","band":"batch"}`,
		schema.KindSecret:   `{"user":"a","cell":"c","age":` + strconv.Quote(ageFile(t)) + `}`,
		schema.KindService:  `{"user":"a","cell":"c","selector":"x=y","ports":{"http":{"port":80}}}`,
		schema.KindAllocSet: `{"user":"a","cell":"c","resources":{"cpuMilli":1,"ramBytes":1048576,"diskBytes":0}}`, schema.KindJob: `{"user":"a","cell":"c","task":{"process":{"command":["x"]}}}`,
	}
	if n := reflect.TypeFor[schema.Objects]().NumField(); n != len(schema.Kinds()) {
		t.Errorf("%d lists of objects for %d kinds", n, len(schema.Kinds()))
	}
	var o schema.Objects
	for _, kind := range schema.Kinds() {
		data, err := valid.Parse([]byte(least[kind]))
		if err != nil {
			t.Fatalf("%s: %v", kind, err)
		}
		out, problems := valid.Object(kind, "web", data)
		if len(problems) > 0 {
			t.Fatalf("%s: %v", kind, problems)
		}
		if err := valid.Append(&o, kind, schema.Canonical(out)); err != nil {
			t.Fatal(err)
		}
	}
	var kinds []schema.Kind
	o.Each(func(key schema.ObjectKey, object any) {
		kinds = append(kinds, key.Kind)
		if key.Declared() != "web" || reflect.ValueOf(object).Kind() != reflect.Pointer {
			t.Errorf("%s: %T", key, object)
		}
	})
	if !slices.Equal(kinds, schema.Kinds()) {
		t.Errorf("Each goes through %v", kinds)
	}
	var twice, none schema.Objects
	twice.Add(o)
	twice.Add(o)
	twice.Sort()
	none.Sort()
	for i, v := range reflect.ValueOf(twice).Fields() {
		if v.Len() != 2 {
			t.Errorf("%s has %d objects: want 2", i.Name, v.Len())
		}
	}
	for i, v := range reflect.ValueOf(none).Fields() {
		if v.IsNil() {
			t.Errorf("%s is nil", i.Name)
		}
	}
}

func driftStruct(t *testing.T, at string, v cue.Value, r *valid.Rule, typ reflect.Type) {
	t.Helper()
	inGo := goFields(typ)
	if !slices.ContainsFunc(r.Fields, func(f valid.Field) bool { return f.Name == "name" }) {
		delete(inGo, "name") // the key of the object
	}
	if typ == reflect.TypeFor[schema.TaskSecret]() {
		delete(inGo, "sealed") // of the secret that the key names
	}
	it, err := v.Fields(cue.Optional(true))
	if err != nil {
		t.Fatalf("%s: %v", at, err)
	}
	seen := map[string]bool{}
	for it.Next() {
		name := it.Selector().Unquoted()
		seen[name] = true
		field := r.Field(name)
		if field == nil {
			t.Errorf("%s.%s is in CUE, not in the rules", at, name)
			continue
		}
		f := *field
		typ, ok := inGo[name]
		if !ok {
			t.Errorf("%s.%s is in CUE, not in the Go type", at, name)
			continue
		}
		if required := it.Selector().ConstraintType() == cue.RequiredConstraint; required != f.Required {
			t.Errorf("%s.%s: required in CUE %v, in the rules %v", at, name, required, f.Required)
		}
		if name == f.Former {
			driftFormer(t, at+"."+name, it.Value(), f)
		} else {
			driftDoc(t, at+"."+name, it.Value(), f)
		}
		driftValue(t, at+"."+name, it.Value(), f.Rule, typ)
	}
	for _, f := range r.Fields {
		if !seen[f.Name] {
			t.Errorf("%s.%s is in the rules, not in CUE", at, f.Name)
		}
		if f.Former != "" && !seen[f.Former] {
			t.Errorf("%s.%s is in the rules as a former name, not in CUE", at, f.Former)
		}
	}
	for name := range inGo {
		if !seen[name] {
			t.Errorf("%s.%s is in the Go type, not in CUE", at, name)
		}
	}
}

// goFields returns the fields of a struct by JSON name, with embedded ones.
func goFields(typ reflect.Type) map[string]reflect.Type {
	if typ.Kind() == reflect.Pointer {
		typ = typ.Elem()
	}
	m := map[string]reflect.Type{}
	for i := range typ.NumField() {
		f := typ.Field(i)
		if f.Anonymous {
			for k, v := range goFields(f.Type) {
				m[k] = v
			}
			continue
		}
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		m[name] = f.Type
	}
	return m
}

// driftFormer checks that the comment of a former name says since when, and what to use.
func driftFormer(t *testing.T, at string, v cue.Value, f valid.Field) {
	t.Helper()
	want := fmt.Sprintf("%s is the former name of %s. Deprecated since %s, use %s.", f.Former, f.Name, f.Since, f.Name)
	for _, g := range v.Doc() {
		if strings.Join(strings.Fields(g.Text()), " ") == want {
			return
		}
	}
	t.Errorf("%s: the comment is not %q", at, want)
}

var defaultForm = regexp.MustCompile(`Default:\s+(\S+?)\.?(\s|$)`)

// driftDoc checks that each field is documented, and that the default that the
// comment names is the one of the rules.
func driftDoc(t *testing.T, at string, v cue.Value, f valid.Field) {
	t.Helper()
	var doc string
	for _, g := range v.Doc() {
		if s := strings.Join(strings.Fields(g.Text()), " "); strings.HasPrefix(s, f.Name+" ") {
			doc = s
		}
	}
	if doc == "" {
		t.Errorf("%s has no comment that begins with its name", at)
		return
	}
	driftComment(t, at, v, f.Rule, doc)
	if f.Required != strings.Contains(doc, "Required.") {
		t.Errorf("%s: required %v, but the comment says: %s", at, f.Required, doc)
	}
	m := defaultForm.FindStringSubmatch(doc)
	if _, fromFields := f.Default.(map[string]any); fromFields {
		if !strings.Contains(doc, "Default: the defaults of its fields.") {
			t.Errorf("%s: the comment does not say that its fields have defaults: %s", at, doc)
		}
		return
	}
	for name, v := range f.DefaultBeside {
		if want := fmt.Sprintf("Beside %s: %s.", name, schema.Canonical(v)); !strings.Contains(doc, want) {
			t.Errorf("%s: %q is not in the comment: %s", at, want, doc)
		}
	}
	switch {
	case m == nil && f.Default != nil:
		t.Errorf("%s: default %v is not in the comment: %s", at, f.Default, doc)
	case m != nil && f.Default == nil:
		t.Errorf("%s: the comment has a default, the rules have none: %s", at, doc)
	case m != nil:
		want := cuecontext.New().CompileString(m[1])
		b, err := want.MarshalJSON()
		if err != nil {
			t.Fatalf("%s: default %q: %v", at, m[1], err)
		}
		if got := schema.Canonical(f.Default); !bytes.Equal(got, b) {
			t.Errorf("%s: default %s in the rules, %s in the comment", at, got, b)
		}
	}
}

// driftValue probes both with the same values: they must accept and refuse the
// same.
func driftValue(t *testing.T, at string, v cue.Value, r *valid.Rule, typ reflect.Type) {
	t.Helper()
	kinds := map[valid.Type][]reflect.Kind{
		valid.Bool: {reflect.Bool}, valid.Int: {reflect.Int, reflect.Int64}, valid.String: {reflect.String}, valid.Enum: {reflect.String},
		valid.Priority: {reflect.Int}, valid.List: {reflect.Slice}, valid.Map: {reflect.Map},
		valid.Struct: {reflect.Struct, reflect.Pointer}, valid.Time: {reflect.Struct}, valid.Free: {reflect.Slice},
	}
	if (r.Type == valid.Int || r.Type == valid.Bool) && typ.Kind() == reflect.Pointer {
		typ = typ.Elem() // absent is not 0, or false
	}
	if typ == reflect.TypeFor[netip.Prefix]() {
		typ = reflect.TypeFor[string]() // as which it is written
	}
	if !slices.Contains(kinds[r.Type], typ.Kind()) && (r.Type != valid.Bool || len(r.Words) == 0 || typ.Kind() != reflect.String) {
		t.Errorf("%s is %v in Go, %s in the rules", at, typ, r.Type)
	}
	probe := func(expr string, want bool) {
		t.Helper()
		got := v.Unify(cuecontext.New().CompileString(expr)).Validate(cue.Concrete(true)) == nil
		if got != want {
			t.Errorf("%s: CUE accepts %s: %v, the rules: %v", at, expr, got, want)
		}
	}
	driftWide(t, at, v, r, typ)
	switch r.Type {
	case valid.Int, valid.Priority:
		for _, n := range []int64{r.Min - 1, r.Min, r.Max, r.Max + 1} {
			probe(fmt.Sprint(n), n >= r.Min && n <= r.Max)
		}
		probe("1.5", false)
		probe(`"Nonsense"`, false)
		if r.Type == valid.Priority {
			probe(`"some-priority"`, r.Refers != "")
		}
		for _, w := range r.Words {
			probe(fmt.Sprintf("%q", w), true)
		}
		probe("true", false)
	case valid.Bool:
		probe("true", true)
		probe("false", true)
		probe(`"true"`, false)
		probe("1", false)
		for _, w := range r.Words {
			probe(fmt.Sprintf("%q", w), true)
		}
	case valid.Enum:
		for _, w := range r.Words {
			probe(fmt.Sprintf("%q", w), true)
		}
		for w := range r.Never {
			probe(fmt.Sprintf("%q", w), false)
		}
		probe(`"nonsense"`, false)
		probe("true", false)
	case valid.String:
		probe("3", false)
		for _, s := range []string{"", "a", "A", "a-b", "-a", "a/b", "/a", "a b", strings.Repeat("a", 63), strings.Repeat("a", 64)} {
			ok := (r.Match == nil || r.Match(s) == "") && int64(len(s)) >= r.Min && int64(len(s)) <= r.Max
			probe(fmt.Sprintf("%q", s), ok)
		}
	case valid.List:
		probe("3", false)
		probe("[]", r.Min == 0)
		driftValue(t, at+"[]", v.LookupPath(cue.MakePath(cue.AnyIndex)), r.Elem, typ.Elem())
	case valid.Map:
		good, bad := `"x"`, `3`
		switch r.Elem.Type {
		case valid.Int:
			good, bad = `1`, `"x"`
		case valid.Struct:
			good = sample(r.Elem, "x")
		}
		for _, k := range []string{"a", "A_b", "a-b", "-a", "a/b", "", "1a", "MUSTER_X", "muster/x", "machine", "a b", strings.Repeat("a", 63), strings.Repeat("a", 130)} {
			probe(fmt.Sprintf("{%q: %s}", k, good), r.Key(k) == "")
		}
		probe(fmt.Sprintf(`{a: %s}`, bad), false)
	case valid.Time:
		if typ != reflect.TypeFor[time.Time]() {
			t.Errorf("%s is %v in Go", at, typ)
		}
		for s, ok := range map[string]bool{
			"2027-02-28T23:59:59Z": true, "2027-03-31T00:00:00.5+02:00": true, "2027-02-29T00:00:00Z": false, "2027-03-31": false,
			"2027-03-31T00:00:00": false, "2027-03-31 00:00:00Z": false, "": false, "soon": false,
		} {
			probe(fmt.Sprintf("%q", s), ok)
		}
		probe("1800000000", false)
	case valid.Free:
		probe(`{type: "x", any: [1, {b: null}]}`, true)
		probe("3", false)
		probe("[]", false)
	case valid.Struct:
		driftStruct(t, at, v, r, typ)
		for w := range r.Never {
			probe(fmt.Sprintf("{%q: 150}", w), false)
		}
	}
}

// TestDriftDefaults checks that an object of nothing but what is required
// decodes into the types with all defaults.
func TestDriftDefaults(t *testing.T) {
	t.Parallel()
	data := map[string]any{"user": "a", "cell": "c", "task": map[string]any{"process": map[string]any{"command": []any{"x"}}}}
	out, problems := valid.Object(schema.KindJob, "web", data)
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	var o schema.Objects
	if err := valid.Append(&o, schema.KindJob, schema.Canonical(out)); err != nil {
		t.Fatal(err)
	}
	again, err := json.Marshal(o.Jobs[0])
	if err != nil {
		t.Fatal(err)
	}
	v, err := valid.Parse(again)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := schema.Canonical(v), schema.Canonical(out); !bytes.Equal(got, want) {
		t.Errorf("the type holds %s, the rules give %s", got, want)
	}
}
