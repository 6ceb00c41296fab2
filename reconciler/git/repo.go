package git

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	gogit "github.com/go-git/go-git/v5"
	"github.com/go-git/go-git/v5/plumbing"

	"github.com/musterhq/muster/reconciler/look"
	"github.com/musterhq/muster/reconciler/model"
	"github.com/musterhq/muster/schema"
)

// Config is what Open needs.
type Config struct {
	// URL is a path, a file:// URL, or a remote's URL.
	URL string
	// Branch is what to follow; empty: what HEAD points at, whenever it does.
	Branch string
	// Rev is a tag, a branch or the full hash of a commit, to fetch of a remote in place of
	// the head of a branch. It is an error beside Branch, and of a local repository, all of
	// which can be resolved.
	Rev string
	// Away makes a directory that is not a repository now an error of Head and Run, like a
	// remote that does not answer, and not one of Open.
	Away bool
	// Dir holds the store of a remote, in a subdirectory that is made and
	// wiped as needed. Unused for a local repository.
	Dir string
	// Auth is for remotes.
	Auth Auth
	// Poll is the time between two looks, give or take a tenth; default 5 s.
	// A local repository is looked at when it changes as well, a remote that
	// is in trouble first sooner and then less often.
	Poll time.Duration
	// Stall is the silence after which a remote is given up; default 30 s.
	Stall time.Duration
	Log   *slog.Logger
}

const (
	defaultPoll = 5 * time.Second
	// A remote in trouble is looked at again after firstRetry, then after
	// twice that, and so on up to maxBackOff.
	firstRetry = 5 * time.Second
	maxBackOff = 5 * time.Minute
)

// Repo is a config repository.
type Repo struct {
	cfg    Config
	name   string // for messages: the URL without its password
	local  *layout
	remote *remote
	looks  *look.Requests

	mu   sync.Mutex // guards all below and every use of go-git's storage
	repo *gogit.Repository
	head string    // last good
	at   time.Time // when it was found to be the head
	tree trees
}

// Open prepares the source. It errs when the URL cannot be one, and, unless cfg
// says Away, when a local path is not a repository; a remote is first asked by
// Head or Run, so that a master starts while its remote is away.
func Open(ctx context.Context, cfg Config) (*Repo, error) {
	if cfg.Poll <= 0 {
		cfg.Poll = defaultPoll
	}
	if cfg.Stall <= 0 {
		cfg.Stall = stallTimeout
	}
	r := &Repo{cfg: cfg, looks: look.New(), tree: newTrees()}
	path, far, err := parseURL(cfg.URL)
	if err != nil {
		return nil, err
	}
	if far != nil {
		r.name = far.name
		r.remote = far
		return r, r.openRemote()
	}
	r.name = path
	if cfg.Rev != "" {
		return nil, fmt.Errorf("repository %s: Rev is for remotes", r.name)
	}
	if cfg.Auth != (Auth{}) {
		return nil, schema.Hintf("leave them out, or give a URL", "repository %s: credentials are given, but it is a directory of this machine", r.name)
	}
	if err := r.reopen(); err != nil && !cfg.Away {
		return nil, err
	}
	return r, ctx.Err()
}

// Name returns what the repository is called in messages: its path, or its URL
// as it may be shown.
func (r *Repo) Name() string { return r.name }

// Head looks now and returns the commit at the head of the branch. The error
// says what is wrong with the repository, as Seen.Trouble does.
func (r *Repo) Head(ctx context.Context) (string, error) {
	s := r.look(ctx)
	if s.Trouble != nil {
		return "", s.Trouble
	}
	return s.Commit, nil
}

