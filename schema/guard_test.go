package schema_test

import (
	"encoding/json"
	"testing"

	"github.com/musterhq/muster/schema"
)

// TestGuardName: the text is what every release has stored, and comes back the same
// whatever a release knows of it.
func TestGuardName(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]schema.GuardName{
		"":                   {},
		"cell":               {Kind: schema.GuardCell},
		"tenant shop":        {Kind: schema.GuardTenant, Of: "shop"},
		"job":                {Kind: schema.GuardJob},
		"directory teams/a":  {Kind: schema.GuardDirectory, Of: "teams/a"},
		"directory my  team": {Kind: schema.GuardDirectory, Of: "my  team"},
		"moon of a year":     {Kind: "moon", Of: "of a year"},
	} {
		var got schema.HeldJob
		doc, _ := json.Marshal(map[string]string{"guard": text})
		if err := json.Unmarshal(doc, &got); err != nil || got.Guard != want {
			t.Errorf("%q is read as %+v, want %+v (%v)", text, got.Guard, want, err)
		}
		if again, err := json.Marshal(want); err != nil || string(again) != `"`+text+`"` {
			t.Errorf("%+v is written as %s, want %q (%v)", want, again, text, err)
		}
	}
}
