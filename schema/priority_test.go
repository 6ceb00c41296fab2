package schema_test

import (
	"testing"

	"github.com/musterhq/muster/schema"
)

func TestPreempts(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		by, of schema.Priority
		want   bool
	}{
		{1, 0, true},
		{0, 0, false},
		{0, 1, false},
		{199, 198, true},
		{200, 199, true},
		{299, 200, false},
		{300, 299, true},
		{300, 200, true},
		{300, 0, true},
		{399, 300, false},
		{200, 300, false},
	} {
		if is := c.by.Preempts(c.of); is != c.want {
			t.Errorf("%d preempts %d: %v, want %v", c.by, c.of, is, c.want)
		}
	}
}
