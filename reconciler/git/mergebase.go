package git

import (
	"context"
	"fmt"

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
