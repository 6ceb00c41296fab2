package store

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/schema/atomicfile"
)

const (
	lockFile     = "lock"
	identityFile = identityKey + ".json"
)

// dataDir is a data directory that this process holds.
type dataDir struct {
	path string
	lock *os.File
}

// LockedError refuses a data directory that is in use.
type LockedError struct {
	Dir string
	PID string // of the holder, "" if it is not known
}

// Error names the directory and the holder, and on a second line what to do.
func (e *LockedError) Error() string {
	holder := "another process"
	if e.PID != "" {
		holder = "process " + e.PID
	}
	return fmt.Sprintf("data directory %s is in use by %s\nhint: stop that process first, or name another directory", e.Dir, holder)
}

// openDir makes the directory if needed, checks whose it is and locks it.
func openDir(path, cell string) (_ *dataDir, _ identity, err error) {
	defer func() {
		if err != nil && isFull(err) {
			err = fmt.Errorf("%w\n%s", err, hint(path, err))
		}
	}()
	where := "data directory " + path
	// Before the lock, so that nothing is made in a directory of another
	// cell; and again under it, since two may start at once.
	if _, _, err := readIdentity(path, where, cell); err != nil {
		return nil, identity{}, err
	}
	if err := os.MkdirAll(path, 0o700); err != nil {
		return nil, identity{}, fmt.Errorf("%s: %w", where, err)
	}
	d, err := lockDir(path)
	if err != nil {
		return nil, identity{}, err
	}
	id, found, err := readIdentity(path, where, cell)
	if err == nil && !found {
		id = identity{Cell: cell, ID: newID(), Format: layout}
		err = d.writeIdentity(id)
	}
	if err != nil {
		return nil, identity{}, errors.Join(err, d.close())
	}
	return d, id, nil
}

// A child that a master was just forking when it was killed has the master's
// lock until its exec.
const (
	lockFor   = 2 * time.Second // how long a held lock is waited for
	lockEvery = 10 * time.Millisecond
)

// takeLock takes f's lock; the error is EWOULDBLOCK when somebody has it.
func takeLock(f *os.File) error {
	for since := time.Now(); ; time.Sleep(lockEvery) {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if !errors.Is(err, unix.EWOULDBLOCK) || time.Since(since) > lockFor {
			return err
		}
	}
}

// CellOf returns the cell whose data directory path is. It errs with
// fs.ErrNotExist when path is no data directory yet.
func CellOf(path string) (string, error) {
	name := filepath.Join(path, identityFile)
	data, err := os.ReadFile(name)
	if err != nil {
		return "", fmt.Errorf("data directory %s: %w", path, err)
	}
	var id identity
	if err := json.Unmarshal(data, &id); err != nil {
		return "", fmt.Errorf("%s: %w", name, err)
	}
	return id.Cell, nil
}

func lockDir(path string) (*dataDir, error) {
	name := filepath.Join(path, lockFile)
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("data directory %s: %w", path, err)
	}
	if err := takeLock(f); err != nil {
		defer f.Close()
		if !errors.Is(err, unix.EWOULDBLOCK) {
			return nil, fmt.Errorf("lock %s: %w", name, err)
		}
		// The file may be empty for a moment: the holder writes it after it
		// has the lock.
		pid, err := os.ReadFile(name)
		if err != nil {
			pid = nil
		}
		return nil, &LockedError{Dir: path, PID: strings.TrimSpace(string(pid))}
	}
	d := &dataDir{path: path, lock: f}
	err = f.Truncate(0)
	if err == nil {
		_, err = f.WriteAt(fmt.Appendln(nil, os.Getpid()), 0)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("write %s: %w", name, err), d.close())
	}
	return d, nil
}

// readIdentity reads whose the directory is; found is false when that is not
// written yet.
func readIdentity(path, where, cell string) (id identity, found bool, err error) {
	data, err := os.ReadFile(filepath.Join(path, identityFile))
	if errors.Is(err, fs.ErrNotExist) {
		return identity{}, false, nil
	}
	if err != nil {
		return identity{}, false, fmt.Errorf("%s: %w", where, err)
	}
	id, err = parseIdentity(data, where, cell)
	return id, err == nil, err
}

// writeIdentity writes it durably: a crash leaves no file or the whole file.
func (d *dataDir) writeIdentity(id identity) error {
	data, err := json.Marshal(id)
	if err != nil {
		return fmt.Errorf("identity of cell %q: %w", id.Cell, err)
	}
	return atomicfile.Write(filepath.Join(d.path, identityFile), append(data, '\n'), 0o600)
}

// close releases the lock. The file stays: removing it would let two
// processes lock two files of the same name.
func (d *dataDir) close() error {
	if err := d.lock.Close(); err != nil {
		return fmt.Errorf("unlock %s: %w", d.path, err)
	}
	return nil
}

func newID() string {
	var b [16]byte
	rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}
