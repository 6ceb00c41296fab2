package loop_test

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/musterhq/muster/reconciler/loop"
	"github.com/musterhq/muster/reconciler/model"
	"github.com/musterhq/muster/reconciler/store"
	"github.com/musterhq/muster/schema"
)

// repo is a Source that moves when a test says so, and a Compiler that takes as
// long as it says.
type repo struct {
	heads chan head
	// compile says what becomes of a commit; it may wait.
	compile func(ctx context.Context, commit string) error
	// slow are commits of which only a part is compiled quickly.
	slow []string
	// trailers are those of commits.
	trailers map[string]schema.Trailers
}

type head struct {
	commit  string
	trouble error
	at      time.Time
	// rewritten is the head before, if this one does not descend from it.
	rewritten string
}

func (r *repo) Run(ctx context.Context, seen func(model.Seen)) error {
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case h := <-r.heads:
			seen(model.Seen{Commit: h.commit, Trouble: h.trouble, At: h.at, Rewritten: h.rewritten})
		}
	}
}

func (*repo) Tree(_ context.Context, commit string) (schema.Tree, error) {
	return schema.Tree{Commit: commit}, nil
}

func (r *repo) Trailers(_ context.Context, applied, commit string) (schema.Trailers, error) {
	if applied == commit {
		return schema.Trailers{}, nil
	}
	return r.trailers[commit], nil
}

func (r *repo) Compile(ctx context.Context, t schema.Tree) (schema.Compiled, error) {
	if err := r.compile(ctx, t.Commit); err != nil {
		return schema.Compiled{}, err
	}
	return compiledOf(t.Commit), nil
}

func (r *repo) Quick(ctx context.Context, t schema.Tree) (schema.Compiled, bool, error) {
	if slices.Contains(r.slow, t.Commit) {
		return compiledOf(t.Commit), false, nil
	}
	c, err := r.Compile(ctx, t)
	return c, true, err
}

// follow runs a master that follows a repository until the test ends.
func follow(t *testing.T, compile func(ctx context.Context, commit string) error) (*rig, *repo) {
	t.Helper()
	r := start(t, store.NewMemory())
	source := &repo{heads: make(chan head), compile: compile}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- loop.Follower{Source: source, Compiler: source, Loop: r.Loop, Log: slog.New(slog.DiscardHandler)}.Run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("the follower ended with %v", err)
		}
		r.stop()
	})
	return r, source
}

// A newer head ends the work on an older one, and is the one that is applied.
func TestNewerHeadEndsTheOlder(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ended := ""
		r, source := follow(t, func(ctx context.Context, commit string) error {
			if commit == "slow" {
				<-ctx.Done()
				ended = commit
				return ctx.Err()
			}
			return nil
		})
		source.heads <- head{commit: "slow"}
		synctest.Wait()
		source.heads <- head{commit: "new"}
		synctest.Wait()
		if s := r.status(); ended != "slow" || s.Applied != "new" || s.Source != "" {
			t.Errorf("ended %q, applied %q, trouble %q", ended, s.Applied, s.Source)
		}
	})
}

// What is compiled quickly is applied before the rest, once, and a newer head ends the rest.
func TestQuickBeforeTheRest(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		release, rest := make(chan struct{}), []string{}
		r, source := follow(t, func(ctx context.Context, commit string) error {
			select {
			case <-release:
				rest = append(rest, commit)
				return nil
			case <-ctx.Done():
				rest = append(rest, "ended "+commit)
				return ctx.Err()
			}
		})
		source.slow = []string{"a", "b"}
		for _, commit := range source.slow {
			source.heads <- head{commit: commit}
			synctest.Wait()
			if s := r.status(); s.Applied != commit || s.Source != "" {
				t.Errorf("applied %q, trouble %q, want what is quick of %q", s.Applied, s.Source, commit)
			}
		}
		close(release)
		synctest.Wait()
		if want := []string{"ended a", "b"}; !slices.Equal(rest, want) || r.status().Applied != "b" {
			t.Errorf("the rest: %q, want %q; applied %q", rest, want, r.status().Applied)
		}
	})
}

// A commit whose trailers allow something is applied in one, when all of it is compiled.
func TestTrailersAreForTheWhole(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		r, source := follow(t, func(ctx context.Context, _ string) error {
			select {
			case <-release:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		})
		source.trailers = map[string]schema.Trailers{"a": {AllowPrune: 3}, "b": {Promote: []string{"u/web"}}, "c": {Ignored: []string{"no number"}}}
		source.slow = []string{"a", "b", "c"}
		last := ""
		for _, commit := range source.slow {
			source.heads <- head{commit: commit}
			synctest.Wait()
			if s := r.status(); s.Applied != last || s.Source != "" {
				t.Errorf("commit %q: applied %q before it is whole, want %q; trouble %q", commit, s.Applied, last, s.Source)
			}
			release <- struct{}{}
			synctest.Wait()
			if s := r.status(); s.Applied != commit {
				t.Errorf("applied %q, want %q", s.Applied, commit)
			}
			last = commit
		}
	})
}

