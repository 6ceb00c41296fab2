package loop

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"slices"
	"time"

	"github.com/musterhq/muster/reconciler/model"
	"github.com/musterhq/muster/schema"
)

// retryAfter is how long a commit waits that could not be read or compiled for
// a reason that is not in the commit (a full disk, a child that did not start).
const retryAfter = 5 * time.Second

// patience is for how long newer heads end the work on older ones while none is applied. A
// cell whose commits come faster than they can be compiled would stay where it is for ever.
const patience = 10 * time.Second

// Source is where commits come from.
type Source interface {
	// Run calls back after each look, until ctx ends. The callback returns
	// fast.
	Run(ctx context.Context, seen func(model.Seen)) error
	Tree(ctx context.Context, commit string) (schema.Tree, error)
	// Trailers reads those of the commits that lead from applied, which is not
	// counted, to commit. With "" for applied, or one that commit does not come
	// from, commit's alone count.
	Trailers(ctx context.Context, applied, commit string) (schema.Trailers, error)
}

// Compiler makes data of a tree; its error is never the user's mistake.
type Compiler interface {
	// Parts gives what takes little first, then ever more of the commit, and all of it at last, or
	// ends with an error. It may be cancelled for a newer commit, which must not make it begin anew.
	Parts(ctx context.Context, tree schema.Tree) iter.Seq2[schema.Compiled, error]
}

// Secrets says what the secrets of a commit hold: see schema.Package.Opened.
type Secrets interface {
	// Take does so in c, with the cell's key of versions as it is stored; "" for none yet.
	Take(c *schema.Compiled, key string)
}

// Follower carries heads of a repository to a Loop.
type Follower struct {
	Source   Source
	Compiler Compiler
	Secrets  Secrets // nil: nobody opens any, and their versions are not known
	Loop     *Loop
	// Before is called with each commit before the loop takes it; nil for nobody.
	Before func(ctx context.Context, c schema.Compiled)
	Log    *slog.Logger
}

// Run follows the repository until parent ends. A newer head ends the work on an
// older one, unless no commit has been applied for some time.
func (f Follower) Run(parent context.Context) error {
	ctx, cancel := context.WithCancel(parent)
	heads := make(chan next, 1)
	compiled := make(chan error, 1)
	go func() { compiled <- (&pursuit{Follower: f, heads: heads}).run(ctx) }()
	var last model.Seen
	begun := ""
	err := f.Source.Run(ctx, func(s model.Seen) {
		if same(s, last) {
			last = s
			_ = f.Loop.Looked(ctx, s.At) // it fails when the loop has ended, which says why itself
			return
		}
		last = s
		if f.Loop.HeadSeen(ctx, s) != nil || s.Trouble != nil || s.Commit == begun {
			return
		}
		begun = s.Commit
		n := next{s.Commit, s.Rewritten != ""}
		select {
		case unread := <-heads: // only the newest matters
			n.rewritten = n.rewritten || unread.rewritten
		default:
		}
		heads <- n
	})
	cancel()
	err = errors.Join(err, <-compiled)
	if parent.Err() != nil {
		err = nil // that is how it is to end
	}
	return err
}

// next is a head that is to be compiled.
type next struct {
	commit    string
	rewritten bool // it does not come from all heads before it
}

// same says whether a look found what the one before, last, did.
func same(s, last model.Seen) bool {
	return s.Commit == last.Commit && s.Rewritten == "" && textOf(s.Trouble) == textOf(last.Trouble) && slices.Equal(s.Notes, last.Notes)
}

