package sim

import (
	"testing"

	"github.com/musterhq/muster/reconciler/control"
	"github.com/musterhq/muster/reconciler/model"
	"github.com/musterhq/muster/schema"
)

// TestOverdue: a master that sleeps need not have moved a task for the spread of its job, and
// must have done all else.
func TestOverdue(t *testing.T) {
	t.Parallel()
	moved := schema.Event{Kind: schema.EventEvict, Cause: schema.CauseRebalance}
	updated := schema.Event{Kind: schema.EventEvict, Cause: schema.CauseUpdate}
	writes := []model.Write{{Key: model.KeyChunk + "a/web/0"}}
	for name, test := range map[string]struct {
		out  control.Output
		want bool
	}{
		"nothing":                {control.Output{}, false},
		"a move":                 {control.Output{Writes: writes, Events: []schema.Event{moved}}, false},
		"a move and an update":   {control.Output{Writes: writes, Events: []schema.Event{moved, updated}}, true},
		"what is said by nobody": {control.Output{Writes: writes}, true},
	} {
		if got := new(World).overdue(&test.out); got != test.want {
			t.Errorf("%s: overdue is %t, want %t", name, got, test.want)
		}
	}
}
