package loop_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
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
	// slow are commits of which only a part is compiled quickly; with pending, nothing.
	slow    []string
	pending bool
	// trailers are those of commits, which follow one on the other.
	trailers map[string]schema.Trailers
	// commits are the data of commits; late is the directory of one that takes long.
	commits map[string]schema.Compiled
	late    map[string]string
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
	if c, ok := r.commits[t.Commit]; ok {
		return c, nil
	}
	return compiledOf(t.Commit), nil
}

func (r *repo) Parts(ctx context.Context, t schema.Tree) iter.Seq2[schema.Compiled, error] {
	return func(yield func(schema.Compiled, error) bool) {
		c, err := r.quick(ctx, t)
		if yield(c, err) && err == nil && c.Partial {
			yield(r.Compile(ctx, t))
		}
	}
}

func (r *repo) quick(ctx context.Context, t schema.Tree) (schema.Compiled, error) {
	if late := r.late[t.Commit]; late != "" {
		c := r.commits[t.Commit]
		c.Packages, c.Partial = slices.Clone(c.Packages), true
		for i := range c.Packages {
			if p := &c.Packages[i]; p.Dir == late {
				*p = schema.CompiledPackage{Dir: late, Diagnostics: []schema.Diagnostic{{Severity: schema.Error, Rule: schema.RulePending, Message: "it takes long"}}}
			}
		}
		return c, nil
	}
	if !slices.Contains(r.slow, t.Commit) {
		return r.Compile(ctx, t)
	}
	c := compiledOf(t.Commit)
	if c.Partial = true; r.pending {
		for i := range c.Packages {
			p := &c.Packages[i]
			*p = schema.CompiledPackage{Dir: p.Dir, Diagnostics: []schema.Diagnostic{{Severity: schema.Error, Rule: schema.RulePending, Message: "it takes long"}}}
		}
	}
	return c, nil
}

// compiledIn puts each job into the directory of its user, of which a tenant of that name has it.
func compiledIn(commit string, jobs ...schema.Job) schema.Compiled {
	root := &schema.Package{Dir: ".", Origins: map[schema.ObjectKey]schema.Position{}}
	root.Objects.Cells = []schema.Cell{{Name: "c", Quota: "off"}}
	byUser := map[string]*schema.Package{}
	for _, user := range []string{"u", "w"} {
		root.Objects.Tenants = append(root.Objects.Tenants, schema.Tenant{Name: user, Users: []string{user}, Paths: []string{user}})
		byUser[user] = &schema.Package{Dir: user, Origins: map[schema.ObjectKey]schema.Position{}}
	}
	for _, j := range jobs {
		p := byUser[j.User]
		p.Objects.Jobs = append(p.Objects.Jobs, j)
		p.Origins[schema.ObjectKey{Kind: schema.KindJob, Name: j.ID().String()}] = schema.Position{Path: j.User + "/x.cue", Line: len(p.Objects.Jobs)}
	}
	c := schema.Compiled{Commit: commit}
	for _, p := range []*schema.Package{root, byUser["u"], byUser["w"]} {
		c.Packages = append(c.Packages, schema.CompiledPackage{Dir: p.Dir, Package: p, Digest: schema.DigestOf(p)})
	}
	return c
}

// follow runs a master that follows a repository until the test ends.
func follow(t *testing.T, compile func(ctx context.Context, commit string) error) (*rig, *repo) {
	t.Helper()
	r, source, stop := lead(t, store.NewMemory(), compile)
	t.Cleanup(stop)
	return r, source
}

// lead runs a master on m that follows a repository until it is stopped.
func lead(t *testing.T, m *store.Memory, compile func(ctx context.Context, commit string) error) (*rig, *repo, func()) {
	t.Helper()
	r := start(t, m)
	source := &repo{heads: make(chan head), compile: compile}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- loop.Follower{Source: source, Compiler: source, Loop: r.Loop, Log: slog.New(slog.DiscardHandler)}.Run(ctx)
	}()
	return r, source, func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("the follower ended with %v", err)
		}
		r.stop()
	}
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

