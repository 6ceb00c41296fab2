package git

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/go-git/go-git/v5/config"
)

// Identity returns the name and the address that git would put into a commit in
// the repository at dir; "" for what is not configured.
func Identity(dir string) (name, email string, err error) {
	l, err := discover(dir)
	if err != nil {
		return "", "", err
	}
	repo, err := l.open()
	if err != nil {
		return "", "", err
	}
	c, err := repo.ConfigScoped(config.SystemScope)
	if err != nil {
		return "", "", fmt.Errorf("repository %s: its configuration: %w", dir, err)
	}
	first := func(values ...string) string {
		if i := slices.IndexFunc(values, func(s string) bool { return s != "" }); i >= 0 {
			return values[i]
		}
		return ""
	}
	return first(os.Getenv("GIT_AUTHOR_NAME"), c.Author.Name, c.User.Name),
		first(os.Getenv("GIT_AUTHOR_EMAIL"), c.Author.Email, c.User.Email, os.Getenv("EMAIL")), nil
}

// HooksError says that a repository has hooks of its own, which UseHooks leaves.
type HooksError struct {
	// Where is the setting of core.hooksPath, or the files, that are in the way.
	Where string
}

func (e *HooksError) Error() string { return "the repository has hooks already: " + e.Where }

// UseHooks makes git run the hooks of the directory path, relative to the work
// tree's root, for the repository at dir, and reports whether it did not before.
// It errs with a HooksError when other hooks would no longer run.
func UseHooks(dir, path string) (made bool, err error) {
	l, err := discover(dir)
	if err != nil {
		return false, err
	}
	repo, err := l.open()
	if err != nil {
		return false, err
	}
	local, err := repo.Config()
	if err != nil {
		return false, fmt.Errorf("repository %s: its configuration: %w", dir, err)
	}
	configs := []*config.Config{local}
	for _, scope := range []config.Scope{config.GlobalScope, config.SystemScope} {
		c, err := config.LoadConfig(scope)
		if err != nil {
			return false, fmt.Errorf("the configuration of git: %w", err)
		}
		configs = append(configs, c)
	}
	for _, c := range configs {
		switch was := c.Raw.Section("core").Option("hooksPath"); {
		case was == path:
			return false, nil
		case was != "":
			return false, &HooksError{Where: "core.hooksPath is " + was}
		}
	}
	if found, err := activeHooks(filepath.Join(l.commonDir, "hooks")); err != nil {
		return false, err
	} else if len(found) > 0 {
		return false, &HooksError{Where: strings.Join(found, ", ")}
	}
	return true, appendConfig(filepath.Join(l.commonDir, "config"), fmt.Sprintf("[core]\n\thooksPath = %s\n", path))
}

// activeHooks returns the hooks of a directory that git would run.
func activeHooks(dir string) (found []string, err error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	for _, e := range entries {
		if info, err := os.Stat(filepath.Join(dir, e.Name())); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 && filepath.Ext(e.Name()) != ".sample" {
			found = append(found, filepath.Join(dir, e.Name()))
		}
	}
	return found, err
}

// appendConfig adds text to a file of git's configuration, under the lock that
// git takes. It does not write what is there again: that would lose comments.
func appendConfig(name, text string) (err error) {
	was, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	if len(was) > 0 && was[len(was)-1] != '\n' {
		text = "\n" + text
	}
	lock, err := os.OpenFile(name+".lock", os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644) //nolint:gosec // as git does
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("%s is being changed: %s.lock is there", name, name)
	}
	if err != nil {
		return err
	}
	_, err = lock.WriteString(string(was) + text)
	if err = errors.Join(err, lock.Close()); err == nil {
		err = os.Rename(lock.Name(), name)
	}
	if err != nil {
		return errors.Join(err, os.Remove(lock.Name()))
	}
	return nil
}
