package worktree

// Limit makes watches fail with err, as where the system has none left, while
// err returns one.
func (d *Dir) Limit(err func() error) {
	add := d.add
	d.add = func(w *watcher, dir string) error {
		if err := err(); err != nil {
			return err
		}
		return add(w, dir)
	}
}
