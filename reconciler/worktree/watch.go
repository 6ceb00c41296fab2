package worktree

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/musterhq/muster/reconciler/fswatch"
)

// watcher reports when something changes below a directory. It belongs to the goroutine
// that runs Run.
type watcher struct {
	dir   *Dir
	files *fswatch.Watcher // nil: none is to be had
	blind error            // why not all is watched; nil: it is
}

func (d *Dir) watch() *watcher {
	w := &watcher{dir: d}
	if w.files, w.blind = fswatch.New(nil); w.blind != nil {
		w.warn()
	}
	return w
}

func (w *watcher) changes() <-chan struct{} { return w.files.Changes() }

func (w *watcher) close() {
	if err := w.files.Close(); err != nil {
		w.dir.cfg.Log.Warn("close the watches of the work tree", "err", err)
	}
}

// update watches the directories that are there now; the system forgets those
// that are gone.
func (w *watcher) update() {
	if w.files == nil {
		return
	}
	before := w.blind
	if w.blind = w.addAll(); w.blind != nil && before == nil {
		w.warn()
	}
}

// errTooMany says that a directory has more below it than are watched.
var errTooMany = fmt.Errorf("it has more than %d directories", maxDirs)

func (w *watcher) addAll() error {
	root, err := w.dir.root()
	if err != nil {
		return nil //nolint:nilerr // the look that follows says so, and polls find out when it is there again
	}
	n := 0
	return filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil // its parent's watch reports it
		case err != nil:
			return fs.SkipDir // the look says so
		case !d.IsDir():
			return nil
		case path != root && strings.HasPrefix(d.Name(), "."):
			return fs.SkipDir
		}
		if n++; n > maxDirs {
			return errTooMany
		}
		if err := w.dir.add(w, path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	})
}

func (w *watcher) addOne(dir string) error { return w.files.Add(dir) }

func (w *watcher) warn() {
	w.dir.cfg.Log.Warn("cannot watch the work tree; it is read again and again", "every", unwatched, "err", w.blind, "hint", watchHint(w.blind))
}

// watchHint says what to do about a watch that the system refuses.
func watchHint(err error) string {
	switch {
	case errors.Is(err, syscall.ENOSPC):
		return "raise the sysctl fs.inotify.max_user_watches"
	case errors.Is(err, syscall.EMFILE):
		return "raise the sysctl fs.inotify.max_user_instances"
	}
	return "keep the config in a directory of its own"
}

// notes are what the status says of how the directory is followed.
func (w *watcher) notes() []string {
	how := "the work tree " + w.dir.cfg.Dir + " is followed: every save counts, commits do not"
	if w.blind == nil {
		return []string{how}
	}
	return []string{how, fmt.Sprintf("the work tree cannot be watched (%v) and is read every %s; %s", w.blind, unwatched, watchHint(w.blind))}
}
