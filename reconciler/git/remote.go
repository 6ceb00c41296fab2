package git

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	gogit "github.com/go-git/go-git/v5"
	"github.com/go-git/go-git/v5/config"
	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/transport"
	"github.com/go-git/go-git/v5/storage/memory"
)

const (
	listTimeout  = time.Minute
	fetchTimeout = 10 * time.Minute
	// maxPacks is when the store is made afresh: each fetch adds a pack, and
	// go-git cannot collect garbage.
	maxPacks = 100
)

// remote is a repository behind a transport, and its store here.
type remote struct {
	name   string // the URL without its password
	url    string
	branch string
	dir    string                 // the store; everything in it may be wiped
	ref    plumbing.ReferenceName // the head as last fetched
}

// parseURL tells local paths from remotes.
func parseURL(raw string) (path string, far *remote, err error) {
	if raw == "" {
		return "", nil, errors.New("no repository is named\nhint: give a path or a URL")
	}
	if path := (Config{URL: raw}).path(); path != "" {
		abs, err := filepath.Abs(path)
		return abs, nil, err
	}
	ep, err := transport.NewEndpoint(raw)
	if err != nil {
		return "", nil, fmt.Errorf("repository %s: %w\nhint: give a path or a URL such as https://host/path", redact(raw), err)
	}
	switch ep.Protocol {
	case "http", "https", "ssh", "git":
		return "", &remote{name: redact(raw), url: raw}, nil
	}
	return "", nil, fmt.Errorf("repository %s: %s is not supported\nhint: use a path, or a URL with https, http, ssh or git", redact(raw), ep.Protocol)
}

// path returns the local path that URL is, or "".
func (c Config) path() string {
	if path, ok := strings.CutPrefix(c.URL, "file://"); ok {
		return strings.TrimPrefix(path, "localhost")
	}
	if _, err := os.Stat(c.URL); err == nil {
		return c.URL
	}
	if ep, err := transport.NewEndpoint(c.URL); err == nil && ep.Protocol == "file" {
		return c.URL
	}
	return ""
}

func redact(raw string) string {
	if u, err := url.Parse(raw); err == nil {
		return u.Redacted()
	}
	return raw // host:path, which has no place for a password
}

// openRemote takes up what an earlier process fetched.
func (r *Repo) openRemote() error {
	if r.cfg.Dir == "" {
		return fmt.Errorf("repository %s: no directory for its store is named", r.name)
	}
	key := sha256.Sum256([]byte(r.cfg.URL + "\x00" + r.cfg.Branch))
	r.remote.branch = r.cfg.Branch
	r.remote.dir = filepath.Join(r.cfg.Dir, "remote.git")
	r.remote.ref = plumbing.ReferenceName(fmt.Sprintf("refs/muster/%x", key[:8]))
	var err error
	if r.repo, err = r.remote.open(); err != nil {
		return err
	}
	if commit, err := r.fetched(); err == nil {
		r.head = commit.String()
	}
	return nil
}

// open opens the store, making it if there is none that can be opened.
func (m *remote) open() (*gogit.Repository, error) {
	repo, err := gogit.PlainOpen(m.dir)
	if err != nil {
		return m.wipe()
	}
	return repo, nil
}

func (m *remote) wipe() (*gogit.Repository, error) {
	if err := os.RemoveAll(m.dir); err != nil {
		return nil, fmt.Errorf("store of repository %s: %w", m.name, err)
	}
	if err := os.MkdirAll(m.dir, 0o700); err != nil {
		return nil, fmt.Errorf("store of repository %s: %w", m.name, err)
	}
	repo, err := gogit.PlainInit(m.dir, true)
	if err != nil {
		return nil, fmt.Errorf("store of repository %s: %w", m.name, err)
	}
	return repo, nil
}

// fetched returns the head in the store, if it can be read. r.mu is held.
func (r *Repo) fetched() (plumbing.Hash, error) {
	ref, err := r.repo.Reference(r.remote.ref, true)
	if err != nil {
		return plumbing.ZeroHash, err
	}
	_, err = r.commit(ref.Hash())
	return ref.Hash(), err
}

