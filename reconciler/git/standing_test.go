package git_test

import (
	"strings"
	"testing"
	"time"

	"github.com/musterhq/muster/reconciler/git"
	"github.com/musterhq/muster/reconciler/status"
)

// TestStanding: a commit beside the head, merged later, on another branch, forced
// away, and not there at all, of a repository here and of a remote.
func TestStanding(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"local", "remote"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			dir, first, _, url := hosted(t, "")
			bare := run(t, dir, "remote", "get-url", "origin")
			run(t, bare, "config", "uploadpack.allowFilter", "true")
			run(t, dir, "checkout", "-q", "-b", "one")
			one := commit(t, dir, "one.cue", "package a\n")
			run(t, dir, "checkout", "-q", "-b", "other", first)
			other := commit(t, dir, "other.cue", "package a\n")
			run(t, dir, "checkout", "-q", "main")
			run(t, dir, "merge", "-q", "--no-ff", "-m", "one", "one")
			second := push(t, dir, "b.cue", "package a\n")
			run(t, dir, "push", "-q", "origin", "other")
			cfg := git.Config{URL: url, Branch: "main", Dir: t.TempDir()}
			if kind == "local" {
				cfg = git.Config{URL: bare, Branch: "main"}
			}
			r := open(t, cfg)
			wantHead(t, r, second)
			want := func(head, name string, is status.Stand, message string) {
				t.Helper()
				s := r.Standing(t.Context(), head, name)
				if s.Is != is || !strings.Contains(s.Message, message) || s.Head != head {
					t.Errorf("%s at %s: %+v, want %s: %s", name, head, s, is, message)
				}
			}
			want(second, second, status.StandsAtHead, "")
			want(second, second[:7], status.StandsAtHead, "")
			want(second, first, status.StandsContained, "")
			want(second, one, status.StandsContained, "")
			want(second, other, status.StandsElsewhere, "is not on branch main")
			want(second, strings.Repeat("0", 40), status.StandsUnseen, "")
			if kind == "local" {
				want(second, one[:12], status.StandsContained, "")
			} else {
				want(second, one[:12], status.StandsUnknown, "give the full hash")
			}
			// The master has not looked yet.
			third := push(t, dir, "c.cue", "package a\n")
			want(second, third, status.StandsUnseen, "")
			wantHead(t, r, third)
			want(third, second, status.StandsContained, "")
			// Forced away.
			run(t, dir, "reset", "-q", "--hard", first)
			fourth := push(t, dir, "d.cue", "package a\n")
			wantHead(t, r, fourth)
			want(fourth, second, status.StandsElsewhere, "is not on branch main")
		})
	}
}

// TestLook: a look finds what was there when it was asked for, and what is wrong.
func TestLook(t *testing.T) {
	t.Parallel()
	dir, head, _, url := hosted(t, "")
	r := open(t, git.Config{URL: url, Dir: t.TempDir(), Poll: time.Hour})
	heads := follow(t, r)
	if s := next(t, heads); s.Commit != head {
		t.Fatalf("%+v", s)
	}
	for _, name := range []string{"b.cue", "c.cue"} {
		head = push(t, dir, name, "package a\n")
		if s, err := r.Look(t.Context()); err != nil || s.Commit != head || s.Trouble != nil {
			t.Errorf("%+v, %v; want %s", s, err, head)
		}
	}
	// The branch that HEAD named goes.
	run(t, dir, "push", "-q", "origin", "main:trunk")
	run(t, run(t, dir, "remote", "get-url", "origin"), "update-ref", "-d", "refs/heads/main")
	s, err := r.Look(t.Context())
	if err != nil || s.Commit != head {
		t.Errorf("%+v, %v", s, err)
	}
	wantError(t, s.Trouble, `has no branch "main"`, "its branches: trunk")
}