func textOf(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// pursuit is the work of a Follower on the newest heads, by one goroutine.
type pursuit struct {
	Follower
	heads <-chan next
	// behind is since when newer heads have ended the work on older ones, with none applied;
	// zero if none has been ended.
	behind time.Time
}

// run compiles the newest of heads, over and over.
func (p *pursuit) run(ctx context.Context) error {
	var commit string
	retry := time.NewTimer(0)
	<-retry.C
	defer retry.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case n := <-p.heads:
			commit = n.commit
		case <-retry.C:
		}
		retry.Stop()
		newer, err := p.compileUnlessNewer(ctx, commit)
		for newer != "" {
			if err != nil && ctx.Err() == nil {
				p.Log.Error("compile", "commit", commit, "err", err)
			}
			commit = newer
			newer, err = p.compileUnlessNewer(ctx, commit)
		}
		if err != nil && ctx.Err() == nil {
			p.Log.Error("compile", "commit", commit, "err", err)
			if err := p.Loop.CompileFailed(ctx, commit, err); err != nil {
				return nil // the loop has ended, and says why itself
			}
			retry.Reset(retryAfter)
		}
	}
}

// compileUnlessNewer compiles commit and hands it to the loop. When a newer head arrives
// first, that is returned and the work ended, at whatever moment once a part of commit is applied; else it is
// finished before, if the newer one comes from commit and patience is used up.
func (p *pursuit) compileUnlessNewer(ctx context.Context, commit string) (newer string, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	began, part, applied, done := time.Now(), false, make(chan struct{}, 1), make(chan error, 1)
	go func() { done <- p.compile(ctx, commit, applied) }()
	for {
		select {
		case <-applied:
			p.behind, part = time.Time{}, true
		case err := <-done:
			if err == nil {
				p.behind = time.Time{}
			}
			return newer, err
		case n := <-p.heads:
			if !part && p.behind.IsZero() {
				p.behind = began
			}
			if n.rewritten || part || time.Since(p.behind) < patience {
				cancel()
				_ = <-done // it was ended by us
				return n.commit, nil
			}
			if newer == "" {
				p.Log.Warn("commits come faster than they are compiled; one is applied before the newest", "commit", commit, "newest", n.commit)
			}
			newer = n.commit
		}
	}
}

// compile hands a commit to the loop: what takes long to compile after the rest of it, so
// that no tenant waits for the packages of others. It sends to applied, if nothing is there yet, when a
// part is enough to apply it.
func (f Follower) compile(ctx context.Context, commit string, applied chan<- struct{}) error {
	tree, err := f.Source.Tree(ctx, commit)
	if err != nil {
		return fmt.Errorf("read commit %s: %w", commit, err)
	}
	for c, err := range f.Compiler.Parts(ctx, tree) {
		if err != nil {
			return fmt.Errorf("compile commit %s: %w", commit, err)
		}
		if err := f.adopt(ctx, c); err != nil || !c.Partial {
			return err
		}
		if now, err := f.Loop.Applied(ctx); err != nil {
			return err
		} else if now == commit {
			select {
			case applied <- struct{}{}:
			default:
			}
		}
	}
	return nil
}

// adopt hands a compiled commit, or a part of it, to the loop, with the trailers since the
// commit that is applied: when this one is, the head knows what they still have to give.
func (f Follower) adopt(ctx context.Context, c schema.Compiled) (err error) {
	if c.Trailers, err = f.trailers(ctx, c.Commit); err != nil {
		return fmt.Errorf("the trailers up to commit %s: %w", c.Commit, err)
	}
	if f.Secrets != nil {
		key, err := f.Loop.versionKey(ctx)
		if err != nil {
			return fmt.Errorf("the secrets of commit %s: %w", c.Commit, err)
		}
		f.Secrets.Take(&c, key)
	}
	if f.Before != nil {
		f.Before(ctx, c)
	}
	return f.Loop.Adopt(ctx, c)
}

// trailers returns those of the commits from the one applied to the given one.
func (f Follower) trailers(ctx context.Context, commit string) (schema.Trailers, error) {
	applied, err := f.Loop.Applied(ctx)
	if err != nil {
		return schema.Trailers{}, err
	}
	return f.Source.Trailers(ctx, applied, commit)
}
