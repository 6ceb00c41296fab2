package model_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/musterhq/muster/reconciler/model"
	"github.com/musterhq/muster/schema"
)

func TestShortCommit(t *testing.T) {
	t.Parallel()
	hash := strings.Repeat("0123456789abcdef", 3)[:40]
	for commit, want := range map[string]string{
		hash: "0123456789", hash + hash[:24]: "0123456789", "worktree-0123456789ab": "worktree-0123456789ab", "": "", "c1": "c1",
		"worktree-" + hash: "worktree-" + hash,
	} {
		if got := model.ShortCommit(commit); got != want {
			t.Errorf("ShortCommit(%q): %q, want %q", commit, got, want)
		}
	}
}

// The history has the edges of trouble, not its changes, and nothing of a look
// that found what was expected.
func TestSourceEvents(t *testing.T) {
	t.Parallel()
	away := schema.Hintf("wait", "repository /srv/x: away")
	good, bad := model.Seen{Commit: "c"}, model.Seen{Commit: "c", Trouble: away}
	for _, tt := range []struct {
		name          string
		before, after model.Seen
		want          []string
	}{
		{"the first look", model.Seen{}, good, nil},
		{"the first look fails", model.Seen{}, model.Seen{Trouble: away}, []string{"the repository cannot be read: /srv/x: away"}},
		{"nothing new", good, good, nil},
		{"trouble", good, bad, []string{"the repository cannot be read: /srv/x: away"}},
		{"other trouble", bad, model.Seen{Commit: "c", Trouble: errors.New("still")}, nil},
		{"repaired", bad, good, []string{"the repository can be read again"}},
		{"repaired and rewritten", bad, model.Seen{Commit: "d", Rewritten: "c"}, []string{
			"the repository can be read again",
			"d does not descend from c, which was the head before: the history was rewritten, or another branch is followed; it is applied all the same",
		}},
	} {
		var got []string
		for _, e := range model.SourceEvents(tt.before, tt.after, time.Unix(1, 0)) {
			if e.Kind != "source" || e.Commit != tt.after.Commit || !e.At.Equal(time.Unix(1, 0)) {
				t.Errorf("%s: %+v", tt.name, e)
			}
			got = append(got, e.Message)
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
	}
}
