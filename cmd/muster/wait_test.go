package main

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/musterhq/muster/reconciler"
	"github.com/musterhq/muster/reconciler/web/client"
)

// TestWaitAbsence says when a wait for a job that the cell has not ends at once.
func TestWaitAbsence(t *testing.T) {
	t.Parallel()
	end := time.Now().Add(time.Minute)
	stale := reconciler.Blocker{Kind: reconciler.BlockedStale, Name: "t", Message: "t is stale: it does not compile", Next: "fix it"}
	other := reconciler.Blocker{Kind: reconciler.BlockedSuspended, Name: "u/other", Message: "u/other is suspended", Next: "resume it"}
	for _, test := range []struct {
		name string
		w    waited
		s    reconciler.Status
		want string // of the error; "" if the wait goes on
		hint string
	}{
		{"converged", waited{}, reconciler.Status{Commit: "aa", Applied: "aa"}, "no job at aa", "--commit"},
		{"another is suspended", waited{}, reconciler.Status{Commit: "aa", Applied: "aa", Blocked: []reconciler.Blocker{other}}, "no job at aa", "--commit"},
		{"no fail fast", waited{on: true}, reconciler.Status{Commit: "aa", Applied: "aa", Blocked: []reconciler.Blocker{stale}}, "", ""},
		{"no commit yet", waited{}, reconciler.Status{}, "", ""},
		{"not applied", waited{}, reconciler.Status{Commit: "bb", Applied: "aa"}, "", ""},
		{"commit to come", waited{commit: "bb"}, reconciler.Status{Commit: "aa", Applied: "aa", Blocked: []reconciler.Blocker{stale}}, "", ""},
		{"stale", waited{}, reconciler.Status{Commit: "aa", Applied: "aa", Blocked: []reconciler.Blocker{other, stale}}, "t is stale: it does not compile", "fix it"},
		{"stale at the commit", waited{commit: "aa"}, reconciler.Status{Commit: "aa", Applied: "aa", Blocked: []reconciler.Blocker{stale}}, "t is stale", "fix it"},
		{"a standby", waited{}, reconciler.Status{Commit: "aa", Applied: "aa", Master: &reconciler.Absence{}}, "", ""},
	} {
		test.w.end = end
		err := test.w.absence(&test.s, &client.Error{Message: "no job", Hint: "list them"})
		var f *failure
		errors.As(err, &f)
		switch {
		case (err == nil) != (test.want == ""):
			t.Errorf("%s: %v", test.name, err)
		case err != nil && (f == nil || f.code != exitDiffers || !strings.Contains(err.Error(), test.want) || !strings.Contains(f.hint, test.hint)):
			t.Errorf("%s: %v, want %q with hint %q", test.name, err, test.want, test.hint)
		}
	}
}
