package git

import (
	"testing"
)

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