// Resolve returns the commit that rev names: a hash, a branch, a tag, or one
// of these with ~ and ^. Of a remote only the head is there.
func (r *Repo) Resolve(ctx context.Context, rev string) (string, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var hash *plumbing.Hash
	err := r.again(ctx, func() (err error) {
		defer func() { err = recovered(recover(), err) }()
		name := rev
		if r.remote != nil && (rev == "HEAD" || rev == r.cfg.Branch) {
			name = r.remote.ref.String()
		}
		hash, err = r.repo.ResolveRevision(plumbing.Revision(name))
		if err != nil {
			return err
		}
		_, err = r.commit(*hash)
		return err
	})
	if err == nil {
		return hash.String(), nil
	}
	hint := "git log shows the commits"
	if r.remote == nil {
		if _, head := r.repo.Head(); errors.Is(head, plumbing.ErrReferenceNotFound) {
			return "", schema.Hintf("commit its files: git add -A && git commit; muster validate checks them before that", "repository %s: it has no commit yet", r.name)
		}
	} else {
		hint = "of a remote only the head is fetched; name a local clone to see more"
	}
	if errors.Is(err, io.EOF) || r.remote == nil && errors.Is(err, plumbing.ErrObjectNotFound) {
		if why := r.pastEnd(ctx, rev); why != nil {
			err = why
		}
	}
	return "", schema.Hintf(hint, "repository %s: no commit is named %q: %w", r.name, rev, err)
}

// pastEnd returns what a revision such as HEAD~3 names that is before the first commit, or a parent that
// a commit does not have; nil if there is something else wrong with it. Of that go-git only says EOF.
func (r *Repo) pastEnd(ctx context.Context, rev string) (why error) {
	defer func() { why = recovered(recover(), why) }()
	for cut := strings.LastIndexAny(rev, "~^"); cut > 0; cut = strings.LastIndexAny(rev, "~^") {
		step := rev[cut:]
		rev = rev[:cut]
		hash, err := r.repo.ResolveRevision(plumbing.Revision(rev))
		if err != nil {
			continue
		}
		at, err := r.commit(*hash)
		if err != nil {
			return nil
		}
		if step == "^2" && at.NumParents() == 1 { // more than two go-git does not know
			return fmt.Errorf("commit %s has one parent", at.Hash)
		}
		for at.NumParents() > 0 {
			next, err := r.commit(at.ParentHashes[0])
			if errors.Is(err, plumbing.ErrObjectNotFound) && r.isShallow() {
				return fmt.Errorf("the clone is shallow and ends before it, at commit %s; git fetch --unshallow fetches the rest", at.Hash)
			}
			if err != nil || ctx.Err() != nil {
				return nil
			}
			at = next
		}
		return fmt.Errorf("the history ends before it; its first commit is %s", at.Hash)
	}
	return nil
}

// isShallow reports whether the repository has only the last commits.
func (r *Repo) isShallow() bool {
	ends, err := r.repo.Storer.Shallow()
	return err == nil && len(ends) > 0
}

// Poke has Run look now.
func (r *Repo) Poke() { r.looks.Poke() }

// Look has Run look now, and returns what it found, after Run has reported it to its
// caller. A look that began earlier does not count. It waits while Run does not run.
func (r *Repo) Look(ctx context.Context) (model.Seen, error) { return r.looks.Look(ctx) }

// Run calls back on the goroutine that called it after each look, the first at
// once. It returns ctx's error when that ends.
func (r *Repo) Run(ctx context.Context, seen func(model.Seen)) error {
	w := r.watch()
	defer w.close()
	if r.remote != nil && r.remote.web != nil {
		defer r.remote.web.close()
	}
	timer := time.NewTimer(0)
	<-timer.C
	defer timer.Stop()
	failed := 0
	last := ""
	for {
		reported := r.looks.Begin()
		w.update() // before looking, so that no change falls between
		s := r.look(ctx)
		if err := ctx.Err(); err != nil {
			return err
		}
		if failed++; s.Trouble == nil {
			failed = 0
		}
		last = r.logChange(s, last)
		seen(s)
		reported(s)
		timer.Reset(r.pause(failed, s.Trouble))
		select {
		case <-ctx.Done():
		case <-timer.C:
		case <-r.looks.Asked():
		case <-w.changes():
		}
	}
}

