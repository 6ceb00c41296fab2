package git

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	gogit "github.com/go-git/go-git/v5"
	"github.com/go-git/go-git/v5/plumbing"
)

// Config is what Open needs.
type Config struct {
	// URL is a path, a file:// URL, or a remote's URL.
	URL string
	// Branch is what to follow; empty: what HEAD points at, whenever it does.
	Branch string
	// Dir holds the store of a remote, in a subdirectory that is made and
	// wiped as needed. Unused for a local repository.
	Dir string
	// Poll is the time between two looks; default 5 s. A local repository is
	// looked at when it changes as well.
	Poll time.Duration
	Log  *slog.Logger
}

const defaultPoll = 5 * time.Second

// Head is the state of the source.
type Head struct {
	// Commit is the last head that could be read, "" before the first.
	Commit string
	// Err says what is wrong with the repository now, with a hint on a line
	// of its own.
	Err error
}

// Repo is a config repository.
type Repo struct {
	cfg    Config
	name   string // for messages: the URL without its password
	local  *layout
	remote *remote
	poke   chan struct{}

	mu   sync.Mutex // guards all below and every use of go-git's storage
	repo *gogit.Repository
	head string // last good
	tree trees
}

// Open prepares the source. It errs when the URL cannot be one, and when a
// local path is not a repository; a remote is first asked by Head or Run, so
// that a master starts while its remote is away.
func Open(ctx context.Context, cfg Config) (*Repo, error) {
	if cfg.Poll <= 0 {
		cfg.Poll = defaultPoll
	}
	r := &Repo{cfg: cfg, poke: make(chan struct{}, 1), tree: newTrees()}
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
	if r.local, err = discover(path); err != nil {
		return nil, err
	}
	r.repo, err = r.local.open()
	if err != nil {
		return nil, err
	}
	return r, ctx.Err()
}

// Head looks now and returns the commit at the head of the branch. The error
// says what is wrong with the repository, as in Head.Err.
func (r *Repo) Head(ctx context.Context) (string, error) {
	h := r.look(ctx)
	if h.Err != nil {
		return "", h.Err
	}
	return h.Commit, nil
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
	if r.remote != nil {
		hint = "of a remote only the head is fetched; name a local clone to see more"
	}
	return "", fmt.Errorf("repository %s: no commit is named %q: %w\nhint: %s", r.name, rev, err, hint)
}

// Poke has Run look now.
func (r *Repo) Poke() {
	select {
	case r.poke <- struct{}{}:
	default: // it is about to
	}
}

// Run calls back on the goroutine that called it, first with the state at the
// start and then whenever the head or what is wrong has changed. It returns
// ctx's error when that ends.
func (r *Repo) Run(ctx context.Context, changed func(Head)) error {
	w := r.watch()
	defer w.close()
	tick := time.NewTicker(r.cfg.Poll)
	defer tick.Stop()
	var last *Head
	for {
		w.update() // before looking, so that no change falls between
		h := r.look(ctx)
		if err := ctx.Err(); err != nil {
			return err
		}
		if last == nil || h.Commit != last.Commit || text(h.Err) != text(last.Err) {
			changed(h)
			last = &h
		}
		select {
		case <-ctx.Done():
		case <-tick.C:
		case <-r.poke:
		case <-w.changes():
		}
	}
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// look finds the head and remembers it if it is good.
func (r *Repo) look(ctx context.Context) Head {
	commit, err := r.find(ctx)
	r.mu.Lock()
	defer r.mu.Unlock()
	if err == nil {
		r.head = commit
	}
	return Head{Commit: r.head, Err: err}
}

func (r *Repo) find(ctx context.Context) (string, error) {
	if r.remote != nil {
		return r.remoteHead(ctx)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	var commit string
	err := r.again(ctx, func() (err error) {
		commit, err = r.localHead()
		return err
	})
	return commit, err
}

// A writer that is not the git program (go-git is one) empties a file before
// it fills it: what looks broken is looked at again before it is believed.
const (
	attempts = 3
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
		case <-time.After(settle):
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
		r.repo, err = r.remote.open()
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
