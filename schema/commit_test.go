package schema

import (
	"strings"
	"testing"
	"time"
)

func TestNewAuthorship(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.FixedZone("", 3600))
	for message, want := range map[string]string{
		"web: three tasks\n\nmore\n": "web: three tasks",
		"\n a\tb  c \r\nd":           "a b c",
		"\x1b[31mred\x07 \xff":       "[31mred \uFFFD",
		strings.Repeat("ä", 200):     strings.Repeat("ä", 119) + "…",
		"":                           "",
	} {
		if got := NewAuthorship("Ada\x1b", message, at); got.Subject != want || got.Author != "Ada" || !got.At.Equal(at) {
			t.Errorf("of %q: %q", message, got)
		}
	}
}
