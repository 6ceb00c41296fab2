package cell

import (
	"context"

	"github.com/musterhq/muster/reconciler/git"
	"github.com/musterhq/muster/reconciler/loop"
	"github.com/musterhq/muster/reconciler/model"
	"github.com/musterhq/muster/reconciler/status"
	"github.com/musterhq/muster/reconciler/worktree"
	"github.com/musterhq/muster/schema/compile"
)

// repository is where a cell's config comes from: the commits of a git
// repository, or the files of a work tree.
type repository interface {
	loop.Source
	// Head looks now and returns the newest commit.
	Head(ctx context.Context) (string, error)
	// Name is what messages call it.
	Name() string
	// Look has Run look now, and returns what it found once Run has reported it.
	Look(ctx context.Context) (model.Seen, error)
	// Standing says how a commit stands to a head.
	Standing(ctx context.Context, head, name string) status.Standing
}

// openRepository opens what cfg names; dir is for the store of a remote, and away says that
// a directory need not be there now. An error is an InputError.
func (cfg *MasterConfig) openRepository(ctx context.Context, dir string, away bool) (repository, error) {
	var r repository
	var err error
	if cfg.Worktree {
		r, err = cfg.openWorktree()
	} else {
		r, err = git.Open(ctx, git.Config{URL: cfg.Repo, Branch: cfg.Branch, Away: away, Auth: cfg.Auth, Dir: dir, Poll: cfg.Poll, Log: cfg.Log})
	}
	if err != nil {
		return nil, &InputError{err}
	}
	return r, nil
}

func (cfg *MasterConfig) openWorktree() (repository, error) {
	switch {
	case git.IsRemote(cfg.Repo):
		return nil, inputError("name a directory, or leave out --worktree to follow its commits", "repository %s has no work tree here", git.Redact(cfg.Repo))
	case cfg.Branch != "":
		return nil, inputError("leave out one of them", "--worktree follows the files that are there, and --branch %s names commits", cfg.Branch)
	case cfg.Auth != git.Auth{}:
		return nil, inputError("leave them out", "credentials are given, but a work tree needs none")
	}
	return worktree.Open(worktree.Config{Dir: cfg.Repo, Read: compile.ReadDir, Poll: cfg.Poll, Log: cfg.Log})
}
