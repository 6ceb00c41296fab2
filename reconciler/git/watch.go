package git

import (
	"os"
	"path/filepath"
	"strings"

	"github.com/fsnotify/fsnotify"
)

// watcher tells when the references of a local repository change. For a
// remote, and where the system has no watches left, it never does: there are
// the polls.
type watcher struct {
	repo   *Repo
	notify *fsnotify.Watcher // nil: never
	out    chan struct{}     // holds one: any number of changes is one look
	done   chan struct{}
	warned bool
}

func (r *Repo) watch() *watcher {
	w := &watcher{repo: r, out: make(chan struct{}, 1), done: make(chan struct{})}
	if r.remote != nil {
		close(w.done)
		return w
	}
	var err error
	if w.notify, err = fsnotify.NewWatcher(); err != nil {
		w.warn(err)
		close(w.done)
		return w
	}
	go w.forward()
	return w
}

func (w *watcher) changes() <-chan struct{} { return w.out }

func (w *watcher) close() {
	if w.notify != nil {
		if err := w.notify.Close(); err != nil {
			w.warn(err)
		}
	}
	<-w.done
}

func (w *watcher) warn(err error) {
	if !w.warned {
		w.warned = true
		w.repo.cfg.Log.Warn("cannot watch the repository; polling it", "repository", w.repo.name, "every", w.repo.cfg.Poll, "err", err)
	}
}

// forward drops what is no change of a reference.
func (w *watcher) forward() {
	defer close(w.done)
	for {
		select {
		case event, ok := <-w.notify.Events:
			if !ok {
				return
			}
			if !relevant(event) {
				continue
			}
		case _, ok := <-w.notify.Errors: // events were lost: look
			if !ok {
				return
			}
		}
		select {
		case w.out <- struct{}{}:
		default:
		}
	}
}

// relevant tells references from the rest of a git directory, and from the
// locks under which they are written.
func relevant(event fsnotify.Event) bool {
	if event.Op == fsnotify.Chmod || strings.HasSuffix(event.Name, ".lock") {
		return false
	}
	switch filepath.Base(event.Name) {
	case "HEAD", "packed-refs", "refs":
		return true
	}
	return strings.Contains(event.Name, string(filepath.Separator)+"refs"+string(filepath.Separator))
}

// update watches the directories in which the followed reference can change.
// Those that a branch's name makes come and go.
func (w *watcher) update() {
	if w.notify == nil {
		return
	}
	w.repo.mu.Lock()
	l := w.repo.local
	w.repo.mu.Unlock()
	if l == nil {
		return // not a repository any more; polls tell when it is again
	}
	heads := filepath.Join(l.commonDir, "refs", "heads")
	dirs := []string{l.gitDir, l.commonDir, filepath.Dir(heads), heads}
	at := heads
	for part := range strings.SplitSeq(filepath.Dir(w.branch(l)), "/") {
		at = filepath.Join(at, part)
		dirs = append(dirs, at)
	}
	for _, dir := range dirs {
		if err := w.notify.Add(dir); err != nil && !os.IsNotExist(err) {
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
