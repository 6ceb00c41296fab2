package git

import (
	"context"
	"fmt"
	"slices"

	"github.com/go-git/go-git/v5/plumbing"

	"github.com/musterhq/muster/schema"
)

// MergeBase returns a newest commit that both given commits come from. It errs
// when there is none, as in a shallow clone that ends before it.
func (r *Repo) MergeBase(ctx context.Context, one, other string) (string, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	base := ""
	err := r.again(ctx, func() (err error) {
		defer func() { err = recovered(recover(), err) }()
		a, err := r.repo.CommitObject(plumbing.NewHash(one))
		if err != nil {
			return err
		}
		b, err := r.repo.CommitObject(plumbing.NewHash(other))
		if err != nil {
			return err
		}
		common, err := a.MergeBase(b)
		if err == nil && len(common) > 0 {
			base = common[0].Hash.String()
		}
		return err
	})
	if err == nil && base == "" {
		err = schema.Hintf("a shallow clone may end before it; git fetch --unshallow, or in a workflow fetch-depth: 0", "they have no common history")
	}
	if err != nil {
		return "", fmt.Errorf("repository %s: where %.10s and %.10s part: %w", r.name, one, other, err)
	}
	return base, nil
}

// Logged is a commit that was a branch's head.
type Logged struct {
	Commit string
	By     schema.Authorship
}

// Commits returns the commits that lead from base, which is not counted, to head, oldest first,
// as they became the head of their branch: of a merge, itself and nothing of what it merges. It
// errs if base was not the head of that branch among the newest 10,000 commits, or when they
// cannot be read.
func (r *Repo) Commits(ctx context.Context, base, head string) ([]Logged, error) {
	var out []Logged
	err := r.reading(ctx, func() error {
		out = nil
		at, end := plumbing.NewHash(head), plumbing.NewHash(base)
		for at != end {
			c, err := r.commit(at)
			switch {
			case err != nil:
				return err
			case len(c.ParentHashes) == 0 || len(out) == maxWalk:
				return schema.Hintf("git log --first-parent lists these; BASE...HEAD begins where both part", "it is not among the commits that were the head of that branch")
			}
			out = append(out, Logged{at.String(), schema.NewAuthorship(c.Author.Name, c.Message, c.Committer.When)})
			at = c.ParentHashes[0]
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("repository %s: from %.10s to %.10s: %w", r.name, base, head, err)
	}
	slices.Reverse(out)
	return out, nil
}