// Commits that come faster than they can be compiled end the work on each other for some
// seconds only: then one is applied, and so on. One that the newest does not come from never is.
func TestCommitsFasterThanCompiled(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r, source := follow(t, func(ctx context.Context, _ string) error {
			select {
			case <-time.After(2500 * time.Millisecond): // of the bubble's clock
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		})
		n := 0
		push := func(lasts time.Duration, rewritten bool) (applied []string) {
			for range lasts / time.Second {
				was := fmt.Sprint(n)
				n++
				h := head{commit: fmt.Sprint(n)}
				if rewritten {
					h.rewritten = was
				}
				source.heads <- h
				time.Sleep(time.Second)
				synctest.Wait()
				if s := r.status(); len(applied) == 0 || applied[len(applied)-1] != s.Applied {
					applied = append(applied, s.Applied)
				}
			}
			return applied
		}
		// The eleventh comes ten seconds after the first, and waits for the tenth.
		if applied, want := push(40*time.Second, false), []string{"", "10", "22", "34"}; !slices.Equal(applied, want) {
			t.Errorf("applied %q, want %q", applied, want)
		}
		time.Sleep(time.Minute)
		if s := r.status(); s.Applied != "40" || !s.Converged {
			t.Errorf("applied %q at the end", s.Applied)
		}
		if applied := push(40*time.Second, true); !slices.Equal(applied, []string{"40"}) {
			t.Errorf("applied %q, which no newer commit comes from", applied)
		}
	})
}

