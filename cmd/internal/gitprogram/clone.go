package gitprogram

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// Clone is a temporary clone of a repository, with what its HEAD has checked out.
type Clone struct {
	// Dir is the work tree.
	Dir  string
	from string
}

// ConflictError says that later commits changed what a revert would take back.
type ConflictError struct {
	Files []string // sorted
}

func (e *ConflictError) Error() string {
	return "later commits have changed the same lines of " + strings.Join(e.Files, ", ")
}

// ErrNothing says that what a commit did is not there any more.
var ErrNothing = errors.New("its changes are already reverted")

// Open clones the repository at dir.
func Open(ctx context.Context, dir string) (*Clone, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	if _, err := exec.LookPath("git"); err != nil {
		return nil, fmt.Errorf("the git program is needed: %w", err)
	}
	temp, err := os.MkdirTemp("", "muster-rollback-")
	if err != nil {
		return nil, err
	}
	c := &Clone{Dir: filepath.Join(temp, "clone"), from: dir}
	if err := c.fill(ctx, temp); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

// Close removes the clone.
func (c *Clone) Close() error { return os.RemoveAll(filepath.Dir(c.Dir)) }

// fill makes the clone, with those settings of the repository that say who
// commits, and how commits are signed.
func (c *Clone) fill(ctx context.Context, temp string) error {
	if _, err := git(ctx, temp, "clone", "--quiet", "--shared", "--no-tags", c.from, c.Dir); err != nil {
		return err
	}
	settings, err := git(ctx, c.from, "config", "--local", "--null", "--get-regexp", `^(user|author|committer|commit|gpg)\.`)
	var none *exec.ExitError
	if errors.As(err, &none) && none.ExitCode() == 1 {
		return nil
	}
	for setting := range strings.SplitSeq(strings.TrimRight(settings, "\x00"), "\x00") {
		if key, value, ok := strings.Cut(setting, "\n"); ok && err == nil {
			_, err = git(ctx, c.Dir, "config", key, value)
		}
	}
	return err
}

// History returns HEAD and the commits before it, newest first and at most limit;
// of a merge it goes on with what was merged into.
func (c *Clone) History(ctx context.Context, limit int) ([]string, error) {
	out, err := git(ctx, c.Dir, "rev-list", "--first-parent", fmt.Sprintf("--max-count=%d", limit), "HEAD")
	return strings.Fields(out), err
}

// Revert commits what takes commit back, with git's own message, and returns the
// new commit. It errs with a ConflictError, or ErrNothing.
func (c *Clone) Revert(ctx context.Context, commit string) (string, error) {
	parents, err := git(ctx, c.Dir, "rev-list", "--parents", "--max-count=1", commit, "--")
	if err != nil {
		return "", err
	}
	args := []string{"revert", "--no-edit", commit}
	if len(strings.Fields(parents)) > 2 { // a merge: back to what was merged into
		args = slices.Insert(args, 2, "--mainline=1")
	}
	if _, err = git(ctx, c.Dir, args...); err == nil {
		return c.head(ctx)
	}
	files, unmerged := git(ctx, c.Dir, "diff", "--name-only", "-z", "--diff-filter=U")
	if names := strings.FieldsFunc(files, func(r rune) bool { return r == 0 }); unmerged == nil && len(names) > 0 {
		slices.Sort(names)
		return "", &ConflictError{Files: names}
	}
	if changed, clean := git(ctx, c.Dir, "status", "--porcelain"); clean == nil && changed == "" {
		return "", ErrNothing
	}
	return "", err
}

func (c *Clone) head(ctx context.Context) (string, error) {
	out, err := git(ctx, c.Dir, "rev-parse", "HEAD")
	return strings.TrimSpace(out), err
}

// Subject returns the first line of HEAD's message.
func (c *Clone) Subject(ctx context.Context) (string, error) {
	out, err := git(ctx, c.Dir, "log", "--max-count=1", "--format=%s")
	return strings.TrimSpace(out), err
}

// Branch reports whether the repository has a branch.
func (c *Clone) Branch(ctx context.Context, name string) bool {
	_, err := git(ctx, c.from, "rev-parse", "--quiet", "--verify", "refs/heads/"+name)
	return err == nil
}

// Remote returns the remote that branches are pushed to: origin, or the first; ""
// if the repository has none.
func (c *Clone) Remote(ctx context.Context) (string, error) {
	out, err := git(ctx, c.from, "remote")
	names := strings.Fields(out)
	switch {
	case err != nil || len(names) == 0:
		return "", err
	case slices.Contains(names, "origin"):
		return "origin", nil
	}
	return names[0], nil
}

// Publish makes HEAD a new branch of the repository.
func (c *Clone) Publish(ctx context.Context, branch string) error {
	_, err := git(ctx, c.from, "fetch", "--quiet", "--no-tags", "--no-write-fetch-head", c.Dir, "HEAD:refs/heads/"+branch)
	return err
}

// git runs the git program in dir and returns what it prints. What it says goes
// into the error.
func git(ctx context.Context, dir string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "git", append([]string{"-c", "core.hooksPath=/dev/null", "-c", "gc.auto=0"}, args...)...) //nolint:gosec // its operands are of whoever calls
	cmd.Dir = dir
	// In a hook or an alias of git, these name another repository.
	cmd.Env = slices.DeleteFunc(append(os.Environ(), "LC_ALL=C"), func(s string) bool {
		name, _, _ := strings.Cut(s, "=")
		return slices.Contains([]string{"GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY", "GIT_COMMON_DIR", "GIT_PREFIX"}, name)
	})
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		return out.String(), fmt.Errorf("git %s: %w: %s", args[0], err, strings.Join(strings.Fields(errs.String()), " "))
	}
	return out.String(), nil
}
