package schema_test

import (
	"testing"

	"github.com/musterhq/muster/schema"
)

// TestFormerProgressDeadline: what a release before 0.1 has stored is read, and written as it was.
func TestFormerProgressDeadline(t *testing.T) {
	t.Parallel()
	const stored = `{"maxParallel":1,"minHealthySeconds":2,"progressSeconds":600}`
	var u schema.UpdatePolicy
	unknown, err := schema.Decode([]byte(stored), &u)
	if err != nil || unknown != nil || u.ProgressDeadline() != 600 {
		t.Fatalf("%+v, unknown %v: %v", u, unknown, err)
	}
	if got := string(unknown.Encode(u)); got != stored+"\n" && got != stored {
		t.Errorf("written again as %s", got)
	}
	if now := (&schema.UpdatePolicy{ProgressDeadlineSeconds: 30}); now.ProgressDeadline() != 30 {
		t.Errorf("deadline of %d s", now.ProgressDeadline())
	}
}
