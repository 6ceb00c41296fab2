package runtime

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"

	"github.com/musterhq/muster/nodeagent"
	"github.com/musterhq/muster/nodeagent/keeper"
	"github.com/musterhq/muster/schema"
)

// places are the directories of one task, as the machine has them.
type places struct {
	work   string
	tmp    string // below work
	sticky string // "" without
	root   string // the task's root directory, links resolved; "" is the machine's
	top    string // above sticky, and made by the agent
	// With the tasks of its alloc: a directory, what /dev/shm is, and a file that
	// holds the ipc namespace; "" for what is not shared.
	shared, shm, ipc string
}

// able says what this machine lacks that the task cannot be run without. The
// cell knows, and asks only machines that say they have it.
func (r *Runtime) able(t *schema.TaskSpec) error {
	for _, attribute := range schema.IsolationOf(t) {
		if r.attributes[attribute] != "true" {
			return fmt.Errorf("the task needs %s, which this machine does not have", attribute)
		}
	}
	return nil
}

// places finds the directories of the task of a, whose incarnation is in dir.
func (r *Runtime) places(dir string, a *schema.Assignment) (places, error) {
	p := places{work: filepath.Join(filepath.Dir(dir), workDir), top: r.cfg.Dir}
	p.tmp = filepath.Join(p.work, "tmp")
	if a.Job.Task.Sticky.Has() {
		p.sticky = filepath.Join(r.cfg.Dir, nodeagent.StickyPath(a.Task), nodeagent.StickyData)
	}
	if err := r.enter(dir, a, &p); err != nil {
		return p, err
	}
	var err error
	if root := a.Job.Task.Process.Root; root != "" {
		p.root, err = r.findRoot(root)
	}
	return p, err
}

// local returns a with the variables that say where the task finds p.
func (r *Runtime) local(a *schema.Assignment, p places) *schema.Assignment {
	local := map[string]string{}
	if _, sticky, _ := r.inside(p); sticky != "" {
		local[schema.StickyVariable] = sticky
	}
	if p.shared != "" {
		if local[schema.AllocDirVariable] = p.shared; p.root != "" {
			local[schema.AllocDirVariable] = ownShared
		}
	}
	b := *a
	b.Local = local
	return &b
}

// findRoot returns the real path of a task's root directory.
func (r *Runtime) findRoot(root string) (string, error) {
	real, err := filepath.EvalSymlinks(root)
	if err != nil {
		return "", fmt.Errorf("task.process.root: %w: it must be on the machine before the task is", err)
	}
	s, err := os.Stat(real)
	switch {
	case err != nil:
		return "", fmt.Errorf("task.process.root: %w", err)
	case !s.IsDir():
		return "", fmt.Errorf("task.process.root: %s is not a directory", root)
	case slices.ContainsFunc(r.hidden, func(h string) bool { return below(real, h) }):
		return "", fmt.Errorf("task.process.root: %s is hidden from tasks", root)
	}
	return real, nil
}

// make makes the directories that are the task's own, for user u.
func (p places) make(u *keeper.User, q *quotas, limit int64) error {
	if err := errors.Join(own(p.work, u), q.hold(p.work, limit), own(p.tmp, u)); err != nil {
		return err
	}
	if p.sticky == "" {
		return nil
	}
	var err error
	for range 3 { // the end of another task's may take an empty parent away in between
		if err = errors.Join(makeAbove(p.top, p.sticky), own(p.sticky, u)); !errors.Is(err, os.ErrNotExist) {
			break
		}
	}
	return errors.Join(err, q.hold(p.sticky, limit))
}

// makeAbove makes the directories between top and dir. Other users pass through
// them, whatever the umask.
func makeAbove(top, dir string) error {
	parent := filepath.Dir(dir)
	if parent == top {
		return nil
	}
	if err := makeAbove(top, parent); err != nil {
		return err
	}
	err := os.Mkdir(parent, 0o711)
	if errors.Is(err, os.ErrExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return os.Chmod(parent, 0o711)
}

// own makes a directory that is u's alone, unless it is there. What the task has
// put in its place goes: this is done while none of it runs.
func own(dir string, u *keeper.User) error {
	if s, err := os.Lstat(dir); err == nil && !s.IsDir() {
		if err := os.Remove(dir); err != nil {
			return err
		}
	}
	err := os.Mkdir(dir, 0o700)
	if errors.Is(err, os.ErrExist) {
		return nil
	}
	if err == nil && u != nil {
		err = os.Lchown(dir, u.UID, u.GID)
	}
	return err
}

// putFiles writes the files of the task of a into its work directory. An earlier
// incarnation may have put anything there, links to elsewhere too: nothing is
// written through them.
func (r *Runtime) putFiles(work string, a *schema.Assignment, u *keeper.User) error {
	files := a.Job.Task.Files
	if len(files) == 0 {
		return nil
	}
	root, err := os.OpenRoot(work)
	if err != nil {
		return err
	}
	env := a.Environment()
	for _, name := range slices.Sorted(maps.Keys(files)) {
		f := files[name]
		if f.Expand {
			f.Content = schema.Expand(f.Content, env)
		}
		err := putDir(root, path.Dir(name), u)
		if err == nil {
			err = r.clear(root, work, name)
		}
		if err == nil {
			err = putFile(root, name, f, u)
		}
		if err != nil {
			return errors.Join(err, root.Close())
		}
	}
	return root.Close()
}

// staleName is what an earlier incarnation has put in the place of a file, on its way
// out.
const staleName = ".muster-stale"

// clear takes away what is at name in the work directory. A tree that a task has made
// may be of any size and depth: it is moved out, and removed beside all else.
func (r *Runtime) clear(root *os.Root, work, name string) error {
	info, err := root.Lstat(name)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil
	case err != nil:
		return err
	case !info.IsDir() || r.cfg.Discard == nil:
		return root.Remove(name)
	}
	// What has the name already goes first. Neither path has a part that a task has
	// made but the last, which a rename does not follow.
	stale := filepath.Join(work, staleName)
	if err := r.cfg.Discard(stale); err != nil {
		return err
	}
	if err := root.Rename(name, staleName); err != nil {
		return err
	}
	return r.cfg.Discard(stale)
}

func putFile(root *os.Root, name string, file schema.TaskFile, u *keeper.User) error {
	f, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	mode := os.FileMode(0o444)
	if file.Writable {
		mode = 0o644
	}
	_, err = f.WriteString(file.Content)
	if u != nil && err == nil {
		err = f.Chown(u.UID, u.GID)
	}
	return errors.Join(err, f.Chmod(mode), f.Close())
}

// putDir makes a directory of the task's, and those above it.
func putDir(root *os.Root, name string, u *keeper.User) error {
	if name == "." {
		return nil
	}
	if err := putDir(root, path.Dir(name), u); err != nil {
		return err
	}
	if s, err := root.Lstat(name); err == nil {
		if s.IsDir() {
			return nil
		}
		if err := root.Remove(name); err != nil {
			return err
		}
	}
	err := root.Mkdir(name, 0o755)
	if u != nil && err == nil {
		err = root.Lchown(name, u.UID, u.GID)
	}
	return err
}
