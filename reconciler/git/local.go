package git

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/go-git/go-billy/v5/osfs"
	gogit "github.com/go-git/go-git/v5"
	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/cache"
	"github.com/go-git/go-git/v5/plumbing/storer"
	"github.com/go-git/go-git/v5/storage/filesystem"
	"github.com/go-git/go-git/v5/storage/filesystem/dotgit"

	"github.com/musterhq/muster/schema"
)

// layout is where the parts of a local repository are. Of a linked work tree
// gitDir has HEAD only, and commonDir the rest; else they are the same.
type layout struct {
	path, gitDir, commonDir string
}

// objectCache is for the bases of deltas; what was read is kept in trees.
const objectCache = 16 * cache.MiByte

// discover finds the repository at path, and not above it.
func discover(path string) (*layout, error) {
	if _, err := os.Stat(path); err != nil {
		return nil, schema.Hintf("name the directory of a git repository", "repository %s: %w", path, err)
	}
	l := &layout{path: path, gitDir: filepath.Join(path, ".git")}
	info, err := os.Stat(l.gitDir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		l.gitDir = path // bare, or nothing
	case err != nil:
		return nil, fmt.Errorf("repository %s: %w", path, err)
	case !info.IsDir():
		if l.gitDir, err = pointer(l.gitDir, "gitdir: "); err != nil {
			return nil, fmt.Errorf("repository %s: %w", path, err)
		}
	}
	l.commonDir, err = pointer(filepath.Join(l.gitDir, "commondir"), "")
	if errors.Is(err, fs.ErrNotExist) {
		l.commonDir, err = l.gitDir, nil
	}
	if err != nil {
		return nil, fmt.Errorf("repository %s: %w", path, err)
	}
	for _, part := range []string{filepath.Join(l.gitDir, "HEAD"), filepath.Join(l.commonDir, "objects")} {
		if _, err := os.Stat(part); err != nil {
			return nil, notRepository(path)
		}
	}
	return l, nil
}

// Above returns the directory of git of the repository, with or without a work tree, that
// dir lies in; "" for none.
func Above(dir string) string {
	at, err := filepath.Abs(dir)
	if err != nil {
		return ""
	}
	for ; ; at = filepath.Dir(at) {
		if l, err := discover(at); err == nil {
			return l.gitDir
		}
		if at == filepath.Dir(at) {
			return ""
		}
	}
}

// pointer reads a file that names a directory.
func pointer(file, prefix string) (string, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	dir, ok := strings.CutPrefix(strings.TrimSpace(string(data)), prefix)
	if !ok {
		return "", fmt.Errorf("%s does not begin with %q", file, prefix)
	}
	if !filepath.IsAbs(dir) {
		dir = filepath.Join(filepath.Dir(file), dir)
	}
	return dir, nil
}

func notRepository(path string) error {
	hint := "run `git init` and commit in it, or `muster init` for a new config repository"
	for dir := filepath.Dir(path); ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, ".git")); err == nil {
			hint = fmt.Sprintf("the root of the repository is %s: name that directory", dir)
			break
		}
		if dir == filepath.Dir(dir) {
			break
		}
	}
	return schema.Hintf(hint, "%s is not a git repository", path)
}

// open opens the object store, which nobody here writes to.
func (l *layout) open() (repo *gogit.Repository, err error) {
	defer func() { err = recovered(recover(), err) }()
	dot := dotgit.NewRepositoryFilesystem(osfs.New(l.gitDir), nil)
	if l.commonDir != l.gitDir {
		dot = dotgit.NewRepositoryFilesystem(osfs.New(l.gitDir), osfs.New(l.commonDir))
	}
	s := filesystem.NewStorageWithOptions(dot, cache.NewObjectLRU(objectCache),
		filesystem.Options{AlternatesFS: osfs.New("/")})
	repo, err = gogit.Open(s, nil)
	switch {
	case errors.Is(err, gogit.ErrUnknownExtension), errors.Is(err, gogit.ErrUnsupportedExtensionRepositoryFormatVersion):
		return nil, schema.Hintf("make it with SHA-1 objects and plain references, as `git init` does by default", "repository %s: %w: not supported", l.path, err)
	case err != nil:
		return nil, schema.Hintf(fsckHint(l.path), "repository %s: %w", l.path, err)
	}
	return repo, nil
}

// fsckHint is what to do about a repository that is there and cannot be read.
func fsckHint(path string) string { return fmt.Sprintf("`git -C %s fsck` shows details", path) }

// localHead resolves the branch and reads its commit.
func (r *Repo) localHead() (commit string, err error) {
	defer func() { err = recovered(recover(), err) }()
	name := plumbing.HEAD
	if r.cfg.Branch != "" {
		name = plumbing.NewBranchReferenceName(r.cfg.Branch)
	}
	ref, err := storer.ResolveReference(r.repo.Storer, name)
	if errors.Is(err, plumbing.ErrReferenceNotFound) {
		return "", r.noBranch()
	}
	if err != nil {
		return "", schema.Hintf(fsckHint(r.name), "repository %s: read %s: %w", r.name, name.Short(), err)
	}
	if _, err := r.commit(ref.Hash()); err != nil {
		return "", err
	}
	return ref.Hash().String(), nil
}

// noBranch says why there is no head.
func (r *Repo) noBranch() error {
	branch := r.cfg.Branch
	if ref, err := r.repo.Storer.Reference(plumbing.HEAD); branch == "" && err == nil {
		branch = ref.Target().Short()
	}
	var names []string
	refs, err := r.repo.Branches()
	if err == nil {
		err = refs.ForEach(func(ref *plumbing.Reference) error {
			names = append(names, ref.Name().Short())
			return nil
		})
	}
	if err != nil {
		return fmt.Errorf("repository %s: list branches: %w", r.name, err)
	}
	return noBranch(r.name, branch, names)
}

func noBranch(repo, branch string, names []string) error {
	if len(names) == 0 {
		return schema.Hintf(fmt.Sprintf("commit to branch %q: git add -A && git commit -m 'a cell'", branch), "repository %s is empty: it has no commit", repo)
	}
	slices.Sort(names)
	if branch == "" {
		return schema.Hintf(fmt.Sprintf("its branches: %s; choose one with --branch", strings.Join(names[:min(len(names), 10)], ", ")), "repository %s: its HEAD names no branch that it has", repo)
	}
	more := ""
	if n := len(names) - 10; n > 0 {
		names, more = names[:10], fmt.Sprintf(" and %d more", n)
	}
	return schema.Hintf("its branches: "+strings.Join(names, ", ")+more, "repository %s has no branch %q", repo, branch)
}
