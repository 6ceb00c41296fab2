package main

import (
	"strings"
	"testing"

	"github.com/musterhq/muster/reconciler/compact"
)

// What could be emptied is said to be the least that is so, where not all machines were looked at.
func TestCompactedSaysWhatWasNotLookedAt(t *testing.T) {
	t.Parallel()
	for unseen, want := range map[int]string{0: "", 1: "1 machine of which so little is used was not looked at", 7: "7 machines of which so little is used were not looked at"} {
		c := compacted{Cell: "c", Result: &compact.Result{Emptied: 3, EmptyBelow: 20, Unseen: unseen}}
		if text := c.text(0); strings.Contains(text, "ended early") != (unseen > 0) || !strings.Contains(text, want) {
			t.Errorf("%d machines were not looked at:\n%s\nwant %q", unseen, text, want)
		}
	}
}
