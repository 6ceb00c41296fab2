package git

import (
	"os"
	"path/filepath"
	"strings"

	"github.com/musterhq/muster/reconciler/fswatch"
)

// watcher reports when the references of a local repository change. For a remote, and on a
// system without watches left, it never does: changes are found by polling.
type watcher struct {
	repo   *Repo
	files  *fswatch.Watcher // nil: never
	warned bool
}

func (r *Repo) watch() *watcher {
	w := &watcher{repo: r}
	if r.remote != nil {
		return w
	}
	var err error
	if w.files, err = fswatch.New(relevant); err != nil {
		w.warn(err)
	}
	return w
}

func (w *watcher) changes() <-chan struct{} { return w.files.Changes() }

func (w *watcher) close() {
	if err := w.files.Close(); err != nil {
		w.warn(err)
	}
}

func (w *watcher) warn(err error) {
	if !w.warned {
		w.warned = true
		w.repo.cfg.Log.Warn("cannot watch the repository; polling it", "repository", w.repo.name, "every", w.repo.cfg.Poll, "err", err)
	}
}

// relevant reports whether a path is that of a reference, and not another file of a git
// directory or the lock under which a reference is written.
func relevant(path string, mode bool) bool {
	if mode || strings.HasSuffix(path, ".lock") {
		return false
	}
	switch filepath.Base(path) {
	case "HEAD", "packed-refs", "refs":
		return true
	}
	return strings.Contains(path, string(filepath.Separator)+"refs"+string(filepath.Separator))
}

// update watches the directories in which the followed reference can change.
// Those that a branch's name makes come and go.
func (w *watcher) update() {
	if w.files == nil {
		return
	}
	w.repo.mu.Lock()
	l := w.repo.local
	w.repo.mu.Unlock()
	if l == nil {
		return // not a repository any more; polls find out when it is again
	}
	heads := filepath.Join(l.commonDir, "refs", "heads")
	dirs := []string{l.gitDir, l.commonDir, filepath.Dir(heads), heads}
	at := heads
	for part := range strings.SplitSeq(filepath.Dir(w.branch(l)), "/") {
		at = filepath.Join(at, part)
		dirs = append(dirs, at)
	}
	for _, dir := range dirs {
		if err := w.files.Add(dir); err != nil && !os.IsNotExist(err) {
			w.warn(err)
		}
	}
}

// branch returns the followed branch's name, as far as it is known.
func (w *watcher) branch(l *layout) string {
	if w.repo.cfg.Branch != "" {
		return w.repo.cfg.Branch
	}
	head, err := os.ReadFile(filepath.Join(l.gitDir, "HEAD"))
	if err != nil {
		return "" // the look that follows says so
	}
	return strings.TrimPrefix(strings.TrimSpace(string(head)), "ref: refs/heads/")
}