// logChange logs that the repository has a new problem, or none any more, and returns it.
func (r *Repo) logChange(s model.Seen, last string) string {
	now := ""
	if s.Trouble != nil {
		now = s.Trouble.Error()
	}
	switch now {
	case last:
	case "":
		r.cfg.Log.Info("the repository can be read again", "repository", r.name, "commit", s.Commit)
	default:
		what, hint := schema.HintOf(s.Trouble)
		r.cfg.Log.Warn("the repository cannot be read", "commit", s.Commit, "err", what, "hint", hint)
	}
	if s.Rewritten != "" {
		r.cfg.Log.Warn("the head does not descend from the one before", "repository", r.name, "commit", s.Commit, "before", s.Rewritten)
	}
	return now
}

// pause returns the time to the next look, after failed ones in a row the last
// of which failed with trouble.
func (r *Repo) pause(failed int, trouble error) time.Duration {
	if r.remote == nil {
		return r.cfg.Poll
	}
	d := r.cfg.Poll
	if failed > 0 {
		most := max(maxBackOff, r.cfg.Poll)
		d = min(firstRetry, r.cfg.Poll)
		for range failed - 1 {
			d = min(2*d, most)
		}
		var status *statusError
		if errors.As(trouble, &status) {
			d = max(d, status.after)
		}
	}
	// So that masters that started together do not ask together.
	return d + time.Duration((rand.Float64()-0.5)*float64(d)/5) //nolint:gosec // no secret
}

// look finds the head and remembers it if it is good.
func (r *Repo) look(ctx context.Context) model.Seen {
	commit, rewritten, err := r.find(ctx)
	r.mu.Lock()
	defer r.mu.Unlock()
	if err == nil {
		r.head, r.at = commit, time.Now()
	}
	return model.Seen{Commit: r.head, Trouble: err, At: r.at, Rewritten: rewritten}
}

// find returns the head, and the head before if that is no ancestor of it.
func (r *Repo) find(ctx context.Context) (commit, rewritten string, err error) {
	if r.remote != nil {
		return r.remoteHead(ctx)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	err = r.again(ctx, func() (err error) {
		commit, err = r.localHead()
		return err
	})
	if err == nil && r.head != "" && r.head != commit && !r.descendsHere(plumbing.NewHash(commit), plumbing.NewHash(r.head)) {
		rewritten = r.head
	}
	return commit, rewritten, err
}

// A writer that is not the git program (go-git is one) empties a file before
// it fills it: what looks broken is looked at again before it is believed, after pauses
// that double. On a busy machine the writer may not go on for some hundredths of a second.
const (
	attempts = 5
	settle   = 10 * time.Millisecond
)

// again runs f until it succeeds, a few times, each time on the repository
// opened afresh: go-git keeps lists of packs that git may have replaced. r.mu
// is held.
func (r *Repo) again(ctx context.Context, f func() error) error {
	err := r.ready(f)
	for i := 1; i < attempts && err != nil; i++ {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(settle << (i - 1)):
		}
		r.repo = nil
		err = r.ready(f)
	}
	return err
}

func (r *Repo) ready(f func() error) error {
	if r.repo == nil {
		if err := r.reopen(); err != nil {
			return err
		}
	}
	return f()
}

func (r *Repo) reopen() (err error) {
	if r.remote != nil {
		r.repo, err = gogit.PlainOpen(r.remote.dir)
		return err
	}
	if r.local, err = discover(r.cfg.path()); err == nil {
		r.repo, err = r.local.open()
	}
	return err
}

// recovered turns a panic of go-git on damaged files into an error.
func recovered(p any, err error) error {
	if p != nil {
		return fmt.Errorf("unreadable: %v", p)
	}
	return err
}

// missing says whether go-git found no such object or reference.
func missing(err error) bool {
	return errors.Is(err, plumbing.ErrObjectNotFound) || errors.Is(err, plumbing.ErrReferenceNotFound)
}
