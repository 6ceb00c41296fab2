package git

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	gogit "github.com/go-git/go-git/v5"
	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/object"
)

// Init makes an empty repository at dir, which may hold files, with HEAD at
// branch.
func Init(dir, branch string) error {
	_, err := gogit.PlainInitWithOptions(dir, &gogit.PlainInitOptions{
		InitOptions: gogit.InitOptions{DefaultBranch: plumbing.NewBranchReferenceName(branch)},
	})
	if errors.Is(err, gogit.ErrRepositoryAlreadyExists) {
		return fmt.Errorf("init %s: it is a repository already", dir)
	}
	if err != nil {
		return fmt.Errorf("init %s: %w", dir, err)
	}
	return nil
}

// Change is what Commit commits.
type Change struct {
	Message string
	// Files are written into the work tree, by path from its root with
	// slashes; nil removes one.
	Files map[string][]byte
	// All adds everything in the work tree that is new, changed or gone.
	All bool
	// Empty allows a commit that changes nothing: its message is what it is for.
	Empty  bool
	Author string
	Email  string
	When   time.Time
}

// Commit commits to the branch that is checked out at dir and returns the
// commit. It fails if nothing would change.
func Commit(dir string, c Change) (string, error) {
	hash, err := commit(dir, c)
	if errors.Is(err, gogit.ErrEmptyCommit) {
		return "", fmt.Errorf("commit in %s: nothing has changed", dir)
	}
	if err != nil {
		return "", fmt.Errorf("commit in %s: %w", dir, err)
	}
	return hash.String(), nil
}

func commit(dir string, c Change) (plumbing.Hash, error) {
	repo, err := gogit.PlainOpenWithOptions(dir, &gogit.PlainOpenOptions{EnableDotGitCommonDir: true})
	if err != nil {
		return plumbing.ZeroHash, err
	}
	tree, err := repo.Worktree()
	if err != nil {
		return plumbing.ZeroHash, err
	}
	for _, name := range slices.Sorted(maps.Keys(c.Files)) {
		if err := stage(tree, dir, name, c.Files[name]); err != nil {
			return plumbing.ZeroHash, err
		}
	}
	if c.All {
		if err := tree.AddWithOptions(&gogit.AddOptions{All: true}); err != nil {
			return plumbing.ZeroHash, err
		}
	}
	by := &object.Signature{Name: c.Author, Email: c.Email, When: c.When}
	return tree.Commit(c.Message, &gogit.CommitOptions{AllowEmptyCommits: c.Empty, Author: by, Committer: by})
}

// stage writes or removes one file and adds that to the index.
func stage(tree *gogit.Worktree, dir, name string, data []byte) error {
	if !filepath.IsLocal(name) {
		return fmt.Errorf("file %q: want a path within the repository", name)
	}
	path := filepath.Join(dir, filepath.FromSlash(name))
	if data == nil {
		if _, err := tree.Remove(name); err != nil {
			return fmt.Errorf("remove %q: %w", name, err)
		}
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(path, data, 0o644); err != nil {
		return err
	}
	if err := tree.AddWithOptions(&gogit.AddOptions{Path: name, SkipStatus: true}); err != nil {
		return fmt.Errorf("add %q: %w", name, err)
	}
	return nil
}
