package git_test

import (
	"slices"
	"testing"

	"github.com/musterhq/muster/reconciler/git"
)

// TestCommits: the commits of a range are those that were the head of its branch.
func TestCommits(t *testing.T) {
	t.Parallel()
	dir, first := newRepo(t)
	empty := func(subject string) string {
		run(t, dir, "commit", "-q", "--allow-empty", "-m", subject)
		return run(t, dir, "rev-parse", "HEAD")
	}
	second := empty("second")
	run(t, dir, "checkout", "-q", "-b", "side", first)
	side := empty("side")
	run(t, dir, "checkout", "-q", "main")
	run(t, dir, "merge", "-q", "--no-ff", "-m", "merge\n\nwith a body", "side")
	merged := run(t, dir, "rev-parse", "HEAD")
	r := open(t, git.Config{URL: dir})
	for _, tc := range []struct {
		base, head string
		want       []string
	}{{first, merged, []string{second, merged}}, {second, merged, []string{merged}}, {merged, merged, nil}, {first, side, []string{side}}} {
		got, err := r.Commits(t.Context(), tc.base, tc.head)
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, c := range got {
			names = append(names, c.Commit)
		}
		if !slices.Equal(names, tc.want) {
			t.Errorf("%s..%s: %v, want %v", tc.base, tc.head, names, tc.want)
		}
	}
	if got, _ := r.Commits(t.Context(), second, merged); len(got) != 1 || got[0].By.Subject != "merge" || got[0].By.Author != "a" {
		t.Errorf("by: %+v", got)
	}
	for _, base := range []string{side, merged} { // what was merged in was never the head, nor was what came later
		_, err := r.Commits(t.Context(), base, second)
		wantError(t, err, "it is not among the commits that were the head of that branch", "git log --first-parent")
	}
}
