package secrets

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// MaxBytes bounds what one task is given, in bytes: it is memory that no limit of the task
// counts.
const MaxBytes = 1 << 20

// The entries of an incarnation's directory.
const (
	filesDir = "files" // what the task sees
	envDir   = "env"   // what its keeper reads: a file for each variable
)

// Memory is a directory in memory, with one of each incarnation that has secrets.
type Memory struct{ root string }

// User is a numeric user and group.
type User struct{ UID, GID int }

// Given is what an incarnation is given.
type Given struct {
	Owner *User // of the files; nil is the agent's user
	Files []File
	Env   map[string][]byte
}

// File is one that the task finds.
type File struct {
	Path    string // below its directory of secrets
	Mode    fs.FileMode
	Content []byte
}

// bytes is how much memory g takes, in bytes.
func (g *Given) bytes() int {
	n := 0
	for _, f := range g.Files {
		n += len(f.Content)
	}
	for _, v := range g.Env {
		n += len(v)
	}
	return n
}

// places lists where a machine may have a file system in memory, the best first: one that
// only root may write to, one of the user, and one of all.
func places() []string {
	own := filepath.Join("/run/user", strconv.Itoa(os.Geteuid()))
	if os.Geteuid() == 0 {
		own = "/run"
	}
	return []string{own, "/dev/shm"}
}

// OpenMemory finds the directory of that name in memory, or makes it. Others must not be
// able to guess the name before it is there.
func OpenMemory(name string) (*Memory, error) { return openMemory(places(), name) }

func openMemory(dirs []string, name string) (*Memory, error) {
	var errs []error
	for _, dir := range dirs {
		root := filepath.Join(dir, name)
		err := inMemory(dir)
		if err == nil {
			err = own(root)
		}
		if err == nil {
			return &Memory{root}, nil
		}
		errs = append(errs, err)
	}
	return nil, errors.Join(errs...)
}

// inMemory errs unless dir is a file system in memory.
func inMemory(dir string) error {
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil {
		return &fs.PathError{Op: "statfs", Path: dir, Err: err}
	}
	if s.Type != unix.TMPFS_MAGIC && s.Type != unix.RAMFS_MAGIC {
		return fmt.Errorf("%s is not in memory", dir)
	}
	return nil
}

// own makes dir, through which other users pass and in which they see nothing.
func own(dir string) error {
	err := os.Mkdir(dir, 0o711)
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	var s unix.Stat_t
	if err := unix.Lstat(dir, &s); err != nil {
		return &fs.PathError{Op: "lstat", Path: dir, Err: err}
	}
	if s.Mode&unix.S_IFMT != unix.S_IFDIR || int(s.Uid) != os.Geteuid() {
		return fmt.Errorf("%s is no directory of this user", dir)
	}
	return os.Chmod(dir, 0o711) // whatever the umask
}

// Root is the directory that tasks must not see: what is in it is of all of them.
func (m *Memory) Root() string { return m.root }

// Dir returns what there is in memory of the incarnation in dir, there or not.
func (m *Memory) Dir(dir string) string {
	sum := sha256.Sum256([]byte(filepath.Clean(dir)))
	return filepath.Join(m.root, hex.EncodeToString(sum[:16]))
}

// Files returns the directory that the task of a Dir sees, and Env that in which its keeper
// finds variables of its environment.
func Files(of string) string { return filepath.Join(of, filesDir) }

// Env is described with Files.
func Env(of string) string { return filepath.Join(of, envDir) }

// Put makes what the incarnation in dir is given. Nothing may be there yet.
func (m *Memory) Put(dir string, g *Given) error {
	if n := g.bytes(); n > MaxBytes {
		return fmt.Errorf("its secrets have %d bytes: a task can have at most %d", n, MaxBytes)
	}
	of := m.Dir(dir)
	if err := os.RemoveAll(of); err != nil { // of one that was killed while it did this
		return err
	}
	err := m.put(of, g)
	if err != nil {
		err = errors.Join(m.explain(err), os.RemoveAll(of))
	}
	return err
}

// explain says of an error that the memory is full, if it is that.
func (m *Memory) explain(err error) error {
	if errors.Is(err, unix.ENOSPC) {
		return fmt.Errorf("%s has no room for its secrets: %w", filepath.Dir(m.root), err)
	}
	return err
}

