package compile_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/musterhq/muster/schema/compile"
	schemacue "github.com/musterhq/muster/schema/cue"
)

func TestFields(t *testing.T) {
	t.Parallel()
	got, err := compile.Fields(map[string][]byte{
		"a.cue": []byte(`package muster

// #A is documented.
#A: {
	// x is a number.
	x?: int & >=1 &
		<=10 // up to ten
	y!: #B
	z: {deep: string}
	words?: {[=~"^a"]: string}
	...
}
#B: =~"^b"
_hidden: 1
object: 2
`),
		"b.cue": []byte("package muster\n\n#A: x?: <=5\n#A: #C\n#C: {}\n"),
	})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{
		"#A.x":      "optional int & >=1 & <=10 & optional <=5",
		"#A.y":      "required #B",
		"#A.z.deep": "string",
		"#A.words":  `optional {[=~"^a"]: string}`,
		"#A":        "... & #C",
		"#B":        `=~"^b"`,
		"#C":        "{}",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("fields (-want +got):\n%s", d)
	}
}

func TestFieldsErrors(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ file, want string }{
		"syntax": {"package muster\n\n#A: {\n\tx: ,\n}\n", "muster/a.cue:4:5"},
		"large":  {"package muster\n" + strings.Repeat("//\n", 100_000), "muster/a.cue has 300015 bytes, more than 262144"},
		"nested": {"package muster\n" + strings.Repeat("a:{", 80_000), "muster/a.cue"},
	} {
		if _, err := compile.Fields(map[string][]byte{"muster/a.cue": []byte(tt.file)}); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: error %v, want %q in it", name, err, tt.want)
		}
	}
}

// TestCompareFields adds, takes away and changes something of the definitions
// as they are.
func TestCompareFields(t *testing.T) {
	t.Parallel()
	fields := func(edit ...string) map[string]string {
		files := schemacue.Files()
		if len(edit) > 0 {
			was := string(files["job.cue"])
			if now := strings.NewReplacer(edit...).Replace(was); now == was {
				t.Fatalf("%q is not in job.cue", edit[0])
			} else {
				files["job.cue"] = []byte(now)
			}
		}
		f, err := compile.Fields(files)
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	now := fields()
	if f := now["#Job.user"]; f != "required #Name" {
		t.Errorf("#Job.user: %q", f)
	}
	for _, d := range []compile.FieldChanges{
		compile.CompareFields(now, now),
		compile.CompareFields(fields("// user is who", "// user says who"), now),
	} {
		if len(d.Added)+len(d.Removed)+len(d.Changed) > 0 {
			t.Errorf("the same fields differ: %v", d)
		}
	}
	old := fields("\ttasks?: int & >=0 & <=100_000", "\tcount?: int", "user!: #Name", "user!: string")
	want := compile.FieldChanges{
		Added:   []compile.FieldChange{{Path: "#Job.tasks", New: "optional int & >=0 & <=100_000"}},
		Removed: []compile.FieldChange{{Path: "#Job.count", Old: "optional int"}},
		Changed: []compile.FieldChange{
			{Path: "#AllocSet.user", Old: "required string", New: "required #Name"},
			{Path: "#Job.user", Old: "required string", New: "required #Name"},
		},
	}
	if d := cmp.Diff(want, compile.CompareFields(old, now)); d != "" {
		t.Errorf("changes (-want +got):\n%s", d)
	}
}
