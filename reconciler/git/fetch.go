package git

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	gogit "github.com/go-git/go-git/v5"
	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/format/packfile"
	"github.com/go-git/go-git/v5/plumbing/object"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp/capability"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp/sideband"
	"github.com/go-git/go-git/v5/storage"
	"github.com/go-git/go-git/v5/storage/memory"

	"github.com/musterhq/muster/reconciler/failpoint"
)

// maxHistory bounds what is taken to learn where a head comes from, in bytes,
// and maxWalk how many commits are looked at.
const (
	maxHistory = 32 << 20
	maxWalk    = 10_000
)

// storeError is trouble with our own disk.
type storeError struct{ err error }

func (e *storeError) Error() string { return fmt.Sprintf("its store here: %v", e.err) }

func (e *storeError) Unwrap() error { return e.err }

// fetching is a commit to be fetched, on top of have if that is not zero.
type fetching struct {
	session session
	refs    *packp.AdvRefs
	want    plumbing.Hash
	asked   plumbing.Hash // that, or a tag of it
	have    plumbing.Hash
}

// fetch brings a commit into the store. What is wrong with the store is repaired
// by another that takes its place once it has the commit: until then what was
// fetched before can be read. r.mu is held.
func (r *Repo) fetch(ctx context.Context, w *wire, f fetching) (err error) {
	m := r.remote
	w.expect(m.maxPack)
	packs, err := filepath.Glob(filepath.Join(m.dir, "objects", "pack", "*.pack"))
	if err != nil {
		return err
	}
	if f.have != plumbing.ZeroHash && len(packs) < maxPacks {
		err = r.into(ctx, m.dir, f)
		if err == nil || w.broken() || ctx.Err() != nil {
			return err
		}
		r.cfg.Log.Warn("fetch failed; trying with an empty store", "repository", r.name, "err", err)
		// The conversation is over for transports that hold one.
		if f.session, err = m.open(ctx, w); err != nil {
			return err
		}
		defer hangUp(f.session)
		if f.refs, err = f.session.AdvertisedReferencesContext(ctx); err != nil {
			return err
		}
		w.expect(m.maxPack)
	}
	f.have = plumbing.ZeroHash
	fresh := m.dir + ".new"
	if err := emptyStore(fresh); err != nil {
		return &storeError{err}
	}
	if err := r.into(ctx, fresh, f); err != nil {
		return errors.Join(err, os.RemoveAll(fresh))
	}
	failpoint.GitReplace.Before()
	err = replace(m.dir, fresh)
	failpoint.GitReplace.After()
	if err != nil {
		return &storeError{err}
	}
	if r.repo, err = gogit.PlainOpen(m.dir); err != nil {
		return &storeError{err}
	}
	return nil
}

func emptyStore(dir string) error {
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	_, err := gogit.PlainInit(dir, true)
	return err
}

// replace moves fresh to dir.
func replace(dir, fresh string) error {
	old := dir + ".old"
	if err := os.RemoveAll(old); err != nil {
		return err
	}
	if err := os.Rename(dir, old); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if err := os.Rename(fresh, dir); err != nil {
		return err
	}
	return os.RemoveAll(old)
}

// into fetches into the store at dir and, if that is this Repo's, opens it
// afresh: what counts is what is on the disk, and go-git remembers objects.
func (r *Repo) into(ctx context.Context, dir string, f fetching) (err error) {
	defer func() { err = recovered(recover(), err) }()
	repo, err := gogit.PlainOpen(dir)
	if err != nil {
		return &storeError{err}
	}
	failpoint.GitFetch.Before()
	err = take(ctx, repo.Storer, f)
	failpoint.GitFetch.After()
	if err != nil {
		left, globErr := filepath.Glob(filepath.Join(dir, "objects", "pack", "tmp_*"))
		for _, path := range left {
			err = errors.Join(err, os.Remove(path))
		}
		return errors.Join(err, globErr)
	}
	before := r.repo
	if r.repo, err = gogit.PlainOpen(dir); err == nil {
		_, err = r.commit(f.want)
	}
	if err == nil {
		err = r.repo.Storer.SetReference(plumbing.NewHashReference(r.remote.ref, f.want))
	}
	if err != nil {
		r.repo = before
		return &storeError{err}
	}
	return nil
}