// A commit that cannot be compiled for a reason of ours is shown, tried again
// after five seconds, and no trouble any more once it is applied.
func TestCompileIsRetried(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		tries := 0
		r, source := follow(t, func(context.Context, string) error {
			if tries++; tries == 1 {
				return errors.New("no child could be started")
			}
			return nil
		})
		source.heads <- head{commit: "a"}
		synctest.Wait()
		if s := r.status(); s.Commit != "a" || !strings.Contains(s.Source, "no child") || s.Converged {
			t.Errorf("commit %q, trouble %q, converged %t", s.Commit, s.Source, s.Converged)
		}
		time.Sleep(5 * time.Second) // of the bubble's clock
		synctest.Wait()
		if s := r.status(); tries != 2 || s.Applied != "a" || s.Source != "" || !s.Converged {
			t.Errorf("%d tries, applied %q, trouble %q, converged %t", tries, s.Applied, s.Source, s.Converged)
		}
	})
}

// A failure of an older commit is no news once a newer head has been seen, and
// does not move the head back.
func TestFailureOfAnOlderCommit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := start(t, store.NewMemory())
		defer r.stop()
		for _, err := range []error{
			r.HeadSeen(t.Context(), model.Seen{Commit: "a"}), r.HeadSeen(t.Context(), model.Seen{Commit: "b"}),
			r.CompileFailed(t.Context(), "a", errors.New("too late")), r.Adopt(t.Context(), compiledOf("b")),
		} {
			if err != nil {
				t.Error(err)
			}
		}
		if s := r.status(); s.Commit != "b" || s.Applied != "b" || s.Source != "" {
			t.Errorf("head %q, applied %q, trouble %q", s.Commit, s.Applied, s.Source)
		}
	})
}

// What is wrong with the repository is shown with the last good head, and gone
// when it is repaired.
func TestTroubleIsShownAndCleared(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r, source := follow(t, func(context.Context, string) error { return nil })
		source.heads <- head{commit: "a"}
		source.heads <- head{commit: "a", trouble: errors.New("the disk is gone")}
		synctest.Wait()
		if s := r.status(); s.Applied != "a" || s.Source != "the disk is gone" || s.Converged {
			t.Errorf("applied %q, trouble %q, converged %t", s.Applied, s.Source, s.Converged)
		}
		source.heads <- head{commit: "a"}
		synctest.Wait()
		if s := r.status(); s.Source != "" || !s.Converged {
			t.Errorf("trouble %q, converged %t", s.Source, s.Converged)
		}
	})
}

// A look that finds nothing new moves the time up to which the head is known,
// and nothing else: no round is made and nobody who waits is woken.
func TestLookThatFindsNothingNew(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		compiled := 0
		r, source := follow(t, func(context.Context, string) error { compiled++; return nil })
		at := time.Now()
		source.heads <- head{commit: "a", at: at}
		synctest.Wait()
		before, newer := r.statusAndNewer()
		if !before.SourceAt.Equal(at) {
			t.Errorf("read at %s, want %s", before.SourceAt, at)
		}
		source.heads <- head{commit: "a", at: at.Add(time.Minute)}
		synctest.Wait()
		select {
		case <-newer:
			t.Error("who waits for a change is woken")
		default:
		}
		s := r.status()
		if !s.SourceAt.Equal(at.Add(time.Minute)) || s.Version != before.Version || compiled != 1 {
			t.Errorf("read at %s, version %d, compiled %d times", s.SourceAt, s.Version, compiled)
		}
		// In trouble the time stays, and so does the commit.
		source.heads <- head{commit: "a", trouble: schema.Hintf("wait", "away"), at: at.Add(time.Minute)}
		source.heads <- head{commit: "a", trouble: schema.Hintf("wait", "away"), at: at.Add(time.Minute)}
		synctest.Wait()
		s = r.status()
		if !s.SourceAt.Equal(at.Add(time.Minute)) || s.Applied != "a" || s.Source != "away" || s.SourceHint != "wait" || !slices.Contains(s.Waiting, "the repository: away") {
			t.Errorf("%+v", s)
		}
	})
}

// The history has an event of the repository when it gets into trouble, one when
// it is out of it, and of a head that does not descend from the one before.
func TestRepositoryInTheHistory(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r, source := follow(t, func(context.Context, string) error { return nil })
		old, young := strings.Repeat("a", 40), strings.Repeat("b", 40)
		source.heads <- head{commit: old}
		source.heads <- head{commit: old, trouble: schema.Hintf("wait", "away")}
		source.heads <- head{commit: old, trouble: schema.Hintf("wait", "far away")}
		source.heads <- head{commit: old}
		source.heads <- head{commit: young, rewritten: old}
		source.heads <- head{commit: young}
		synctest.Wait()
		var got []string
		for _, e := range r.events {
			if e.Kind == schema.EventSource {
				got = append(got, e.Message)
			}
		}
		want := []string{
			"the repository cannot be read: away", "the repository can be read again",
			"bbbbbbbbbb does not descend from aaaaaaaaaa, which was the head before: the history was rewritten, or another branch is followed; it is applied all the same",
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("events (-want +got):\n%s", diff)
		}
		if s := r.status(); s.Applied != young {
			t.Errorf("applied %s", s.Applied)
		}
	})
}
