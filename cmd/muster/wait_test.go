package main

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/musterhq/muster/reconciler/status"
	"github.com/musterhq/muster/reconciler/web/client"
)

// TestWaitAbsence says when a wait for a job that the cell has not ends at once.
func TestWaitAbsence(t *testing.T) {
	t.Parallel()
	end := time.Now().Add(time.Minute)
	stale := status.Blocker{Kind: status.BlockedStale, Name: "t", Message: "t is stale: it does not compile", Next: "fix it"}
	other := status.Blocker{Kind: status.BlockedSuspended, Name: "u/other", Message: "u/other is suspended", Next: "resume it"}
	for _, test := range []struct {
		name string
		w    waited
		s    status.Status
		want string // of the error; "" if the wait goes on
		hint string
	}{
		{"converged", waited{}, status.Status{Commit: "aa", Applied: "aa"}, "no job at aa", "--commit"},
		{"another is suspended", waited{}, status.Status{Commit: "aa", Applied: "aa", Blocked: []status.Blocker{other}}, "no job at aa", "--commit"},
		{"no fail fast", waited{on: true}, status.Status{Commit: "aa", Applied: "aa", Blocked: []status.Blocker{stale}}, "", ""},
		{"no commit yet", waited{}, status.Status{}, "", ""},
		{"not applied", waited{}, status.Status{Commit: "bb", Applied: "aa"}, "", ""},
		{"commit to come", waited{commit: "bb"}, status.Status{Commit: "aa", Applied: "aa", Blocked: []status.Blocker{stale}}, "", ""},
		{"stale", waited{}, status.Status{Commit: "aa", Applied: "aa", Blocked: []status.Blocker{other, stale}}, "t is stale: it does not compile", "fix it"},
		{"stale at the commit", waited{commit: "aa"}, status.Status{Commit: "aa", Applied: "aa", Blocked: []status.Blocker{stale}}, "t is stale", "fix it"},
		{"a part is still being compiled", waited{}, status.Status{Commit: "aa", Applied: "aa", Behind: status.Behind{Pending: []status.PendingPackage{{Dir: "t"}}}}, "", ""},
		{"a standby", waited{}, status.Status{Commit: "aa", Applied: "aa", MasterStatus: status.MasterStatus{Master: &status.Absence{}}}, "", ""},
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