// take receives a pack with one commit and all that it holds.
func take(ctx context.Context, st storage.Storer, f fetching) error {
	req := packp.NewUploadPackRequestFromCapabilities(f.refs.Capabilities)
	req.Wants = []plumbing.Hash{f.asked}
	if f.refs.Capabilities.Supports(capability.Shallow) {
		req.Depth = packp.DepthCommits(1)
		if err := req.Capabilities.Set(capability.Shallow); err != nil {
			return err
		}
	}
	if f.have != plumbing.ZeroHash {
		var err error
		if req.Shallows, err = st.Shallow(); err != nil {
			return &storeError{err}
		}
		req.Haves = []plumbing.Hash{f.have}
	}
	resp, err := f.session.UploadPack(ctx, req)
	if err != nil {
		return err
	}
	defer hangUp(resp)
	shallows := req.Shallows
	for _, s := range resp.Shallows {
		if !slices.Contains(shallows, s) {
			shallows = append(shallows, s)
		}
	}
	if err := st.SetShallow(shallows); err != nil {
		return &storeError{err}
	}
	return packfile.UpdateObjectStorage(st, packOf(req, resp))
}

// packOf returns the pack in a response.
func packOf(req *packp.UploadPackRequest, resp io.Reader) io.Reader {
	switch {
	case req.Capabilities.Supports(capability.Sideband64k):
		return sideband.NewDemuxer(sideband.Sideband64k, resp)
	case req.Capabilities.Supports(capability.Sideband):
		return sideband.NewDemuxer(sideband.Sideband, resp)
	}
	return resp
}

// descends reports whether the commit want, which is in the store, descends
// from have; true as well if that cannot be known. r.mu is held.
func (r *Repo) descends(ctx context.Context, w *wire, want, have plumbing.Hash) bool {
	c, err := r.commit(want)
	if err != nil || slices.Contains(c.ParentHashes, have) {
		return true
	}
	between, err := r.askBetween(ctx, w, want, have)
	if err != nil {
		r.cfg.Log.Debug("cannot find out whether the history was rewritten", "repository", r.name, "commit", want, "before", have, "err", err)
	}
	return err != nil || follows(between, have)
}

// follows reports whether one of commits is a child of have.
func follows(commits []*object.Commit, have plumbing.Hash) bool {
	return slices.ContainsFunc(commits, func(c *object.Commit) bool { return slices.Contains(c.ParentHashes, have) })
}

// askBetween has the remote send the commits that want comes from, itself
// included, and have does not; none if the remote does not even have the latter.
func (r *Repo) askBetween(ctx context.Context, w *wire, want, have plumbing.Hash) ([]*object.Commit, error) {
	a, err := r.askAbout(ctx, w, want, have)
	return a.between, err
}

// about is what a remote says of a commit.
type about struct {
	want    plumbing.Hash    // the head that it was asked for
	known   bool             // it has the commit
	between []*object.Commit // what the head comes from, and the commit does not
}

// askAbout has the remote send the commits that want comes from, itself included,
// and have does not. Without a want it is the remote's head.
func (r *Repo) askAbout(ctx context.Context, w *wire, want, have plumbing.Hash) (a about, err error) {
	defer func() { err = recovered(recover(), err) }()
	s, err := r.remote.open(ctx, w)
	if err != nil {
		return a, err
	}
	defer hangUp(s)
	refs, err := s.AdvertisedReferencesContext(ctx)
	if err != nil {
		return a, err
	}
	if want == plumbing.ZeroHash {
		if want, err = r.pick(refs); err != nil {
			return a, err
		}
	}
	if a.want = want; want == have {
		a.known = true
		return a, nil
	}
	w.expect(maxHistory)
	req := packp.NewUploadPackRequestFromCapabilities(refs.Capabilities)
	req.Wants, req.Haves = []plumbing.Hash{want}, []plumbing.Hash{have}
	if refs.Capabilities.Supports(capability.Filter) {
		req.Filter = packp.FilterTreeDepth(0) // commits alone
		if err := req.Capabilities.Set(capability.Filter); err != nil {
			return a, err
		}
	}
	resp, err := s.UploadPack(ctx, req)
	if err != nil {
		return a, err
	}
	defer hangUp(resp)
	if a.known = len(resp.ACKs) > 0; !a.known {
		return a, nil
	}
	between := memory.NewStorage()
	err = packfile.UpdateObjectStorage(between, packOf(req, resp))
	if err != nil && !errors.Is(err, packfile.ErrEmptyPackfile) {
		return a, err
	}
	for _, o := range between.Commits {
		c := new(object.Commit)
		if err := c.Decode(o); err != nil {
			return a, err
		}
		a.between = append(a.between, c)
	}
	return a, nil
}

// descendsHere is descends for a local repository, whose history is all here.
func (r *Repo) descendsHere(want, have plumbing.Hash) bool {
	seen, queue := map[plumbing.Hash]bool{want: true}, []plumbing.Hash{want}
	for len(queue) > 0 && len(seen) < maxWalk {
		c, err := r.commit(queue[0])
		if err != nil {
			return true // the end of a shallow clone: it cannot be known
		}
		queue = queue[1:]
		for _, p := range c.ParentHashes {
			if p == have {
				return true
			}
			if !seen[p] {
				seen[p] = true
				queue = append(queue, p)
			}
		}
	}
	return len(queue) > 0
}