func (m *Memory) put(of string, g *Given) error {
	// Its group passes: the task, and nobody else. What it sees is not its own: else it could
	// put links there, for the agent to write through.
	if err := errors.Join(os.Mkdir(of, 0o700), os.Mkdir(Files(of), 0o755), os.Mkdir(Env(of), 0o700)); err != nil {
		return err
	}
	if err := os.Chmod(Files(of), 0o755); err != nil {
		return err
	}
	for name, value := range g.Env {
		if err := os.WriteFile(filepath.Join(Env(of), name), value, 0o600); err != nil {
			return err
		}
	}
	if err := g.write(of); err != nil {
		return err
	}
	if g.Owner == nil {
		return nil
	}
	return errors.Join(os.Lchown(of, -1, g.Owner.GID), os.Chmod(of, 0o710))
}

// Change makes what the task finds, while it runs, what it is given now: each file is the
// old one or the new one for who reads it. Its environment stays. It is no error if the
// incarnation has ended, and nothing of it is there.
func (m *Memory) Change(dir string, g *Given) error {
	if n := g.bytes(); n > MaxBytes {
		return fmt.Errorf("its secrets have %d bytes: a task can have at most %d", n, MaxBytes)
	}
	err := g.write(m.Dir(dir))
	if _, gone := os.Lstat(m.Dir(dir)); errors.Is(gone, fs.ErrNotExist) {
		return nil
	}
	return m.explain(err)
}

// write writes files, each whole.
func (g *Given) write(of string) error {
	root, err := os.OpenRoot(Files(of))
	if err != nil {
		return err
	}
	for _, f := range g.Files {
		if err = g.writeFile(root, &f); err != nil {
			break
		}
	}
	return errors.Join(err, root.Close())
}

// newName is that of a file while it is written.
const newName = ".muster-new"

func (g *Given) writeFile(root *os.Root, f *File) error {
	dir := filepath.Dir(f.Path)
	if dir != "." {
		if err := makeDirs(root, dir); err != nil {
			return err
		}
	}
	temp := filepath.Join(dir, newName)
	if err := root.Remove(temp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	to, err := root.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = to.Write(f.Content)
	if err == nil && g.Owner != nil {
		err = to.Chown(g.Owner.UID, g.Owner.GID)
	}
	if err = errors.Join(err, to.Chmod(f.Mode.Perm()), to.Close()); err != nil {
		return errors.Join(err, root.Remove(temp))
	}
	return root.Rename(temp, f.Path)
}

// makeDirs makes a directory of secrets, and those above it.
func makeDirs(root *os.Root, dir string) error {
	at := ""
	for part := range strings.SplitSeq(dir, "/") {
		at = filepath.Join(at, part)
		err := root.Mkdir(at, 0o755)
		if err == nil {
			err = root.Chmod(at, 0o755)
		}
		if err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	return nil
}

// Remove removes what the incarnation in dir was given. It is no error if that is gone.
func (m *Memory) Remove(dir string) error { return os.RemoveAll(m.Dir(dir)) }

// Keep removes what other incarnations were given than those in dirs.
func (m *Memory) Keep(dirs []string) error {
	held := make(map[string]bool, len(dirs))
	for _, dir := range dirs {
		held[m.Dir(dir)] = true
	}
	list, err := os.ReadDir(m.root)
	errs := []error{err}
	for _, e := range list {
		if name := filepath.Join(m.root, e.Name()); !held[name] {
			errs = append(errs, os.RemoveAll(name))
		}
	}
	return errors.Join(errs...)
}

// Close removes the directory if no incarnation has anything in it.
func (m *Memory) Close() error {
	err := os.Remove(m.root)
	if errors.Is(err, unix.ENOTEMPTY) || errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// Swapped says what is known of swap space to which the kernel may write what is in memory;
// "" without any.
func Swapped() string {
	b, err := os.ReadFile("/proc/swaps")
	if err != nil {
		return ""
	}
	devices := []string{}
	for i, line := range strings.Split(strings.TrimSpace(string(b)), "\n") {
		if fields := strings.Fields(line); i > 0 && len(fields) > 0 && !strings.HasPrefix(fields[0], "/dev/zram") {
			devices = append(devices, fields[0])
		}
	}
	if len(devices) == 0 {
		return ""
	}
	return "swap is on (" + strings.Join(devices, ", ") + "): the kernel may write what tasks have in memory there, their secrets too, unless it is encrypted"
}
