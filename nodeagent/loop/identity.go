package loop

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"syscall"
	"time"
)

// The machine's id is in two files, since it cannot be found out again.
const (
	identityFile = "machine.json"
	identityCopy = "machine-copy.json"
)

// identity is what the agent must remember of itself.
type identity struct {
	// ID tells the machine from all others, whatever their names: it was drawn at
	// random when the state directory was made.
	ID string `json:"id"`
	// Hardware is the machine's, as Config has it, that the id was drawn on; "" if
	// that was not known.
	Hardware string `json:"hardware,omitempty"`
	// Refused says that another agent has the machine's name, as its master said
	// last, or that the directory was copied from another machine: what is in it was
	// assigned to that.
	Refused bool `json:"refused,omitempty"`
	// Boot, Path, Device and Inode say where the directory was when an agent last
	// ran on it.
	Boot   string `json:"boot,omitempty"`
	Path   string `json:"path,omitempty"`
	Device uint64 `json:"device,omitempty"`
	Inode  uint64 `json:"inode,omitempty"`
}

// ErrCopied is in New's error when the state directory is a copy that was made on
// this machine since it was started: an agent would take the tasks of the directory
// that was copied, which may run, for dead ones of its own.
var ErrCopied = errors.New("it is a copy of another state directory")

// at returns i with where the directory is now.
func (i identity) at(dir, boot string) (identity, error) {
	var st syscall.Stat_t
	if err := syscall.Stat(dir, &st); err != nil {
		return i, fmt.Errorf("state directory %s: %w", dir, err)
	}
	i.Boot, i.Path, i.Device, i.Inode = boot, dir, uint64(st.Dev), st.Ino //nolint:unconvert // on other processors it is narrower
	return i, nil
}

// copied reports whether a directory that was at i before is another one now. One
// that was moved is the same, and one whose file system was mounted anew.
func (i identity) copied(now identity) bool {
	return i.Boot != "" && i.Boot == now.Boot && i.Path != now.Path && (i.Device != now.Device || i.Inode != now.Inode)
}

// identify reads who the machine is, or makes it somebody. A directory that was
// copied from another machine makes it somebody else than that.
func (l *Loop) identify() error {
	found, whole, err := l.disk.readIdentity()
	log := l.cfg.Log.With("machine", l.cfg.Machine.Name)
	now, statErr := found.at(l.cfg.Dir, l.cfg.Machine.Boot)
	switch {
	case statErr != nil:
		return statErr
	case err == nil && found.copied(now):
		return fmt.Errorf("state directory %s: %w, %s, whose tasks may run", l.cfg.Dir, ErrCopied, found.Path)
	case err == nil && found.Hardware != "" && l.cfg.Hardware != "" && found.Hardware != l.cfg.Hardware:
		l.identity = identity{ID: rand.Text(), Hardware: l.cfg.Hardware, Refused: true}
		log.Warn("the state directory was copied from another machine: this one gets an id of its own, and starts nothing before a master has welcomed it", "dir", l.cfg.Dir, "was", found.ID, "is", l.identity.ID)
	case err == nil:
		l.identity = found
		if found.Hardware == "" {
			l.identity.Hardware = l.cfg.Hardware
		}
	default:
		l.identity = identity{ID: rand.Text(), Hardware: l.cfg.Hardware}
		if !errors.Is(err, fs.ErrNotExist) {
			log.Error("the machine's id cannot be read, and it gets another: its master takes it for another machine until the name is free", "is", l.identity.ID, "err", err)
		}
	}
	l.identity.Boot, l.identity.Path, l.identity.Device, l.identity.Inode = now.Boot, now.Path, now.Device, now.Inode
	l.life.Refused = l.identity.Refused
	if !whole || l.identity != found {
		l.keepIdentity()
	}
	info := l.Info()
	info.ID = l.identity.ID
	l.info.Store(&info)
	return nil
}

// keepIdentity writes down who the machine is. What the disk refuses is tried again
// with the next connection.
func (l *Loop) keepIdentity() {
	err := l.disk.write(filepath.Join(l.disk.root, identityCopy), l.identity)
	if err == nil {
		err = l.disk.write(filepath.Join(l.disk.root, identityFile), l.identity)
	}
	l.identityUnsaved = err != nil
	if err != nil {
		l.cfg.Log.Error("cannot keep the machine's id", "err", err)
	}
}

// readIdentity errs with fs.ErrNotExist in a directory that has none yet. It is whole
// if both files have it.
func (d *disk) readIdentity() (found identity, whole bool, err error) {
	var all []identity
	var errs []error
	for _, name := range []string{identityFile, identityCopy} {
		var is identity
		switch ok, damage, err := d.read(filepath.Join(d.root, name), &is); {
		case damage != nil:
			errs = append(errs, damage)
		case err != nil:
			errs = append(errs, err)
		case ok && is.ID == "":
			errs = append(errs, fmt.Errorf("%s: no id in it", name))
		case ok:
			all = append(all, is)
		}
	}
	switch {
	case len(all) == 2 && all[0] != all[1]: // it crashed between the two
		all[0].Refused = all[0].Refused || all[1].Refused
		return all[0], false, nil
	case len(all) > 0:
		return all[0], len(all) == 2, nil
	case len(errs) > 0:
		return identity{}, false, errors.Join(errs...)
	}
	return identity{}, false, fs.ErrNotExist
}

// Refused takes note that a master has another agent for this machine: nothing is
// started until one has welcomed this agent. What runs goes on.
func (l *Loop) Refused() error {
	return l.call(context.Background(), func() {
		if l.life.Refused {
			return
		}
		l.cfg.Log.Warn("another agent has the name of this machine: nothing is started here, and what runs goes on", "machine", l.cfg.Machine.Name, "id", l.identity.ID)
		l.life.Refused, l.life.Confirmed, l.identity.Refused = true, time.Time{}, true
		l.keepIdentity()
	})
}

// admitted takes note that a master has welcomed this agent. One that was refused
// knows nothing any more of what it was assigned before.
func (l *Loop) admitted() {
	if l.life.Refused {
		l.life.Refused, l.life.Began, l.identity.Refused = false, time.Now(), false
		l.keepIdentity()
	} else if l.identityUnsaved {
		l.keepIdentity()
	}
}
