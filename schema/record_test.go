package schema_test

import (
	"testing"
	"time"

	"github.com/musterhq/muster/schema"
)

// Since when a job has wanted as many tasks is known of the record for which it was found out
// alone: a release that does not know the field keeps it when the job becomes another.
func TestWholeSince(t *testing.T) {
	t.Parallel()
	first, second := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(2026, 1, 1, 9, 0, 0, 0, time.UTC)
	for name, c := range map[string]struct {
		doc  string
		want time.Time
	}{
		"of the record":          {`{"since": "2026-01-01T09:00:00Z", "wholeSince": {"since": "2026-01-01T00:00:00Z", "of": "2026-01-01T09:00:00Z"}}`, first},
		"of an earlier one":      {`{"since": "2026-01-01T09:00:00Z", "wholeSince": {"since": "2026-01-01T00:00:00Z", "of": "2026-01-01T08:00:00Z"}}`, second},
		"none":                   {`{"since": "2026-01-01T09:00:00Z"}`, second},
		"of an earlier build":    {`{"since": "2026-01-01T09:00:00Z", "whole": "2026-01-01T00:00:00Z"}`, second},
		"it says not of which":   {`{"since": "2026-01-01T09:00:00Z", "wholeSince": {"since": "2026-01-01T00:00:00Z"}}`, second},
		"equal in another place": {`{"since": "2026-01-01T09:00:00Z", "wholeSince": {"since": "2026-01-01T00:00:00Z", "of": "2026-01-01T10:00:00+01:00"}}`, first},
	} {
		var r schema.JobRecord
		if _, err := schema.Decode([]byte(c.doc), &r); err != nil {
			t.Errorf("%s: %v", name, err)
		} else if got := r.WholeSince(); !got.Equal(c.want) {
			t.Errorf("%s: since %s, want %s", name, got, c.want)
		}
	}
}
