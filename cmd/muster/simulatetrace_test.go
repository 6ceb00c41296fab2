package main

import (
	"strings"
	"testing"

	"github.com/musterhq/muster/reconciler/fastforward"
)

// TestPlayedText: runs that have no room beside each other stand in a table of their own, each with
// the names of its rows, and no line is too wide.
func TestPlayedText(t *testing.T) {
	t.Parallel()
	var p played
	names := []string{"hybrid", "best-fit", "worst-fit", "dot-product", "cosine", "with random"}
	for i, name := range names {
		p.Runs = append(p.Runs, playedRun{name, &fastforward.Result{Finished: 1000 + i, Waits: []fastforward.Wait{{Band: "production", P50: 12345, P99: 67890}}}})
	}
	for width, tables := range map[int]int{0: 1, 300: 1, 80: 2, 79: 3, 60: 6, 20: 6} {
		text := p.text(width)
		if got := strings.Count(text, "\nMEAN "); got != tables || strings.Count(text, "\ntasks finished ") != tables {
			t.Errorf("width %d: %d tables, want %d:\n%s", width, got, tables, text)
		}
		_, columns, _ := strings.Cut(text, "\nMEAN ")
		for i, name := range names {
			if strings.Count(columns, " "+name) != 1 || strings.Count(text, " 100"+string(rune('0'+i))) != 1 {
				t.Errorf("width %d: %s is not there once:\n%s", width, name, text)
			}
		}
		for line := range strings.Lines(text) {
			if width > 50 && len(line) > width+1 {
				t.Errorf("width %d: %q", width, line)
			}
		}
	}
}
