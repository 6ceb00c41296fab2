package reference

import (
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/musterhq/muster/reconciler/control"
	"github.com/musterhq/muster/reconciler/intent"
	"github.com/musterhq/muster/reconciler/quota"
	"github.com/musterhq/muster/reconciler/status"
	"github.com/musterhq/muster/schema"
)

var rowName = regexp.MustCompile("(?m)^\\| `([^`]+)` \\|")

// TestStatus holds the fields of docs/reference/status.md, which is written by
// hand, to those of the status.
func TestStatus(t *testing.T) {
	t.Parallel()
	b, err := os.ReadFile("../../../docs/reference/status.md")
	if err != nil {
		t.Fatal(err)
	}
	parts := strings.Split(string(b), "\n## ")
	types := []reflect.Type{
		reflect.TypeFor[status.Status](), reflect.TypeFor[status.Totals](), reflect.TypeFor[status.Replica](), reflect.TypeFor[status.Absence](), reflect.TypeFor[status.Wait](), reflect.TypeFor[status.Blocker](), reflect.TypeFor[status.StalePackage](), reflect.TypeFor[status.Rejection](),
		reflect.TypeFor[intent.Hold](), reflect.TypeFor[control.LossHold](), reflect.TypeFor[status.SuspensionStatus](), reflect.TypeFor[quota.Warning](),
		reflect.TypeFor[status.MachineStatus](), reflect.TypeFor[control.Draining](), reflect.TypeFor[status.JobStatus](), reflect.TypeFor[status.TaskStatus](), reflect.TypeFor[status.Serving](), reflect.TypeFor[status.Endpoint](),
	}
	if len(parts) != len(types) {
		t.Fatalf("%d parts, want %d", len(parts), len(types))
	}
	for i, typ := range types {
		fieldsOf(t, typ, parts[i])
	}
}

// TestDiagnostics holds the fields of docs/reference/diagnostics.md to the code.
func TestDiagnostics(t *testing.T) {
	t.Parallel()
	b, err := os.ReadFile("../../../docs/reference/diagnostics.md")
	if err != nil {
		t.Fatal(err)
	}
	fields, _, _ := strings.Cut(string(b), "\n## ")
	fieldsOf(t, reflect.TypeFor[schema.Diagnostic](), fields)
}

// fieldsOf holds the rows of a table to the JSON fields of a type.
func fieldsOf(t *testing.T, typ reflect.Type, table string) {
	t.Helper()
	var want, got []string
	for _, f := range reflect.VisibleFields(typ) {
		if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name != "-" && !f.Anonymous && f.IsExported() {
			want = append(want, name)
		}
	}
	for _, m := range rowName.FindAllStringSubmatch(table, -1) {
		got = append(got, m[1])
	}
	slices.Sort(want)
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-code +page):\n%s", typ.Name(), diff)
	}
}
