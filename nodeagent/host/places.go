package host

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/musterhq/muster/nodeagent"
	"github.com/musterhq/muster/schema"
	"golang.org/x/sys/unix"
)

// Places are the directories of one task, as the machine has them.
type Places struct {
	Work   string
	Tmp    string // below Work
	Layer  string // what a container changes in its image
	Sticky string // "" without
	// Shared is what it shares with the tasks of its alloc, "" without, and IPC what
	// is beside that.
	Shared string
	IPC    SharedIPC
}

// SharedIPC is what /dev/shm is to the tasks of an alloc, and a file that holds their
// ipc namespace.
type SharedIPC struct{ SHM, Namespace string }

// IPCIn returns where the alloc's generation whose directory is gen has them.
func IPCIn(gen string) SharedIPC {
	return SharedIPC{SHM: filepath.Join(gen, shmShared), Namespace: filepath.Join(gen, ipcShared)}
}

// Places finds the directories of the task of a, whose incarnation is in dir.
func (h *Host) Places(dir string, a *schema.Assignment) (Places, error) {
	p := Places{Work: filepath.Join(filepath.Dir(dir), WorkDir)}
	p.Tmp, p.Layer = filepath.Join(p.Work, "tmp"), filepath.Join(filepath.Dir(dir), LayerDir)
	if a.Job.Task.Sticky.Has() {
		p.Sticky = filepath.Join(h.cfg.Dir, nodeagent.StickyPath(a.Task), nodeagent.StickyData)
	}
	if a.Alloc == nil {
		return p, nil
	}
	host := a.Alloc.Of(a.Task.JobName)
	user := dir // the directory of the owner's tasks
	for range 4 {
		user = filepath.Dir(user)
	}
	gen := filepath.Join(user, host.Job, strconv.Itoa(host.Index), strconv.FormatUint(a.Alloc.Generation, 10))
	p.Shared, p.IPC = filepath.Join(gen, SharedDir), IPCIn(gen)
	if s, err := os.Stat(p.Shared); err != nil || !s.IsDir() {
		return p, fmt.Errorf("alloc %s generation %d: %w", host.Short(), a.Alloc.Generation, cmp.Or(err, errors.New("its directory is none")))
	}
	return p, nil
}

// Remains lists the directories that hold what the tasks of the generation whose
// directory gen is have made for themselves, and what those of its alloc share.
func Remains(gen string) []string {
	var names []string
	for _, name := range []string{WorkDir, SharedDir, LayerDir} {
		full := filepath.Join(gen, name)
		// An agent of an earlier release that was killed has left the second.
		names = append(names, full, full+".removed")
	}
	return names
}

// MakePlaces makes the directories that are the task's own, for user u, and holds them
// to a limit in bytes where the disk has quotas; 0 is no limit.
func (h *Host) MakePlaces(p Places, u *User, limit int64) error {
	if err := errors.Join(Own(p.Work, u), h.quotas.hold(p.Work, limit), Own(p.Tmp, u)); err != nil {
		return err
	}
	if p.Sticky == "" {
		return nil
	}
	var err error
	for range 3 { // the end of another task's may take an empty parent away in between
		if err = errors.Join(makeAbove(h.cfg.Dir, p.Sticky), Own(p.Sticky, u)); !errors.Is(err, os.ErrNotExist) {
			break
		}
	}
	return errors.Join(err, h.quotas.hold(p.Sticky, limit))
}

// Directory is how a directory is made: for whom, and with which permissions, as stat(2)
// has them.
type Directory struct {
	Mode  uint32
	Owner User
}

