package compile_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/musterhq/muster/schema"
	"github.com/musterhq/muster/schema/compile"
)

// crowd are the packages of b and of n other tenants.
func crowd(n int) map[string]string {
	files := shared(nil)
	for i := range n {
		files["tenants.cue"] += fmt.Sprintf("tenant: a%d: muster.#Tenant & {paths: [\"teams/a%d\"], users: [\"a%d\"]}\n", i, i, i)
	}
	return files
}

// TestFirstPart: the line of a tenant whose package took little is compiled before most of the packages of others
// that take long are tried, in the same commit; and in the next one none of those that
// are known are tried again, and two go on.
func TestFirstPart(t *testing.T) {
	t.Parallel()
	const tenants = 12
	files := crowd(tenants)
	c := compiler(t, compile.Config{})
	if _, err := c.Compile(t.Context(), tree(files)); err != nil {
		t.Fatal(err)
	}
	for i := range tenants {
		for j := range 3 {
			files[fmt.Sprintf("teams/a%d/p%d/p.cue", i, j)] = endless + fmt.Sprintf("// %d %d\n", i, j)
		}
	}
	first := func() {
		t.Helper()
		files["teams/b/b.cue"] += "// a line\n"
		for part, err := range c.Parts(t.Context(), tree(files)) {
			if dirs := taken(t, part); err != nil || !part.Partial || !slices.Equal(dirs, []string{"teams/b"}) {
				t.Errorf("the first part has %v, partial: %v, %v", dirs, part.Partial, err)
			}
			break
		}
		if n := c.Flights(); n != 2 {
			t.Errorf("%d go on, want as many as there are workers", n)
		}
	}
	first()
	_, before := c.Remembered()
	if before < 1 || before > 4 {
		t.Errorf("%d packages that take long were tried before the first part", before)
	}
	for range tenants {
		first()
	}
	if _, tried := c.Remembered(); tried > 2*tenants {
		t.Errorf("%d packages that take long were tried, though each of two workers tries one of a tenant at most", tried)
	}
	c.Close()
}

// TestEverMore: each part has all of the one before, the last is what Compile gives, and what
// took long went on: it was not begun anew.
func TestEverMore(t *testing.T) {
	t.Parallel()
	files := shared(map[string]string{"teams/a/p/p.cue": endless})
	limits := compile.Limits{CPU: time.Second}
	c := compiler(t, compile.Config{Limits: limits})
	var parts []schema.Compiled
	for part, err := range c.Parts(t.Context(), tree(files)) {
		if err != nil {
			t.Fatal(err)
		}
		if n := len(parts); n > 0 && (!parts[n-1].Partial || len(taken(t, part)) < len(taken(t, parts[n-1]))) {
			t.Errorf("part %d has %v, after one with %v, partial: %v", n, taken(t, part), taken(t, parts[n-1]), parts[n-1].Partial)
		}
		parts = append(parts, part)
	}
	want, err := compiler(t, compile.Config{Limits: limits}).Compile(t.Context(), tree(files))
	if err != nil {
		t.Fatal(err)
	}
	if len(parts) < 2 || len(parts) > 4 {
		t.Fatalf("%d parts", len(parts))
	}
	last := parts[len(parts)-1]
	if diff := cmp.Diff(compile.Diagnostics(want), compile.Diagnostics(last)); diff != "" || last.Partial {
		t.Errorf("the last part, partial: %v, -compiled +part\n%s", last.Partial, diff)
	}
	if n := c.Flights(); n != 0 {
		t.Errorf("%d go on", n)
	}
}
