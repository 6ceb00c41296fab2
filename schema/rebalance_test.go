package schema_test

import (
	"testing"
	"time"

	"github.com/musterhq/muster/schema"
)

func TestQuietHours(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ from, to, now, end string }{
		{"08:00", "18:00", "07:59", ""},
		{"08:00", "18:00", "08:00", "18:00"},
		{"08:00", "18:00", "17:59", "18:00"},
		{"08:00", "18:00", "18:00", ""},
		{"22:30", "06:00", "22:30", "06:00+"},
		{"22:30", "06:00", "05:59", "06:00"},
		{"22:30", "06:00", "06:00", ""},
		{"22:30", "06:00", "22:29", ""},
		{"06:00", "06:00", "06:00", ""},
		{"6:00", "07:00", "06:30", ""},
	} {
		day := time.Date(2026, 11, 28, 0, 0, 0, 0, time.UTC)
		at := func(s string) time.Time {
			clock, err := time.Parse("15:04", s[:5])
			if err != nil {
				t.Fatal(err)
			}
			return day.Add(clock.Sub(clock.Truncate(24 * time.Hour)))
		}
		q := schema.QuietHours{From: c.from, To: c.to}
		end, quiet := q.Within(at(c.now))
		if quiet != (c.end != "") {
			t.Errorf("%s-%s at %s: quiet %t", c.from, c.to, c.now, quiet)
			continue
		}
		if c.end == "" {
			continue
		}
		want := at(c.end)
		if c.end[5:] == "+" {
			want = want.Add(24 * time.Hour)
		}
		if !end.Equal(want) {
			t.Errorf("%s-%s at %s ends at %s: want %s", c.from, c.to, c.now, end, want)
		}
	}
}
