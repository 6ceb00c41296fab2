package fswatch

import "github.com/fsnotify/fsnotify"

// Watcher watches directories, not what lies in directories below. A nil Watcher watches
// nothing and never reports: for systems without watches left.
type Watcher struct {
	notify  *fsnotify.Watcher
	changes chan struct{} // holds one
	done    chan struct{}
}

// New returns a watcher that reports relevant changes, all if relevant is nil, and that the
// system has lost events. A change is of the file at path, of its content or, when mode is
// set, only of its mode, owner or times. The error is the system's: EMFILE where the user
// has as many instances as it allows.
func New(relevant func(path string, mode bool) bool) (*Watcher, error) {
	notify, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, err
	}
	w := &Watcher{notify: notify, changes: make(chan struct{}, 1), done: make(chan struct{})}
	go w.forward(relevant)
	return w, nil
}

// Add watches a directory. The system forgets it when the directory is gone.
// The error is the system's: ENOENT where it is not there, ENOSPC where the user
// has as many watches as it allows.
func (w *Watcher) Add(dir string) error { return w.notify.Add(dir) }

// Changes holds a signal when something has changed since it was last read.
func (w *Watcher) Changes() <-chan struct{} {
	if w == nil {
		return nil
	}
	return w.changes
}

// Close ends the watches.
func (w *Watcher) Close() error {
	if w == nil {
		return nil
	}
	err := w.notify.Close()
	<-w.done
	return err
}

func (w *Watcher) forward(relevant func(path string, mode bool) bool) {
	defer close(w.done)
	for {
		select {
		case event, ok := <-w.notify.Events:
			if !ok {
				return
			}
			if relevant != nil && !relevant(event.Name, event.Op == fsnotify.Chmod) {
				continue
			}
		case _, ok := <-w.notify.Errors: // events were lost
			if !ok {
				return
			}
		}
		select {
		case w.changes <- struct{}{}:
		default:
		}
	}
}
