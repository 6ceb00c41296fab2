package git

import (
	"strings"
	"testing"

	"github.com/go-git/go-git/v5/plumbing/object"
)

func TestIgnored(t *testing.T) {
	t.Parallel()
	for message, want := range map[string]string{
		"x\n\nMuster-Promote: a/b\nMuster-Allow-Prune: 5\n":   "",
		"Muster-Promote: a/b":                                 "it is not a trailer",
		"x\n\nmuster-allow-prune: 5\n\nas it was agreed\n":    "it is not a trailer",
		"x\n\nMuster-Allow-Prune: many":                       "its value is not a number of tasks",
		"x\n\nMuster-Promote:":                                "it has no value",
		"x\n\nMuster-Promote: a/b\n\nMuster-Promote: a/b\n":   "it is not a trailer",
		"x\n\nthe Muster-Promote: a/b of before was too soon": "",
	} {
		switch got := strings.Join(ignored(&object.Commit{Message: message}), "; "); {
		case want == "" && got != "", !strings.Contains(got, want):
			t.Errorf("%q: %q, want %q", message, got, want)
		}
	}
}

func TestAllowedBy(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, message string
		want          int
	}{
		{"none", "remove all\n\nbecause\n", 0},
		{"one", "remove all\n\nbecause\n\nMuster-Allow-Prune: 120\n", 120},
		{"among others, in any case", "x\n\nSigned-off-by: a\nmuster-allow-prune:7\r\nChange-Id: b", 7},
		{"two add up", "x\n\nMuster-Allow-Prune: 1\nMuster-Allow-Prune: 2", 3},
		{"the subject is no trailer", "Muster-Allow-Prune: 120", 0},
		{"text is no trailer", "x\n\nMuster-Allow-Prune: 120\n\nthat is what it would say", 0},
		{"no number", "x\n\nMuster-Allow-Prune: all", 0},
		{"below 0", "x\n\nMuster-Allow-Prune: -5\nMuster-Allow-Prune: 5", 5},
		{"more than there are", "x\n\nMuster-Allow-Prune: 9223372036854775807\nMuster-Allow-Prune: 9223372036854775807", maxAllowed},
		{"more than an int", "x\n\nMuster-Allow-Prune: 92233720368547758070", 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if got := allowedBy(tt.message); got != tt.want {
				t.Errorf("allowed %d, want %d", got, tt.want)
			}
		})
	}
}