// When the rest of a commit takes longer than the time to the next, it is ended by that as
// long as the quick part of each is applied, and not when nothing is applied without it.
func TestRestOfCommitsThatComeFast(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var lasts time.Duration // the rest of a commit
		whole := ""
		r, source := follow(t, func(ctx context.Context, commit string) error {
			select {
			case <-time.After(lasts):
				whole = commit
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		})
		push := func(first, last int, every time.Duration) {
			for i := first; i <= last; i++ {
				source.slow = append(source.slow, fmt.Sprint(i))
				source.heads <- head{commit: fmt.Sprint(i)}
				time.Sleep(every)
				synctest.Wait()
			}
		}
		lasts = 2500 * time.Millisecond
		if push(1, 40, time.Second); whole != "" || r.status().Applied != "40" {
			t.Errorf("the rest of %q is done, applied is %q", whole, r.status().Applied)
		}
		lasts = time.Minute
		if push(41, 50, 30*time.Second); whole != "" || r.status().Applied != "50" {
			t.Errorf("the rest of %q is done, applied is %q", whole, r.status().Applied)
		}
		lasts, source.pending = 2500*time.Millisecond, true
		if push(51, 70, time.Second); whole != "60" || r.status().Applied != whole {
			t.Errorf("the rest of %q is done, applied is %q", whole, r.status().Applied)
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

// leadParts runs a master on m that follows commits. That of b comes in two parts: what w has
// of it is compiled when release is closed.
func leadParts(t *testing.T, m *store.Memory, release chan struct{}, commits map[string]schema.Compiled, trailers map[string]schema.Trailers) (*rig, *repo, func()) {
	t.Helper()
	r, source, stop := lead(t, m, func(ctx context.Context, commit string) error {
		if commit != "b" {
			return nil
		}
		select {
		case <-release:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	})
	source.commits, source.late, source.trailers = commits, map[string]string{"b": "w"}, trailers
	return r, source, stop
}

// A master ends between the two parts of a commit. The next one does the second with what
// the first has left of the trailers, and nothing is left of them for further commits.
func TestEndBetweenTheParts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		jobs := func(names ...string) (out []schema.Job) {
			for _, name := range names {
				user, job, _ := strings.Cut(name, "/")
				out = append(out, schema.Job{Name: job, User: user, Cell: "c", Kind: schema.Service, Tasks: 20})
			}
			return out
		}
		commits := map[string]schema.Compiled{
			"a": compiledIn("a", jobs("u/x", "u/kept", "w/y", "w/z")...),
			"b": compiledIn("b", jobs("u/kept", "w/z")...),
			"c": compiledIn("c", jobs("u/kept")...),
		}
		memory, release := store.NewMemory(), make(chan struct{})
		trailers := map[string]schema.Trailers{"b": {AllowPrune: 40}}
		lead := func() (*rig, *repo, func()) { return leadParts(t, memory, release, commits, trailers) }
		r, source, stop := lead()
		runs := func(commit string, held int, want ...string) {
			t.Helper()
			source.heads <- head{commit: commit}
			synctest.Wait()
			time.Sleep(time.Minute) // of the bubble's clock
			synctest.Wait()
			var got []string
			for _, job := range r.status().Jobs {
				got = append(got, job.Name)
			}
			if s := r.status(); s.Applied != commit || !slices.Equal(got, want) || len(s.Held) != held {
				t.Errorf("commit %s: applied %s, runs %v, want %v; held %v", commit, s.Applied, got, want, s.Held)
			}
		}
		runs("a", 0, "u/kept", "u/x", "w/y", "w/z")
		runs("b", 0, "u/kept", "w/y", "w/z")
		if left := r.stored().Head.Rest.AllowPrune; left != 20 {
			t.Errorf("%d of the removals that are allowed are left, want 20", left)
		}
		stop()
		r, source, stop = lead()
		defer stop()
		runs("b", 0, "u/kept", "w/y", "w/z")
		close(release)
		synctest.Wait()
		runs("b", 0, "u/kept", "w/z")
		if last := r.events[len(r.events)-1]; !slices.ContainsFunc(r.events, func(e schema.Event) bool {
			return e.Kind == schema.EventApply && e.Commit == "b" && e.Message == "what took long to compile is applied, too"
		}) {
			t.Errorf("the history does not say that all is applied; it ends with %v", last)
		}
		if rest := r.stored().Head.Rest; !cmp.Equal(rest, schema.Rest{}) {
			t.Errorf("there is a rest: %+v", rest)
		}
		runs("c", 1, "u/kept", "w/z")
	})
}

// A commit in two parts promotes what it brings itself: each job with the part that has it, and
// once, also if a master ends in between.
func TestPromoteInTwoParts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		jobs := func(version string) (out []schema.Job) {
			for _, user := range []string{"u", "w"} {
				j := schema.Job{Name: "x", User: user, Cell: "c", Kind: schema.Service, Tasks: 2, Labels: map[string]string{"version": version}}
				j.Update.Canary = &schema.Canary{Tasks: 1, Promote: schema.PromoteCommit}
				out = append(out, j)
			}
			return out
		}
		commits := map[string]schema.Compiled{"a": compiledIn("a", jobs("1")...), "b": compiledIn("b", jobs("2")...), "c": compiledIn("c", jobs("3")...)}
		both := []string{"u/x", "w/x"}
		trailers := map[string]schema.Trailers{"b": {Promote: both, PromoteNew: both}}
		memory, release := store.NewMemory(), make(chan struct{})
		r, source, stop := leadParts(t, memory, release, commits, trailers)
		seen := 0 // events of r
		promotes := func(commit string, rest, meant []string, said ...string) {
			t.Helper()
			source.heads <- head{commit: commit}
			synctest.Wait()
			var got []string
			r.mu.Lock()
			events := r.events[seen:]
			seen += len(events)
			r.mu.Unlock()
			for _, e := range events {
				if e.Kind == schema.EventRollout && strings.Contains(e.Message, "promoted by its own commit") {
					got = append(got, e.Job)
				}
			}
			h := r.stored().Head
			if !slices.Equal(got, said) || !slices.Equal(h.Promote, meant) || !slices.Equal(h.Rest.Promote, rest) || !slices.Equal(h.Rest.PromoteNew, rest) {
				t.Errorf("commit %s: promoted %v, want %v; the head has %v, want %v, and for later %v, %v, want %v",
					commit, got, said, h.Promote, meant, h.Rest.Promote, h.Rest.PromoteNew, rest)
			}
		}
		promotes("a", nil, nil)
		promotes("b", both[1:], both[:1], both[0])
		stop()
		seen = 0
		r, source, stop = leadParts(t, memory, release, commits, trailers)
		defer stop()
		promotes("b", both[1:], both[:1])
		close(release)
		promotes("b", nil, both, both[1])
		promotes("c", nil, nil)
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
