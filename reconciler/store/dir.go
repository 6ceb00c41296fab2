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
	"strconv"
	"time"

	"github.com/musterhq/muster/reconciler/failpoint"
	"github.com/musterhq/muster/schema"
	"github.com/musterhq/muster/schema/atomicfile"
	"github.com/musterhq/muster/schema/filelock"
)

const (
	lockFile     = "lock"
	identityFile = identityKey + ".json"
)

// dataDir is a data directory that this process holds.
type dataDir struct {
	path string
	lock *filelock.Lock
}

// LockedError refuses a data directory that is in use.
type LockedError struct {
	Dir string
	PID string // of the holder, "" if it is not known
}

// Error names the directory and the holder, and on a second line what to do.
func (e *LockedError) Error() string { return e.Hinted().Error() }

// Hinted takes the two apart.
func (e *LockedError) Hinted() *schema.HintedError {
	holder := "another process"
	if e.PID != "" {
		holder = "process " + e.PID
	}
	return schema.Hintf("stop that process first, or name another directory", "data directory %s is in use by %s", e.Dir, holder)
}

// openDir makes the directory if needed, checks whose it is and locks it.
func openDir(path, cell string) (_ *dataDir, _ identity, err error) {
	defer func() {
		if err != nil && isFull(err) {
			err = schema.Hintf(hint(path, err), "%w", err)
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

// lockFor is how long a held lock is waited for: a child that a master was just forking
// when it was killed has the master's lock until its exec.
const lockFor = 2 * time.Second

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

// lockDir locks the file in it only: the directory itself may be locked for a socket
// that a master has in it, by reconciler/local.
func lockDir(path string) (*dataDir, error) {
	lock, err := filelock.Take(filelock.Config{Dir: path, File: lockFile, Owner: strconv.Itoa(os.Getpid()), Wait: lockFor})
	if by := (*filelock.HeldError)(nil); errors.As(err, &by) {
		return nil, &LockedError{Dir: path, PID: by.Owner}
	}
	if err != nil {
		return nil, fmt.Errorf("data directory %s: %w", path, err)
	}
	return &dataDir{path: path, lock: lock}, nil
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
	failpoint.DirectoryIdentity.Before()
	defer failpoint.DirectoryIdentity.After()
	return atomicfile.Write(filepath.Join(d.path, identityFile), append(data, '\n'), 0o600)
}

// close releases the lock.
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
