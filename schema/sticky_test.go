package schema_test

import (
	"encoding/json"
	"testing"

	"github.com/musterhq/muster/schema"
)

// TestSticky: what was stored when it was a boolean is read, and written, as it was;
// whether a task stays is nothing that its process knows.
func TestSticky(t *testing.T) {
	t.Parallel()
	digests := map[schema.Sticky]schema.Digest{}
	for in, want := range map[string]struct {
		sticky  schema.Sticky
		written string
	}{"true": {schema.StickyHere, `true`}, "false": {schema.NotSticky, ``}, `"stay"`: {schema.StickyStay, `"stay"`}} {
		var s schema.TaskSpec
		if err := json.Unmarshal([]byte(`{"sticky":`+in+`}`), &s); err != nil || s.Sticky != want.sticky {
			t.Errorf("%s: %q, %v", in, s.Sticky, err)
		}
		var out map[string]json.RawMessage
		if err := json.Unmarshal(schema.Canonical(s), &out); err != nil || string(out["sticky"]) != want.written {
			t.Errorf("%s is written as %s, %v", in, out["sticky"], err)
		}
		digests[s.Sticky] = s.RunDigest()
	}
	if digests[schema.StickyHere] != digests[schema.StickyStay] || digests[schema.StickyHere] == digests[schema.NotSticky] {
		t.Errorf("what is run: %v", digests)
	}
	if err := json.Unmarshal([]byte(`"stays"`), new(schema.Sticky)); err == nil {
		t.Error(`"stays" is read`)
	}
}