// remoteHead lists the remote's head and fetches it if it is not here.
func (r *Repo) remoteHead(ctx context.Context) (string, error) {
	branch, want, err := r.remote.list(ctx)
	if err != nil {
		return "", err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.repo != nil {
		if have, err := r.fetched(); err == nil && have == want {
			return want.String(), nil
		}
	}
	if packs, err := filepath.Glob(filepath.Join(r.remote.dir, "objects", "pack", "*.pack")); err != nil || len(packs) >= maxPacks {
		if r.repo, err = r.remote.wipe(); err != nil {
			return "", err
		}
	}
	have, err := r.fetch(ctx, branch)
	if err != nil && ctx.Err() == nil {
		r.cfg.Log.Warn("fetch failed; trying with an empty store", "repository", r.name, "err", err)
		if r.repo, err = r.remote.wipe(); err != nil {
			return "", err
		}
		have, err = r.fetch(ctx, branch)
	}
	if err != nil {
		return "", fmt.Errorf("repository %s: fetch branch %q: %w\nhint: %s", r.name, branch.Short(), err, hint(err))
	}
	return have.String(), nil
}

// fetch brings the branch's head into the store. r.mu is held.
func (r *Repo) fetch(ctx context.Context, branch plumbing.ReferenceName) (head plumbing.Hash, err error) {
	defer func() { err = recovered(recover(), err) }()
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	// Opened afresh before and after: what counts is what is on the disk, and
	// go-git remembers objects.
	if r.repo, err = r.remote.open(); err != nil {
		return plumbing.ZeroHash, err
	}
	far := gogit.NewRemote(r.repo.Storer, &config.RemoteConfig{Name: "origin", URLs: []string{r.remote.url}})
	err = far.FetchContext(ctx, &gogit.FetchOptions{
		RefSpecs: []config.RefSpec{config.RefSpec("+" + branch.String() + ":" + r.remote.ref.String())},
		Depth:    1,
		Tags:     gogit.NoTags,
		Force:    true,
	})
	if err != nil && !errors.Is(err, gogit.NoErrAlreadyUpToDate) {
		return plumbing.ZeroHash, err
	}
	if r.repo, err = r.remote.open(); err != nil {
		return plumbing.ZeroHash, err
	}
	return r.fetched()
}

// list asks the remote for the branch and its head.
func (m *remote) list(ctx context.Context) (plumbing.ReferenceName, plumbing.Hash, error) {
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	far := gogit.NewRemote(memory.NewStorage(), &config.RemoteConfig{Name: "origin", URLs: []string{m.url}})
	refs, err := far.ListContext(ctx, &gogit.ListOptions{})
	if err != nil && !errors.Is(err, transport.ErrEmptyRemoteRepository) {
		return "", plumbing.ZeroHash, fmt.Errorf("repository %s: %w\nhint: %s", m.name, err, hint(err))
	}
	byName := map[plumbing.ReferenceName]*plumbing.Reference{}
	var names []string
	for _, ref := range refs {
		byName[ref.Name()] = ref
		if ref.Name().IsBranch() {
			names = append(names, ref.Name().Short())
		}
	}
	name := plumbing.HEAD
	if m.branch != "" {
		name = plumbing.NewBranchReferenceName(m.branch)
	}
	ref := byName[name]
	if ref != nil && ref.Type() == plumbing.SymbolicReference {
		name = ref.Target()
		ref = byName[name]
	}
	if ref == nil {
		return "", plumbing.ZeroHash, noBranch(m.name, name.Short(), names)
	}
	return name, ref.Hash(), nil
}

// hint says what to do about a transport's error.
func hint(err error) string {
	switch {
	case errors.Is(err, transport.ErrAuthenticationRequired), errors.Is(err, transport.ErrAuthorizationFailed):
		return "it wants other credentials: put user and token into the URL, or use ssh with an agent"
	case errors.Is(err, transport.ErrRepositoryNotFound):
		return "check the URL; a private repository is reported like this too"
	case errors.Is(err, context.DeadlineExceeded):
		return "the server did not answer in time; it is tried again"
	}
	return "check the URL and the network; it is tried again"
}