// MakeLayer makes the directory for what a container changes in its image, empty, with
// what becomes its root directory, and holds it to a limit in bytes where the disk has
// quotas.
func (h *Host) MakeLayer(dir string, limit int64, root Directory) error {
	discard := h.cfg.Discard
	if discard == nil {
		discard = os.RemoveAll
	}
	if err := discard(dir); err != nil {
		return err
	}
	if err := errors.Join(os.Mkdir(dir, 0o700), h.quotas.hold(dir, limit)); err != nil {
		return err
	}
	upper, work := filepath.Join(dir, "upper"), filepath.Join(dir, "work")
	return errors.Join(os.Mkdir(upper, 0o700), os.Lchown(upper, root.Owner.UID, root.Owner.GID), unix.Chmod(upper, root.Mode&0o7777), os.Mkdir(work, 0o700))
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

// Own makes a directory that is u's alone, unless it is there. What the task has
// put in its place goes: this is done while none of it runs.
func Own(dir string, u *User) error {
	if s, err := os.Lstat(dir); err == nil && !s.IsDir() {
		if err := os.Remove(dir); err != nil {
			return err
		}
	}
	err := os.Mkdir(dir, 0o700)
	if errors.Is(err, os.ErrExist) {
		// An agent that was killed after it had made it has not given it away.
		if err = nil; u == nil || !isOurs(dir) {
			return nil
		}
	}
	if err == nil && u != nil {
		err = os.Lchown(dir, u.UID, u.GID)
	}
	return err
}

// isOurs reports whether dir is the agent's own user's.
func isOurs(dir string) bool {
	var s unix.Stat_t
	return unix.Lstat(dir, &s) == nil && int(s.Uid) == os.Geteuid()
}

// PutFiles writes the files of the task of a into its work directory. An earlier
// incarnation may have put anything there, links to elsewhere too: nothing is
// written through them.
func (h *Host) PutFiles(work string, a *schema.Assignment, u *User) error {
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
			err = h.clear(root, work, name)
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

// RenewFiles puts the files of the task of a at paths into the work directory of a task
// that runs, each whole, and removes those that it has no more. The task may do anything
// there meanwhile: nothing is written outside.
func (h *Host) RenewFiles(work string, a *schema.Assignment, u *User, paths []string) error {
	root, err := os.OpenRoot(work)
	if err != nil {
		return err
	}
	env := a.Environment()
	for _, name := range paths {
		f, ok := a.Job.Task.Files[name]
		if f.Expand {
			f.Content = schema.Expand(f.Content, env)
		}
		if ok {
			err = h.renewFile(root, work, name, f, u)
		} else {
			err = h.clear(root, work, name)
		}
		if err != nil {
			return errors.Join(fmt.Errorf("%s: %w", name, err), root.Close())
		}
	}
	return root.Close()
}

// newName is a file of the work directory while it is written.
const newName = ".muster-new"

// renewFile replaces a file at once for whoever reads it.
func (h *Host) renewFile(root *os.Root, work, name string, f schema.TaskFile, u *User) error {
	err := putDir(root, path.Dir(name), u)
	if err == nil {
		err = h.clear(root, work, newName)
	}
	if err == nil {
		err = putFile(root, newName, f, u)
	}
	if err != nil {
		return err
	}
	if info, err := root.Lstat(name); err == nil && info.IsDir() {
		if err := h.clear(root, work, name); err != nil {
			return err
		}
	}
	return root.Rename(newName, name)
}

// staleName is what an earlier incarnation has put in the place of a file, on its way
// out.
const staleName = ".muster-stale"

// clear takes away what is at name in the work directory. A tree that a task has made
// may be of any size and depth: it is moved out, and removed beside all else.
func (h *Host) clear(root *os.Root, work, name string) error {
	info, err := root.Lstat(name)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil
	case err != nil:
		return err
	case !info.IsDir() || h.cfg.Discard == nil:
		return root.Remove(name)
	}
	// What has the name already goes first. Neither path has a part that a task has
	// made but the last, which a rename does not follow.
	stale := filepath.Join(work, staleName)
	if err := h.cfg.Discard(stale); err != nil {
		return err
	}
	if err := root.Rename(name, staleName); err != nil {
		return err
	}
	return h.cfg.Discard(stale)
}

func putFile(root *os.Root, name string, file schema.TaskFile, u *User) error {
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
func putDir(root *os.Root, name string, u *User) error {
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
